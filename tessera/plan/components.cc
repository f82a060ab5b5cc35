#include "tessera/plan/components.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/pipelines/component_call.h"

namespace tessera::plan {
namespace {

constexpr std::int64_t kClipTokens = 77;

class ShapeInputs : public pipelines::CallInputs {
 public:
  ShapeInputs(Context& context, Paper& paper, DType dtype)
      : context_(context), paper_(paper), dtype_(dtype) {}
  Context& context() const override { return context_; }
  const graph::MeshPtr& mesh() const override { return paper_.mesh(); }
  Tensor values(const Shape& shape) override { return paper_.tensor(dtype_, shape); }
  Tensor numbers(float, std::int64_t batch) override { return paper_.tensor(DType::kF32, {batch}); }
  std::vector<std::int32_t> ids(std::int64_t count, std::int64_t) override {
    return std::vector<std::int32_t>(static_cast<std::size_t>(count), 1);
  }

 private:
  Context& context_;
  Paper& paper_;
  DType dtype_;
};

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
    bool known = false;
    pipelines::for_each_model_class([&]<typename Class>(const Class& c) {
      if (component_.class_name != c.name) return;
      known = true;
      record<typename Class::Model, typename Class::Config>(c.role);
    });
    if (!known)
      fail(ErrorCode::kUnimplemented, "{}: a {} cannot be planned", component_.name, component_.class_name);
    return std::move(out_);
  }

 private:
  template <typename Config>
  Config config() const {
    return Config::from_json(nn::Config(component_.config, component_.name + " config"));
  }
  bool is_sd3() const { return model_.pipeline_class == "StableDiffusion3Pipeline"; }
  // What the call of a component is like: guidance runs the prompt and the negative prompt as one batch, and
  // encodes them one after the other; Stable Diffusion's transformer gets what CLIP says and then what T5
  // says.
  pipelines::CallSizes sizes(pipelines::Role role) const {
    pipelines::CallSizes out{r_.height, r_.width, r_.batch, {}};
    bool transformer = role == pipelines::Role::kTransformer,
         clip = component_.class_name.starts_with("CLIP");
    if (is_sd3() && transformer) out.batch *= 2;
    if (!clip) out.text_tokens = r_.max_sequence_length.value_or(is_sd3() ? 256 : 512);
    if (is_sd3() && transformer) *out.text_tokens += kClipTokens;
    return out;
  }
  std::int64_t calls(pipelines::Role role) const {
    if (role == pipelines::Role::kTransformer) return r_.steps.value_or(model_.steps);
    return is_sd3() && role == pipelines::Role::kTextEncoder ? 2 : 1;
  }

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
  template <typename Model, typename Config>
  void record(pipelines::Role role) {
    Config its_config = config<Config>();
    nn::ParameterStore store(nn::ParameterStore::ShapesOnly{}, sharding<Model>(its_config));
    Model model(its_config, store.root());
    weights_ = {0, store.bytes(r_.dtype), store.plan_faults()};
    pipelines::want_what_is_called(model, store);
    weights_.bytes = store.bytes(r_.dtype);
    weights_.not_loaded_bytes -= weights_.bytes;
    if (its_paper_ == nullptr) return;
    store.place_shapes(its_paper_->mesh(), r_.dtype);
    if (r_.exact) model.compile();
    // A decoder's one program takes longer to compile than all others together, and convolutions are laid out
    // worse in parts of it.
    its_paper_->set_quick(role == pipelines::Role::kDecoder && !r_.exact && !r_.as_run);
    ShapeInputs inputs(*its_context_, *its_paper_, r_.dtype);
    pipelines::prepare_call(model, sizes(role), inputs)();
    its_paper_->set_quick(false);
    out_.name = component_.name;
    out_.class_name = component_.class_name;
    out_.weight_bytes = weights_.bytes;
    out_.not_loaded_bytes = weights_.not_loaded_bytes;
    out_.calls = calls(role);
    out_.not_loaded = not_loaded();
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

  std::string not_loaded() const {
    const std::string& kind = component_.class_name;
    if (kind == "Mistral3ForConditionalGeneration")
      return "layers above the 30th, the head and the vision tower";
    if (kind == "Qwen3ForCausalLM") return "layers above the 27th and the head";
    return kind.starts_with("AutoencoderKL") ? "the encoder" : "";
  }

  const ModelFacts& model_;
  const ModelFacts::Component& component_;
  const Request& r_;
  const int ranks_;
  Context* const its_context_;
  Paper* const its_paper_;
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
