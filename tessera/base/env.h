#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

// The value of an environment variable; an unset or empty one is nullopt.
std::optional<std::string> env(const char* name);

// "1", "true", "yes", "on" / "0", "false", "no", "off". Throws kInvalidArgument, naming the variable, for
// another value.
std::optional<bool> env_flag(const char* name);

// Reads a size such as "31GiB", "512MB", "1.5G", "1024"; K, M, G, T are powers of 1024 alone or with "iB",
// powers of 1000 with "B". Throws kInvalidArgument, naming `what`, if it cannot be read or is negative.
std::int64_t parse_bytes(const std::string& text, const std::string& what);

// "15.7 MiB": for people.
std::string format_bytes(std::int64_t bytes);

}  // namespace tessera
