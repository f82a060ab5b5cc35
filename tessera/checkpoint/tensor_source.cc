#include "tessera/checkpoint/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/quote.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

// What is in the folder in a form that is not read, for the message that nothing was found.
std::string other_forms(const fs::path& folder) {
  std::string found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
    bool weights = extension == ".safetensors" || extension == ".bin" || extension == ".ckpt" ||
                   extension == ".msgpack" || extension == ".gguf";
    if (weights) found += (found.empty() ? "" : ", ") + name;
  }
  return found.empty() ? "" : fmt::format("; there is {}, a form or variant that is not read", found);
}

// A shard's name as the index gives it: a plain file name, so that no index reads outside its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

// Unlike those of std::filesystem, these take a path that cannot be looked at (too long, not allowed) as
// absent.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

}  // namespace

TensorSource::TensorSource(std::string name, std::vector<TensorView> tensors)
    : name_(std::move(name)), tensors_(std::move(tensors)) {
  std::ranges::sort(tensors_, {}, &TensorView::name);
  auto twice = std::ranges::adjacent_find(tensors_, {}, &TensorView::name);
  if (twice != tensors_.end())
    fail(ErrorCode::kDataLoss, "{}: the tensor {} is there twice", name_, quote(twice->name));
}

TensorSource TensorSource::open_file(const fs::path& file) {
  TensorSource source(file.string(), SafetensorsFile(file).tensors());
  source.files_ = {file};
  return source;
}

TensorSource TensorSource::open(const fs::path& folder) {
  if (!is_folder(folder)) {
    fail(ErrorCode::kNotFound, "{} is no folder; the weights of a component were looked for there",
         folder.string());
  }
  for (const char* name :
       {"diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.safetensors",
        "model.safetensors", "model.safetensors.index.json"}) {
    fs::path path = folder / name;
    if (!is_there(path)) continue;
    TensorSource source =
        std::string_view(name).ends_with(".json") ? open_shards(folder, path) : open_file(path);
    source.name_ = folder.string();
    return source;
  }
  fail(ErrorCode::kNotFound,
       "{}: no weights there; looked for diffusion_pytorch_model.safetensors and model.safetensors, whole or "
       "with an index "
       "of shards{}",
       folder.string(), other_forms(folder));
}

TensorSource TensorSource::open_shards(const fs::path& folder, const fs::path& index) {
  nlohmann::json json = read_json_object(index);
  auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) {
    fail(ErrorCode::kDataLoss, "{}: it has no weight_map of tensors to files", index.string());
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      fail(ErrorCode::kDataLoss, "{}: the tensor {} is said to be in {}, which is no file of that folder",
           index.string(), quote(tensor), quote(file.dump()));
    }
    shards[file.get<std::string>()].push_back(tensor);
  }
  std::vector<TensorView> tensors;
  std::vector<fs::path> files;
  std::set<std::string> seen;
  for (const auto& [file, names] : shards) {
    fs::path path = folder / file;
    if (!is_there(path))
      fail(ErrorCode::kNotFound, "{} names {}, which is missing", index.string(), quote(file));
    SafetensorsFile shard(path);
    for (const std::string& name : names) {
      if (shard.find(name) == nullptr) {
        fail(ErrorCode::kDataLoss, "{}: the tensor {} is not in {}", index.string(), quote(name),
             quote(file));
      }
    }
    for (const TensorView& tensor : shard.tensors()) {
      if (!seen.insert(tensor.name).second) {
        fail(ErrorCode::kDataLoss, "{}: the tensor {} is in two shards, one of them {}", index.string(),
             quote(tensor.name), quote(file));
      }
      tensors.push_back(tensor);
    }
    files.push_back(path);
  }
  TensorSource source(folder.string(), std::move(tensors));
  source.files_ = std::move(files);
  return source;
}

const TensorView* TensorSource::find(std::string_view name) const {
  auto it = std::ranges::lower_bound(tensors_, name, {},
                                     [](const TensorView& t) { return std::string_view(t.name); });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

std::vector<std::string> TensorSource::names() const {
  std::vector<std::string> out;
  for (const TensorView& tensor : tensors_) out.push_back(tensor.name);
  return out;
}

std::int64_t TensorSource::stored_bytes() const {
  std::int64_t total = 0;
  for (const TensorView& tensor : tensors_) total += static_cast<std::int64_t>(tensor.data.size());
  return total;
}

}  // namespace tessera::checkpoint
