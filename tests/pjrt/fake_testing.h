#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "tessera/pjrt/pjrt.h"
#include "tests/pjrt/error_testing.h"
#include "tests/pjrt/fake_plugin/fake_plugin.h"

namespace tessera::pjrt {

// What the fake plugin in `path`, which has been loaded, shares with tests.
inline fake::Control& control_of(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error(path + " is not loaded");
  return **static_cast<fake::Control**>(dlsym(library, "tessera_fake_plugin"));
}

// A test with the fake plugin: whole again afterwards, and nothing may be left alive in it.
class Fake : public ::testing::Test {
 protected:
  Fake() : plugin_(Plugin::load(TESSERA_FAKE_PLUGIN)), control_(control_of(TESSERA_FAKE_PLUGIN)) {
    whole_ = *control_.api;
    before_ = control_.live;
  }
  ~Fake() override {
    control_.fire_events();
    EXPECT_EQ(live(), "");
    EXPECT_EQ(control_.bad_arguments, 0);
    restore();
  }

  // The objects that were made in this test and not destroyed.
  std::string live() const {
    std::string out;
    for (const auto& [object, kind] : control_.live) {
      if (!before_.contains(object)) out += kind + " ";
    }
    return out;
  }
  void restore() {
    *control_.api = whole_;
    control_.faults = {};
    control_.platform = "cpu";
    control_.outputs = 1;
    control_.bad_arguments = 0;
    before_ = control_.live;
  }

  std::shared_ptr<const Plugin> plugin_;
  fake::Control& control_;

 private:
  PJRT_Api whole_{};
  std::map<const void*, std::string> before_;
};

// Memory for zero-copy uploads that counts how often it was released.
struct alignas(64) HostBlock {
  std::array<float, 64> values{};
};

struct Released {
  std::shared_ptr<int> count = std::make_shared<int>(0);
  std::shared_ptr<HostBlock> block = std::make_shared<HostBlock>();
  // One owner of the block.
  std::shared_ptr<const void> owner() const {
    return {block.get(), [count = count, block = block](const void*) { ++*count; }};
  }
  std::span<const std::byte> bytes(std::size_t skip = 0) const {
    return std::as_bytes(std::span(block->values)).subspan(skip * 4, 16);
  }
};

}  // namespace tessera::pjrt
