#include "tessera/pjrt/tpu_host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockFile = "tmp/libtpu_lockfile";

// The device files of the chips, under `root`.
std::vector<fs::path> chips(const fs::path& root) {
  std::vector<fs::path> out;
  for (const char* pattern : {"dev/accel[0-9]*", "dev/vfio/[0-9]*"}) {
    glob_t found{};
    if (glob((root / pattern).c_str(), 0, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
    }
    globfree(&found);
  }
  return out;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Whether a process, by its folder in /proc, has one of the files open. What may not be looked at has not.
bool holds(const fs::path& process, const std::vector<fs::path>& files) {
  std::error_code error;
  for (fs::directory_iterator i(process / "fd", error), end; !error && i != end; i.increment(error)) {
    std::error_code ignored;
    fs::path target = fs::read_symlink(i->path(), ignored);
    if (std::ranges::find(files, target) != files.end()) return true;
  }
  return false;
}

// "4711 (python3)" for each other process that has one of the files open.
std::vector<std::string> holders(const fs::path& root, const std::vector<fs::path>& files) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator i(root / "proc", error), end; !error && i != end; i.increment(error)) {
    std::string id = i->path().filename().string();
    if (!is_number(id) || id == std::to_string(getpid()) || !holds(i->path(), files)) continue;
    std::ifstream in(i->path() / "comm");
    std::string name;
    std::getline(in, name);
    out.push_back(name.empty() ? id : fmt::format("{} ({})", id, name));
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

int count_tpu_chips(const fs::path& root) { return static_cast<int>(chips(root).size()); }

std::string explain_tpu_host(const fs::path& root) {
  std::vector<fs::path> files = chips(root);
  if (files.empty()) {
    return "this machine shows no TPU chip (/dev/accel*, /dev/vfio/*); run on a TPU VM, or choose --device "
           "cpu";
  }
  for (const fs::path& file : files) {
    if (access(file.c_str(), R_OK | W_OK) == 0) continue;
    return fmt::format("this user may not open {}; run as root, or join the group that owns it",
                       file.string());
  }
  fs::path lock = root / kLockFile;
  files.push_back(lock);
  if (std::vector<std::string> others = holders(root, files); !others.empty()) {
    return fmt::format(
        "a TPU serves one process at a time, and process {} holds one; stop it, or wait for its end",
        fmt::join(others, ", "));
  }
  std::error_code ignored;
  if (!fs::exists(lock, ignored)) return "";
  return fmt::format(
      "no process that this user can see holds a chip, but {} is there; if no other user's does, remove it",
      lock.string());
}

}  // namespace tessera::pjrt
