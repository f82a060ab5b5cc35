#include "tessera/text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>

#include "tessera/text/tokenizer.h"

namespace tessera::text {
namespace {

// As utf8proc does it in one go.
std::string whole_nfc(const std::string& text) {
  std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> out(
      utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str())), &std::free);
  return reinterpret_cast<const char*>(out.get());
}

TEST(Unicode, NormalFormCOfKnownTexts) {
  EXPECT_EQ(nfc(""), "");
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("a\u0315\u0300\u05ae\u0300b"),
            "\u00e0\u05ae\u0300\u0315b");  // marks by their class, in order
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");  // excluded from composition
  EXPECT_EQ(nfc("\u212b"), "\u00c5");
}

TEST(Unicode, NormalFormCOfAnyTextIsUtf8procs) {
  std::mt19937 random(3);
  // Letters, marks of several classes, Hangul, characters whose decompositions begin with marks,
  // compatibility ones.
  const char32_t kinds[][2] = {{0x41, 0x7a},     {0xc0, 0x17f},    {0x300, 0x34f},     {0x591, 0x5f4},
                               {0x1100, 0x11ff}, {0xac00, 0xad00}, {0xf71, 0xf81},     {0x1e00, 0x1fff},
                               {0x2126, 0x212b}, {0xfb1d, 0xfb4e}, {0x1d15e, 0x1d1ad}, {0x11131, 0x11134}};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      const auto& kind = kinds[random() % std::size(kinds)];
      text += encode_utf8(kind[0] + static_cast<char32_t>(random() % (kind[1] - kind[0] + 1)));
    }
    ASSERT_EQ(nfc(text), whole_nfc(text)) << "round " << round << ": " << text;
  }
}

// Seconds of processor time.
template <typename F>
double seconds(F f) {
  std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(Unicode, AStackOfMarksTakesNoLongerThanOtherText) {
  auto stack = [](int pairs) {
    std::string text = "a";
    for (int i = 0; i < pairs; ++i) text += "\u0301\u0323";  // above, below: each pair is in the wrong order
    return text;
  };
  EXPECT_TRUE(nfc(stack(1000)).starts_with("\u1ea1\u0323\u0323"));
  auto tokenizer = load_tokenizer(std::string(TESSERA_DEMO_MODEL) + "/tokenizer", "CLIPTokenizer");
  auto tokenize = [&](const std::string& text) {
    EXPECT_EQ(tokenizer->encode(text, {.max_length = 77}).ids.size(), 77u);
  };
  std::string small = stack(25'000), large = stack(100'000);
  double once = seconds([&] { tokenize(small); }), four_times = seconds([&] { tokenize(large); });
  EXPECT_LT(four_times, 9 * once + 0.1);  // in quadratic time 16 times as long
}

TEST(Unicode, TellsUtf8FromOtherBytes) {
  for (const char* text : {"", "abc", "caf\u00e9", "\U0001f600"}) EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\xe9", "a\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x98"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

}  // namespace
}  // namespace tessera::text
