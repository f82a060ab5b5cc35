#pragma once

#include <string_view>

#include "tessera/pjrt/pjrt.h"

// What programs for a CPU call: code of ours, reached through XLA's foreign function interface.
namespace tessera::kernels {

// (x f32[...], turn i32[]) -> (the sum of x over the ranks of the group that was joined, turn + 1).
inline constexpr std::string_view kAllReduceOnHost = "tessera_all_reduce";

// Makes the functions known to the plugin, once for each, if programs of the platform can call them and there
// are any. To be called before programs are compiled or loaded. Throws what the plugin says.
void register_handlers(const pjrt::Plugin& plugin, std::string_view platform);

}  // namespace tessera::kernels
