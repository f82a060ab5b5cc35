#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tessera/pjrt/pjrt.h"

namespace tessera {

// Everything besides its text and compile options that a program compiled by this client depends on, a line
// each: platform, device kind and count, plugin (version, build), the plugins' flags in the environment, this
// project's kernels, and, where programs hold code for this machine's processor, its features and the number
// of threads.
std::string environment_key(const pjrt::Client& client);
// The same of a client that has all devices of the topology, as far as that can be known without one: what
// the plugin says of the platform's version there may be other words.
std::string environment_key(const pjrt::Topology& topology);

// The build id (hexadecimal) that a linker left in an ELF file; nullopt if there is none.
std::optional<std::string> elf_build_id(const std::filesystem::path& path);

}  // namespace tessera
