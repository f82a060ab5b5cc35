#include "tessera/pjrt/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "tests/pjrt/error_testing.h"

namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A test with an environment of its own, and a folder of files that may stand for plugins.
class Registry : public ::testing::Test {
 protected:
  Registry() {
    for (const char* name : {"TESSERA_PJRT_CPU", "TESSERA_PJRT_TPU", "TPU_LIBRARY_PATH", "TESSERA_PJRT_CUDA",
                             "TESSERA_PLUGIN_AUTOLOAD", "TPU_SKIP_MDS_QUERY", "TPU_MIN_LOG_LEVEL",
                             "TPU_ACCELERATOR_TYPE", "TPU_WORKER_HOSTNAMES", "ALLOW_MULTIPLE_LIBTPU_LOAD"}) {
      const char* value = std::getenv(name);
      saved_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
    std::string pattern = fs::temp_directory_path() / "tessera_registry_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Registry() override {
    for (const auto& [name, value] : saved_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
    fs::remove_all(folder_);
  }
  fs::path file(const std::string& name) {
    std::ofstream(folder_ / name) << "not a library";
    return folder_ / name;
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  std::string load(const char* device) {
    return error_of([&] { registry_.load(device); });
  }

  fs::path folder_;
  PluginRegistry registry_;

 private:
  std::map<std::string, std::optional<std::string>> saved_;
};

TEST_F(Registry, KnowsItsDevices) {
  EXPECT_THAT(device_names(), ElementsAre("cpu", "tpu", "cuda"));
  for (const char* device : {"", "gpu", "CPU", "cpu:0"}) {
    std::string refused =
        std::string("invalid argument: '") + device + "' is no device; the devices are cpu, tpu, cuda";
    EXPECT_EQ(load(device), refused);
    EXPECT_EQ(error_of([&] { registry_.find(device); }), refused);
    EXPECT_EQ(error_of([&] { registry_.register_plugin(device, "x"); }), refused);
  }
}

TEST_F(Registry, LooksInOrder) {
  fs::path registered = file("registered.so"), tpu = file("tpu.so"), library = file("library.so");
  std::vector<fs::path> standard = registry_.places("tpu");
  ASSERT_GE(standard.size(), 3u);
  EXPECT_THAT(standard[0].string(), EndsWith("/plugins/libtpu.so"));
  fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  EXPECT_EQ(standard[1], program / "plugins" / "libtpu.so");
  EXPECT_EQ(standard[2], program.parent_path() / "lib" / "tessera" / "libtpu.so");

  set("TPU_LIBRARY_PATH", library);
  EXPECT_EQ(registry_.find("tpu"), library);
  set("TESSERA_PJRT_TPU", tpu);
  EXPECT_EQ(registry_.find("tpu"), tpu);
  registry_.register_plugin("tpu", folder_ / "replaced.so");
  registry_.register_plugin("tpu", registered);
  EXPECT_EQ(registry_.find("tpu"), registered);
  std::vector<fs::path> all{registered, tpu, library};
  all.insert(all.end(), standard.begin(), standard.end());
  EXPECT_EQ(registry_.places("tpu"), all);
  // Names do not share places.
  EXPECT_NE(registry_.find("cpu"), registered);
}

TEST_F(Registry, FindsThePluginOfTheBuild) {
  ASSERT_TRUE(registry_.find("cpu").has_value());
  EXPECT_THAT(registry_.find("cpu")->string(), EndsWith("/plugins/pjrt_c_api_cpu_plugin.so"));
  EXPECT_EQ(registry_.load("cpu")->path(), *registry_.find("cpu"));
}

TEST_F(Registry, FindsThePluginBesideTheProgram) {
  fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "plugins";
  ASSERT_FALSE(fs::exists(beside));
  fs::create_directory(beside);
  std::ofstream(beside / "xla_cuda_plugin.so") << "not a library";
  auto found = registry_.find("cuda");
  fs::remove_all(beside);
  EXPECT_EQ(found, beside / "xla_cuda_plugin.so");
}

TEST_F(Registry, AutoloadOffLeavesWhatWasRegistered) {
  set("TESSERA_PLUGIN_AUTOLOAD", "0");
  set("TESSERA_PJRT_CPU", file("named.so"));
  EXPECT_TRUE(registry_.places("cpu").empty());
  EXPECT_EQ(registry_.find("cpu"), std::nullopt);
  EXPECT_THAT(load("cpu"), AllOf(StartsWith("not found: no plugin for the device cpu; "),
                                 HasSubstr("TESSERA_PLUGIN_AUTOLOAD=0"), HasSubstr("scripts/setup.sh")));
  registry_.register_plugin("cpu", file("registered.so"));
  EXPECT_THAT(registry_.places("cpu"), ElementsAre(folder_ / "registered.so"));
  EXPECT_EQ(registry_.find("cpu"), folder_ / "registered.so");
  set("TESSERA_PLUGIN_AUTOLOAD", "perhaps");
  EXPECT_THAT(load("cpu"), AllOf(StartsWith("invalid argument: "), HasSubstr("TESSERA_PLUGIN_AUTOLOAD")));
}

TEST_F(Registry, AMissingPluginSaysWhereAndWhatToDo) {
  // No build brings this one.
  ASSERT_EQ(registry_.find("cuda"), std::nullopt);
  std::string error = load("cuda");
  EXPECT_THAT(error, StartsWith("not found: no plugin for the device cuda; looked at "));
  for (const fs::path& place : registry_.places("cuda")) EXPECT_THAT(error, HasSubstr(place.string()));
  EXPECT_THAT(error, HasSubstr("set TESSERA_PJRT_CUDA"));
}

TEST_F(Registry, AWrongNameIsNotPassedOver) {
  set("TESSERA_PJRT_CPU", folder_ / "missing.so");
  EXPECT_EQ(load("cpu"),
            "not found: TESSERA_PJRT_CPU=" + (folder_ / "missing.so").string() + ": there is no such file");
  EXPECT_EQ(registry_.find("cpu"), std::nullopt);
  set("TESSERA_PJRT_CPU", folder_);
  EXPECT_THAT(load("cpu"), EndsWith(": there is no such file"));
  registry_.register_plugin("cpu", folder_ / "other.so");
  EXPECT_EQ(load("cpu"), "not found: the plugin registered for cpu, " + (folder_ / "other.so").string() +
                             ": there is no such file");
  // What comes first counts, whatever comes after it.
  registry_.register_plugin("cpu", file("text.so"));
  EXPECT_THAT(load("cpu"), AllOf(StartsWith("unavailable: "), HasSubstr("text.so")));
  // An empty variable is none.
  set("TESSERA_PJRT_TPU", "");
  EXPECT_THAT(registry_.places("tpu")[0].string(), EndsWith("/plugins/libtpu.so"));
}

TEST_F(Registry, ANameMayBeServedByAnotherPlatform) {
  set("TESSERA_PJRT_TPU", TESSERA_FAKE_PLUGIN);
  auto plugin = registry_.load("tpu");
  EXPECT_EQ(plugin->path(), TESSERA_FAKE_PLUGIN);
  EXPECT_EQ(plugin->create_client()->platform_name(), "cpu");
}

TEST_F(Registry, KeepsLibtpuFromWaitingForAMetadataServer) {
  bool machine_has_tpu = fs::exists("/dev/accel0") || fs::exists("/dev/vfio/0");
  if (machine_has_tpu) GTEST_SKIP() << "this machine has a TPU";
  set("TESSERA_PJRT_TPU", TESSERA_FAKE_PLUGIN);
  registry_.find("tpu");
  registry_.load("cpu");
  EXPECT_EQ(std::getenv("TPU_SKIP_MDS_QUERY"), nullptr);
  registry_.load("tpu");
  EXPECT_STREQ(std::getenv("TPU_SKIP_MDS_QUERY"), "1");
  EXPECT_STREQ(std::getenv("TPU_MIN_LOG_LEVEL"), "3");
  EXPECT_STREQ(std::getenv("TPU_ACCELERATOR_TYPE"), "v6e-1");
  EXPECT_STREQ(std::getenv("TPU_WORKER_HOSTNAMES"), "localhost");
  EXPECT_STREQ(std::getenv("ALLOW_MULTIPLE_LIBTPU_LOAD"), "1");
  set("TPU_SKIP_MDS_QUERY", "0");
  set("TPU_MIN_LOG_LEVEL", "0");
  registry_.load("tpu");
  EXPECT_STREQ(std::getenv("TPU_SKIP_MDS_QUERY"), "0");
  EXPECT_STREQ(std::getenv("TPU_MIN_LOG_LEVEL"), "0");
}

TEST(CompileOptionsProto, IsWhatProtobufWrites) {
  auto hex = [](const CompileOptions& options) {
    std::string out;
    for (unsigned char byte : options.serialize()) {
      constexpr char kDigits[] = "0123456789abcdef";
      out += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return out;
  };
  EXPECT_EQ(hex({}), "1a0420012801");
  EXPECT_EQ(hex({.num_replicas = 8, .device_ids = {}}), "1a0420082801");
  EXPECT_EQ(hex({.num_replicas = 300, .device_ids = {}}), "1a0520ac022801");
  // executable_build_options {num_replicas: 2 num_partitions: 1 device_assignment {replica_count: 2
  // computation_count: 1 computation_devices {replica_device_ids: [3, 200]}}}
  EXPECT_EQ(hex({.num_replicas = 2, .device_ids = {3, 200}}), "1a11200228014a0b080210011a050a0303c801");
  EXPECT_EQ(hex({.device_ids = {}, .quick = true}), "1a0720012801c00113");  // optimization_level: 19
  // env_option_overrides {key: "ab" value {int_field: 300}}
  EXPECT_EQ(hex({.device_ids = {}, .settings = {{"ab", 300}}}),
            "1a04200128013a090a0261621203"
            "18ac02");
}

}  // namespace
}  // namespace tessera::pjrt
