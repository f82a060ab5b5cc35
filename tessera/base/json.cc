#include "tessera/base/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/quote.h"

namespace tessera {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& what, int max_depth) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if ((event == Event::object_start || event == Event::array_start) && depth >= max_depth) {
      fail(ErrorCode::kDataLoss, "{}: nested deeper than {} levels", what, max_depth);
    }
    if (event == Event::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
      fail(ErrorCode::kDataLoss, "{}: the name {} is given twice", what,
           quote(parsed.get_ref<const std::string&>()));
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& e) {
    fail(ErrorCode::kDataLoss, "{}: not JSON: {}", what, quote(e.what(), 200));
  }
}

json read_json_object(const std::filesystem::path& path) {
  constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  json value = parse_json(read_file(path, kMaxBytes), path.string());
  if (!value.is_object()) fail(ErrorCode::kDataLoss, "{}: a JSON object is expected", path.string());
  return value;
}

}  // namespace tessera
