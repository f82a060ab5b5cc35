#include <gtest/gtest.h>

#include <thread>

#include "tessera/base/error.h"
#include "tessera/kernels/registry.h"
#include "tessera/models/flux2_transformer.h"
#include "tessera/models/flux_transformer.h"
#include "tessera/models/sd3_transformer.h"
#include "tessera/pipelines/text_to_image.h"
#include "tessera/runtime/pending.h"
#include "tests/testing/modes.h"
#include "tests/testing/random_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/small_call.h"

// Pipelines that are split over several devices, against the same on one.
namespace tessera::pipelines {
namespace {

namespace fs = std::filesystem;

using testing::compact;
using testing::expect_same;
using testing::mesh_of;
using testing::name;
using testing::small_call;
using testing::traced;
using testing::Way;
using testing::with_devices;

void compare_with_one_device(const fs::path& model, std::initializer_list<int> ranks,
                             std::initializer_list<Way> ways) {
  Context one;
  Trace expected = traced(*testing::load(model, one, Way::kEager));
  for (Way way : ways) {
    Context context(with_devices(*std::prev(ranks.end()), testing::options(way)));
    for (int n : ranks) {
      auto pipeline =
          testing::load(model, context, way, {.tensor_parallel = TensorParallelConfig{mesh_of(context, n)}});
      expect_same(traced(*pipeline), expected,
                  fmt::format("{} {} N={}", model.filename().string(), name(way), n));
    }
  }
}

constexpr std::initializer_list<Way> kModes{Way::kEager, Way::kFused, Way::kCompile};

TEST(TensorParallel, FluxIsThatOfOneDevice) {
  compare_with_one_device(compact("flux1-schnell"), {2, 4}, kModes);
}
TEST(TensorParallel, Sd3IsThatOfOneDevice) {
  compare_with_one_device(compact("sd35-medium"), {2, 4}, kModes);
}
TEST(TensorParallel, Flux2IsThatOfOneDevice) {
  compare_with_one_device(compact("flux2-dev"), {2, 4}, kModes);
}
TEST(TensorParallel, KleinIsThatOfOneDevice) {
  compare_with_one_device(compact("flux2-klein"), {2}, {Way::kFused});
}

// The compact FLUX.2 with a transformer of 8 heads and random weights. Its text encoder has 8 heads over 4
// key-value heads, which 8 ranks repeat.
fs::path flux2_with_8_heads() {
  return testing::with_random_transformer<models::Flux2Transformer, models::Flux2TransformerConfig>(
      compact("flux2-dev"), {{"num_attention_heads", 8}}, fs::path(::testing::TempDir()) / "flux2_8_heads");
}

TEST(TensorParallel, EightRanksAreOneDevice) { compare_with_one_device(flux2_with_8_heads(), {8}, kModes); }

TEST(TensorParallel, RepeatedBlocksCompileAndNothingIsReadInTheLoop) {
  Context one;
  Trace expected = traced(*testing::load(compact("flux2-dev"), one, Way::kEager));
  Context context(with_devices(2));
  auto pipeline = testing::load(compact("flux2-dev"), context, Way::kCompileBlocks,
                                {.tensor_parallel = TensorParallelConfig{mesh_of(context, 2)}});
  expect_same(traced(*pipeline), expected, "compile-blocks");
  std::int64_t made = context.statistics().programs;
  Result again = pipeline->generate(small_call());
  EXPECT_EQ(again.host_transfers_in_loop, 0);
  EXPECT_EQ(context.statistics().programs, made);
}

TEST(TensorParallel, OneDeviceMayDecodeAlone) {
  Context context(with_devices(2));
  TensorParallelConfig config{mesh_of(context, 2)};
  Result both, alone;
  Trace expected = traced(
      *testing::load(compact("flux1-schnell"), context, Way::kEager, {.tensor_parallel = config}), &both);
  std::int64_t second = context.memory(*config.mesh, 1).in_use();
  config.vae_on_one_device = true;
  auto pipeline = testing::load(compact("flux1-schnell"), context, Way::kEager, {.tensor_parallel = config});
  for (const Component* component : pipeline->components())
    second += component->name == "vae" ? 0 : component->store->bytes();
  EXPECT_EQ(context.memory(*config.mesh, 1).in_use(), second);
  expect_same(traced(*pipeline, &alone), expected, "the vae alone");
  EXPECT_EQ(alone.images[0].pixels, both.images[0].pixels);
}

TEST(TensorParallel, TwoThreadsShareAMesh) {
  Context context(with_devices(2));
  auto pipeline = testing::load(compact("flux2-dev"), context, Way::kFused,
                                {.tensor_parallel = TensorParallelConfig{mesh_of(context, 2)}});
  Result alone = pipeline->generate(small_call()), first, second;
  std::thread a([&] { first = pipeline->generate(small_call()); });
  std::thread b([&] { second = pipeline->generate(small_call()); });
  a.join();
  b.join();
  EXPECT_EQ(first.images[0].pixels, alone.images[0].pixels);
  EXPECT_EQ(second.images[0].pixels, alone.images[0].pixels);
}

// Which weights are shared out, said by hand.
bool is_shared(const std::string& component, const std::string& path) {
  auto has = [&](const char* part) { return path.find(part) != std::string::npos; };
  if (component == "transformer") {
    if (!has("transformer_blocks.") || has("norm")) return false;
    bool adds_up = has("to_out") || has("to_add_out") || has("linear_out");
    return !(adds_up && path.ends_with(".bias"));
  }
  if (component == "text_encoder") return has("layers.") && (has("_proj.weight")) && !has("vision");
  return false;
}

// Weights per device are (shared bytes) / N + replicated bytes, to the byte, and so is what a rank reads.
TEST(TensorParallel, ARankHoldsAndReadsItsPart) {
  for (int n : {1, 2, 4}) {
    Context context(with_devices(n));
    graph::MeshPtr mesh = mesh_of(context, n);
    auto folder = checkpoint::ModelFolder::open(compact("flux2-dev").string());
    auto pipeline = load_pipeline(folder, context, {.tensor_parallel = TensorParallelConfig{mesh}});
    std::int64_t held = 0, read = 0;
    for (const Component* component : pipeline->components()) {
      checkpoint::TensorSource source = folder.source(component->name);
      for (const auto& [path, shape] : component->store->shapes()) {
        std::int64_t share = is_shared(component->name, path) ? n : 1;
        // The last of the 31 layers is not needed, nor is the norm after it.
        if (component->name == "text_encoder" &&
            (path.find("layers.30.") != std::string::npos || path.ends_with("model.norm.weight")))
          continue;
        held += 4 * shape.elements() / share;
        read += static_cast<std::int64_t>(source.find(path)->data.size()) / share;
      }
    }
    EXPECT_EQ(pipeline->weight_bytes(), held) << n;
    EXPECT_EQ(pipeline->bytes_read(), read) << n;
    for (int rank = 0; rank < n; ++rank) EXPECT_EQ(context.memory(*mesh, rank).in_use(), held) << n;
  }
}

// Writes the programs of compiled blocks and counts their all-reduces; runs nothing.
class Counter : public graph::Evaluator {
 public:
  explicit Counter(int ranks) {
    auto mesh = std::make_shared<graph::Mesh>();
    mesh->device = mesh->platform = "cpu";
    for (int i = 0; i < ranks; ++i) mesh->devices.push_back(i);
    mesh->evaluator = this;
    mesh_ = std::move(mesh);
  }
  const graph::MeshPtr& mesh() const { return mesh_; }
  Tensor tensor(DType dtype, const Shape& shape) const {
    return Tensor(std::make_shared<graph::Node>(graph::TensorType{dtype, shape}, mesh_,
                                                std::vector<pjrt::BufferPtr>{}));
  }
  // By where the program ends.
  std::map<std::string, int> all_reduces;

