#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/model_folder.h"
#include "tessera/nn/config.h"
#include "tessera/nn/parameter.h"
#include "tessera/pipelines/residence.h"
#include "tessera/text/chat.h"
#include "tessera/text/tokenizer.h"

// What pipelines do alike when they load a checkpoint.
namespace tessera::pipelines {

// Reads the components of a checkpoint; nothing goes to a device.
class Loader {
 public:
  explicit Loader(const checkpoint::ModelFolder& folder) : folder_(folder) {}

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
    out.store = std::make_unique<nn::ParameterStore>(folder_.source(component));
    out.model = std::make_unique<Model>(config<Config>(component), out.store->root());
    out.module = out.model.get();
    out.store->finish();
    return out;
  }

 private:
  const checkpoint::ModelFolder& folder_;
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
