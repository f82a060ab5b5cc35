#include <gtest/gtest.h>

#include <thread>

#include "tessera/base/error.h"
#include "tessera/ops/ops.h"
#include "tessera/runtime/context.h"

// Tensors that have a part of their own on each of several devices.
namespace tessera {
namespace {

using Floats = std::vector<float>;

Context::Options eight_devices(ExecutionMode mode = ExecutionMode::kEager) {
  Context::Options out;
  out.mode = mode;
  out.disk_cache = nullptr;
  out.client_options = {{"cpu_device_count", std::int64_t{8}}};
  return out;
}

graph::MeshPtr mesh_of(Context& context, int ranks) {
  std::vector<DeviceName> devices;
  for (int i = 0; i < ranks; ++i) devices.push_back({"cpu", i});
  return context.mesh(devices);
}

// Rank r has {r + 1, 10 (r + 1)}.
Tensor by_rank(Context& context, const graph::MeshPtr& mesh) {
  std::vector<Floats> values;
  std::vector<std::span<const std::byte>> shards;
  for (int r = 0; r < mesh->size(); ++r)
    values.push_back({static_cast<float>(r + 1), static_cast<float>(10 * (r + 1))});
  for (const Floats& v : values) shards.push_back(std::as_bytes(std::span(v)));
  return context.from_shards(shards, DType::kF32, {2}, mesh);
}

Floats of_rank(const Tensor& tensor, int rank) {
  Floats out(static_cast<std::size_t>(tensor.shape().elements()));
  tensor.node()
      ->buffers()[static_cast<std::size_t>(rank)]
      ->copy_to_host(std::as_writable_bytes(std::span(out)))
      .await();
  return out;
}

TEST(Meshes, AnAllReduceSumsOverTheRanks) {
  for (ExecutionMode mode : {ExecutionMode::kEager, ExecutionMode::kFused}) {
    Context context(eight_devices(mode));
    for (int ranks : {1, 2, 4, 8}) {
      graph::MeshPtr mesh = mesh_of(context, ranks);
      Tensor x = by_rank(context, mesh);
      Tensor y = ops::add(ops::all_reduce(ops::affine(x, 2, 0)), x);
      float sum = static_cast<float>(ranks * (ranks + 1));
      EXPECT_EQ(y.to_f32(), (Floats{sum + 1, 10 * (sum + 1)}));
      for (int r = 0; r < ranks; ++r) {
        auto own = static_cast<float>(r + 1);
        EXPECT_EQ(of_rank(y, r), (Floats{sum + own, 10 * (sum + own)})) << "rank " << r << " of " << ranks;
      }
    }
  }
}

TEST(Meshes, CountEachDevicesBytes) {
  Context context(eight_devices());
  graph::MeshPtr mesh = mesh_of(context, 4);
  Tensor x = by_rank(context, mesh);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(context.memory(*mesh, r).in_use(), 8);
  EXPECT_EQ(context.memory(*context.mesh({"cpu", 5})).in_use(), 0);
}

TEST(Meshes, AreRefusedWhereTheyMakeNoSense) {
  Context context(eight_devices());
  auto error_of = [&](std::vector<DeviceName> devices) {
    try {
      context.mesh(devices);
      return std::string("accepted");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(error_of({}), "a mesh of no devices was asked for");
  EXPECT_EQ(error_of({{"cpu", 0}, {"tpu", 1}}), "a mesh has devices of one kind; cpu and tpu were given");
  EXPECT_EQ(error_of({{"cpu", 1}, {"cpu", 1}}), "cpu:1 is in the mesh twice");
  EXPECT_EQ(error_of({{"cpu", 7}, {"cpu", 8}}),
            "device cpu:8 does not exist: there are 8 cpu device(s), counted from 0");
  std::vector<std::span<const std::byte>> one(1);
  EXPECT_THROW(context.from_shards(one, DType::kF32, {0}, mesh_of(context, 2)), Error);
}

// The CPU plugin deadlocks where programs with collectives are in flight together.
TEST(SlowMeshes, TwoThousandLaunchesDoNotHang) {
  Context context(eight_devices());
  graph::MeshPtr mesh = mesh_of(context, 8);
  Tensor x = by_rank(context, mesh);
  for (int i = 0; i < 1000; ++i) x = ops::affine(ops::all_reduce(x), 0.125, 0);
  EXPECT_EQ(context.statistics().operations, 2000);
  EXPECT_EQ(x.to_f32(), (Floats{4.5, 45}));
}

TEST(SlowMeshes, TwoThreadsOnOneMeshDoNotHang) {
  Context context(eight_devices());
  graph::MeshPtr mesh = mesh_of(context, 8);
  auto work = [&] {
    Tensor x = by_rank(context, mesh);
    for (int i = 0; i < 200; ++i) x = ops::affine(ops::all_reduce(x), 0.125, 0);
    EXPECT_EQ(x.to_f32(), (Floats{4.5, 45}));
  };
  std::thread a(work), b(work);
  a.join();
  b.join();
}

}  // namespace
}  // namespace tessera
