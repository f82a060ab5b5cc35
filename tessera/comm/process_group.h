#pragma once

#include <span>
#include <string_view>

#include "tessera/comm/launch_environment.h"

namespace tessera::comm {

// Whether this build has MPI, through which processes meet on a CPU.
bool has_mpi();

// The processes that share a model, each with one device: a rank each. There is one group at most in a
// process, because MPI is one, and so are the functions that compiled programs call.
class ProcessGroup {
 public:
  // Joins the others. `device` is the name of the kind of device that each process has. On a CPU the
  // processes meet in MPI, which only mpirun sets up. On a TPU they meet inside libtpu: where the environment
  // does not tell it how the chips are shared out, this does (tpu_variables), so join before the client is
  // made. Throws kInvalidArgument for a device that several processes cannot share a model on, kUnavailable
  // if the others cannot be met. A second call gives the same group.
  static const ProcessGroup& join(const LaunchEnvironment& place, std::string_view device);
  // The group that was joined; null if none was.
  static const ProcessGroup* joined();

  int rank() const { return place_.rank; }
  int size() const { return place_.world_size; }
  const LaunchEnvironment& place() const { return place_; }
  // Whether sums over the ranks are made on the host, by all_reduce_sum, and not by the device's own network.
  bool meets_on_host() const { return meets_on_host_; }

  // out[i] is the sum of x[i] over the ranks, with the same bits on each. All ranks call in the same order.
  // x and out may be the same memory. Throws kUnavailable if the others cannot be reached.
  void all_reduce_sum(std::span<const float> x, std::span<float> out) const;

  // Says that this process is done; nothing may be asked of the group afterwards. With a `status` other than
  // 0 the other processes of mpirun are ended as well, and so may be this one before the call returns.
  void leave(int status) const;

 private:
  ProcessGroup(const LaunchEnvironment& place, bool meets_on_host)
      : place_(place), meets_on_host_(meets_on_host) {}
  LaunchEnvironment place_;
  bool meets_on_host_;
};

}  // namespace tessera::comm
