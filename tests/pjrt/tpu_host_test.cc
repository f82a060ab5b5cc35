#include "tessera/pjrt/tpu_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>

// What is said of a machine whose TPU cannot be had, on made-up machines.
namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class TpuHost : public ::testing::Test {
 protected:
  TpuHost() {
    fs::remove_all(root);
    fs::create_directories(root / "dev" / "vfio");
    fs::create_directories(root / "tmp");
    fs::create_directories(root / "proc" / "self");
  }
  ~TpuHost() override { fs::remove_all(root); }
  fs::path file(const fs::path& path) {
    std::ofstream(root / path) << "";
    return root / path;
  }
  void process(const std::string& id, const std::string& name, const fs::path& opened) {
    fs::create_directories(root / "proc" / id / "fd");
    std::ofstream(root / "proc" / id / "comm") << name << "\n";
    fs::create_symlink("/dev/null", root / "proc" / id / "fd" / "0");
    fs::create_symlink(opened, root / "proc" / id / "fd" / "3");
  }
  fs::path root = fs::path(::testing::TempDir()) / fmt::format("tpu_host_{}", getpid());
};

TEST_F(TpuHost, NoChip) {
  file("dev/vfio/vfio");  // the container of devices, which every machine with VFIO has
  EXPECT_EQ(count_tpu_chips(root), 0);
  EXPECT_THAT(explain_tpu_host(root), HasSubstr("shows no TPU chip"));
}

TEST_F(TpuHost, NothingAmiss) {
  file("dev/accel0");
  file("dev/vfio/12");
  process("1", "init", "/dev/tty");
  EXPECT_EQ(count_tpu_chips(root), 2);
  EXPECT_EQ(explain_tpu_host(root), "");
}

TEST_F(TpuHost, WhoHoldsIt) {
  process("4711", "python3", file("dev/vfio/0"));
  process("815", "", file("tmp/libtpu_lockfile"));
  EXPECT_THAT(explain_tpu_host(root), HasSubstr("process 4711 (python3), 815 holds one"));
}

TEST_F(TpuHost, ItselfDoesNotCount) {
  process(std::to_string(getpid()), "tessera", file("dev/accel0"));
  EXPECT_EQ(explain_tpu_host(root), "");
}

TEST_F(TpuHost, ALockFileLeftBehind) {
  file("dev/accel0");
  file("tmp/libtpu_lockfile");
  EXPECT_THAT(explain_tpu_host(root), HasSubstr("libtpu_lockfile is there"));
}

TEST_F(TpuHost, NoPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may open everything";
  fs::permissions(file("dev/accel0"), fs::perms::none);
  EXPECT_THAT(explain_tpu_host(root), HasSubstr("may not open"));
}

}  // namespace
}  // namespace tessera::pjrt
