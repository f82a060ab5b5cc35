#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/safetensors.h"

namespace tessera::checkpoint {

// All tensors of one component of a checkpoint, from one file or from shards. A value: copies are cheap
// enough to make, and share the mapped files.
class TensorSource {
 public:
  TensorSource() = default;
  // Tensors from anywhere (tests, tensors computed by the caller); `name` is used in messages.
  // Throws kDataLoss for a name given twice.
  TensorSource(std::string name, std::vector<TensorView> tensors);

  // Finds and opens the weights in the folder of a component: the first that exists of
  //   diffusion_pytorch_model.safetensors.index.json, diffusion_pytorch_model.safetensors,
  //   model.safetensors, model.safetensors.index.json
  // which is the order in which Diffusers and Transformers prefer them. Throws kNotFound, saying what was
  // looked for and whether weights in another form (.bin, a variant such as fp16) are there. For shards:
  // kDataLoss for an index that is damaged, names a file that is not in its own folder, or a tensor that its
  // shard does not have, and for a tensor in two shards; kNotFound for a missing shard. Files may be symbolic
  // links (those of the Hub cache are).
  static TensorSource open(const std::filesystem::path& folder);
  // One file.
  static TensorSource open_file(const std::filesystem::path& file);

  // The tensor of that name, or nullptr. Valid as long as this object.
  const TensorView* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Ordered by name.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  std::vector<std::string> names() const;
  std::size_t size() const { return tensors_.size(); }
  // Bytes as stored.
  std::int64_t stored_bytes() const;
  // Where the tensors came from, for messages: the path of the folder or file.
  const std::string& name() const { return name_; }
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  static TensorSource open_shards(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::string name_;
  std::vector<std::filesystem::path> files_;
  std::vector<TensorView> tensors_;
};

}  // namespace tessera::checkpoint
