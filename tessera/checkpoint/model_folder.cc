#include "tessera/checkpoint/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/json.h"
#include "tessera/base/quote.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The defaults that tessera.json may hold; a whole number above 0, or a number that is not negative.
constexpr std::pair<std::string_view, bool> kDefaults[] = {
    {"height", true},
    {"width", true},
    {"num_inference_steps", true},
    {"max_sequence_length", true},
    {"guidance_scale", false},
    {"true_cfg_scale", false},
};

// Unlike those of std::filesystem, these take a path that cannot be looked at (too long, not allowed) as
// absent.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

json read_defaults(const fs::path& path) {
  if (!is_there(path)) return json::object();
  json file = read_json_object(path);
  for (const auto& [key, value] : file.items()) {
    if (key != "defaults")
      fail(ErrorCode::kDataLoss, "{}: {} is not known; known: defaults", path.string(), quote(key));
    if (!value.is_object()) fail(ErrorCode::kDataLoss, "{}: 'defaults' is no object", path.string());
  }
  json defaults = file.value("defaults", json::object());
  for (const auto& [key, value] : defaults.items()) {
    auto known = std::ranges::find(kDefaults, key, [](const auto& d) { return std::string(d.first); });
    if (known == std::end(kDefaults)) {
      fail(ErrorCode::kDataLoss, "{}: the default {} is not known", path.string(), quote(key));
    }
    bool whole = known->second;
    bool ok = whole ? value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 1 << 20
                    : value.is_number() && value.get<double>() >= 0;
    if (!ok) {
      fail(ErrorCode::kDataLoss, "{}: the default {} is {}; it must be {}", path.string(), key,
           quote(value.dump()), whole ? "a whole number above 0" : "a number of 0 or more");
    }
  }
  return defaults;
}

bool is_component(const json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string();
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

fs::path home_folder() { return env("HOME").value_or("/"); }

// The path with a leading "~" or "~/" (which a shell leaves alone inside quotes) as the user's own folder.
fs::path expand_home(const std::string& path) {
  if (path == "~") return home_folder();
  return path.starts_with("~/") ? home_folder() / path.substr(2) : fs::path(path);
}

}  // namespace

struct ModelFolder::Content {
  fs::path path;
  json index, defaults;
  std::string pipeline_class;
};

ModelFolder ModelFolder::open(const std::string& path_or_hub_id) {
  auto content = std::make_shared<Content>();
  content->path = path_or_hub_id;
  if (!is_folder(content->path)) {
    if (is_there(content->path)) {
      fail(ErrorCode::kNotFound, "{} is a file; a checkpoint is a folder in the Diffusers layout",
           quote(path_or_hub_id));
    }
    bool could_be_id = std::ranges::count(path_or_hub_id, '/') == 1 && path_or_hub_id.front() != '/' &&
                       path_or_hub_id.back() != '/' && path_or_hub_id.front() != '.';
    if (!could_be_id) {
      fail(ErrorCode::kNotFound, "there is no folder {}, and it is no Hub id (org/name)",
           quote(path_or_hub_id));
    }
    content->path = find_in_hub_cache(path_or_hub_id);
  }
  fs::path index = content->path / "model_index.json";
  if (!is_there(index)) {
    fail(ErrorCode::kNotFound, "{} is no checkpoint: it has no model_index.json",
         quote(content->path.string()));
  }
  content->index = read_json_object(index);
  auto name = content->index.find("_class_name");
  if (name == content->index.end() || !name->is_string()) {
    fail(ErrorCode::kDataLoss, "{}: it does not name its pipeline (_class_name)", index.string());
  }
  content->pipeline_class = name->get<std::string>();
  for (const auto& [key, value] : content->index.items()) {
    if (is_component(value) && !is_plain_name(key)) {
      fail(ErrorCode::kDataLoss, "{}: {} is no name of a component", index.string(), quote(key));
    }
  }
  content->defaults = read_defaults(content->path / "tessera.json");
  return ModelFolder(std::move(content));
}

