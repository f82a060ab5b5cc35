#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/pipelines/text_to_image.h"
#include "tests/testing/golden.h"
#include "tests/testing/model_copy.h"

// A pipeline's whole call against what Diffusers recorded.
namespace tessera::testing {

using nlohmann::json;

inline std::vector<std::string> texts(const json& value) {
  return value.is_array() ? value.get<std::vector<std::string>>() : std::vector{value.get<std::string>()};
}

inline pipelines::Arguments arguments_of(const Golden& golden) {
  const json& call = golden.json["call"];
  pipelines::Arguments a;
  a.prompt = texts(call["prompt"]);
  auto optional_texts = [&](const char* key) {
    return call.contains(key) ? std::optional(texts(call[key])) : std::nullopt;
  };
  a.prompt_2 = optional_texts("prompt_2");
  a.negative_prompt = optional_texts("negative_prompt");
  a.negative_prompt_2 = optional_texts("negative_prompt_2");
  a.prompt_3 = optional_texts("prompt_3");
  a.negative_prompt_3 = optional_texts("negative_prompt_3");
  auto get = [&]<typename T>(const char* key, std::optional<T>& out) {
    if (call.contains(key)) out = call[key].get<T>();
  };
  get("height", a.height);
  get("width", a.width);
  get("num_inference_steps", a.num_inference_steps);
  get("sigmas", a.sigmas);
  get("guidance_scale", a.guidance_scale);
  get("true_cfg_scale", a.true_cfg_scale);
  get("max_sequence_length", a.max_sequence_length);
  get("clip_skip", a.clip_skip);
  get("text_encoder_out_layers", a.text_encoder_out_layers);
  get("skip_guidance_layers", a.skip_guidance_layers);
  get("skip_layer_guidance_scale", a.skip_layer_guidance_scale);
  get("skip_layer_guidance_start", a.skip_layer_guidance_start);
  get("skip_layer_guidance_stop", a.skip_layer_guidance_stop);
  a.num_images_per_prompt = call.value("num_images_per_prompt", 1);
  for (const auto& [key, value] : call.items()) {
    static const std::vector<std::string> known{"prompt",
                                                "prompt_2",
                                                "prompt_3",
                                                "negative_prompt",
                                                "negative_prompt_2",
                                                "negative_prompt_3",
                                                "height",
                                                "width",
                                                "num_inference_steps",
                                                "sigmas",
                                                "guidance_scale",
                                                "true_cfg_scale",
                                                "max_sequence_length",
                                                "num_images_per_prompt",
                                                "clip_skip",
                                                "text_encoder_out_layers",
                                                "skip_guidance_layers",
                                                "skip_layer_guidance_scale",
                                                "skip_layer_guidance_start",
                                                "skip_layer_guidance_stop"};
    EXPECT_NE(std::ranges::find(known, key), known.end())
        << "a recorded argument that is not passed on: " << key;
  }
  const json& seed = golden.json["seed"];
  a.seeds = seed.is_array() ? seed.get<std::vector<std::uint64_t>>() : std::vector{seed.get<std::uint64_t>()};
  return a;
}

inline std::vector<float> values(const pipelines::Trace::Entry& entry) {
  return to_f32({"", entry.dtype, entry.shape, entry.bytes, nullptr});
}

// The largest difference, as a part of what it may be: absolutely 1e-6 for noise, 1e-6 of the largest value
// for the schedule, and 1e-4 of it for everything else.
inline double part_of_limit(const std::string& name, const std::vector<float>& mine,
                            const std::vector<float>& reference) {
  bool exact = name == "noise" || name == "timesteps" || name == "sigmas";
  double top = 0;
  for (float v : reference) top = std::max(top, std::abs(static_cast<double>(v)));
  return relative_to_max(mine, reference) * (name == "noise" ? top : 1.0) / (exact ? 1e-6 : 1e-4);
}

// No byte off by more than 1, and 99 % of them equal.
inline void compare_pictures(std::span<const std::byte> mine, std::span<const std::byte> reference,
                             const std::string& where) {
  ASSERT_EQ(mine.size(), reference.size()) << where;
  std::size_t different = 0, far = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    int d = std::abs(static_cast<int>(mine[i]) - static_cast<int>(reference[i]));
    different += d != 0;
    far += d > 1;
  }
  EXPECT_EQ(far, 0U) << where << ": bytes off by more than 1";
  EXPECT_LE(static_cast<double>(different), 0.01 * static_cast<double>(mine.size())) << where;
}

