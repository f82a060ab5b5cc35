#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/runtime/tensor.h"

namespace tessera::pipelines {

// Tensors of a run by name, as the reference data names them: text_encoder.input_ids, prompt_embeds, noise,
// latents_init, timesteps, sigmas, transformer_in_step0, transformer_out_step0, latents_step0, ..., vae_in,
// vae_out, image_u8. Floating-point tensors are kept in f32.
class Trace {
 public:
  struct Entry {
    DType dtype = DType::kF32;
    Shape shape;
    std::vector<std::byte> bytes;
  };

  void add(std::string name, const Tensor& tensor);
  void add_f32(std::string name, const Shape& shape, std::span<const float> values);
  void add_i32(std::string name, const Shape& shape, std::span<const std::int32_t> values);
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Writes them all into a safetensors file.
  void write(const std::filesystem::path& path) const;

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace tessera::pipelines
