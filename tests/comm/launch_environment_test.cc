#include "tessera/comm/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tessera/base/error.h"
#include "tessera/comm/process_group.h"

namespace tessera::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kAll[] = {"OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_LOCAL_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_SIZE",
                                "RANK",
                                "LOCAL_RANK",
                                "WORLD_SIZE",
                                "LOCAL_WORLD_SIZE",
                                "TPU_PROCESS_ADDRESSES"};

class LaunchEnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : kAll) unsetenv(name);
  }
  static void set(const Variables& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  static std::string refusal() {
    try {
      launch_environment();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "accepted";
  }
};

TEST_F(LaunchEnvironmentTest, IsNothingForAProcessAlone) { EXPECT_EQ(launch_environment(), std::nullopt); }

TEST_F(LaunchEnvironmentTest, IsWhatMpirunSays) {
  set({{"OMPI_COMM_WORLD_RANK", "5"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "8"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
       {"RANK", "0"}});
  EXPECT_EQ(launch_environment(), (LaunchEnvironment{5, 1, 8, 4, true}));
}

TEST_F(LaunchEnvironmentTest, ComesBackFromItsVariables) {
  LaunchEnvironment place{3, 1, 4, 2, false};
  set(rank_variables(place));
  EXPECT_EQ(launch_environment(), place);
}

TEST_F(LaunchEnvironmentTest, IsOnOneHostIfNothingElseIsSaid) {
  set({{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(launch_environment(), (LaunchEnvironment{1, 1, 2, 2, false}));
}

TEST_F(LaunchEnvironmentTest, RefusesWhatIsMissing) {
  set({{"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(refusal(),
            "LOCAL_RANK is set and RANK is not: a process of several needs RANK, LOCAL_RANK and WORLD_SIZE");
  clear();
  set({{"WORLD_SIZE", "2"}});
  EXPECT_THAT(refusal(), HasSubstr("WORLD_SIZE is set and RANK is not"));
}

TEST_F(LaunchEnvironmentTest, RefusesWhatDoesNotFit) {
  auto with = [](const char* rank, const char* local_rank, const char* size) {
    set({{"RANK", rank}, {"LOCAL_RANK", local_rank}, {"WORLD_SIZE", size}});
    return refusal();
  };
  EXPECT_EQ(with("2", "0", "2"), "RANK=2 does not fit WORLD_SIZE=2: ranks are counted from 0");
  EXPECT_EQ(with("1", "2", "2"), "LOCAL_RANK=2 does not fit WORLD_SIZE=2: ranks are counted from 0");
  EXPECT_EQ(with("one", "0", "2"), "RANK='one' is no count of processes");
  EXPECT_EQ(with("-1", "0", "2"), "RANK='-1' is no count of processes");
  EXPECT_EQ(with("0", "0", "0"), "RANK=0 does not fit WORLD_SIZE=0: ranks are counted from 0");
  setenv("LOCAL_WORLD_SIZE", "3", 1);
  EXPECT_EQ(with("1", "1", "2"), "LOCAL_WORLD_SIZE=3 is more than WORLD_SIZE=2");
}

// The variables that libtpu wants for one process a chip.
TEST_F(LaunchEnvironmentTest, TellsLibtpuWhichChipIsWhose) {
  Variables of_fifth = tpu_variables({5, 5, 8, 8, false});
  EXPECT_THAT(of_fifth, ::testing::ElementsAre(
                            Pair("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"), Pair("CLOUD_TPU_TASK_ID", "5"),
                            Pair("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"),
                            Pair("TPU_PROCESS_ADDRESSES",
                                 "localhost:8476,localhost:8477,localhost:8478,localhost:8479,localhost:8480,"
                                 "localhost:8481,localhost:8482,localhost:8483"),
                            Pair("TPU_PROCESS_BOUNDS", "2,4,1"), Pair("TPU_PROCESS_PORT", "8481"),
                            Pair("TPU_VISIBLE_CHIPS", "5")));
  EXPECT_THROW(tpu_variables({0, 0, 3, 3, false}), Error);
  EXPECT_THROW(tpu_variables({0, 0, 8, 4, false}), Error);
}

// A group cannot be left to be joined anew, so what is refused is tested alone.
TEST_F(LaunchEnvironmentTest, ProcessesMeetOnACpuOnlyUnderMpirun) {
  auto refused = [](const char* device) -> std::string {
    try {
      ProcessGroup::join({0, 0, 2, 2, false}, device);
    } catch (const Error& e) {
      return e.what();
    }
    return "joined";
  };
  EXPECT_THAT(refused("cpu"), HasSubstr("rank 0 of 2, but no mpirun started it"));
  EXPECT_THAT(refused("cuda"), HasSubstr("2 processes share a model on cpu or tpu, not on cuda"));
  EXPECT_EQ(ProcessGroup::joined(), nullptr);
}

}  // namespace
}  // namespace tessera::comm
