#include "tessera/text/bpe_files.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/quote.h"

namespace tessera::text {
namespace {

constexpr std::size_t kMaxFile = std::size_t{64} << 20;

std::pair<std::string, std::string> read_merge(const std::string& line, const std::string& what) {
  auto space = line.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string::npos) {
    fail(ErrorCode::kDataLoss, "{}: {} is no merge of two pieces", what, quote(line));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

}  // namespace

Vocabulary read_vocabulary(const nlohmann::json& json, const std::string& what) {
  if (!json.is_object()) fail(ErrorCode::kDataLoss, "{}: the vocabulary is not an object", what);
  Vocabulary out;
  for (const auto& [piece, id] : json.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > (1 << 30)) {
      fail(ErrorCode::kDataLoss, "{}: the id of {} is {}", what, quote(piece), quote(id.dump()));
    }
    out[piece] = id.get<std::int32_t>();
  }
  return out;
}

Merges read_merges_file(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path, kMaxFile));
  Merges out;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (out.empty() && line.starts_with("#version"))) continue;
    out.push_back(read_merge(line, path.string()));
  }
  return out;
}

Merges read_merges_json(const nlohmann::json& json, const std::string& what) {
  if (!json.is_array()) fail(ErrorCode::kDataLoss, "{}: its merges are no list", what);
  Merges out;
  for (const auto& merge : json) {
    if (merge.is_string()) {
      out.push_back(read_merge(merge.get<std::string>(), what));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      out.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      fail(ErrorCode::kDataLoss, "{}: {} is no merge of two pieces", what, quote(merge.dump()));
    }
  }
  return out;
}

}  // namespace tessera::text
