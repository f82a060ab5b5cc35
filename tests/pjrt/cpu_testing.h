#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tessera/pjrt/pjrt.h"
#include "tessera/pjrt/registry.h"
#include "tests/pjrt/error_testing.h"

// The real CPU plugin.
namespace tessera::pjrt {

inline std::shared_ptr<const Plugin> cpu_plugin() { return PluginRegistry().load("cpu"); }

// One client with 8 devices for a test program.
inline const std::shared_ptr<const Client>& cpu_client() {
  static const std::shared_ptr<const Client> client =
      cpu_plugin()->create_client({{"cpu_device_count", std::int64_t{8}}});
  return client;
}

template <typename T>
BufferPtr upload(const std::vector<T>& values, DType dtype, const Shape& shape, int device = 0) {
  return cpu_client()->buffer_from_host(std::as_bytes(std::span(values)), dtype, shape, device);
}
inline BufferPtr upload(const std::vector<float>& values, int device = 0) {
  return upload(values, DType::kF32, {static_cast<std::int64_t>(values.size())}, device);
}

template <typename T = float>
std::vector<T> download(const Buffer& buffer) {
  std::vector<T> values(static_cast<std::size_t>(buffer.shape().elements()));
  buffer.copy_to_host(std::as_writable_bytes(std::span(values))).await();
  return values;
}

inline std::vector<BufferPtr> run(const Executable& executable, const std::vector<BufferPtr>& arguments,
                                  const ExecuteOptions& options = {}) {
  std::vector<const Buffer*> list;
  for (const BufferPtr& argument : arguments) list.push_back(argument.get());
  return executable.execute_one(list, options);
}

// A program of one operation that adds two f32 vectors of 4.
inline constexpr const char* kAdd = R"(
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
})";

// The sum of one f32 vector of 4 over 8 replicas.
inline constexpr const char* kAllReduce = R"(
module @m attributes {mhlo.num_replicas = 8 : i32} {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_reduce"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}
      : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";

}  // namespace tessera::pjrt
