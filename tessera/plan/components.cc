#include "tessera/plan/components.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/models/autoencoder_kl_flux2.h"
#include "tessera/models/clip_text.h"
#include "tessera/models/flux2_transformer.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/mistral3.h"
#include "tessera/models/qwen3.h"
#include "tessera/models/sd3_transformer.h"
#include "tessera/models/t5_encoder.h"

namespace tessera::plan {
namespace {

constexpr std::int64_t kClipTokens = 77;

class Recorder {
 public:
  // Without a paper the model is built and its weights are counted, for `ranks`.
  Recorder(const ModelFacts& model, const ModelFacts::Component& component, const Request& request, int ranks,
           Context* context, Paper* paper)
      : model_(model),
        component_(component),
        r_(request),
        ranks_(ranks),
        its_context_(context),
        its_paper_(paper) {}

  const ComponentWeights& weights() const { return weights_; }

  ComponentPlan plan() {
    const std::string& kind = component_.class_name;
    if (kind == "CLIPTextModel") {
      clip<models::ClipTextModel>();
    } else if (kind == "CLIPTextModelWithProjection") {
      clip<models::ClipTextModelWithProjection>();
    } else if (kind == "T5EncoderModel") {
      t5();
    } else if (kind == "Mistral3ForConditionalGeneration") {
      decoder<models::Mistral3TextModel, models::Mistral3Config>(std::array{10, 20, 30});
      out_.not_loaded = "layers above the 30th, the head and the vision tower";
    } else if (kind == "Qwen3ForCausalLM") {
      decoder<models::Qwen3TextModel, models::Qwen3Config>(std::array{9, 18, 27});
      out_.not_loaded = "layers above the 27th and the head";
    } else if (kind == "FluxTransformer2DModel") {
      flux();
    } else if (kind == "Flux2Transformer2DModel") {
      flux2();
    } else if (kind == "SD3Transformer2DModel") {
      sd3();
    } else if (kind == "AutoencoderKL") {
      decode<models::AutoencoderKlDecoder, models::AutoencoderKlConfig>();
    } else if (kind == "AutoencoderKLFlux2") {
      decode<models::AutoencoderKlFlux2Decoder, models::AutoencoderKlFlux2Config>();
    } else {
      fail(ErrorCode::kUnimplemented, "{}: a {} cannot be planned", component_.name, kind);
    }
    return std::move(out_);
  }

 private:
  template <typename Config>
  Config config() const {
    return Config::from_json(nn::Config(component_.config, component_.name + " config"));
  }
  bool is_sd3() const { return model_.pipeline_class == "StableDiffusion3Pipeline"; }
  std::int64_t steps() const { return r_.steps.value_or(model_.steps); }
  std::int64_t rows() const { return r_.height / 16; }
  std::int64_t columns() const { return r_.width / 16; }
  std::int64_t text_tokens() const { return r_.max_sequence_length.value_or(is_sd3() ? 256 : 512); }
  // Guidance runs the prompt and the negative prompt as one batch.
  std::int64_t rows_of_batch() const { return is_sd3() ? 2 * r_.batch : r_.batch; }
  Context& context() const { return *its_context_; }
  const graph::MeshPtr& mesh() const { return its_paper_->mesh(); }
  Tensor values(const Shape& shape) const { return its_paper_->tensor(r_.dtype, shape); }
  Tensor numbers() const { return its_paper_->tensor(DType::kF32, {rows_of_batch()}); }

  // How the pipelines would share the weights out.
  template <typename Model, typename Config>
  nn::ParameterStore::Sharding sharding(const Config& its_config) const {
    bool whole = std::ranges::find(r_.replicate, component_.name) != r_.replicate.end();
    if constexpr (requires { Model::tensor_parallel_plan(its_config); }) {
      if (!whole) return {Model::tensor_parallel_plan(its_config), ranks_};
    }
    return {};
  }

  // Records one call of the model and takes over what was compiled.
  template <typename Model, typename Config, typename F>
  void record(std::int64_t calls, F&& call) {
    Config its_config = config<Config>();
    nn::ParameterStore store(nn::ParameterStore::ShapesOnly{}, sharding<Model>(its_config));
    Model model(its_config, store.root());
    weights_ = {0, store.bytes(r_.dtype), store.plan_faults()};
    if constexpr (requires { model.needs("", 0); })
      store.want([&](std::string_view path) { return model.needs(path, needed_); });
    weights_.bytes = store.bytes(r_.dtype);
    weights_.not_loaded_bytes -= weights_.bytes;
    if (its_paper_ == nullptr) return;
    store.place_shapes(mesh(), r_.dtype);
    if (r_.exact) model.compile();
    call(model);
    out_.name = component_.name;
    out_.class_name = component_.class_name;
    out_.weight_bytes = weights_.bytes;
    out_.not_loaded_bytes = weights_.not_loaded_bytes;
    out_.calls = calls;
    out_.programs = its_paper_->take();
    for (const PlannedProgram& p : out_.programs) {
      auto runs = static_cast<double>(p.calls);
      out_.flops += runs * p.flops;
      out_.bytes_accessed += runs * p.bytes;
      out_.reduced_bytes += p.calls * p.reduced_bytes;
      out_.compile_seconds += p.compile_seconds;
      out_.code_bytes += p.memory.code;
      out_.scratch_bytes = std::max(out_.scratch_bytes, p.memory.temp);
      out_.working_bytes = std::max(out_.working_bytes, p.working_bytes);
    }
  }

