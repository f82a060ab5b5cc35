#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/pipelines/text_to_image.h"
#include "tests/testing/golden.h"

// FLUX.1 against what Diffusers recorded, every tensor of every case.
namespace tessera::pipelines {
namespace {

using nlohmann::json;
using testing::Golden;

std::vector<std::string> texts(const json& value) {
  return value.is_array() ? value.get<std::vector<std::string>>() : std::vector{value.get<std::string>()};
}

Arguments arguments_of(const Golden& golden) {
  const json& call = golden.json["call"];
  Arguments a;
  a.prompt = texts(call["prompt"]);
  auto optional_texts = [&](const char* key) {
    return call.contains(key) ? std::optional(texts(call[key])) : std::nullopt;
  };
  a.prompt_2 = optional_texts("prompt_2");
  a.negative_prompt = optional_texts("negative_prompt");
  a.negative_prompt_2 = optional_texts("negative_prompt_2");
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
  a.num_images_per_prompt = call.value("num_images_per_prompt", 1);
  for (const auto& [key, value] : call.items()) {
    static const std::vector<std::string> known{
        "prompt",         "prompt_2",       "negative_prompt",     "negative_prompt_2",
        "height",         "width",          "num_inference_steps", "sigmas",
        "guidance_scale", "true_cfg_scale", "max_sequence_length", "num_images_per_prompt"};
    EXPECT_NE(std::ranges::find(known, key), known.end())
        << "a recorded argument that is not passed on: " << key;
  }
  const json& seed = golden.json["seed"];
  a.seeds = seed.is_array() ? seed.get<std::vector<std::uint64_t>>() : std::vector{seed.get<std::uint64_t>()};
  return a;
}

std::vector<float> values(const Trace::Entry& entry) {
  return testing::to_f32({"", entry.dtype, entry.shape, entry.bytes, nullptr});
}

// Every tensor that both have.
void compare_f32(const Golden& golden, const Trace& trace) {
  int compared = 0;
  double worst = 0;
  std::string worst_name;
  for (const auto& [name, entry] : trace.entries()) {
    const checkpoint::TensorView* reference = golden.tensors.find(name);
    if (reference == nullptr) continue;
    ++compared;
    std::string where = golden.model + "/" + golden.name + " " + name;
    EXPECT_EQ(to_string(entry.shape), to_string(reference->shape)) << where;
    if (name.find("input_ids") != std::string::npos) {
      EXPECT_TRUE(std::ranges::equal(entry.bytes, reference->data)) << where;
      continue;
    }
    if (name == "image_u8") {
      std::size_t different = 0;
      for (std::size_t i = 0; i < entry.bytes.size(); ++i) {
        int d = std::abs(static_cast<int>(entry.bytes[i]) - static_cast<int>(reference->data[i]));
        EXPECT_LE(d, 1) << where << " byte " << i;
        different += d != 0;
      }
      EXPECT_LE(static_cast<double>(different), 0.01 * static_cast<double>(entry.bytes.size())) << where;
      continue;
    }
    double tolerance = name == "noise" || name == "timesteps" || name == "sigmas" ? 1e-6 : 1e-4;
    double distance = testing::relative_to_max(values(entry), testing::to_f32(*reference));
    EXPECT_LE(distance, tolerance) << where;
    if (distance / tolerance > worst) {
      worst = distance / tolerance;
      worst_name = name;
    }
  }
  EXPECT_GE(compared, 8) << golden.name;
  fmt::print("{}/{}: {} tensors, nearest to its tolerance: {} at {:.3f} of it\n", golden.model, golden.name,
             compared, worst_name, worst);
}

void check(const std::filesystem::path& root, const std::string& model, DType dtype) {
  Context context;
  auto pipeline = load_pipeline(checkpoint::ModelFolder::open((root / "models" / model).string()), context,
                                {.dtype = dtype});
  for (const std::string& name : testing::golden_cases(root, model)) {
    Golden golden = testing::load_golden(root, model, name);
    Trace trace;
    Hooks hooks;
    hooks.trace = &trace;
    Result result = pipeline->generate(arguments_of(golden), hooks);
    if (dtype == DType::kF32) {
      compare_f32(golden, trace);
      continue;
    }
    std::string last = fmt::format("latents_step{}", result.num_inference_steps - 1);
    double distance =
        testing::relative_rms(values(trace.entries().at(last)), testing::to_f32(golden.at(last)));
    double recorded = golden.json["bf16"]["final_latents"]["relative_rms"];
    EXPECT_LE(distance, 1.5 * recorded + 0.002) << model << "/" << name;
    fmt::print("{}/{} in bf16: {:.4f} from f32; Diffusers' own run {:.4f}\n", model, name, distance,
               recorded);
  }
}

TEST(FluxParity, SchnellInF32) { check(testing::compact_data(), "flux1-schnell", DType::kF32); }
TEST(FluxParity, DevInF32) { check(testing::compact_data(), "flux1-dev", DType::kF32); }
TEST(FluxParity, SchnellInBf16) { check(testing::compact_data(), "flux1-schnell", DType::kBF16); }
TEST(FluxParity, DevInBf16) { check(testing::compact_data(), "flux1-dev", DType::kBF16); }

class ReferenceFluxParity : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(testing::reference_data())) {
      GTEST_SKIP() << "the larger reference set is not beside the project";
    }
  }
};

TEST_F(ReferenceFluxParity, SchnellInF32) { check(testing::reference_data(), "flux1-schnell", DType::kF32); }
TEST_F(ReferenceFluxParity, DevInF32) { check(testing::reference_data(), "flux1-dev", DType::kF32); }
TEST_F(ReferenceFluxParity, SchnellInBf16) {
  check(testing::reference_data(), "flux1-schnell", DType::kBF16);
}
TEST_F(ReferenceFluxParity, DevInBf16) { check(testing::reference_data(), "flux1-dev", DType::kBF16); }

}  // namespace
}  // namespace tessera::pipelines
