// Run as several processes (`tessera launch --nproc N -- processes_test`), each a rank of one model:
// pipelines against the same on one device. Every process tests its own results; the first one says how it
// went, and the others what failed.
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/comm/process_group.h"
#include "tessera/ops/ops.h"
#include "tests/testing/modes.h"
#include "tests/testing/ranks.h"
#include "tests/testing/small_call.h"

namespace tessera {
namespace {

using testing::Way;

const comm::ProcessGroup& group() { return *comm::ProcessGroup::joined(); }

graph::MeshPtr spread(Context& context) { return context.mesh({"cpu", 0}, group()); }

// Whether all ranks have the same numbers: the sum over them is then as many times one's own, which is exact
// for few ranks and small integers.
void expect_same_everywhere(std::span<const std::uint8_t> bytes) {
  std::vector<float> mine(bytes.begin(), bytes.end()), sum(mine.size());
  group().all_reduce_sum(mine, sum);
  for (float& value : mine) value *= static_cast<float>(group().size());
  EXPECT_EQ(sum, mine);
}

TEST(Processes, AddUpWhatEachHas) {
  Context context(testing::with_devices(1));
  graph::MeshPtr mesh = spread(context);
  float rank = static_cast<float>(group().rank()), n = static_cast<float>(group().size());
  std::vector<float> x{rank, 1.0f, -2.5f * rank};
  Tensor sum = ops::all_reduce(context.from_f32(x, {3}, mesh));
  float ranks = n * (n - 1) / 2;
  EXPECT_EQ(sum.to_f32(), (std::vector<float>{ranks, n, -2.5f * ranks}));
  // In bf16 the sum is made in f32 and rounded once.
  Tensor narrow = ops::all_reduce(ops::cast(context.from_f32(x, {3}, mesh), DType::kBF16));
  EXPECT_EQ(ops::cast(narrow, DType::kF32).to_f32(), (std::vector<float>{ranks, n, -2.5f * ranks}));
}

// Sums that do not depend on each other meet in one order on all ranks, also within one program.
TEST(Processes, MeetInOrder) {
  for (Way way : {Way::kEager, Way::kFused}) {
    Context context(testing::with_devices(1, testing::options(way)));
    graph::MeshPtr mesh = spread(context);
    std::vector<Tensor> sums;
    for (int i = 0; i < 100; ++i) {
      std::vector<float> x(static_cast<std::size_t>(1 + i % 7), static_cast<float>(i + group().rank()));
      sums.push_back(ops::all_reduce(
          ops::affine(context.from_f32(x, {static_cast<std::int64_t>(x.size())}, mesh), 2, 0)));
    }
    int n = group().size();
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(sums[static_cast<std::size_t>(i)].to_f32()[0], static_cast<float>(2 * i * n + n * (n - 1)))
          << i;
    }
  }
}

TEST(Processes, LaunchManySmallPrograms) {
  Context context(testing::with_devices(1));
  Tensor x = context.from_f32(std::vector<float>{1, 2, 3}, {3}, spread(context));
  double n = group().size();
  for (int i = 0; i < 500; ++i) x = ops::affine(ops::all_reduce(x), 1 / n, 0);
  EXPECT_EQ(x.to_f32(), (std::vector<float>{1, 2, 3}));
}

void compare_with_one_device(const char* model) {
  Context one;
  pipelines::Trace expected = testing::traced(*testing::load(testing::compact(model), one, Way::kEager));
  for (Way way : {Way::kEager, Way::kFused, Way::kCompile}) {
    Context context(testing::with_devices(1, testing::options(way)));
    auto pipeline = testing::load(testing::compact(model), context, way,
                                  {.tensor_parallel = pipelines::TensorParallelConfig{spread(context)}});
    pipelines::Result result;
    std::string what = fmt::format("{} {} rank {}", model, testing::name(way), group().rank());
    testing::expect_same(testing::traced(*pipeline, &result), expected, what);
    expect_same_everywhere(result.images[0].pixels);
  }
}

TEST(Processes, FluxIsThatOfOneDevice) { compare_with_one_device("flux1-schnell"); }
TEST(Processes, Sd3IsThatOfOneDevice) { compare_with_one_device("sd35-medium"); }
TEST(Processes, Flux2IsThatOfOneDevice) { compare_with_one_device("flux2-dev"); }

// What is held and read is what one process with as many devices holds and reads for each.
TEST(Processes, EachHoldsAndReadsItsPart) {
  Context here(testing::with_devices(group().size())), context(testing::with_devices(1));
  auto load = [](Context& c, const graph::MeshPtr& mesh) {
    return testing::load(testing::compact("flux2-dev"), c, Way::kEager,
                         {.tensor_parallel = pipelines::TensorParallelConfig{mesh}});
  };
  graph::MeshPtr mesh = spread(context);
  auto mine = load(context, mesh), all = load(here, testing::mesh_of(here, group().size()));
  EXPECT_EQ(mine->bytes_read(), all->bytes_read());
  EXPECT_EQ(mine->weight_bytes(), all->weight_bytes());
  EXPECT_EQ(context.memory(*mesh).in_use(), mine->weight_bytes());
}

// Says what failed in a process that is not the first, a line each.
class Faults : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) std::fprintf(stderr, "rank %d: %s\n", group().rank(), result.summary());
  }
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    auto place = tessera::comm::launch_environment();
    if (!place) {
      std::fputs("this wants `tessera launch --device cpu --nproc N -- ...`\n", stderr);
      return 2;
    }
    const tessera::comm::ProcessGroup& group = tessera::comm::ProcessGroup::join(*place, "cpu");
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    if (group.rank() > 0) {
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new tessera::Faults());
    }
    int status = RUN_ALL_TESTS();
    group.leave(status);
    return status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
