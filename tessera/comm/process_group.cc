#include "tessera/comm/process_group.h"

#include <cstdlib>
#include <memory>
#include <mutex>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/comm/mpi_group.h"

namespace tessera::comm {
namespace {

std::mutex mutex;
std::unique_ptr<const ProcessGroup> group;  // guarded by mutex; never changed once it is set

void meet_in_mpi(const LaunchEnvironment& place) {
  if (!place.mpirun) {
    invalid_argument(
        "the environment says that this is rank {} of {}, but no mpirun started it, and on a CPU processes "
        "meet "
        "through MPI: start them with `tessera launch --device cpu` or mpirun, or unset RANK, LOCAL_RANK and "
        "WORLD_SIZE",
        place.rank, place.world_size);
  }
  if (!has_mpi()) {
    fail(ErrorCode::kUnimplemented,
         "mpirun started this process, and this build has no MPI; install Open MPI (Debian: libopenmpi-dev "
         "openmpi-bin) and build again, or split the model within one process");
  }
  mpi::start();
  if (mpi::rank() == place.rank && mpi::size() == place.world_size) return;
  fail(ErrorCode::kUnavailable,
       "MPI says that this is rank {} of {}, and the environment that it is rank {} of {}: this build's MPI "
       "is "
       "not that of the mpirun which started it",
       mpi::rank(), mpi::size(), place.rank, place.world_size);
}

// libtpu reads the environment when it is loaded. What the user has set stays.
void tell_libtpu(const LaunchEnvironment& place) {
  if (env("TPU_PROCESS_ADDRESSES")) return;
  for (const auto& [name, value] : tpu_variables(place)) setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
}

}  // namespace

const ProcessGroup& ProcessGroup::join(const LaunchEnvironment& place, std::string_view device) {
  std::lock_guard lock(mutex);
  if (group) return *group;
  if (device == "cpu") {
    meet_in_mpi(place);
  } else if (device == "tpu") {
    tell_libtpu(place);
  } else {
    invalid_argument(
        "{} processes share a model on cpu or tpu, not on {}; one process can drive all of its devices",
        place.world_size, device);
  }
  group.reset(new ProcessGroup(place, device == "cpu"));
  return *group;
}

const ProcessGroup* ProcessGroup::joined() {
  std::lock_guard lock(mutex);
  return group.get();
}

void ProcessGroup::all_reduce_sum(std::span<const float> x, std::span<float> out) const {
  check_internal(meets_on_host_, "a sum on the host is asked for where devices meet by themselves");
  check_internal(x.size() == out.size(), "a sum over ranks has another size than what is added up");
  mpi::all_reduce_sum(x, out);
}

void ProcessGroup::leave(int status) const {
  if (meets_on_host_) mpi::stop(status);
}

}  // namespace tessera::comm
