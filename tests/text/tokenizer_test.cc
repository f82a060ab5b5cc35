#include "tessera/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"

namespace tessera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json load(const fs::path& path) {
  std::ifstream in(path);
  return json::parse(in);
}

// Checks every recorded string against the tokenizers below root/models. `hide` names files to do without.
void check_goldens(const fs::path& root, const std::vector<std::string>& hide = {}) {
  json goldens = load(root / "goldens" / "tokenizers.json");
  int checked = 0;
  for (const auto& [name, golden] : goldens["tokenizers"].items()) {
    std::string cls = golden["class"];
    if (!cls.starts_with("CLIP") && !cls.starts_with("T5")) continue;
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
    bool clip = cls.starts_with("CLIP");
    const json& padded = golden[clip ? "padded_77_ids" : "padded_64_ids"];
    for (std::size_t i = 0; i < goldens["strings"].size(); ++i) {
      std::string text = goldens["strings"][i];
      EXPECT_EQ(json(tokenizer->encode(text, {.pad = false, .truncate = false}).ids), golden["ids"][i])
          << name << " string " << i << ": " << text;
      EXPECT_EQ(json(tokenizer->encode(text, {.max_length = clip ? 77 : 64}).ids), padded[i])
          << name << " string " << i << ": " << text;
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