  void recorded(const graph::NodePtr& node) override { PendingGraph::of_this_thread().add(node); }
  void evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness) override {
    graph::Program program = graph::cut(nodes);
    std::string text = graph::write_text(program, kernels::lowerings());
    std::string where(program.steps.back()->where());
    for (std::size_t at = 0; (at = text.find("stablehlo.all_reduce", at)) != std::string::npos; ++at)
      ++all_reduces[where.substr(0, where.find('.', where.find('.') + 1))];
    for (const graph::NodePtr& node : nodes) node->materialise({});
  }
  std::vector<std::byte> read(const graph::NodePtr&) override { throw std::logic_error("a value is read"); }

 private:
  graph::MeshPtr mesh_;
};

template <typename Model, typename Config, typename F>
std::map<std::string, int> all_reduces_of(const char* folder, F&& call) {
  nlohmann::json json = checkpoint::ModelFolder::open(compact(folder).string()).config("transformer");
  Config config = Config::from_json(nn::Config(json, "config"));
  Counter counter(2);
  nn::ParameterStore store(nn::ParameterStore::ShapesOnly{}, {Model::tensor_parallel_plan(config), 2});
  Model model(config, store.root());
  EXPECT_TRUE(store.plan_faults().empty());
  store.place_shapes(counter.mesh(), DType::kF32);
  model.compile_repeated_blocks();
  call(model, config, counter);
  PendingGraph::of_this_thread().cut();
  return counter.all_reduces;
}

constexpr std::int64_t kTokens = 16, kText = 8;

TEST(AllReduces, AreFourADoubleBlockAndOneASingleBlock) {
  nn::RopeTables none;
  auto flux = [](auto& model, auto& c, Counter& counter) {
    auto f32 = [&](const Shape& shape) { return counter.tensor(DType::kF32, shape); };
    nn::RopeTables rope{f32({kTokens + kText, c.attention_head_dim}),
                        f32({kTokens + kText, c.attention_head_dim})};
    if constexpr (requires { c.pooled_projection_dim; }) {
      return model.forward(f32({1, kTokens, c.in_channels}), f32({1, kText, c.joint_attention_dim}),
                           f32({1, c.pooled_projection_dim}), f32({1}), Tensor(), rope);
    } else {
      return model.forward(f32({1, kTokens, c.in_channels}), f32({1, kText, c.joint_attention_dim}), f32({1}),
                           f32({1}), rope);
    }
  };
  std::map<std::string, int> expected{{"transformer_blocks.0", 4},
                                      {"transformer_blocks.1", 4},
                                      {"single_transformer_blocks.0", 1},
                                      {"single_transformer_blocks.1", 1}};
  auto counted =
      all_reduces_of<models::FluxTransformer, models::FluxTransformerConfig>("flux1-schnell", flux);
  EXPECT_EQ(counted, expected);
  counted = all_reduces_of<models::Flux2Transformer, models::Flux2TransformerConfig>("flux2-dev", flux);
  EXPECT_EQ(counted, expected);
}

std::string refusal(Context& context, const char* model, const LoadOptions& options) {
  try {
    load_pipeline(checkpoint::ModelFolder::open(compact(model).string()), context, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(TensorParallelRefusals, NameTheOffendersAndTheWayOut) {
  Context context(with_devices(8));
  TensorParallelConfig three{mesh_of(context, 3)};
  std::string text = refusal(context, "flux1-schnell", {.tensor_parallel = three});
  for (const char* part : {"3 ranks cannot share out text_encoder: ", "; transformer: ",
                           "transformer_blocks.*.attn.to_q (4 heads)",
                           "--replicate text_encoder --replicate text_encoder_2 --replicate transformer"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  three.components = {"vae"};
  EXPECT_EQ(refusal(context, "flux1-schnell", {.tensor_parallel = three}),
            "tensor parallel: there is no plan for vae; models that have one: FluxTransformer2DModel, "
            "Flux2Transformer2DModel, SD3Transformer2DModel, T5EncoderModel, CLIPTextModel, "
            "CLIPTextModelWithProjection, Mistral3ForConditionalGeneration, Qwen3ForCausalLM; here: "
            "text_encoder, text_encoder_2, transformer");
  TensorParallelConfig wrong{.mesh = mesh_of(context, 2), .replicate = {"text_encoder_3"}};
  EXPECT_EQ(refusal(context, "flux1-schnell", {.tensor_parallel = wrong}),
            "tensor parallel: replicate names 'text_encoder_3', which is no component; the components are "
            "text_encoder, text_encoder_2, transformer, vae");
  wrong.replicate = {"text_encoder", "text_encoder_2", "transformer"};
  EXPECT_NE(
      refusal(context, "flux1-schnell", {.tensor_parallel = wrong}).find("no component would be shared"),
      std::string::npos);
  TensorParallelConfig two{mesh_of(context, 2)};
  EXPECT_NE(refusal(context, "flux1-schnell", {.device = DeviceName{}, .tensor_parallel = two}), "accepted");
  EXPECT_EQ(context.memory(*context.mesh()).in_use(), 0);
}

TEST(TensorParallelRefusals, ASplitPipelineStaysWhereItIs) {
  Context context(with_devices(2));
  auto pipeline = testing::load(compact("flux1-schnell"), context, Way::kEager,
                                {.tensor_parallel = TensorParallelConfig{mesh_of(context, 2)}});
  EXPECT_THROW(pipeline->to({"cpu", 1}), Error);
  EXPECT_THROW(pipeline->enable_model_cpu_offload(DeviceName{}), Error);
  EXPECT_EQ(pipeline->generate(small_call()).images.size(), 1u);
}

}  // namespace
}  // namespace tessera::pipelines
