#include "tessera/runtime/environment_key.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/quote.h"
#include "tessera/kernels/registry.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string hash_of(std::string_view text) {
  XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// Copies a struct out of a file's bytes, if it lies inside.
template <typename T>
bool read_at(std::span<const std::byte> bytes, std::uint64_t offset, T& value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof value) return false;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return true;
}

// The descriptor of the build-id note in a note segment.
std::optional<std::string> build_id_in(std::span<const std::byte> notes) {
  auto padded = [](std::uint64_t n) { return (n + 3) / 4 * 4; };
  std::uint64_t at = 0;
  for (Elf64_Nhdr note; read_at(notes, at, note);) {
    std::uint64_t name = at + sizeof note, text = name + padded(note.n_namesz);
    if (text > notes.size() || notes.size() - text < note.n_descsz) break;
    constexpr std::string_view kOwner("GNU\0", 4);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == kOwner.size() &&
        std::memcmp(notes.data() + name, kOwner.data(), kOwner.size()) == 0) {
      std::string id;
      for (std::byte b : notes.subspan(text, note.n_descsz))
        id += fmt::format("{:02x}", static_cast<unsigned>(b));
      if (!id.empty()) return id;
    }
    at = text + padded(note.n_descsz);
  }
  return std::nullopt;
}

std::string plugin_build(const fs::path& path) {
  if (auto id = elf_build_id(path)) return "build id " + *id;
  std::error_code ignored;
  fs::path real = fs::canonical(path, ignored);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "unknown";
  return fmt::format("{} bytes of {}.{:09} at {}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                     hash_of(real.string()));
}

// What of /proc/cpuinfo tells processors apart for a compiler, of the first processor; clocks and numbers of
// cores are left out.
std::string processor() {
  static const std::set<std::string, std::less<>> kNames{
      "vendor_id",       "cpu family",       "model",       "model name", "stepping", "flags", "Features",
      "CPU implementer", "CPU architecture", "CPU variant", "CPU part",   "isa"};
  std::ifstream file("/proc/cpuinfo");
  std::string facts, line;
  while (std::getline(file, line) && !line.empty()) {
    std::string name = line.substr(0, line.find(':'));
    name.erase(name.find_last_not_of(" \t") + 1);
    if (kNames.contains(name)) facts += line + '\n';
  }
  if (!facts.empty()) return hash_of(facts);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("of {}", quote(host.data()));
}

// A variable's value; one that names a file (XLA_FLAGS may) with the file's content.
std::string flags(const char* name) {
  std::string value = env(name).value_or("");
  std::string text = fmt::format("{} '{}'", name, value);
  std::error_code ignored;
  if (value.empty() || value[0] == '-' || !fs::is_regular_file(value, ignored)) return text + '\n';
  try {
    return fmt::format("{} {}\n", text, hash_of(read_file(value, std::size_t{1} << 20)));
  } catch (const Error&) {  // then the plugin cannot read it either
    return text + '\n';
  }
}

// The lines that do not depend on this machine.
std::string portable_lines(const pjrt::Plugin& plugin, const std::string& platform,
                           const std::string& platform_version,
                           const std::vector<pjrt::DeviceInfo>& devices) {
  pjrt::Version version = plugin.version();
  std::string key = fmt::format("platform {} {}\n", platform, quote(platform_version, 500));
  key += fmt::format("devices {}", devices.size());
  std::set<std::string> kinds;
  for (const pjrt::DeviceInfo& device : devices) kinds.insert(device.kind);
  for (const std::string& kind : kinds) key += fmt::format(" '{}'", kind);
  key += fmt::format("\nplugin {}.{}, {}\n", version.major, version.minor, plugin_build(plugin.path()));
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) key += flags(name);
  return key + fmt::format("kernels {}\n", kernels::kKernelSetVersion);
}

}  // namespace

std::optional<std::string> elf_build_id(const fs::path& path) {
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path);
  } catch (const Error&) {
    return std::nullopt;
  }
  std::span<const std::byte> bytes = file->bytes();
  Elf64_Ehdr head;
  if (!read_at(bytes, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64)
    return std::nullopt;
  for (std::uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (head.e_phoff > bytes.size() || !read_at(bytes, head.e_phoff + i * sizeof segment, segment)) break;
    if (segment.p_type != PT_NOTE || segment.p_offset > bytes.size() ||
        segment.p_filesz > bytes.size() - segment.p_offset)
      continue;
    if (auto id = build_id_in(bytes.subspan(segment.p_offset, segment.p_filesz))) return id;
  }
  return std::nullopt;
}

std::string environment_key(const pjrt::Topology& topology) {
  return portable_lines(topology.plugin(), topology.platform_name(), topology.platform_version(),
                        topology.devices());
}

std::string environment_key(const pjrt::Client& client) {
  std::string key =
      portable_lines(client.plugin(), client.platform_name(), client.platform_version(), client.devices());
  if (client.traits().host_code) {
    // XLA:CPU sizes its pool of threads by these two, where they are set.
    key += fmt::format("processor {}\nthreads {}\n", processor(), std::thread::hardware_concurrency());
    for (const char* name : {"PJRT_NPROC", "NPROC"}) key += flags(name);
  }
  return key;
}

}  // namespace tessera
