#pragma once

#include <span>

// Inside the comm room: all that is asked of MPI. In a build without it each of these throws kUnimplemented.
// Errors of MPI are thrown as kUnavailable, with its own message.
namespace tessera::comm::mpi {

void start();
int rank();
int size();
void all_reduce_sum(std::span<const float> x, std::span<float> out);
// Waits for the others and ends MPI; with a `status` other than 0, ends all processes with it.
void stop(int status);

}  // namespace tessera::comm::mpi