const fs::path& ModelFolder::path() const { return content_->path; }
const std::string& ModelFolder::pipeline_class() const { return content_->pipeline_class; }
const json& ModelFolder::index() const { return content_->index; }
const json& ModelFolder::defaults() const { return content_->defaults; }

std::vector<std::string> ModelFolder::component_names() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : content_->index.items()) {
    if (is_component(value)) out.push_back(key);
  }
  return out;
}

std::optional<Component> ModelFolder::component(std::string_view name) const {
  auto it = content_->index.find(std::string(name));
  // [null, null] is how an absent component is written.
  if (it == content_->index.end() || it->is_null() ||
      (it->is_array() && it->size() == 2 && (*it)[1].is_null())) {
    return std::nullopt;
  }
  if (!is_component(*it)) {
    fail(ErrorCode::kDataLoss, "{}: the entry {} is not [library, class]",
         (path() / "model_index.json").string(), quote(name));
  }
  Component out{std::string(name), (*it)[0].get<std::string>(), (*it)[1].get<std::string>(), path() / name};
  if (!is_folder(out.folder)) {
    fail(ErrorCode::kNotFound, "{}: the component {} is missing: there is no folder {}", path().string(),
         quote(name), out.folder.string());
  }
  return out;
}

Component ModelFolder::require_component(std::string_view name) const {
  if (auto found = component(name)) return *found;
  fail(ErrorCode::kNotFound, "{}: the component {} is missing: model_index.json does not name it",
       path().string(), quote(name));
}

json ModelFolder::config(std::string_view name) const {
  Component found = require_component(name);
  const char* file = name.starts_with("scheduler")                                  ? "scheduler_config.json"
                     : name.starts_with("tokenizer") || name.ends_with("processor") ? "tokenizer_config.json"
                                                                                    : "config.json";
  return read_json_object(found.folder / file);
}

TensorSource ModelFolder::source(std::string_view name) const {
  return TensorSource::open(require_component(name).folder);
}

fs::path hub_cache_folder() {
  if (auto folder = env("HF_HUB_CACHE")) return expand_home(*folder);
  if (auto folder = env("HF_HOME")) return expand_home(*folder) / "hub";
  fs::path cache = home_folder() / ".cache";
  if (auto folder = env("XDG_CACHE_HOME")) cache = expand_home(*folder);
  return cache / "huggingface" / "hub";
}

fs::path find_in_hub_cache(const std::string& id) {
  auto slash = id.find('/');
  std::string org = id.substr(0, slash), name = slash == std::string::npos ? "" : id.substr(slash + 1);
  if (!is_plain_name(org) || !is_plain_name(name)) {
    invalid_argument("{} is no Hub id; one is written org/name", quote(id));
  }
  fs::path folder = hub_cache_folder() / fmt::format("models--{}--{}", org, name);
  fs::path reference = folder / "refs" / "main";
  if (!is_there(reference)) {
    fail(ErrorCode::kNotFound,
         "there is no folder {0}, and the Hub cache does not have it either: looked for {1}; Tessera "
         "downloads nothing "
         "itself (huggingface-cli download {0} would)",
         quote(id), reference.string());
  }
  std::string hash = read_file(reference, 4096);
  while (!hash.empty() && (hash.back() == '\n' || hash.back() == '\r' || hash.back() == ' ')) hash.pop_back();
  if (!is_plain_name(hash)) {
    fail(ErrorCode::kDataLoss, "{}: {} is no name of a snapshot", reference.string(), quote(hash));
  }
  fs::path snapshot = folder / "snapshots" / hash;
  if (!is_folder(snapshot)) {
    fail(ErrorCode::kNotFound, "{} points to the snapshot {}, which is missing", reference.string(), hash);
  }
  return snapshot;
}

}  // namespace tessera::checkpoint
