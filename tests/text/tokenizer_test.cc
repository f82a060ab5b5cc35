#include "tessera/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/text/chat.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json load(const fs::path& path) {
  std::ifstream in(path);
  return json::parse(in);
}

// The ids of a prompt in its form, without the padding.
std::vector<std::int32_t> chat_ids(const Tokenizer& tokenizer, const ChatForm& form,
                                   const std::string& prompt) {
  Encoding encoding = encode_chat(tokenizer, form, prompt, 4096);
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    if (encoding.attention_mask[i] != 0) out.push_back(encoding.ids[i]);
  }
  return out;
}

// Checks every recorded string against the tokenizers below root/models. `hide` names files to do without.
void check_goldens(const fs::path& root, const std::vector<std::string>& hide = {}) {
  json goldens = load(root / "goldens" / "tokenizers.json");
  int checked = 0;
  for (const auto& [name, golden] : goldens["tokenizers"].items()) {
    std::string cls = golden["class"];
    fs::path folder = root / "models" / name;
    fs::path copy;
    if (!hide.empty()) {
      copy = fs::path(testing::TempDir()) / "tokenizer_copy";
      fs::remove_all(copy);
      fs::create_directories(copy);
      for (const auto& entry : fs::directory_iterator(folder)) {
        std::string file = entry.path().filename();
        if (std::ranges::find(hide, file) == hide.end()) fs::copy_file(entry.path(), copy / file);
      }
      if (!fs::exists(copy / "vocab.json") && !fs::exists(copy / "tokenizer.json") &&
          !fs::exists(copy / "spiece.model")) {
        continue;
      }
      folder = copy;
    }
    auto tokenizer = load_tokenizer(folder, cls);
    EXPECT_EQ(tokenizer->pad_token_id(), golden["pad_token_id"].get<int>()) << name;
    EXPECT_EQ(tokenizer->model_max_length(), golden["model_max_length"].get<int>()) << name;
    bool clip = cls.starts_with("CLIP");
    const ChatForm* form = find_chat_form(cls);
    EXPECT_EQ(form != nullptr, golden.contains("chat_ids")) << name;
    for (std::size_t i = 0; i < goldens["strings"].size(); ++i) {
      std::string text = goldens["strings"][i];
      EXPECT_EQ(json(tokenizer->encode(text, {.pad = false, .truncate = false}).ids), golden["ids"][i])
          << name << " string " << i << ": " << text;
      if (form != nullptr) {
        EXPECT_EQ(json(chat_ids(*tokenizer, *form, text)), golden["chat_ids"][i])
            << name << " string " << i << ": " << text;
      } else {
        EXPECT_EQ(json(tokenizer->encode(text, {.max_length = clip ? 77 : 64}).ids),
                  golden[clip ? "padded_77_ids" : "padded_64_ids"][i])
            << name << " string " << i << ": " << text;
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

TEST(Tokenizers, GiveTheRecordedIds) { check_goldens(TESSERA_TEST_DATA); }
TEST(Tokenizers, GiveTheRecordedIdsFromTheSentencePieceFileAlone) {
  check_goldens(TESSERA_TEST_DATA, {"tokenizer.json"});
}
TEST(Tokenizers, GiveTheRecordedIdsWithoutConfigs) {
  // Only T5: CLIP's config says which token pads.
  check_goldens(TESSERA_TEST_DATA, {"vocab.json", "merges.txt", "special_tokens_map.json"});
}

TEST(ReferenceTokenizers, GiveTheRecordedIds) {
  if (!fs::exists(TESSERA_REFERENCE_DATA))
    GTEST_SKIP() << "the larger reference set is not beside the project";
  check_goldens(TESSERA_REFERENCE_DATA);
}

// The whole vocabularies of Mistral and Qwen.
TEST(ReferenceTokenizers, GiveTheRecordedIdsWithFullVocabularies) {
  if (!fs::exists(TESSERA_REFERENCE_DATA))
    GTEST_SKIP() << "the larger reference set is not beside the project";
  fs::path root = TESSERA_REFERENCE_DATA;
  json goldens = load(root / "goldens" / "tokenizers_full.json");
  for (auto [name, cls] : {std::pair("mistral-tekken-131072", "PixtralProcessor"),
                           std::pair("qwen-151643", "Qwen2TokenizerFast")}) {
    auto tokenizer = load_tokenizer(root / "tokenizers" / name, cls);
    const json& ids = goldens["tokenizers"][name]["ids"];
    ASSERT_EQ(ids.size(), goldens["strings"].size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::string text = goldens["strings"][i];
      EXPECT_EQ(json(tokenizer->encode(text, {.pad = false, .truncate = false}).ids), ids[i])
          << name << " string " << i << ": " << text;
    }
  }
}

std::unique_ptr<Tokenizer> demo(const char* part) {
  return load_tokenizer(fs::path(TESSERA_DEMO_MODEL) / part,
                        part == std::string("tokenizer") ? "CLIPTokenizer" : "T5TokenizerFast");
}

// tokenizer.json alone gives what all the files together give.
TEST(Tokenizers, GiveTheSameIdsFromTokenizerJsonAlone) {
  json strings = load(fs::path(TESSERA_TEST_DATA) / "goldens" / "tokenizers.json")["strings"];
  for (const char* part : {"tokenizer", "tokenizer_2"}) {
    fs::path folder = fs::path(testing::TempDir()) / "tokenizer_json_alone";
    fs::remove_all(folder);
    fs::create_directories(folder);
    fs::copy_file(fs::path(TESSERA_DEMO_MODEL) / part / "tokenizer.json", folder / "tokenizer.json");
    auto alone =
        load_tokenizer(folder, part == std::string("tokenizer") ? "CLIPTokenizer" : "T5TokenizerFast");
    auto whole = demo(part);
    for (const std::string text : strings) {
      EXPECT_EQ(alone->encode(text, {.pad = false, .truncate = false}).ids,
                whole->encode(text, {.pad = false, .truncate = false}).ids)
          << part << ": " << text;
    }
  }
}

TEST(Truncation, KeepsTheEndTokenAndNamesWhatIsLost) {
  for (const char* part : {"tokenizer", "tokenizer_2"}) {
    auto tokenizer = demo(part);
    Encoding all = tokenizer->encode("a red apple on a blue background", {.pad = false});
    EXPECT_EQ(all.lost_text, "");
    Encoding cut = tokenizer->encode("a red apple on a blue background",
                                     {.max_length = static_cast<int>(all.ids.size()) - 1, .pad = false});
    EXPECT_EQ(cut.ids.size(), all.ids.size() - 1);
    EXPECT_EQ(cut.ids.back(), all.ids.back());
    EXPECT_NE(cut.lost_text, "");
    EXPECT_TRUE(std::string("a red apple on a blue background").ends_with(cut.lost_text)) << cut.lost_text;
  }
}

TEST(Truncation, NamesTheWordsAsTheyWereWritten) {
  for (const char* part : {"tokenizer", "tokenizer_2"}) {
    auto tokenizer = demo(part);
    std::string kept = "A Red  Apple,", lost = "on a BLUE\tBackground (Caf\u00c9)";
    int length = static_cast<int>(tokenizer->encode(kept, {.pad = false}).ids.size());
    EXPECT_EQ(tokenizer->encode(kept + " " + lost + " \n", {.max_length = length}).lost_text, lost) << part;
    EXPECT_EQ(tokenizer->encode(kept + " \n\n", {.max_length = length}).lost_text, "") << part;
  }
}

TEST(Truncation, CutsTextWithoutSpacesBetweenCharacters) {
  for (const char* part : {"tokenizer", "tokenizer_2"}) {
    auto tokenizer = demo(part);
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 2 == 0 ? "\u00e9" : "Q";
    std::string lost = tokenizer->encode(text, {.max_length = 40}).lost_text;
    EXPECT_FALSE(lost.empty()) << part;
    EXPECT_LT(lost.size(), text.size()) << part;
    EXPECT_TRUE(text.ends_with(lost)) << part;
    EXPECT_TRUE(lost.starts_with("\u00e9") || lost.starts_with("Q")) << part;  // not within a character
  }
}

TEST(Truncation, RefusesALengthWithoutRoomForTheSpecialTokens) {
  EXPECT_THROW(demo("tokenizer")->encode("a", {.max_length = 1}), Error);
}

std::unique_ptr<Tokenizer> compact(const char* model, const char* cls) {
  return load_tokenizer(fs::path(TESSERA_TEST_DATA) / "models" / model / "tokenizer", cls);
}

TEST(Chat, PadsOnTheSideThatTheConfigNames) {
  for (auto [model, cls, left] : {std::tuple("flux2-dev", "PixtralProcessor", true),
                                  std::tuple("flux2-klein", "Qwen2TokenizerFast", false)}) {
    auto tokenizer = compact(model, cls);
    std::vector<std::int32_t> ids = chat_ids(*tokenizer, *find_chat_form(cls), "a red apple");
    std::size_t pads = 7;
    Encoding padded =
        encode_chat(*tokenizer, *find_chat_form(cls), "a red apple", static_cast<int>(ids.size() + pads));
    std::vector<std::int32_t> mask(ids.size(), 1);
    ids.insert(left ? ids.begin() : ids.end(), pads, tokenizer->pad_token_id());
    mask.insert(left ? mask.begin() : mask.end(), pads, 0);
    EXPECT_EQ(padded.ids, ids) << model;
    EXPECT_EQ(padded.attention_mask, mask) << model;
    EXPECT_EQ(padded.lost_text, "") << model;
  }
}

// The form is cut off first, which loses no word; what is lost is named in the prompt's words.
TEST(Chat, TruncationNamesWordsOfThePrompt) {
  for (auto [model, cls] :
       {std::pair("flux2-dev", "PixtralProcessor"), std::pair("flux2-klein", "Qwen2TokenizerFast")}) {
    auto tokenizer = compact(model, cls);
    const ChatForm& form = *find_chat_form(cls);
    std::string prompt = "A Red Apple on a BLUE table";
    int whole = static_cast<int>(chat_ids(*tokenizer, form, prompt).size());
    int end = static_cast<int>(
        tokenizer->encode(form.after, {.pad = false, .add_special_tokens = false}).ids.size());
    EXPECT_EQ(encode_chat(*tokenizer, form, prompt, whole - 1).lost_text, "") << model;
    EXPECT_EQ(encode_chat(*tokenizer, form, prompt, whole - end).lost_text, "") << model;
    EXPECT_EQ(encode_chat(*tokenizer, form, prompt, whole - end - 1).lost_text, "table") << model;
    EXPECT_EQ(encode_chat(*tokenizer, form, prompt, 1).lost_text, prompt) << model;
  }
}

TEST(Chat, DecodesTheTextWithoutSpecialTokens) {
  for (auto [model, cls] :
       {std::pair("flux2-dev", "PixtralProcessor"), std::pair("flux2-klein", "Qwen2TokenizerFast")}) {
    auto tokenizer = compact(model, cls);
    std::string text = "A Red  Apple, Caf\u00c9 \U0001F9D1\u200d\U0001F680\n";
    Encoding encoding = tokenizer->encode(text, {.max_length = 200});
    EXPECT_EQ(tokenizer->decode(encoding.ids), text) << model;
  }
}

TEST(HostileText, IsEncodedByLanguageModelsTokenizers) {
  for (auto [model, cls] :
       {std::pair("flux2-dev", "PixtralProcessor"), std::pair("flux2-klein", "Qwen2TokenizerFast")}) {
    auto tokenizer = compact(model, cls);
    EXPECT_THROW(tokenizer->encode("ab\xff"), Error);
    std::string spaces(100000, ' '), brackets(20000, '['), nul("a\0b", 3);
    for (const std::string& text :
         {spaces, spaces + "x", std::string(100000, 'a'), std::string(50000, 'A'), std::string(20000, '\n'),
          std::string(20000, '!'), brackets, nul, std::string("e\u0301\u0302")}) {
      Encoding e = encode_chat(*tokenizer, *find_chat_form(cls), text, 512);
      EXPECT_EQ(e.ids.size(), 512u);
      EXPECT_EQ(e.attention_mask.size(), 512u);
    }
  }
}

TEST(HostileText, IsEncodedOrRefused) {
  for (const char* part : {"tokenizer", "tokenizer_2"}) {
    auto tokenizer = demo(part);
    try {
      tokenizer->encode("ab\xff");
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find("byte 2"), std::string::npos) << e.what();
    }
    EXPECT_THROW(tokenizer->encode("\xe2\x82"), Error);
    EXPECT_THROW(tokenizer->encode("\xed\xa0\x80"), Error);  // a surrogate
    std::string nul("a\0b", 3);
    for (const std::string& text :
         {std::string("\n\n\n\n"), std::string("   "), nul, std::string("🧑\u200d🚀"),
          std::string(100000, 'a'), std::string(1000, '\n'), std::string("e\u0301\u0302")}) {
      Encoding e = tokenizer->encode(text);
      EXPECT_EQ(static_cast<int>(e.ids.size()), tokenizer->model_max_length());
    }
  }
}

TEST(DamagedFiles, AreRefusedByName) {
  fs::path folder = fs::path(testing::TempDir()) / "damaged_tokenizer";
  auto write = [&](const char* name, const std::string& content) { std::ofstream(folder / name) << content; };
  auto refuses = [&](const char* cls, const char* needle) {
    try {
      load_tokenizer(folder, cls);
      ADD_FAILURE() << "accepted; wanted an error with " << needle;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(needle), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  };
  auto fresh = [&] {
    fs::remove_all(folder);
    fs::create_directories(folder);
  };
  fresh();
  refuses("CLIPTokenizer", "vocab.json");
  refuses("T5Tokenizer", "spiece.model");
  refuses("LlamaTokenizer", "LlamaTokenizer");
  write("vocab.json", "[]");
  write("merges.txt", "#version: 0.2\na b\n");
  refuses("CLIPTokenizer", "vocab.json");
  write("vocab.json", R"({"a": 0, "b": 0})");
  refuses("CLIPTokenizer", "vocab.json");
  write("vocab.json", R"({"a": 0, "b": -1})");
  refuses("CLIPTokenizer", "vocab.json");
  write("vocab.json", R"({"a": 0, "b": 1, "<|endoftext|>": 2, "<|startoftext|>": 3})");
  refuses("CLIPTokenizer", "merge");
  write("merges.txt", "a\n");
  refuses("CLIPTokenizer", "merges.txt");
  fresh();
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {}}})");
  refuses("T5Tokenizer", "Unigram");
  write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": [["a"]]}})");
  refuses("T5Tokenizer", "tokenizer.json");
  fresh();
  refuses("PixtralProcessor", "tokenizer.json");
  auto refuses_bpe = [&](const char* rest, const char* needle) {
    write("tokenizer.json", std::string(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, )"
                                        R"("added_tokens": [{"id": 1, "content": "<pad>"}])") +
                                rest + "}");
    refuses("PixtralProcessor", needle);
  };
  refuses_bpe("", "pad_token");
  write("tokenizer_config.json", R"({"pad_token": "<pad>"})");
  EXPECT_EQ(load_tokenizer(folder, "PixtralProcessor")->encode("aab", {.max_length = 4}).ids,
            (std::vector<std::int32_t>{0, 0, 1, 1}));  // a byte without a piece is passed over
  refuses_bpe(R"(, "normalizer": {"type": "NFKC"})", "NFKC");
  refuses_bpe(R"(, "pre_tokenizer": {"type": "Whitespace"})", "Whitespace");
  refuses_bpe(R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": 1})", "pre_tokenizer");
  refuses_bpe(R"(, "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "("}})",
              "does not compile");
  refuses_bpe(R"(, "post_processor": {"type": "BertProcessing"})", "BertProcessing");
  refuses_bpe(
      R"(, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]})",
      "template");
  refuses_bpe(R"(, "post_processor": {"type": "TemplateProcessing", "single": [3]})", "template");
  write("tokenizer_config.json", R"({"pad_token": "<pad>", "padding_side": "top"})");
  refuses("PixtralProcessor", "template");
  refuses_bpe("", "padding_side");
  write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": [["a", 0]]}})");
  refuses("Qwen2TokenizerFast", "BPE");
  fresh();
  std::ifstream in(fs::path(TESSERA_DEMO_MODEL) / "tokenizer_2" / "spiece.model", std::ios::binary);
  std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t size : {std::size_t{1}, std::size_t{17}, whole.size() / 2, whole.size() - 3}) {
    write("spiece.model", whole.substr(0, size));
    try {
      load_tokenizer(folder, "T5Tokenizer")
          ->encode("a red apple");  // a cut between two fields leaves a smaller model
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("spiece.model"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace tessera::text
