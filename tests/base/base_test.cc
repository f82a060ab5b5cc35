#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tessera/base/dtype.h"
#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/json.h"
#include "tessera/base/quote.h"
#include "tessera/base/shape.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = fs::temp_directory_path() / "tessera_base_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Files() override { fs::remove_all(folder_); }
  std::ptrdiff_t count() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  static std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

  fs::path folder_;
};

TEST_F(Files, AppearOnlyWhenCommitted) {
  fs::path path = folder_ / "a";
  {
    AtomicFile file(path);
    file.write(bytes("half"));
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(count(), 0);
  AtomicFile first(path), second(path);
  first.write(bytes("first"));
  second.write(bytes("second"));
  first.commit();
  EXPECT_EQ(read_file(path, 100), "first");
  second.commit();
  EXPECT_EQ(read_file(path, 100), "second");
  EXPECT_EQ(count(), 1);
}

TEST_F(Files, AFailureKeepsWhatWasThere) {
  fs::path path = folder_ / "a";
  AtomicFile file(path);
  file.write(bytes("old"));
  file.commit();
  { AtomicFile abandoned(path); }
  EXPECT_EQ(read_file(path, 100), "old");
  EXPECT_THROW(AtomicFile(folder_ / "missing" / "a"), Error);
  EXPECT_THROW(AtomicFile{folder_}, Error);
  EXPECT_EQ(count(), 1);
}

TEST_F(Files, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  AtomicFile file("/dev/full");
  EXPECT_THROW(file.write(bytes("x")), Error);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(Files, AreWrittenThroughSymbolicLinks) {
  fs::create_symlink("target", folder_ / "link");
  {
    AtomicFile(folder_ / "target").commit();
    AtomicFile file(folder_ / "link");
    file.write(bytes("x"));
    file.commit();
  }
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "target", 100), "x");
}

TEST_F(Files, ReadingRefusesWhatIsNoFile) {
  EXPECT_THROW(read_file(folder_, 100), Error);
  EXPECT_THROW(MappedFile::open(folder_ / "missing"), Error);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile::open(folder_ / "pipe"), Error);  // and does not wait
  AtomicFile(folder_ / "empty").commit();
  EXPECT_TRUE(MappedFile::open(folder_ / "empty")->bytes().empty());
}

TEST(Json, RefusesAmbiguousAndDeepText) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"b": 2}], "c": {"b": 3}})", "x")["c"]["b"], 3);
  EXPECT_THROW(parse_json(R"({"a": 1, "a": 2})", "x"), Error);
  EXPECT_THROW(parse_json(R"({"q": {"a": 1, "b": {}, "a": 2}})", "x"), Error);
  EXPECT_THROW(parse_json(std::string(100000, '['), "x"), Error);
  EXPECT_THROW(parse_json("{\"a\": \"\xff\"}", "x"), Error);
  for (const char* text : {"", "{", "nul", "{\"a\": 1}}", "{\"a\": 1e999}"}) {
    EXPECT_THROW(parse_json(text, "x"), Error) << text;
  }
}

TEST(Quote, ShowsControlCharacters) {
  EXPECT_EQ(quote("plain"), "'plain'");
  EXPECT_EQ(quote("caf\xc3\xa9"), "'caf\xc3\xa9'");
  EXPECT_EQ(quote("a\nb\x1b"), "'a\\nb\\x1b'");
  EXPECT_EQ(quote("\xc3"), "'\\xc3'");
  EXPECT_EQ(quote("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");
  EXPECT_EQ(quote("abcdef", 3), "'abc...'");
}

TEST(ParseBytes, ReadsUnits) {
  EXPECT_EQ(parse_bytes("31GiB", "x"), std::int64_t{31} << 30);
  EXPECT_EQ(parse_bytes("512MB", "x"), 512'000'000);
  EXPECT_EQ(parse_bytes("1.5G", "x"), std::int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("1024", "x"), 1024);
  EXPECT_EQ(parse_bytes("7B", "x"), 7);
  for (const char* text : {"", "x", "-1", "1Q", "1GiBs", "nan", "inf", "1e40", "GiB"}) {
    EXPECT_THROW(parse_bytes(text, "x"), Error) << text;
  }
}

TEST(Env, FlagsAreOneOrZero) {
  ::setenv("TESSERA_TEST_FLAG", "on", 1);
  EXPECT_EQ(env_flag("TESSERA_TEST_FLAG"), true);
  ::setenv("TESSERA_TEST_FLAG", "0", 1);
  EXPECT_EQ(env_flag("TESSERA_TEST_FLAG"), false);
  ::setenv("TESSERA_TEST_FLAG", "maybe", 1);
  EXPECT_THROW(env_flag("TESSERA_TEST_FLAG"), Error);
  ::unsetenv("TESSERA_TEST_FLAG");
  EXPECT_EQ(env_flag("TESSERA_TEST_FLAG"), std::nullopt);
}

TEST(Shape, ChecksItsExtents) {
  EXPECT_EQ(Shape({2, 3, 4}).elements(), 24);
  EXPECT_EQ(Shape({2, 0}).elements(), 0);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(Shape({2, 3})[-1], 3);
  EXPECT_THROW(Shape({-1}), Error);
  EXPECT_THROW(Shape({std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
  EXPECT_THROW(Shape({0, std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {2, 1}), Shape({4, 2, 3}));
  EXPECT_THROW(broadcast_shapes({2}, {3}), Error);
}

TEST(DType, NamesGoBothWays) {
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_EQ(dtype_from_safetensors_name(dtype_safetensors_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::kBF16);
  EXPECT_EQ(dtype_bytes(DType::kI4, 3), 2);
  EXPECT_FALSE(dtype_from_name("float33").has_value());
}

}  // namespace
}  // namespace tessera
