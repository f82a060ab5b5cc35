#include "tessera/pipelines/loading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/quote.h"

namespace tessera::pipelines {
namespace {

constexpr std::string_view kModelsWithPlan =
    "FluxTransformer2DModel, Flux2Transformer2DModel, SD3Transformer2DModel, T5EncoderModel, CLIPTextModel, "
    "CLIPTextModelWithProjection, Mistral3ForConditionalGeneration, Qwen3ForCausalLM";

}  // namespace

void RankFaults::add(std::string_view component, const std::vector<std::string>& faults) {
  if (faults.empty()) return;
  faults_.push_back(fmt::format("{}: {}", component, fmt::join(faults, ", ")));
  advice_ += fmt::format("{}--replicate {}", advice_.empty() ? "" : " ", component);
}

void RankFaults::check(int ranks) const {
  if (faults_.empty()) return;
  invalid_argument("{} ranks cannot share out {}; keep such components whole ({}) or take another number",
                   ranks, fmt::join(faults_, "; "), advice_);
}

void Loader::expect_class(std::string_view component, std::initializer_list<std::string_view> classes) const {
  checkpoint::Component found = folder_.require_component(component);
  if (std::ranges::find(classes, found.class_name) != classes.end()) return;
  fail(ErrorCode::kUnimplemented, "{}: the {} class {} is not supported; supported: {}",
       folder_.path().string(), component, quote(found.class_name), fmt::join(classes, ", "));
}

Loader::Loader(const checkpoint::ModelFolder& folder, const std::optional<TensorParallelConfig>& parallel)
    : folder_(folder), parallel_(parallel) {}

nn::ParameterStore::Sharding Loader::sharding(std::string_view component,
                                              std::optional<nn::TensorParallelPlan> plan) const {
  built_.emplace(component);
  if (plan) with_plan_.emplace(component);
  if (!parallel_ || !plan) return {};
  auto named = [&](const std::vector<std::string>& names) {
    return std::ranges::find(names, component) != names.end();
  };
  if (named(parallel_->replicate) || (parallel_->components && !named(*parallel_->components))) return {};
  sharded_.emplace(component);
  return {std::move(*plan), parallel_->mesh->ranks()};
}

void Loader::check_tensor_parallel() const {
  if (!parallel_) return;
  auto check_names = [&](const std::vector<std::string>& names, std::string_view list) {
    for (const std::string& name : names) {
      if (built_.contains(name)) continue;
      invalid_argument("tensor parallel: {} names '{}', which is no component; the components are {}", list,
                       name, fmt::join(built_, ", "));
    }
  };
  check_names(parallel_->replicate, "replicate");
  if (parallel_->components) {
    check_names(*parallel_->components, "components");
    for (const std::string& name : *parallel_->components) {
      if (with_plan_.contains(name)) continue;
      fail(ErrorCode::kUnimplemented,
           "tensor parallel: there is no plan for {}; models that have one: {}; here: {}", name,
           kModelsWithPlan, fmt::join(with_plan_, ", "));
    }
  }
  if (parallel_->mesh->ranks() > 1 && sharded_.empty()) {
    fail(ErrorCode::kUnimplemented,
         "tensor parallel: no component would be shared out; models that have a plan: {}", kModelsWithPlan);
  }
  if (parallel_->vae_on_one_device && parallel_->mesh->ranks_elsewhere > 0)
    invalid_argument("the vae can be on one device only where all ranks are in one process");
  faults_.check(parallel_->mesh->ranks());
}

std::unique_ptr<text::Tokenizer> Loader::tokenizer(std::string_view component) const {
  checkpoint::Component found = folder_.require_component(component);
  return text::load_tokenizer(found.folder, found.class_name);
}

void check_compute_dtype(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16) return;
  fail(ErrorCode::kUnimplemented,
       "computing in {} is not supported; use f32 or bf16 (weights of any float dtype are converted)",
       dtype_name(dtype));
}

TokenBatch tokenize_batch(const text::Tokenizer& tokenizer, std::string_view encoder,
                          const std::vector<std::string>& texts, int length, const text::ChatForm* form) {
  TokenBatch batch;
  batch.shape = Shape{static_cast<std::int64_t>(texts.size()), length};
  for (const std::string& text : texts) {
    text::Encoding encoding = form != nullptr ? text::encode_chat(tokenizer, *form, text, length)
                                              : tokenizer.encode(text, {.max_length = length});
    if (!encoding.lost_text.empty()) {
      log(LogLevel::kWarning, "the prompt is too long for {} ({} tokens); it does not see: {}", encoder,
          length, quote(encoding.lost_text, 400));
    }
    batch.ids.insert(batch.ids.end(), encoding.ids.begin(), encoding.ids.end());
    batch.attention_mask.insert(batch.attention_mask.end(), encoding.attention_mask.begin(),
                                encoding.attention_mask.end());
  }
  return batch;
}

}  // namespace tessera::pipelines
