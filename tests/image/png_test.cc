#include "tessera/image/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/checkpoint/safetensors.h"
#include "tests/testing/golden.h"

namespace tessera::image {
namespace {

namespace fs = std::filesystem;

class Png : public ::testing::Test {
 protected:
  Png() {
    std::string pattern = fs::temp_directory_path() / "tessera_png_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Png() override { fs::remove_all(folder_); }

  fs::path folder_;
};

Image gradient(int width, int height) {
  Image image{width, height, 3, {}};
  for (int i = 0; i < width * height * 3; ++i) image.pixels.push_back(static_cast<std::uint8_t>(i * 7));
  return image;
}

TEST_F(Png, KeepsPixelsAndText) {
  TextChunks text = {{"prompt", "a caf\xc3\xa9 \xf0\x9f\x98\x80"}, {"steps", "4"}, {"empty", ""}};
  write_png(folder_ / "a.png", gradient(5, 3), text);
  PngFile read = read_png(folder_ / "a.png");
  EXPECT_EQ(read.image.width, 5);
  EXPECT_EQ(read.image.height, 3);
  EXPECT_EQ(read.image.pixels, gradient(5, 3).pixels);
  EXPECT_THAT(read.text, ::testing::UnorderedElementsAreArray(text));
  std::string bytes = read_file(folder_ / "a.png", 10000);
  EXPECT_NE(bytes.find("iTXtprompt"), bytes.npos);
  EXPECT_NE(bytes.find("tEXtsteps"), bytes.npos);
}

TEST_F(Png, LeavesNothingBehindWhenItCannotBeWritten) {
  Image image = gradient(2, 2);
  EXPECT_THROW(write_png(folder_ / "no" / "a.png", image), Error);
  EXPECT_THROW(write_png(folder_, image), Error);
  EXPECT_THROW(write_png(folder_ / "a.png", image, {{"", "x"}}), Error);
  EXPECT_THROW(write_png(folder_ / "a.png", image, {{std::string(80, 'k'), "x"}}), Error);
  EXPECT_THROW(write_png(folder_ / "a.png", image, {{"k", std::string("a\0b", 3)}}), Error);
  for (const char* text : {"caf\xe9", "\xed\xa0\x80", "\xc0\x80", "cut \xf0\x9f\x98"}) {
    EXPECT_THAT(
        [&] {
          write_png(folder_ / "a.png", image, {{"prompt", text}});
        },
        ::testing::ThrowsMessage<Error>(::testing::HasSubstr("the PNG text prompt is not UTF-8")));
  }
  image.pixels.pop_back();
  EXPECT_THROW(write_png(folder_ / "a.png", image), Error);
  EXPECT_THROW(write_png(folder_ / "a.png", Image{}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Png, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THAT([] { write_png("/dev/full", gradient(64, 64)); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("No space left")));
}

// Flipped bytes and cuts: a picture or an Error, never a crash.
TEST_F(Png, SurvivesDamage) {
  write_png(folder_ / "a.png", gradient(9, 7), {{"prompt", "caf\xc3\xa9"}, {"k", "v"}});
  const std::string whole = read_file(folder_ / "a.png", 10000);
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    if (round % 3 == 0) damaged.resize(random() % damaged.size());
    fs::remove(folder_ / "b.png");  // writing over a file makes some file systems wait for the disk
    std::ofstream(folder_ / "b.png", std::ios::binary) << damaged;
    try {
      read_png(folder_ / "b.png");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
}

// What a tEXt chunk holds is Latin-1 by the format's definition, whoever wrote it.
TEST_F(Png, TextThatOthersWroteInLatin1IsRead) {
  write_png(folder_ / "a.png", gradient(2, 2), {{"k", "cafe"}});
  std::string bytes = read_file(folder_ / "a.png", 10000);
  std::size_t at = bytes.find("tEXtk");
  ASSERT_NE(at, bytes.npos);
  bytes[at + 9] = '\xe9';
  std::uint32_t crc = ~0u;  // of the chunk's name and data
  for (std::size_t i = at; i < at + 10; ++i) {
    crc ^= static_cast<unsigned char>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  for (std::size_t i = 0; i < 4; ++i) bytes[at + 10 + i] = static_cast<char>(~crc >> (24 - 8 * i));
  std::ofstream(folder_ / "b.png", std::ios::binary) << bytes;
  EXPECT_THAT(read_png(folder_ / "b.png").text,
              ::testing::ElementsAre(std::pair<std::string, std::string>("k", "caf\xc3\xa9")));
}

// The pictures that were recorded as PNG and as tensors are the same, byte for byte; returns how many.
int compare_pictures(const fs::path& goldens) {
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(goldens)) {
    fs::path path = entry.path();
    if (path.extension() != ".png") continue;
    // case.N.png is picture N of case.safetensors.
    auto index = static_cast<std::size_t>(std::stoi(path.stem().extension().string().substr(1)));
    checkpoint::SafetensorsFile tensors(path.parent_path() / path.stem().replace_extension(".safetensors"));
    const checkpoint::TensorView* recorded = tensors.find("image_u8");
    if (recorded == nullptr) {
      ADD_FAILURE() << path << ": image_u8 is not recorded";
      continue;
    }
    PngFile file = read_png(path);
    EXPECT_EQ(recorded->shape[1], file.image.height) << path;
    EXPECT_EQ(recorded->shape[2], file.image.width) << path;
    std::size_t size = file.image.pixels.size();
    if ((index + 1) * size > recorded->data.size()) {
      ADD_FAILURE() << path << ": the tensor has no picture " << index;
      continue;
    }
    EXPECT_EQ(std::memcmp(file.image.pixels.data(), recorded->data.data() + index * size, size), 0) << path;
    ++compared;
  }
  return compared;
}

TEST_F(Png, RecordedPicturesAreTheRecordedTensors) {
  EXPECT_GT(compare_pictures(tessera::testing::compact_data() / "goldens"), 5);
}

TEST(ReferencePng, RecordedPicturesAreTheRecordedTensors) {
  if (!fs::exists(tessera::testing::reference_data()))
    GTEST_SKIP() << "no larger reference set beside the project";
  EXPECT_GT(compare_pictures(tessera::testing::reference_data() / "goldens"), 5);
}

}  // namespace
}  // namespace tessera::image
