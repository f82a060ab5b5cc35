#pragma once

#include <filesystem>
#include <string>

namespace tessera::pjrt {

// Why a TPU of this machine may not be had, and what to do: that there is no chip (the device files
// /dev/accel* and /dev/vfio/*), that this user may not open one, which processes hold one, or that libtpu's
// lock file was left behind. One line, for the end of an error message; empty if nothing is amiss. `root`
// stands for / in tests.
std::string explain_tpu_host(const std::filesystem::path& root = "/");

// How many chips the machine under `root` shows.
int count_tpu_chips(const std::filesystem::path& root = "/");

}  // namespace tessera::pjrt
