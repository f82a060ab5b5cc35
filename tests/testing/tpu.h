#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "tessera/base/error.h"
#include "tessera/pjrt/registry.h"

// The TPU compiler, which needs no TPU. A test that uses it begins with TESSERA_NEEDS_LIBTPU().
namespace tessera::testing {

// Why there is none, or nothing.
inline const std::string& no_libtpu() {
  static const std::string reason = [] {
    try {
      pjrt::PluginRegistry registry;
      if (registry.load("tpu")->topology("v6e:1x1") != nullptr) return std::string();
      return std::string("the tpu plugin describes no topology");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  }();
  return reason;
}

inline const pjrt::Topology& tpu_topology(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const pjrt::Topology>> known;
  auto& topology = known[name];
  if (!topology) topology = pjrt::PluginRegistry().load("tpu")->topology(name);
  return *topology;
}

}  // namespace tessera::testing

#define TESSERA_NEEDS_LIBTPU() \
  if (!::tessera::testing::no_libtpu().empty()) GTEST_SKIP() << ::tessera::testing::no_libtpu()
