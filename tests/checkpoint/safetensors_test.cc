#include "tessera/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "tessera/base/error.h"
#include "tessera/checkpoint/host_block.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Safetensors : public ::testing::Test {
 protected:
  Safetensors() {
    std::string pattern = fs::temp_directory_path() / "tessera_st_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Safetensors() override { fs::remove_all(folder_); }

  fs::path write(const std::string& content) const {
    fs::path path = folder_ / "broken.safetensors";
    fs::remove(path);  // writing over a file makes some file systems wait for the disk
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  // A file with that header, a length that is right and `data` bytes of data.
  fs::path write(const std::string& header, std::size_t data) const {
    std::string content(8, '\0');
    std::uint64_t length = header.size();
    std::memcpy(content.data(), &length, 8);
    return write(content + header + std::string(data, 'x'));
  }
  // Opening is refused as data loss, and the message names the file and holds `what`.
  static void refused(const fs::path& path, const std::string& what) {
    try {
      SafetensorsFile file(path);
      ADD_FAILURE() << "opened; expected: " << what;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kDataLoss) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("broken.safetensors"));
      EXPECT_THAT(e.what(), HasSubstr(what));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
  static std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"("w": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets +
           "}";
  }
  void bad_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) const {
    SCOPED_TRACE(dtype + " " + shape + " " + offsets);
    refused(write("{" + tensor(dtype, shape, offsets) + "}", 16), "'w'");
  }

  fs::path folder_;
};

std::vector<float> numbers(std::size_t n) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(i) - 1.5f;
  return out;
}

