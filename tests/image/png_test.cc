#include "tessera/image/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/file.h"

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
  image.pixels.pop_back();
  EXPECT_THROW(write_png(folder_ / "a.png", image), Error);
  EXPECT_THROW(write_png(folder_ / "a.png", Image{}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Png, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THROW(write_png("/dev/full", gradient(64, 64)), Error);
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

TEST_F(Png, RecordedPicturesAreRead) {
  int read = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(TESSERA_TEST_DATA) / "goldens")) {
    if (entry.path().extension() != ".png") continue;
    PngFile file = read_png(entry.path());
    EXPECT_GT(file.image.width, 0);
    ++read;
  }
  EXPECT_GT(read, 5);
}

}  // namespace
}  // namespace tessera::image