  template <typename Model>
  void clip() {
    Shape shape{r_.batch, kClipTokens};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.elements()), 1);
    record<Model, models::ClipTextConfig>(is_sd3() ? 2 : 1,
                                          [&](const Model& m) { m.forward(context(), mesh(), ids, shape); });
  }

  void t5() {
    Shape shape{r_.batch, text_tokens()};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.elements()), 1);
    record<models::T5Encoder, models::T5Config>(
        is_sd3() ? 2 : 1, [&](const models::T5Encoder& m) { m.forward(context(), mesh(), ids, shape); });
  }

  template <typename Model, typename Config>
  void decoder(std::array<int, 3> layers) {
    Shape shape{r_.batch, text_tokens()};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.elements()), 1);
    needed_ = layers.back();
    record<Model, Config>(1, [&](const Model& m) { m.forward(context(), mesh(), ids, ids, shape, layers); });
  }

  void flux() {
    record<models::FluxTransformer, models::FluxTransformerConfig>(
        steps(), [&](const models::FluxTransformer& m) {
          const auto& c = m.config();
          nn::RopeTables rope = m.rope_tables(context(), mesh(), text_tokens(), rows(), columns());
          m.forward(values({r_.batch, rows() * columns(), c.in_channels}),
                    values({r_.batch, text_tokens(), c.joint_attention_dim}),
                    values({r_.batch, c.pooled_projection_dim}), numbers(),
                    c.guidance_embeds ? numbers() : Tensor(), rope);
        });
  }

  void flux2() {
    record<models::Flux2Transformer, models::Flux2TransformerConfig>(
        steps(), [&](const models::Flux2Transformer& m) {
          const auto& c = m.config();
          nn::RopeTables rope = m.rope_tables(context(), mesh(), text_tokens(), rows(), columns());
          m.forward(values({r_.batch, rows() * columns(), c.in_channels}),
                    values({r_.batch, text_tokens(), c.joint_attention_dim}), numbers(),
                    c.guidance_embeds ? numbers() : Tensor(), rope);
        });
  }

  void sd3() {
    record<models::Sd3Transformer, models::Sd3TransformerConfig>(
        steps(), [&](const models::Sd3Transformer& m) {
          const auto& c = m.config();
          m.forward(values({rows_of_batch(), c.in_channels, r_.height / 8, r_.width / 8}),
                    values({rows_of_batch(), kClipTokens + text_tokens(), c.joint_attention_dim}),
                    values({rows_of_batch(), c.pooled_projection_dim}), numbers());
        });
  }

  template <typename Model, typename Config>
  void decode() {
    // The one program takes longer to compile than all others together, and convolutions are laid out worse
    // in parts of it.
    if (its_paper_ != nullptr) its_paper_->set_quick(!r_.exact && !r_.as_run);
    record<Model, Config>(1, [&](const Model& m) {
      const auto& c = m.config();
      m.decode(
          values({r_.batch, c.latent_channels, r_.height / c.scale_factor(), r_.width / c.scale_factor()}));
    });
    if (its_paper_ != nullptr) its_paper_->set_quick(false);
    out_.not_loaded = "the encoder";
  }

  const ModelFacts& model_;
  const ModelFacts::Component& component_;
  const Request& r_;
  const int ranks_;
  Context* const its_context_;
  Paper* const its_paper_;
  int needed_ = 0;
  ComponentWeights weights_;
  ComponentPlan out_;
};

}  // namespace

ComponentPlan plan_component(const ModelFacts& model, const ModelFacts::Component& component,
                             const Request& request, Context& context, Paper& paper) {
  return Recorder(model, component, request, paper.mesh()->ranks(), &context, &paper).plan();
}

ComponentWeights weights_of(const ModelFacts& model, const ModelFacts::Component& component,
                            const Request& request, int ranks) {
  Recorder recorder(model, component, request, ranks, nullptr, nullptr);
  recorder.plan();
  return recorder.weights();
}

}  // namespace tessera::plan