TEST_F(Safetensors, ReadsWhatItWrote) {
  auto a = numbers(6), b = numbers(1);
  std::vector<TensorView> tensors = {{"z.weight", DType::kF32, {2, 3}, std::as_bytes(std::span(a)), nullptr},
                                     {"caf\xc3\xa9", DType::kF32, {}, std::as_bytes(std::span(b)), nullptr},
                                     {"empty", DType::kBF16, {0, 7}, {}, nullptr}};
  fs::path path = folder_ / "a.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}});
  std::shared_ptr<const void> kept;
  std::span<const std::byte> bytes;
  {
    SafetensorsFile file(path);
    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_EQ(file.find("z.weigh"), nullptr);
    EXPECT_EQ(file.find("empty")->shape, Shape({0, 7}));
    const TensorView* z = file.find("z.weight");
    ASSERT_NE(z, nullptr);
    EXPECT_EQ(z->shape, Shape({2, 3}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(z->data.data()) % 64, 0u);
    kept = z->owner;
    bytes = z->data;
  }
  EXPECT_EQ(std::memcmp(bytes.data(), a.data(), bytes.size()), 0);  // the owner keeps the mapping
}

TEST_F(Safetensors, AreNotLeftHalfWritten) {
  auto a = numbers(4);
  TensorView good{"a", DType::kF32, {4}, std::as_bytes(std::span(a)), nullptr};
  TensorView wrong{"b", DType::kF32, {5}, std::as_bytes(std::span(a)), nullptr};
  fs::path path = folder_ / "a.safetensors";
  EXPECT_THROW(write_safetensors(path, std::vector{good, wrong}), Error);
  EXPECT_THROW(write_safetensors(path, std::vector{good, good}), Error);
  EXPECT_THROW(write_safetensors(folder_ / "no" / "a", std::vector{good}), Error);
  good.name = "\xff";
  EXPECT_THROW(write_safetensors(path, std::vector{good}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Safetensors, RefusesABrokenHeader) {
  refused(write(""), "");
  refused(write("1234567"), "");
  refused(write(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), "");
  refused(write(std::string("\xf8\xff\xff\xff\xff\xff\xff\xff{}", 10)), "");
  refused(write(std::string("\x03\0\0\0\0\0\0\0{}", 10)), "");
  refused(write("[]", 0), "");
  refused(write("{", 0), "");
  refused(write("", 0), "");
  refused(write("{} x", 0), "");
  refused(write("{\"\xff\": 1}", 0), "");
  refused(write(std::string(50000, '['), 0), "");
  refused(write(R"({"w": 1})", 0), "'w'");
  refused(write(R"({"w": {}})", 0), "'w'");
  refused(write(R"({"a\nb": {}})", 0), "a\\nb");
  refused(write(R"({"__metadata__": {"a": 1}})", 0), "__metadata__");
  refused(write(R"({"__metadata__": []})", 0), "__metadata__");
}

TEST_F(Safetensors, RefusesALyingTensor) {
  bad_tensor("F31", "[4]", "[0, 16]");
  bad_tensor("F32", "[4]", "[0, 20]");
  bad_tensor("F32", "[4]", "[16, 0]");
  bad_tensor("F32", "[3]", "[0, 16]");
  bad_tensor("F32", "[-4]", "[0, 16]");
  bad_tensor("F32", "[4.0]", "[0, 16]");
  bad_tensor("F32", "4", "[0, 16]");
  bad_tensor("F32", "[\"4\"]", "[0, 16]");
  bad_tensor("F32", "[18446744073709551615]", "[0, 16]");
  bad_tensor("F32", "[18446744073709551620]", "[0, 16]");
  bad_tensor("F32", "[4611686018427387904]", "[0, 0]");
  bad_tensor("F32", "[4294967296, 4294967296, 4]", "[0, 16]");
  bad_tensor("F32", "[1,1,1,1,1,1,1,1,4]", "[0, 16]");
  bad_tensor("F32", "[4]", "[0]");
  bad_tensor("F32", "[4]", "[0, 16, 16]");
  bad_tensor("F32", "[4]", "[-16, 0]");
  bad_tensor("F32", "[4]", "[18446744073709551600, 18446744073709551615]");
  bad_tensor("I4", "[31]", "[0, 16]");
}

TEST_F(Safetensors, RefusesTwoTensorsInOnePlaceAndOneNameTwice) {
  std::string a = R"("a": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]})";
  std::string b = R"("b": {"dtype": "U8", "shape": [8], "data_offsets": [8, 16]})";
  refused(write("{" + a + "," + b + "}", 16), "overlap");
  refused(write("{" + a + "," + a + "}", 9), "'a'");
  refused(write(R"({"a": {"dtype": "U8", "dtype": "I8", "shape": [9], "data_offsets": [0, 9]}})", 9),
          "dtype");
}

TEST_F(Safetensors, AcceptsHolesButNothingAfterTheLastTensor) {
  std::string b = R"({"b": {"dtype": "U8", "shape": [8], "data_offsets": [8, 16]}})";
  EXPECT_EQ(SafetensorsFile(write(b, 16)).find("b")->data.size(), 8u);
  refused(write(b, 17), "");
  refused(write("{}", 1), "");
  EXPECT_TRUE(SafetensorsFile(write("{}", 0)).tensors().empty());
}

// Flipped bytes and cuts: a file opens, with every byte of its tensors readable, or gives an Error.
TEST_F(Safetensors, SurvivesDamage) {
  auto a = numbers(6);
  std::vector<TensorView> tensors = {{"a", DType::kF32, {2, 3}, std::as_bytes(std::span(a)), nullptr},
                                     {"b", DType::kBF16, {2}, std::as_bytes(std::span(a)).first(4), nullptr}};
  fs::path path = folder_ / "a.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}});
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(7);
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  int opened = 0, refusals = 0;
  unsigned sum = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = whole;
    for (std::size_t flips = 1 + below(3); flips > 0; --flips) {
      // A digit, a bracket or any byte: plausible headers reach further than noise.
      damaged[below(damaged.size())] =
          below(2) == 0 ? "0123456789[]{}\",:-"[below(18)] : static_cast<char>(random());
    }
    if (below(4) == 0) damaged.resize(below(damaged.size() + 1));
    try {
      SafetensorsFile file(write(damaged));
      for (const TensorView& t : file.tensors()) {
        for (std::byte byte : t.data) sum += std::to_integer<unsigned>(byte);
        if (t.dtype == DType::kF32 || t.dtype == DType::kBF16) read_tensor(t, DType::kF32);
      }
      ++opened;
    } catch (const Error&) {
      ++refusals;
    }
  }
  EXPECT_GT(opened, 100);
  EXPECT_GT(refusals, 1000);
  RecordProperty("opened", opened);
}

TEST_F(Safetensors, AreReadInAnotherDtype) {
  auto a = numbers(5);
  TensorView t{"a", DType::kF32, {5}, std::as_bytes(std::span(a)), nullptr};
  HostBlock block = read_tensor(t, DType::kBF16);
  ASSERT_EQ(block.size(), 10u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % HostBlock::kAlignment, 0u);
  EXPECT_EQ(block.as<std::uint16_t>()[0], 0xbfc0);
  t.shape = Shape{0};
  t.data = {};
  EXPECT_EQ(read_tensor(t, DType::kBF16).size(), 0u);
  EXPECT_THROW(HostBlock(std::size_t{1} << 62), Error);
  TensorView whole{"ids", DType::kI32, {5}, std::as_bytes(std::span(a)), nullptr};
  try {
    read_tensor(whole, DType::kF32);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("'ids'"));
  }
}

}  // namespace
}  // namespace tessera::checkpoint
