#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/pjrt/fake_testing.h"

namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Loads copies of the fake plugin, each in its own mode.
class Loading : public ::testing::Test {
 protected:
  Loading() {
    std::string pattern = fs::temp_directory_path() / "tessera_pjrt_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Loading() override {
    ::unsetenv("TESSERA_FAKE_PLUGIN");
    fs::remove_all(folder_);
  }
  fs::path copy(const std::string& mode) {
    fs::path path = folder_ / (mode + ".so");
    fs::copy_file(TESSERA_FAKE_PLUGIN, path);
    ::setenv("TESSERA_FAKE_PLUGIN", mode.c_str(), 1);
    return path;
  }
  std::string load(const fs::path& path) {
    return error_of([&] { Plugin::load(path); });
  }

  fs::path folder_;
};

TEST_F(Loading, AgainGivesTheSamePlugin) {
  fs::path path = copy("whole");
  auto plugin = Plugin::load(path);
  EXPECT_EQ(Plugin::load(path), plugin);
  EXPECT_EQ(Plugin::load(folder_ / "." / "whole.so"), plugin);
  fs::create_symlink(path, folder_ / "link.so");
  EXPECT_EQ(Plugin::load(folder_ / "link.so"), plugin);
  EXPECT_NE(Plugin::load(TESSERA_FAKE_PLUGIN), plugin);
}

TEST_F(Loading, LeavesRequestsToStopAsTheyAre) {
  auto handler = +[](int) {};
  std::signal(SIGTERM, handler);
  Plugin::load(copy("signals"));
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), handler);
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_DFL);
  EXPECT_EQ(std::signal(SIGUSR1, SIG_DFL), SIG_IGN);  // the plugin's own
}

TEST_F(Loading, ABareNameIsAFileOfTheWorkingFolder) {
  copy("whole");
  fs::path before = fs::current_path();
  fs::current_path(folder_);
  std::string found = load("whole.so");
  fs::current_path(before);
  EXPECT_EQ(found, "none");
}

TEST_F(Loading, RefusesWhatIsNoPlugin) {
  EXPECT_THAT(load(folder_ / "missing.so"), AllOf(StartsWith("unavailable: "), HasSubstr("missing.so")));
  EXPECT_THAT(load(folder_), StartsWith("unavailable: "));
  std::ofstream(folder_ / "text.so") << "not a library";
  EXPECT_THAT(load(folder_ / "text.so"), AllOf(StartsWith("unavailable: "), HasSubstr("text.so")));
  EXPECT_THAT(load(TESSERA_NO_PLUGIN), EndsWith("is no PJRT plugin: it has no GetPjrtApi"));
  EXPECT_THAT(load(copy("null")), EndsWith("null.so: GetPjrtApi gave nothing"));
  EXPECT_THAT(load(copy("short")),
              AllOf(StartsWith("unavailable: "), HasSubstr("short.so"), HasSubstr("too short")));
}

TEST_F(Loading, RefusesAnotherMajorVersion) {
  EXPECT_THAT(load(copy("major")),
              AllOf(StartsWith("unimplemented: "), HasSubstr("major.so speaks version 1."),
                    HasSubstr("Tessera speaks 0.x")));
}

TEST_F(Loading, NeedsToInitialiseThePlugin) {
  EXPECT_THAT(
      load(copy("no_initialize")),
      AllOf(StartsWith("unimplemented: "), HasSubstr("no_initialize.so has no PJRT_Plugin_Initialize")));
  fs::path failing = copy("fail_initialize");
  EXPECT_EQ(load(failing), "internal: PJRT_Plugin_Initialize: planned");
  EXPECT_TRUE(control_of(failing).live.empty());
  // A failure is not remembered.
  control_of(failing).faults.calls.clear();
  ::unsetenv("TESSERA_FAKE_PLUGIN");
  EXPECT_EQ(load(failing), "none");
}

class Plugins : public Fake {};