// Every recorded tensor but the modules' (`block.`) and those of the run in bf16 must be in the trace, with
// its shape; ids are equal, numbers near (see above).
inline void compare_f32(const Golden& golden, const pipelines::Trace& trace) {
  std::map<std::string, const checkpoint::TensorView*> recorded;
  for (const checkpoint::TensorView& tensor : golden.tensors.tensors()) recorded[tensor.name] = &tensor;
  const json same = golden.json.value("same_tensors", json::object());
  for (const auto& [name, other] : same.items())
    recorded[name] = golden.tensors.find(other.get<std::string>());
  int compared = 0;
  double worst = 0;
  std::string worst_name;
  for (const auto& [name, reference] : recorded) {
    if (name.starts_with("block.") || name.starts_with("bf16.") || reference == nullptr) continue;
    std::string where = golden.model + "/" + golden.name + " " + name;
    auto found = trace.entries().find(name);
    if (found == trace.entries().end()) {
      ADD_FAILURE() << where << " is not in the trace";
      continue;
    }
    const pipelines::Trace::Entry& entry = found->second;
    ++compared;
    EXPECT_EQ(to_string(entry.shape), to_string(reference->shape)) << where;
    if (name == "image_u8") {
      compare_pictures(entry.bytes, reference->data, where);
    } else if (!dtype_is_float(entry.dtype)) {
      EXPECT_TRUE(std::ranges::equal(entry.bytes, reference->data)) << where;
    } else {
      double part = part_of_limit(name, values(entry), to_f32(*reference));
      EXPECT_LE(part, 1) << where;
      if (part > worst) std::tie(worst, worst_name) = std::pair(part, name);
    }
  }
  EXPECT_GE(compared, 8) << golden.name;
  fmt::print("{}/{}: {} tensors, nearest to its limit: {} at {:.3f} of it\n", golden.model, golden.name,
             compared, worst_name, worst);
}

// Every case of the model, through the pipeline. In bf16 the final latents may be as far from the f32
// reference as Diffusers' own run in bf16 is, and half as far again.
inline void check_parity(const std::filesystem::path& root, const std::string& model, DType dtype) {
  Context context;
  auto load = [&](const std::filesystem::path& folder) {
    return pipelines::load_pipeline(checkpoint::ModelFolder::open(folder.string()), context,
                                    {.dtype = dtype});
  };
  auto plain = load(root / "models" / model);
  for (const std::string& name : golden_cases(root, model)) {
    Golden golden = load_golden(root, model, name);
    std::unique_ptr<pipelines::TextToImage> edited;
    const json changes = golden.json.value("override", json::object());
    if (!changes.empty()) {
      edited = load(edited_model(root / "models" / model, changes,
                                 std::filesystem::path(::testing::TempDir()) / (model + "-" + name)));
    }
    const pipelines::TextToImage* pipeline = edited ? edited.get() : plain.get();
    pipelines::Trace trace;
    pipelines::Hooks hooks;
    hooks.trace = &trace;
    pipelines::Result result = pipeline->generate(arguments_of(golden), hooks);
    if (dtype == DType::kF32) {
      compare_f32(golden, trace);
      continue;
    }
    std::string last = fmt::format("latents_step{}", result.num_inference_steps - 1);
    double distance = relative_rms(values(trace.entries().at(last)), to_f32(golden.at(last)));
    double recorded = golden.json["bf16"]["final_latents"]["relative_rms"];
    EXPECT_LE(distance, 1.5 * recorded + 0.002) << model << "/" << name;
    fmt::print("{}/{} in bf16: {:.4f} from f32; Diffusers' own run {:.4f}\n", model, name, distance,
               recorded);
  }
}

// For tests that need the larger reference set.
class WithReferenceData : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(reference_data())) {
      GTEST_SKIP() << "the larger reference set is not beside the project";
    }
  }
};

}  // namespace tessera::testing
