#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/shared.h"
#include "tessera/runtime/disk_cache.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

// Seconds since 1970.
std::time_t seconds_of(std::filesystem::file_time_type time) {
  auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::seconds>(system));
}

// The key's line about the platform, for people.
std::string platform_in(const std::string& key) {
  std::size_t begin = key.find("\nplatform ");
  if (begin == std::string::npos) return "damaged, or of another version";
  ++begin;
  return console::one_line(key.substr(begin, key.find('\n', begin) - begin));
}

Json about(const DiskCache& cache) {
  return {{"folder", cache.options().folder.string()}, {"limit_bytes", cache.options().size_limit}};
}

void list(const DiskCache& cache, bool json) {
  Json out = about(cache);
  out["entries"] = Json::array();
  std::string text;
  for (const DiskCache::Entry& entry : cache.entries()) {
    std::time_t used = seconds_of(entry.last_used);
    out["entries"].push_back({{"file", entry.file.filename().string()},
                              {"bytes", entry.bytes},
                              {"last_used", used},
                              {"key", console::one_line(entry.key)}});
    std::tm local{};
    ::localtime_r(&used, &local);
    text += fmt::format("{:%Y-%m-%d %H:%M}  {:>9}  {:.12}  {}\n", local, format_bytes(entry.bytes),
                        entry.file.filename().string(), platform_in(entry.key));
  }
  if (json) return print_json(out);
  print(text.empty() ? fmt::format("nothing is kept in {}\n", cache.options().folder.string()) : text);
}

void stats(const DiskCache& cache, bool json) {
  DiskCache::Stats stats = cache.stats();
  Json out = about(cache);
  out["entries"] = stats.entries;
  out["bytes"] = stats.bytes;
  if (json) return print_json(out);
  print(fmt::format("{}: {} compiled programs, {} of at most {}\n", cache.options().folder.string(),
                    with_commas(stats.entries), format_bytes(stats.bytes),
                    format_bytes(cache.options().size_limit)));
}

void clear(DiskCache& cache, bool json) {
  DiskCache::Stats removed = cache.clear();
  Json out = about(cache);
  out["removed_entries"] = removed.entries;
  out["removed_bytes"] = removed.bytes;
  if (json) return print_json(out);
  print(fmt::format("{}: removed {} compiled programs, {}\n", cache.options().folder.string(),
                    with_commas(removed.entries), format_bytes(removed.bytes)));
}

}  // namespace

int run_cache(const std::vector<std::string>& arguments) {
  CommandLine line(
      "tessera cache",
      "Shows or empties the folder of compiled programs: TESSERA_CACHE_DIR, else tessera in "
      "XDG_CACHE_HOME, else ~/.cache/tessera. TESSERA_CACHE_LIMIT is the most that it may take "
      "(default 4GiB).",
      "examples:\n  tessera cache stats\n  TESSERA_CACHE_DIR=/scratch/programs tessera cache clear\n");
  line.positional("ACTION", "list (most recently used first), stats or clear");
  line.flag("--json", "print one JSON object");
  if (!line.parse(arguments)) return 0;
  std::optional<std::string> action = line.choice("ACTION", {"list", "stats", "clear"});
  if (!action) throw UsageError("what to do is missing: list, stats or clear");

  std::optional<DiskCacheOptions> options = disk_cache_options_from_environment();
  if (!options) {
    fail(ErrorCode::kNotFound,
         "no compiled programs are kept: TESSERA_CACHE_DIR is set and empty, TESSERA_CACHE_LIMIT is 0, or "
         "neither TESSERA_CACHE_DIR, XDG_CACHE_HOME nor HOME names a place");
  }
  DiskCache cache(std::move(*options));
  bool json = line.given("json");
  if (*action == "list") list(cache, json);
  if (*action == "stats") stats(cache, json);
  if (*action == "clear") clear(cache, json);
  return 0;
}

}  // namespace tessera::cli