TEST_F(Plugins, TellVersionAttributesAndExtensions) {
  EXPECT_EQ(plugin_->version().major, PJRT_API_MAJOR);
  EXPECT_EQ(plugin_->version().minor, PJRT_API_MINOR);
  EXPECT_EQ(plugin_->path(), TESSERA_FAKE_PLUGIN);
  NamedValues values{{"text", std::string("words")},
                     {"number", std::int64_t{-7}},
                     {"list", std::vector<std::int64_t>{1, 2, 3}},
                     {"real", 0.5f},
                     {"flag", true}};
  EXPECT_EQ(plugin_->attributes(), values);
  EXPECT_TRUE(plugin_->has_extension(PJRT_Extension_Type_FFI));
  EXPECT_TRUE(plugin_->has_extension(PJRT_Extension_Type_Layouts));
  EXPECT_FALSE(plugin_->has_extension(PJRT_Extension_Type_Profiler));
  control_.api->extension_start = nullptr;
  EXPECT_FALSE(plugin_->has_extension(PJRT_Extension_Type_FFI));
}

TEST_F(Plugins, PassOptionsOfEveryKind) {
  NamedValues options{{"text", std::string("words")},
                      {"number", std::int64_t{8}},
                      {"list", std::vector<std::int64_t>{1, 2}},
                      {"real", 0.5f},
                      {"flag", true}};
  plugin_->create_client(options);
  EXPECT_THAT(control_.options,
              ::testing::ElementsAre("flag=true", "list=1,2,", "number=8", "real=0.500000", "text=words"));
  plugin_->create_client();
  EXPECT_TRUE(control_.options.empty());
}

TEST_F(Plugins, DescribeDevices) {
  auto client = plugin_->create_client();
  EXPECT_EQ(client->platform_name(), "cpu");
  EXPECT_EQ(client->platform_version(), "fake 1.0");
  ASSERT_EQ(client->devices().size(), 2u);
  const DeviceInfo& device = client->devices()[1];
  EXPECT_EQ(device.id, 11);
  EXPECT_EQ(device.kind, "Fake v1");
  EXPECT_EQ(device.text, "fake device 11");
  EXPECT_EQ(device.attributes, (NamedValues{{"device_memory_bytes_limit", std::int64_t{33546042880}}}));

  EXPECT_EQ(client->memory_stats(0)->bytes_in_use, 1010);
  EXPECT_EQ(client->memory_stats(0)->bytes_limit, 2000);
  EXPECT_EQ(client->memory_stats(1)->bytes_limit, std::nullopt);
  for (int index : {-1, 2}) {
    EXPECT_THAT(error_of([&] { client->memory_stats(index); }),
                StartsWith("invalid argument: there is no device"));
  }
}

TEST_F(Plugins, HaveTheTraitsOfTheirPlatform) {
  for (std::string platform : {"cpu", "tpu", "cuda", "unheard of"}) {
    SCOPED_TRACE(platform);
    control_.platform = platform;
    Traits traits = plugin_->create_client()->traits();
    EXPECT_EQ(traits.zero_copy, platform == "cpu");
    EXPECT_EQ(traits.concurrent_collectives, platform == "tpu" || platform == "cuda");
    EXPECT_TRUE(traits.memory_stats);
  }
  control_.faults.calls["PJRT_Device_MemoryStats"] = PJRT_Error_Code_UNIMPLEMENTED;
  EXPECT_FALSE(plugin_->create_client()->traits().memory_stats);
}

TEST_F(Plugins, CompileForATopology) {
  auto topology = plugin_->topology("v6e:2x4", {{"flag", true}});
  EXPECT_EQ(control_.topology_name, "v6e:2x4");
  EXPECT_THAT(control_.options, ::testing::ElementsAre("flag=true"));
  EXPECT_EQ(topology->platform_name(), "fake");
  ASSERT_EQ(topology->devices().size(), 1u);
  EXPECT_EQ(topology->devices()[0].kind, "Fake v1");
  auto executable = topology->compile("text", {.num_replicas = 1, .device_ids = {}});
  EXPECT_EQ(control_.program, "text");
  EXPECT_EQ(control_.format, "mlir");
  EXPECT_EQ(executable->serialize(), std::string("bytes\0more", 10));
  EXPECT_THAT(error_of([&] { executable->execute_one({}); }), StartsWith("unimplemented: "));
  EXPECT_THAT(error_of([&] { executable->execute({}); }), StartsWith("unimplemented: "));
}

}  // namespace
}  // namespace tessera::pjrt
