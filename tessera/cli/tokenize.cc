#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/cli/common.h"
#include "tessera/text/tokenizer.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string model;
  std::vector<std::string> prompts;
  std::optional<int> max_length;
  bool json = false;
};

void tokenize(const Options& o) {
  if (o.prompts.empty()) throw UsageError("tokenize: a prompt is wanted (-p TEXT)");
  checkpoint::ModelFolder folder = open_model(o.model);
  json out = json::array();
  std::string text;
  for (const std::string& name : folder.component_names()) {
    if (!name.starts_with("tokenizer")) continue;
    checkpoint::Component component = folder.require_component(name);
    auto tokenizer = text::load_tokenizer(component.folder, component.class_name);
    for (const std::string& prompt : o.prompts) {
      text::Encoding e = tokenizer->encode(prompt, {.max_length = o.max_length, .pad = false});
      json pieces = json::array();
      text += fmt::format("{} ({}), {} tokens\n", name, component.class_name, e.ids.size());
      for (std::int32_t id : e.ids) {
        pieces.push_back(tokenizer->piece(id));
        text += fmt::format("  {:>7}  {}\n", id, tokenizer->piece(id));
      }
      if (!e.lost_text.empty()) text += fmt::format("  lost: {}\n", quote(e.lost_text, 400));
      out.push_back({{"tokenizer", name},
                     {"class", component.class_name},
                     {"prompt", prompt},
                     {"ids", e.ids},
                     {"pieces", pieces},
                     {"lost_text", e.lost_text}});
    }
  }
  if (out.empty()) fail(ErrorCode::kNotFound, "{} has no tokenizer", folder.path().string());
  if (o.json) return print_json(out);
  print_text(text);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* sub = app.add_subcommand("tokenize", "Show the tokens that the text encoders see");
  sub->add_option("model", o.model,
                  "Diffusers folder, or Hub id in the local cache (default: the demonstration model)");
  sub->add_option("-p,--prompt", o.prompts, "The text; may be repeated")->allow_extra_args(false);
  sub->add_option("--max-sequence-length", o.max_length,
                  "Tokens to cut down to (default: the tokenizer's own)");
  sub->add_flag("--json", o.json, "As a JSON list");
  sub->callback([options] { tokenize(*options); });
}

}  // namespace tessera::cli
