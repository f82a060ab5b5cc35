#pragma once

#include <vector>

#include "tessera/runtime/context.h"

namespace tessera::testing {

// Options for a CPU of several devices.
inline Context::Options with_devices(int count, Context::Options options = {}) {
  options.client_options = {{"cpu_device_count", std::int64_t{count}}};
  return options;
}

// The mesh of the first `ranks` devices.
inline graph::MeshPtr mesh_of(Context& context, int ranks) {
  std::vector<DeviceName> devices;
  for (int i = 0; i < ranks; ++i) devices.push_back({"cpu", i});
  return context.mesh(devices);
}

}  // namespace tessera::testing
