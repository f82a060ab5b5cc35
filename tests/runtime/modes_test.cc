#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/graph/shape_rules.h"
#include "tessera/kernels/registry.h"
#include "tessera/ops/ops.h"
#include "tessera/runtime/context.h"
#include "tessera/runtime/pending.h"

// The modes differ in when programs are cut, and in nothing else.
namespace tessera {
namespace {

using Floats = std::vector<float>;

Context::Options options(std::optional<ExecutionMode> mode = {}) {
  Context::Options out;
  out.mode = mode;
  out.disk_cache = nullptr;
  return out;
}

Tensor f32(Context& context, const Floats& values) {
  return context.from_f32(values, {static_cast<std::int64_t>(values.size())}, context.mesh());
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(ExecutionModes, TheNearestWins) {
  Environment variable("TESSERA_EAGER_MODE", "DEFER_AND_FUSE");
  Context by_environment(options());
  EXPECT_EQ(by_environment.mode(), ExecutionMode::kFused);
  Context by_option(options(ExecutionMode::kEager));
  EXPECT_EQ(by_option.mode(), ExecutionMode::kEager);
  {
    ScopedExecutionMode outer(ExecutionMode::kEagerBlocking);
    EXPECT_EQ(by_option.mode(), ExecutionMode::kEagerBlocking);
    {
      ScopedExecutionMode inner(ExecutionMode::kFused);
      EXPECT_EQ(by_option.mode(), ExecutionMode::kFused);
    }
    EXPECT_EQ(by_environment.mode(), ExecutionMode::kEagerBlocking);
    // A scope is a thread's own.
    std::thread([&] { EXPECT_EQ(by_option.mode(), ExecutionMode::kEager); }).join();
  }
  EXPECT_EQ(by_option.mode(), ExecutionMode::kEager);
}

TEST(ExecutionModes, AreReadFromTheEnvironment) {
  EXPECT_EQ(execution_mode_from_environment(), std::nullopt);
  {
    Environment a("TPU_LAUNCH_BLOCKING", "1");
    EXPECT_EQ(execution_mode_from_environment(), ExecutionMode::kEagerBlocking);
    Environment b("TORCH_TPU_DEFER_AND_FUSE", "1");
    EXPECT_NE(error_of([] { execution_mode_from_environment(); }).find("two different modes"),
              std::string::npos);
    Environment c("TESSERA_EAGER_MODE", "defer_never");
    EXPECT_EQ(execution_mode_from_environment(), ExecutionMode::kEager);
  }
  Environment a("TESSERA_EAGER_MODE", "lazy");
  EXPECT_EQ(error_of([] { execution_mode_from_environment(); }),
            "TESSERA_EAGER_MODE='lazy': there is no such mode; the modes are defer_never, "
            "defer_never_and_launch_blocking, defer_and_fuse");
}

TEST(Fused, AChainIsOneProgramThatReturnsWhatIsHeld) {
  Context context(options(ExecutionMode::kFused));
  Tensor x = f32(context, {1, 2, 3});
  Tensor held = ops::affine(x, 2, 0);
  Tensor y = ops::add(ops::affine(held, 1, 1), x);  // the inner value is nobody's
  EXPECT_EQ(context.statistics().operations, 0);
  EXPECT_EQ(y.to_f32(), (Floats{4, 7, 10}));
  EXPECT_EQ(context.statistics().compiles, 1);
  EXPECT_EQ(context.statistics().operations, 3);
  // Computed by the same program.
  EXPECT_EQ(held.node()->state(), graph::Node::State::kMaterialised);
  EXPECT_EQ(held.to_f32(), (Floats{2, 4, 6}));
  EXPECT_EQ(context.statistics().compiles, 1);
}

TEST(Fused, WhatNobodyHoldsIsNotComputed) {
  Context context(options(ExecutionMode::kFused));
  Tensor x = f32(context, {1, 2});
  { Tensor dropped = ops::exp(ops::affine(x, 3, 0)); }
  PendingGraph::of_this_thread().cut();
  EXPECT_EQ(context.statistics().operations, 0);
  EXPECT_EQ(context.statistics().compiles, 0);
}

TEST(Fused, AGraphAtItsLimitIsCut) {
  Context context(options(ExecutionMode::kFused));
  Tensor x = f32(context, {0});
  for (std::size_t i = 0; i < PendingGraph::kMaxNodes + 10; ++i) x = ops::affine(x, 1, 1);
  EXPECT_EQ(context.statistics().compiles, 1);
  EXPECT_EQ(x.to_f32(), (Floats{static_cast<float>(PendingGraph::kMaxNodes + 10)}));
  EXPECT_EQ(context.statistics().compiles, 2);
}

TEST(Fused, WhatIsPendingIsDoneFirstWhenTheModeChanges) {
  Context context(options(ExecutionMode::kEager));
  Tensor x = f32(context, {1, 2}), y;
  {
    ScopedExecutionMode fused(ExecutionMode::kFused);
    y = ops::affine(x, 2, 0);
  }
  EXPECT_EQ(y.node()->state(), graph::Node::State::kPending);
  Tensor z = ops::affine(y, 1, 1);
  EXPECT_EQ(y.node()->state(), graph::Node::State::kMaterialised);
  EXPECT_EQ(z.to_f32(), (Floats{3, 5}));
}

TEST(Fused, ATensorOfAnotherThreadIsComputedWhenItIsRead) {
  Context context(options(ExecutionMode::kFused));
  Tensor y;
  std::thread([&] { y = ops::affine(f32(context, {1, 2}), 2, 0); }).join();
  EXPECT_EQ(y.to_f32(), (Floats{2, 4}));
}

TEST(Fused, EachDevicesWorkIsAProgramOfItsOwn) {
  Context::Options two = options(ExecutionMode::kFused);
  two.client_options = {{"cpu_device_count", std::int64_t{2}}};
  Context context(two);
  std::vector<float> one{1, 2};
  Tensor a = ops::affine(context.from_f32(one, {2}, context.mesh({"cpu", 0})), 2, 0);
  Tensor b = ops::affine(context.from_f32(one, {2}, context.mesh({"cpu", 1})), 2, 0);
  EXPECT_EQ(a.to_f32(), (Floats{2, 4}));
  EXPECT_EQ(b.to_f32(), (Floats{2, 4}));
  EXPECT_EQ(context.statistics().compiles, 2);
  EXPECT_EQ(context.memory(*context.mesh({"cpu", 1})).in_use(), 8);
}

TEST(Donation, ADyingOperandsMemoryBecomesTheResults) {
  constexpr std::int64_t n = 1 << 16;
  Context context(options(ExecutionMode::kFused));
  PendingGraph& pending = PendingGraph::of_this_thread();
  Tensor x = context.from_f32(Floats(n, 1.0f), {n}, context.mesh());
  x = ops::affine(x, 2, 0);  // what is uploaded is not given away
  pending.cut();
  context.reset_memory_peaks();
  for (int i = 0; i < 20; ++i) {
    x = ops::affine(x, 1, 1);
    pending.cut();
  }
  EXPECT_EQ(context.memory(*context.mesh()).peak(), 4 * n) << "an array beside the one that dies";
  EXPECT_EQ(context.memory(*context.mesh()).in_use(), 4 * n);
  // The same program, but now the operand is held: it must survive.
  Tensor kept = x;
  x = ops::affine(x, 1, 1);
  pending.cut();
  EXPECT_EQ(kept.to_f32(), Floats(n, 22.0f));
  EXPECT_EQ(x.to_f32(), Floats(n, 23.0f));
  EXPECT_EQ(context.memory(*context.mesh()).in_use(), 8 * n);
  kept = x = {};
  EXPECT_EQ(context.memory(*context.mesh()).in_use(), 0);
}

TEST(Donation, AnUploadIsNotGivenAway) {
  Context context(options(ExecutionMode::kFused));
  alignas(64) static float host[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  auto alive = std::make_shared<int>(0);
  Tensor x = context.from_host(std::as_bytes(std::span(host)), DType::kF32, {16}, context.mesh(), alive);
  Tensor y = ops::affine(x, 2, 0);
  x = {};
  EXPECT_EQ(y.to_f32(), Floats(16, 2.0f));
  EXPECT_EQ(host[0], 1.0f);
}

// An operation whose lowering writes what no compiler takes, and one that has none.
graph::TensorType same_type(std::string_view, const graph::Attributes&,
                            std::span<const graph::TensorType> operands) {
  return operands[0];
}
constexpr graph::OpDef kBroken{"broken", same_type}, kUnknown{"unknown", same_type};

graph::Value lower_affine(graph::Writer& writer, const graph::OpCall&, std::span<const graph::Value> x) {
  return writer.binary("add", x[0], 1.0);
}
graph::Value lower_broken(graph::Writer& writer, const graph::OpCall& call, std::span<const graph::Value> x) {
  return writer.line(call.result, "stablehlo.no_such_operation " + x[0].name, "tensor<f32>");
}

TEST(Errors, SurfaceAtTheCutAndNameTheOperationAndItsPlace) {
  graph::LoweringTable lowerings;
  lowerings.add("affine", lower_affine);
  lowerings.add("broken", lower_broken);
  for (const graph::OpDef* op : {&kBroken, &kUnknown}) {
    for (ExecutionMode mode : {ExecutionMode::kEager, ExecutionMode::kFused}) {
      Context::Options with = options(mode);
      with.lowerings = &lowerings;
      Context context(with);
      Tensor x = f32(context, {1, 2}), y, z;
      std::string message = error_of([&] {
        {
          graph::ScopedLocation before(std::make_shared<const std::string>("blocks.2"));
          y = ops::affine(x, 1, 1);
        }
        {
          graph::ScopedLocation here(std::make_shared<const std::string>("blocks.3.attn.to_q"));
          y = record(*op, {}, {y});
        }
        graph::ScopedLocation after(std::make_shared<const std::string>("blocks.4"));
        z = ops::affine(y, 1, 1);
        z.to_f32();
      });
      EXPECT_NE(message.find(fmt::format("({}, written in blocks.3.attn.to_q)", op->name)), std::string::npos)
          << message;
      if (mode == ExecutionMode::kFused) {
        EXPECT_EQ(error_of([&] { z.to_f32(); }), message) << "every reader sees it";
        EXPECT_EQ(error_of([&] { ops::affine(z, 1, 1).to_f32(); }), message);
      }
    }
  }
}

TEST(Errors, OutOfMemoryNamesThePlace) {
  Context::Options small = options(ExecutionMode::kFused);
  small.memory_limit = 1000;
  Context context(small);
  Tensor x = context.from_f32(Floats(100, 1.0f), {100}, context.mesh());
  graph::ScopedLocation here(std::make_shared<const std::string>("blocks.3"));
  std::string message = error_of([&] { ops::broadcast_to(x, {100, 100}).to_f32(); });
  EXPECT_NE(message.find("out of memory on cpu:0"), std::string::npos) << message;
  EXPECT_NE(message.find("(in blocks.3)"), std::string::npos) << message;
  EXPECT_NE(message.find("offload"), std::string::npos) << message;
}

TEST(Recordings, KeepEverythingPendingWhateverTheMode) {
  Context context(options(ExecutionMode::kEager));
  Tensor x = f32(context, {1, 2}), y;
  {
    Recording recording("Model", true);
    y = ops::affine(ops::affine(x, 2, 0), 1, 1);
    EXPECT_EQ(context.statistics().operations, 0);
    graph::ScopedLocation here(std::make_shared<const std::string>("blocks.3"));
    EXPECT_EQ(error_of([&] { y.to_f32(); }),
              "Model is compiled with fullgraph, and a value is read on the host while it is recorded (in "
              "blocks.3); read it after the call, or compile without fullgraph");
  }
  EXPECT_EQ(y.to_f32(), (Floats{3, 5}));
  EXPECT_EQ(context.statistics().compiles, 1);
  {
    Recording recording("Model", false);
    y = ops::affine(y, 2, 0);
    EXPECT_EQ(y.to_f32(), (Floats{6, 10}));
    y = ops::affine(y, 2, 0);
  }
  EXPECT_EQ(y.to_f32(), (Floats{12, 20}));
}

TEST(Meshes, ProgramsOfOneDeviceAreNotRunOnAnother) {
  Context::Options two = options();
  two.client_options = {{"cpu_device_count", std::int64_t{2}}};
  Context context(two);
  std::vector<float> one{1, 2};
  for (int device : {0, 1, 0, 1}) {
    Tensor a = ops::affine(context.from_f32(one, {2}, context.mesh({"cpu", device})), 2, 0);
    EXPECT_EQ(a.to_f32(), (Floats{2, 4}));
  }
  EXPECT_EQ(context.statistics().compiles, 2);
}

}  // namespace
}  // namespace tessera
