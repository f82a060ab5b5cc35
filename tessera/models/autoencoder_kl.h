#pragma once

#include <memory>
#include <vector>

#include "tessera/nn/config.h"
#include "tessera/nn/layers.h"
#include "tessera/nn/module.h"

namespace tessera::models {

struct AutoencoderKlConfig {
  std::int64_t latent_channels = 4, out_channels = 3, layers_per_block = 1, norm_num_groups = 32;
  std::vector<std::int64_t> block_out_channels{64};
  std::vector<std::int64_t> decoder_block_out_channels;  // if the decoder has others; else empty
  double scaling_factor = 0.18215, shift_factor = 0;
  bool use_post_quant_conv = true, mid_block_add_attention = true;

  const std::vector<std::int64_t>& decoder_channels() const {
    return decoder_block_out_channels.empty() ? block_out_channels : decoder_block_out_channels;
  }
  // Pixels a latent stands for, along each side.
  std::int64_t scale_factor() const { return std::int64_t{1} << (block_out_channels.size() - 1); }
  static AutoencoderKlConfig from_json(const nn::Config& config);
  // The config over these values as defaults.
  void read(const nn::Config& config);
};

// The decoder of Diffusers' AutoencoderKL. The encoder's tensors are left alone.
class AutoencoderKlDecoder : public nn::Module {
 public:
  AutoencoderKlDecoder(const AutoencoderKlConfig& config, const nn::Scope& scope,
                       std::string class_name = "AutoencoderKL");
  ~AutoencoderKlDecoder();
  const AutoencoderKlConfig& config() const { return config_; }
  // z [N, latent_channels, h, w], already scaled and shifted -> [N, out_channels, h * scale_factor, w *
  // scale_factor], about [-1, 1]. Names given to the observer: "post_quant_conv", "conv_in",
  // "mid_block.attentions.0", "mid_block", "up_blocks.0", ..., "conv_norm_out", "conv_out".
  Tensor decode(const Tensor& z, const nn::Observer& observe = {}) const;

 private:
  Tensor run(const Tensor& z, const nn::Observer& observe) const;

  struct ResnetBlock;
  struct AttentionBlock;
  struct UpBlock;
  AutoencoderKlConfig config_;
  std::unique_ptr<nn::Conv2d> post_quant_conv_, conv_in_, conv_out_;
  std::vector<ResnetBlock> mid_resnets_;
  std::unique_ptr<AttentionBlock> mid_attention_;
  std::vector<UpBlock> up_blocks_;
  std::unique_ptr<nn::GroupNorm> conv_norm_out_;
};

}  // namespace tessera::models
