#include "tessera/nn/module.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"
#include "tessera/runtime/context.h"

namespace tessera::nn {
namespace {

Context::Options options(ExecutionMode mode) {
  Context::Options out;
  out.mode = mode;
  out.disk_cache = nullptr;
  return out;
}

// Blocks of three operations, with something before, between and after them.
class Tower : public Module {
 public:
  explicit Tower(int blocks) : Module("Tower"), blocks_(blocks) {}
  Tensor forward(const Tensor& x) const {
    return call([&] {
      Tensor y = ops::affine(x, 0.5, 0);
      for (int i = 0; i < blocks_; ++i) {
        block(std::make_shared<const std::string>("blocks." + std::to_string(i)), [&] {
          Tensor h = ops::affine(y, 0.25, 1);
          y = ops::add(y, ops::tanh(h));
          if (read_inside) y.to_f32();
        });
      }
      return ops::affine(y, 2, 0);
    });
  }
  bool read_inside = false;

 private:
  int blocks_;
};

std::vector<float> result(Context& context, const Tower& tower, std::int64_t n = 3) {
  std::vector<float> values(static_cast<std::size_t>(n), 0.5f);
  return tower.forward(context.from_f32(values, {n}, context.mesh())).to_f32();
}

TEST(Module, EveryWayGivesTheSameValues) {
  Context eager(options(ExecutionMode::kEager)), fused(options(ExecutionMode::kFused));
  Tower tower(4);
  std::vector<float> wanted = result(eager, tower);
  EXPECT_EQ(eager.statistics().compiles, 5);  // each affine has its own numbers
  EXPECT_EQ(eager.statistics().operations, 14);
  EXPECT_EQ(result(fused, tower), wanted);
  EXPECT_EQ(fused.statistics().compiles, 3) << "before the blocks, a block, after the blocks";

  Context one(options(ExecutionMode::kEager));
  tower.compile({.fullgraph = true, .dynamic = false});
  EXPECT_EQ(result(one, tower), wanted);
  EXPECT_EQ(one.statistics().compiles, 1);
  EXPECT_EQ(result(one, tower), wanted);
  EXPECT_EQ(one.statistics().compiles, 1);
  result(one, tower, 5);
  EXPECT_EQ(one.statistics().compiles, 2) << "a new size";
  result(one, tower);
  result(one, tower, 5);
  EXPECT_EQ(one.statistics().compiles, 2) << "sizes that were seen";
}

TEST(Module, CompiledBlocksAreOneProgramForEachKind) {
  std::int64_t few = 0;
  for (int blocks : {2, 12}) {
    Context context(options(ExecutionMode::kEager));
    Tower tower(blocks);
    tower.compile_repeated_blocks({.fullgraph = true});
    result(context, tower);
    if (few == 0) few = context.statistics().programs;
    EXPECT_EQ(context.statistics().programs, few);
    EXPECT_EQ(context.statistics().programs, 3);
  }
}

TEST(Module, ReadingAValueInAFullGraphIsAnErrorThatSaysWhere) {
  Context context(options(ExecutionMode::kEager));
  Tower tower(2);
  tower.read_inside = true;
  std::vector<float> wanted = result(context, tower);
  tower.compile();
  EXPECT_EQ(result(context, tower), wanted) << "without fullgraph the program is cut there";
  tower.compile({.fullgraph = true});
  try {
    result(context, tower);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("Tower is compiled with fullgraph"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("(in blocks.0)"), std::string::npos) << e.what();
  }
  // Nothing of the failed recording is left.
  tower.compile_nothing();
  EXPECT_EQ(result(context, tower), wanted);
}

TEST(Module, DynamicShapesAreRefused) {
  Tower tower(2);
  for (bool whole : {true, false}) {
    try {
      whole ? tower.compile({.dynamic = true}) : tower.compile_repeated_blocks({.dynamic = true});
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(std::string(e.what()),
                "Tower: dynamic = true is not possible, because programs have static shapes; leave it out: "
                "each new size is compiled once and kept");
    }
  }
}

}  // namespace
}  // namespace tessera::nn
