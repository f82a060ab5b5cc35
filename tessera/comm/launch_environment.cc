#include "tessera/comm/launch_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "tessera/base/env.h"
#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

// The variables of one kind of launcher.
struct Names {
  const char *rank, *local_rank, *world_size, *local_size;
};
constexpr Names kMpirun{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kOthers{"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};

int number(const char* name, const std::string& text) {
  int value = 0;
  auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || stop != text.data() + text.size() || value < 0) {
    invalid_argument("{}='{}' is no count of processes", name, text);
  }
  return value;
}

// A variable that goes with another, which is set.
int needed(const char* name, const char* because) {
  std::optional<std::string> text = env(name);
  if (!text) {
    invalid_argument("{} is set and {} is not: a process of several needs RANK, LOCAL_RANK and WORLD_SIZE",
                     because, name);
  }
  return number(name, *text);
}

void check_below(const char* name, int value, const char* limit_name, int limit) {
  if (value >= limit) {
    invalid_argument("{}={} does not fit {}={}: ranks are counted from 0", name, value, limit_name, limit);
  }
}

// The port of the first process; libtpu's own default.
constexpr int kTpuPort = 8476;

// How libtpu lays out the chips of one host, as "x,y,z".
std::string_view process_grid(int chips) {
  switch (chips) {
    case 1:
      return "1,1,1";
    case 2:
      return "1,2,1";
    case 4:
      return "2,2,1";
    case 8:
      return "2,4,1";
    default:
      fail(ErrorCode::kUnimplemented, "{} processes with a chip each: a host has 1, 2, 4 or 8 chips", chips);
  }
}

}  // namespace

std::optional<LaunchEnvironment> launch_environment() {
  bool mpirun = env(kMpirun.rank).has_value();
  const Names& names = mpirun ? kMpirun : kOthers;
  const char* set = nullptr;
  for (const char* name : {names.rank, names.local_rank, names.world_size}) {
    if (set == nullptr && env(name)) set = name;
  }
  if (set == nullptr) return std::nullopt;
  LaunchEnvironment out{.rank = needed(names.rank, set),
                        .local_rank = needed(names.local_rank, set),
                        .world_size = needed(names.world_size, set),
                        .mpirun = mpirun};
  std::optional<std::string> local_size = env(names.local_size);
  out.local_size = local_size ? number(names.local_size, *local_size) : out.world_size;
  check_below(names.rank, out.rank, names.world_size, out.world_size);
  check_below(names.local_rank, out.local_rank, local_size ? names.local_size : names.world_size,
              out.local_size);
  if (out.local_size > out.world_size) {
    invalid_argument("{}={} is more than {}={}", names.local_size, out.local_size, names.world_size,
                     out.world_size);
  }
  return out;
}

Variables rank_variables(const LaunchEnvironment& place) {
  return {{kOthers.rank, std::to_string(place.rank)},
          {kOthers.local_rank, std::to_string(place.local_rank)},
          {kOthers.world_size, std::to_string(place.world_size)},
          {kOthers.local_size, std::to_string(place.local_size)}};
}

Variables tpu_variables(const LaunchEnvironment& place) {
  if (place.local_size != place.world_size) {
    fail(ErrorCode::kUnimplemented,
         "{} processes, {} of them on this host: over several hosts, set TPU_PROCESS_BOUNDS, "
         "TPU_CHIPS_PER_PROCESS_BOUNDS, TPU_PROCESS_ADDRESSES, TPU_PROCESS_PORT, TPU_VISIBLE_CHIPS and "
         "CLOUD_TPU_TASK_ID for each",
         place.world_size, place.local_size);
  }
  std::string addresses;
  for (int rank = 0; rank < place.world_size; ++rank) {
    addresses += fmt::format("{}localhost:{}", rank == 0 ? "" : ",", kTpuPort + rank);
  }
  return {{"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"},
          {"CLOUD_TPU_TASK_ID", std::to_string(place.rank)},
          {"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"},
          {"TPU_PROCESS_ADDRESSES", addresses},
          {"TPU_PROCESS_BOUNDS", std::string(process_grid(place.world_size))},
          {"TPU_PROCESS_PORT", std::to_string(kTpuPort + place.rank)},
          {"TPU_VISIBLE_CHIPS", std::to_string(place.local_rank)}};
}

}  // namespace tessera::comm
