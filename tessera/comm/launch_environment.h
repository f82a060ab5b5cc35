#pragma once

#include <map>
#include <optional>
#include <string>

namespace tessera::comm {

// Which of several processes this one is, as whatever started it says.
struct LaunchEnvironment {
  int rank = 0;        // among all
  int local_rank = 0;  // among those on this host
  int world_size = 1;
  int local_size = 1;  // on this host
  bool mpirun = false;

  friend bool operator==(const LaunchEnvironment&, const LaunchEnvironment&) = default;
};

// Environment variables and what they are set to.
using Variables = std::map<std::string, std::string>;

// From mpirun's variables (OMPI_COMM_WORLD_RANK, ...), else from RANK, LOCAL_RANK and WORLD_SIZE, which other
// launchers set (LOCAL_WORLD_SIZE counts the processes of a host; without it all are on one). Nothing if none
// of them is set. Throws kInvalidArgument, naming the variable, if one is missing or does not fit the others.
std::optional<LaunchEnvironment> launch_environment();

// What tells a process its place, for those that no mpirun starts.
Variables rank_variables(const LaunchEnvironment& place);

// What libtpu wants to know before it is loaded where each process of a host drives one of its chips
// (TPU_VISIBLE_CHIPS, TPU_PROCESS_BOUNDS and their like). Throws kUnimplemented for several hosts,
// whose addresses have to come from whoever starts the processes, and for a number of chips that makes no
// grid.
Variables tpu_variables(const LaunchEnvironment& place);

}  // namespace tessera::comm
