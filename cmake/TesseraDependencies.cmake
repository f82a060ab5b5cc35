# Everything that is not written here comes from Debian or from third_party/ (see docs/dependencies.md).
find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TESSERA_CCACHE}")
endif()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PNG REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

foreach(header pjrt_c_api.h xla/ffi/api/ffi.h)
  if(NOT EXISTS "${TESSERA_THIRD_PARTY}/include/${header}")
    message(FATAL_ERROR "${TESSERA_THIRD_PARTY}/include/${header} is missing: run scripts/setup.sh (or `make setup`) first")
  endif()
endforeach()

# Optional: several processes that share a model on a CPU meet through it.
find_package(MPI QUIET COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(STATUS "no MPI: several processes cannot share a model on a CPU (Debian: libopenmpi-dev openmpi-bin)")
endif()
