// What strict eager costs above the plugin: a chain of tiny operations through ops:: and Context, beside the
// same chain of bare execute calls of the plugin, alternately in one run. Prints one JSON object;
// microseconds are of one operation, host and device together, best of --repeat runs.
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/arguments.h"
#include "tessera/ops/ops.h"
#include "tessera/runtime/context.h"

namespace tessera::bench {
namespace {

constexpr const char* kNegate = R"(module @bare {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = stablehlo.negate %x : tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
)";

template <typename F>
double seconds_of(F&& f) {
  auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(int argc, char** argv) {
  Arguments arguments(argc, argv, {{"operations", "10000"}, {"repeat", "7"}, {"device", "cpu"}});
  int operations = arguments.count("operations"), repeat = arguments.count("repeat");

  Context::Options options;
  options.mode = ExecutionMode::kEager;
  options.disk_cache = nullptr;
  Context context(options);
  graph::MeshPtr mesh = context.mesh(DeviceName::parse(arguments.text("device")));
  std::vector<float> values(8, 1.5f);
  Tensor start = context.from_f32(values, {8}, mesh);
  auto eager = [&] {
    Tensor x = start;
    for (int i = 0; i < operations; ++i) x = ops::negate(x);
    x.to_bytes();
  };

  const pjrt::Client& client = context.client(*mesh);
  std::shared_ptr<pjrt::Executable> program = client.compile(kNegate);
  pjrt::BufferPtr first = client.buffer_from_host(std::as_bytes(std::span(values)), DType::kF32, {8}, 0);
  auto bare = [&] {
    pjrt::BufferPtr x = first;
    for (int i = 0; i < operations; ++i) {
      const pjrt::Buffer* argument = x.get();
      x = program->execute_one({&argument, 1}).at(0);
    }
    std::vector<std::byte> bytes(32);
    x->copy_to_host(bytes).await();
  };

  eager();
  bare();
  std::vector<double> eager_seconds, bare_seconds;
  for (int i = 0; i < repeat; ++i) {
    bare_seconds.push_back(seconds_of(bare));
    eager_seconds.push_back(seconds_of(eager));
  }
  double scale = 1e6 / operations;
  Times eager_times = times_of(eager_seconds), bare_times = times_of(bare_seconds);
  nlohmann::ordered_json out{{"operations", operations},
                             {"eager_microseconds", eager_times.best * scale},
                             {"bare_microseconds", bare_times.best * scale},
                             {"difference_microseconds", (eager_times.best - bare_times.best) * scale},
                             {"eager_median_microseconds", eager_times.median * scale},
                             {"bare_median_microseconds", bare_times.median * scale}};
  std::printf("%s\n", out.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  try {
    return tessera::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
