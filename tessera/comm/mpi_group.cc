#include "tessera/comm/mpi_group.h"

#include "tessera/base/error.h"
#include "tessera/comm/process_group.h"

#if TESSERA_WITH_MPI
// The bindings for C++ went out of the standard long ago.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

#include <algorithm>
#include <string>

namespace tessera::comm {

bool has_mpi() { return TESSERA_WITH_MPI != 0; }

namespace mpi {

#if TESSERA_WITH_MPI
namespace {

void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(ErrorCode::kUnavailable, "{}: {}", function, std::string(text, static_cast<std::size_t>(length)));
}

int ask(int (*function)(MPI_Comm, int*), const char* name) {
  int out = 0;
  check(function(MPI_COMM_WORLD, &out), name);
  return out;
}

}  // namespace

void start() {
  int given = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &given), "MPI_Init_thread");
  // By itself MPI ends the process at an error.
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (given < MPI_THREAD_MULTIPLE) {
    fail(ErrorCode::kUnimplemented, "this MPI cannot be called from several threads (MPI_THREAD_MULTIPLE)");
  }
}

int rank() { return ask(MPI_Comm_rank, "MPI_Comm_rank"); }
int size() { return ask(MPI_Comm_size, "MPI_Comm_size"); }

void all_reduce_sum(std::span<const float> x, std::span<float> out) {
  constexpr std::size_t kPiece = std::size_t{1} << 28;  // MPI counts in int
  for (std::size_t at = 0; at < x.size(); at += kPiece) {
    const float* from = x.data() == out.data() ? static_cast<const float*>(MPI_IN_PLACE) : x.data() + at;
    auto count = static_cast<int>(std::min(kPiece, x.size() - at));
    check(MPI_Allreduce(from, out.data() + at, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
  }
}

void stop(int status) {
  if (status != 0) {
    MPI_Abort(MPI_COMM_WORLD, status);
    return;
  }
  check(MPI_Finalize(), "MPI_Finalize");
}

#else
namespace {
[[noreturn]] void missing() { fail(ErrorCode::kUnimplemented, "this build of Tessera has no MPI"); }
}  // namespace

void start() { missing(); }
int rank() { missing(); }
int size() { missing(); }
void all_reduce_sum(std::span<const float>, std::span<float>) { missing(); }
void stop(int) { missing(); }
#endif

}  // namespace mpi
}  // namespace tessera::comm
