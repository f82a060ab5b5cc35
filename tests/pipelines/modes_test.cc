#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/pipelines/text_to_image.h"
#include "tests/testing/golden.h"
#include "tests/testing/modes.h"
#include "tests/testing/pipeline_parity.h"

// What a pipeline's modes promise beyond their numbers: how often they compile, what they hold, what they
// move.
namespace tessera::pipelines {
namespace {

namespace fs = std::filesystem;

using testing::kWays;
using testing::load;
using testing::name;
using testing::options;
using testing::Way;

fs::path compact(const char* model) { return testing::compact_data() / "models" / model; }
fs::path demo() { return TESSERA_DEMO_MODEL; }

Arguments small_call(std::uint64_t seed = 1) {
  return {.prompt = {"a red fox"}, .height = 64, .width = 64, .num_inference_steps = 2, .seeds = {seed}};
}

std::int64_t made(const Context& context) {
  Statistics s = context.statistics();
  return s.compiles + s.disk_hits;
}

TEST(PipelineModes, OtherPromptsSeedsGuidanceAndStepsCompileNothing) {
  for (Way way : kWays) {
    Context context(options(way));
    auto pipeline = load(compact("flux1-dev"), context, way);
    pipeline->generate(small_call());
    std::int64_t before = made(context);
    Arguments other = small_call(99);
    other.prompt = {"two dogs in the snow, late at night"};
    other.guidance_scale = 7.25;
    other.num_inference_steps = 5;
    Result result = pipeline->generate(other);
    EXPECT_EQ(made(context), before) << name(way);
    EXPECT_EQ(result.num_inference_steps, 5);
    EXPECT_EQ(result.host_transfers_in_loop, 0) << name(way);
  }
}

TEST(PipelineModes, ANewSizeCompilesOnceAndIsKept) {
  for (Way way : {Way::kFused, Way::kCompile, Way::kCompileBlocks}) {
    Context context(options(way));
    auto pipeline = load(compact("flux1-schnell"), context, way);
    Arguments call = small_call();
    Result first = pipeline->generate(call);
    std::int64_t before = made(context);
    call.height = 96;
    pipeline->generate(call);
    std::int64_t with_new_size = made(context);
    EXPECT_GT(with_new_size, before) << name(way);
    pipeline->generate(call);
    call.height = 64;
    Result again = pipeline->generate(call);
    EXPECT_EQ(made(context), with_new_size) << name(way);
    EXPECT_EQ(again.images[0].pixels, first.images[0].pixels) << name(way);
  }
}

TEST(PipelineModes, FusedStepsAreMadeOfTheSameFewPrograms) {
  Context context(options(Way::kFused));
  auto pipeline = load(demo(), context, Way::kFused);
  std::vector<std::int64_t> programs;
  Hooks hooks;
  hooks.on_step = [&](const Step&) {
    programs.push_back(context.statistics().programs);
    return true;
  };
  Result result =
      pipeline->generate({.prompt = {"a red apple"}, .num_inference_steps = 20, .seeds = {7}}, hooks);
  ASSERT_EQ(programs.size(), 20u);
  EXPECT_EQ(programs[19], programs[1]) << "something new after the second step";
  EXPECT_LE(context.statistics().programs, 20);
  EXPECT_EQ(result.host_transfers_in_loop, 0);
}

// The compact transformer with its blocks repeated until there are so many.
struct Deep {
  models::FluxTransformerConfig config;
  std::unique_ptr<nn::ParameterStore> store;
  std::unique_ptr<models::FluxTransformer> model;

