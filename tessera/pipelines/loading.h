#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/model_folder.h"
#include "tessera/nn/config.h"
#include "tessera/nn/parameter.h"
#include "tessera/pipelines/residence.h"
#include "tessera/pipelines/tensor_parallel.h"
#include "tessera/text/chat.h"
#include "tessera/text/tokenizer.h"

// What pipelines do alike when they load a checkpoint.
namespace tessera::pipelines {

// What ranks cannot share out of the components of a model.
class RankFaults {
 public:
  // `faults` as nn::ParameterStore::plan_faults gives them.
  void add(std::string_view component, const std::vector<std::string>& faults);
  // Throws kInvalidArgument that names everything, and what to do.
  void check(int ranks) const;

 private:
  std::vector<std::string> faults_;  // a component's each
  std::string advice_;               // the options that would do without what is at fault
};

// Reads the components of a checkpoint; nothing goes to a device.
class Loader {
 public:
  // Models are built for a rank of `parallel`, if that is given; it outlives this.
  explicit Loader(const checkpoint::ModelFolder& folder,
                  const std::optional<TensorParallelConfig>& parallel = std::nullopt);

  // Throws kNotFound if the component is absent, kUnimplemented if its class is not one of those.
  void expect_class(std::string_view component, std::initializer_list<std::string_view> classes) const;
  std::unique_ptr<text::Tokenizer> tokenizer(std::string_view component) const;
  // What `Config` makes of a component's config.
  template <typename Config>
  Config config(std::string_view component) const {
    nlohmann::json json = folder_.config(component);
    return Config::from_json(nn::Config(json, (folder_.path() / component).string() + " config"));
  }
  // Builds the model from the component's config and checks its tensors.
  template <typename Model, typename Config>
  Loaded<Model> model(std::string_view component) const {
    Loaded<Model> out;
    out.name = component;
    Config its_config = config<Config>(component);
    std::optional<nn::TensorParallelPlan> plan;
    if constexpr (requires { Model::tensor_parallel_plan(its_config); })
      plan = Model::tensor_parallel_plan(its_config);
    out.store =
        std::make_unique<nn::ParameterStore>(folder_.source(component), sharding(component, std::move(plan)));
    out.model = std::make_unique<Model>(its_config, out.store->root());
    out.module = out.model.get();
    faults_.add(out.name, out.store->plan_faults());
    out.store->finish();
    return out;
  }
  // Called when all models are built, before any weight is read. Throws kInvalidArgument that names
  // everything that the ranks cannot share out, and what to do.
  void check_tensor_parallel() const;

 private:
  nn::ParameterStore::Sharding sharding(std::string_view component,
                                        std::optional<nn::TensorParallelPlan> plan) const;

  const checkpoint::ModelFolder& folder_;
  const std::optional<TensorParallelConfig>& parallel_;
  mutable std::set<std::string, std::less<>> built_, with_plan_, sharded_;  // names of components
  mutable RankFaults faults_;
};

// Throws kUnimplemented unless a pipeline can compute in it.
void check_compute_dtype(DType dtype);

// Token ids of a batch of texts, padded and cut to one length: i32 [B, length].
struct TokenBatch {
  Shape shape;
  std::vector<std::int32_t> ids, attention_mask;
};

// Warns, naming what was lost, where a text is cut. `encoder` names the text encoder in that warning; `form`
// is what each text is put into first, null for none.
TokenBatch tokenize_batch(const text::Tokenizer& tokenizer, std::string_view encoder,
                          const std::vector<std::string>& texts, int length,
                          const text::ChatForm* form = nullptr);

}  // namespace tessera::pipelines
