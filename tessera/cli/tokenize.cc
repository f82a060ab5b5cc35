#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/shared.h"
#include "tessera/text/chat.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/unicode.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

// Ids that the pipelines feed: CLIP always 77, the others as many as max_sequence_length says.
int fed_length(const checkpoint::ModelFolder& folder, const checkpoint::Component& component,
               const text::Tokenizer& tokenizer, std::optional<int> max_sequence_length) {
  if (component.class_name.starts_with("CLIP")) return tokenizer.model_max_length();
  if (max_sequence_length) return *max_sequence_length;
  return folder.defaults().value("max_sequence_length", 512);
}

// `form` is what the prompt is put into for a language model; null for none.
Json tokens_of(const text::Tokenizer& tokenizer, const text::ChatForm* form, const std::string& prompt,
               int length) {
  text::Encoding encoding = form != nullptr ? text::encode_chat(tokenizer, *form, prompt, length)
                                            : tokenizer.encode(prompt, {.max_length = length});
  Json out{{"prompt", prompt}, {"ids", encoding.ids}, {"attention_mask", encoding.attention_mask}};
  out["pieces"] = Json::array();
  for (std::int32_t id : encoding.ids) out["pieces"].push_back(tokenizer.piece(id));
  out["lost"] = encoding.lost_text;
  return out;
}

// One token a line; the padding, before the text or after it, is one line.
std::string text_of(const std::string& name, const std::string& class_name, const Json& tokens) {
  auto ids = tokens["ids"].get<std::vector<std::int32_t>>();
  auto mask = tokens["attention_mask"].get<std::vector<std::int32_t>>();
  auto used = static_cast<std::size_t>(std::ranges::count(mask, 1));
  std::string text = fmt::format("{} ({}), {}: {} of {} ids\n", name, class_name,
                                 quote(tokens["prompt"].get<std::string>()), used, ids.size());
  bool padding_shown = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::string piece = tokens["pieces"][i].get<std::string>();
    if (mask[i] == 1) {
      text += fmt::format("{:>8}  {}\n", ids[i], piece);
    } else if (!padding_shown) {
      text += fmt::format("{:>8}  {} (padding, {} times)\n", ids[i], piece, ids.size() - used);
      padding_shown = true;
    }
  }
  std::string lost = tokens["lost"].get<std::string>();
  if (!lost.empty()) text += fmt::format("cut off: {}\n", quote(lost, 2000));
  return text + "\n";
}

}  // namespace

int run_tokenize(const std::vector<std::string>& arguments) {
  CommandLine line("tessera tokenize", "Shows the tokens that a prompt becomes, as the pipeline feeds them.",
                   "example:\n  tessera tokenize models/demo -p \"a red apple\"\n");
  line.positional("MODEL",
                  "Diffusers folder, or Hub id in the local Hub cache (default: the demo checkpoint)");
  line.option("-p,--prompt", "TEXT", "the text; may be repeated", true);
  line.option("--max-sequence-length", "N", "tokens of the long prompt (of any encoder but CLIP)");
  line.flag("--json", "print one JSON object");
  if (!line.parse(arguments)) return 0;
  if (!line.given("prompt")) throw UsageError("-p/--prompt is missing");
  std::optional<int> length = line.small_integer("max-sequence-length", 1, 1 << 20);
  for (const std::string& prompt : line.values("prompt")) {
    try {
      text::check_utf8(prompt, "--prompt");
    } catch (const Error& e) {
      throw UsageError(e.what());
    }
  }

  checkpoint::ModelFolder folder = open_model(line.text("MODEL"));
  Json out{{"model", folder.path().string()}, {"tokenizers", Json::array()}};
  std::string text;
  for (const std::string& name : folder.component_names()) {
    if (!name.starts_with("tokenizer")) continue;
    checkpoint::Component component = folder.require_component(name);
    std::unique_ptr<text::Tokenizer> tokenizer = text::load_tokenizer(component.folder, component.class_name);
    int fed = fed_length(folder, component, *tokenizer, length);
    Json entry{
        {"name", name}, {"class", component.class_name}, {"max_length", fed}, {"prompts", Json::array()}};
    for (const std::string& prompt : line.values("prompt")) {
      Json tokens = tokens_of(*tokenizer, text::find_chat_form(component.class_name), prompt, fed);
      text += text_of(name, component.class_name, tokens);
      entry["prompts"].push_back(std::move(tokens));
    }
    out["tokenizers"].push_back(std::move(entry));
  }
  if (out["tokenizers"].empty()) {
    fail(ErrorCode::kNotFound, "{}: model_index.json names no tokenizer", folder.path().string());
  }
  if (line.given("json")) {
    print_json(out);
  } else {
    print(text);
  }
  return 0;
}

}  // namespace tessera::cli