  Deep(int blocks, int single_blocks) {
    auto folder = checkpoint::ModelFolder::open(compact("flux1-schnell").string());
    nlohmann::json json = folder.config("transformer");
    config = models::FluxTransformerConfig::from_json(nn::Config(json, "config"));
    checkpoint::TensorSource source = folder.source("transformer");
    std::vector<checkpoint::TensorView> tensors;
    auto repeat = [&](const checkpoint::TensorView& tensor, const std::string& list, std::int64_t have,
                      std::int64_t want) {
      std::size_t dot = tensor.name.find('.', list.size());
      std::int64_t index = std::stoi(tensor.name.substr(list.size(), dot - list.size()));
      for (std::int64_t i = index; i < want; i += have) {
        checkpoint::TensorView copy = tensor;
        copy.name = list + std::to_string(i) + tensor.name.substr(dot);
        tensors.push_back(copy);
      }
    };
    for (const checkpoint::TensorView& tensor : source.tensors()) {
      if (tensor.name.starts_with("transformer_blocks.")) {
        repeat(tensor, "transformer_blocks.", config.num_layers, blocks);
      } else if (tensor.name.starts_with("single_transformer_blocks.")) {
        repeat(tensor, "single_transformer_blocks.", config.num_single_layers, single_blocks);
      } else {
        tensors.push_back(tensor);
      }
    }
    config.num_layers = blocks;
    config.num_single_layers = single_blocks;
    store = std::make_unique<nn::ParameterStore>(checkpoint::TensorSource("deep", std::move(tensors)));
    model = std::make_unique<models::FluxTransformer>(config, store->root());
    store->finish();
  }
};

TEST(PipelineModes, CompiledBlocksDoNotGrowWithTheModel) {
  std::map<int, std::int64_t> programs;
  for (int blocks : {2, 6}) {
    Context context(options(Way::kCompileBlocks));
    Deep deep(blocks, 2 * blocks);
    deep.store->place(context, context.mesh(), DType::kF32);
    deep.model->compile_repeated_blocks({.fullgraph = true});
    auto zeros = [&](const Shape& shape) {
      return context.from_f32(std::vector<float>(static_cast<std::size_t>(shape.elements()), 0.1f), shape,
                              context.mesh());
    };
    const models::FluxTransformerConfig& c = deep.config;
    nn::RopeTables rope = deep.model->rope_tables(context, context.mesh(), 8, 4, 4);
    deep.model
        ->forward(zeros({1, 16, c.in_channels}), zeros({1, 8, c.joint_attention_dim}),
                  zeros({1, c.pooled_projection_dim}), zeros({1}), {}, rope)
        .to_f32();
    programs[blocks] = context.statistics().programs;
  }
  EXPECT_EQ(programs[2], programs[6]);
}

TEST(PipelineModes, ASecondProcessCompilesNothing) {
  fs::path folder = fs::path(::testing::TempDir()) / "tessera-modes-cache";
  fs::remove_all(folder);
  for (Way way : {Way::kEager, Way::kFused}) {
    Result first, second;
    for (Result* result : {&first, &second}) {
      Context::Options with = options(way);
      with.disk_cache = std::make_shared<DiskCache>(DiskCacheOptions{folder});
      Context context(with);
      *result = load(compact("flux1-schnell"), context, way)->generate(small_call());
      if (result == &second) {
        EXPECT_EQ(context.statistics().compiles, 0) << name(way);
        EXPECT_EQ(context.statistics().disk_hits, context.statistics().programs) << name(way);
      }
    }
    EXPECT_EQ(first.images[0].pixels, second.images[0].pixels) << name(way);
  }
  fs::remove_all(folder);
}

// Every case in every way: within the tolerance of what Diffusers recorded, and as near to strict eager.
void check_agreement(const fs::path& root, const std::string& model, const std::vector<std::string>& cases) {
  std::vector<testing::Golden> goldens;
  for (const std::string& name : cases) goldens.push_back(testing::load_golden(root, model, name));
  std::vector<Trace> eager(goldens.size());
  for (Way way : {Way::kEager, Way::kFused, Way::kCompile, Way::kCompileBlocks}) {
    SCOPED_TRACE(name(way));
    Context context(options(way));
    auto plain = load(root / "models" / model, context, way);
    for (std::size_t i = 0; i < goldens.size(); ++i) {
      std::unique_ptr<TextToImage> edited;
      const nlohmann::json changes = goldens[i].json.value("override", nlohmann::json::object());
      if (!changes.empty()) {
        fs::path copy = fs::path(::testing::TempDir()) / ("modes-" + model + "-" + goldens[i].name);
        edited = load(testing::edited_model(root / "models" / model, changes, copy), context, way);
      }
      const auto& pipeline = edited ? edited : plain;
      Trace trace;
      Hooks hooks;
      hooks.trace = &trace;
      pipeline->generate(testing::arguments_of(goldens[i]), hooks);
      if (way == Way::kEager) {
        eager[i] = std::move(trace);
        continue;
      }
      testing::compare_f32(goldens[i], trace);
      for (const auto& [tensor, entry] : trace.entries()) {
        const Trace::Entry& wanted = eager[i].entries().at(tensor);
        std::string where = goldens[i].name + " " + tensor;
        if (tensor == "image_u8") {
          testing::compare_pictures(entry.bytes, wanted.bytes, where);
        } else if (!dtype_is_float(entry.dtype)) {
          EXPECT_EQ(entry.bytes, wanted.bytes) << where;
        } else {
          EXPECT_LE(testing::relative_to_max(testing::values(entry), testing::values(wanted)), 1e-4) << where;
        }
      }
    }
  }
}

void check_basic(const std::string& model) { check_agreement(testing::compact_data(), model, {"basic"}); }
void check_all(const fs::path& root, const std::string& model) {
  check_agreement(root, model, testing::golden_cases(root, model));
}

TEST(ModesAgree, Flux1Schnell) { check_basic("flux1-schnell"); }
TEST(ModesAgree, Sd35Medium) { check_basic("sd35-medium"); }
TEST(ModesAgree, Flux2Dev) { check_basic("flux2-dev"); }

TEST(SlowModesAgree, Flux1Schnell) { check_all(testing::compact_data(), "flux1-schnell"); }
TEST(SlowModesAgree, Flux1Dev) { check_all(testing::compact_data(), "flux1-dev"); }
TEST(SlowModesAgree, Sd35Medium) { check_all(testing::compact_data(), "sd35-medium"); }
TEST(SlowModesAgree, Sd35Large) { check_all(testing::compact_data(), "sd35-large"); }
TEST(SlowModesAgree, Flux2Dev) { check_all(testing::compact_data(), "flux2-dev"); }

class SlowReferenceModesAgree : public testing::WithReferenceData {};

TEST_F(SlowReferenceModesAgree, Flux1Schnell) { check_all(testing::reference_data(), "flux1-schnell"); }
TEST_F(SlowReferenceModesAgree, Flux1Dev) { check_all(testing::reference_data(), "flux1-dev"); }
TEST_F(SlowReferenceModesAgree, Sd35Medium) { check_all(testing::reference_data(), "sd35-medium"); }
TEST_F(SlowReferenceModesAgree, Sd35Large) { check_all(testing::reference_data(), "sd35-large"); }
TEST_F(SlowReferenceModesAgree, Flux2Dev) { check_all(testing::reference_data(), "flux2-dev"); }

TEST(ModelOffload, IsBitEqualAndFitsWhereTheWholeDoesNot) {
  Arguments call{.prompt = {"a red apple"}, .seeds = {7}};
  Context plain(options(Way::kEager));
  auto resident = load(demo(), plain, Way::kEager);
  Result wanted = resident->generate(call);
  std::int64_t whole = plain.memory(*plain.mesh()).peak();
  for (Way way : kWays) {
    Context::Options limited = options(way);
    limited.memory_limit = whole * 7 / 10;
    Context context(limited);
    auto pipeline = load(demo(), context, way);
    pipeline->enable_model_cpu_offload(DeviceName{"cpu", 0});
    Result result = pipeline->generate(call);
    EXPECT_EQ(result.images[0].pixels, wanted.images[0].pixels) << name(way);
    EXPECT_EQ(result.host_transfers_in_loop, 0) << name(way);
    EXPECT_LE(context.memory(*context.mesh()).peak(), *limited.memory_limit);
    EXPECT_LT(context.memory(*context.mesh()).in_use(), whole / 100) << "something stayed on the device";
    // And without offload it does not fit, which leaves nothing behind.
    try {
      pipeline->to({"cpu", 0});
      pipeline->generate(call);
      ADD_FAILURE() << "it did fit";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kOutOfMemory);
      EXPECT_NE(std::string(e.what()).find("model offload"), std::string::npos) << e.what();
    }
  }
}

TEST(ModelOffload, TakesTheFirstAccelerator) {
  // A CPU served under an accelerator's name.
  auto plugins = std::make_shared<pjrt::PluginRegistry>();
  plugins->register_plugin("tpu", *plugins->find("cpu"));
  Context::Options with = options(Way::kEager);
  with.plugins = plugins;
  Context context(with);
  EXPECT_EQ(context.first_accelerator()->name, "tpu");
  auto pipeline = load(compact("flux1-schnell"), context, Way::kEager);
  pipeline->enable_model_cpu_offload();
  EXPECT_EQ(pipeline->mesh()->device, "tpu");
  EXPECT_EQ(pipeline->mesh()->platform, "cpu");
  pipeline->generate(small_call());
}

TEST(PipelineThreads, EightAtOnceDrawWhatTheyDrawAlone) {
  for (Way way : {Way::kEager, Way::kFused}) {
    Context context(options(way));
    auto pipeline = load(compact("flux1-schnell"), context, way);
    std::vector<std::vector<std::uint8_t>> alone(8), together(8);
    for (std::uint64_t i = 0; i < 8; ++i) alone[i] = pipeline->generate(small_call(i)).images[0].pixels;
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] { together[i] = pipeline->generate(small_call(i)).images[0].pixels; });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(together[i], alone[i]) << name(way) << " " << i;
    EXPECT_NE(alone[0], alone[1]);
  }
}

TEST(PipelineModules, AreNamedInTheErrorForOneThatIsNotThere) {
  Context context(options(Way::kEager));
  auto pipeline = load(compact("flux1-schnell"), context, Way::kEager);
  try {
    pipeline->module("unet");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "FluxPipeline has no component 'unet'; its components are text_encoder, text_encoder_2, "
              "transformer, vae");
  }
  EXPECT_THROW(pipeline->module("vae").compile_repeated_blocks(), Error);
}

}  // namespace
}  // namespace tessera::pipelines
