#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tessera::image {

// 8-bit RGB, rows from the top, no padding: pixels.size() == width * height * channels.
struct Image {
  int width = 0;
  int height = 0;
  int channels = 3;
  std::vector<std::uint8_t> pixels;
};

// Keyword (1 to 79 printable ASCII characters) and UTF-8 text.
using TextChunks = std::vector<std::pair<std::string, std::string>>;

// Writes an RGB PNG beside its place and renames it; text goes into tEXt chunks, or iTXt where it is not
// ASCII. Throws kInvalidArgument for an image or a text that is not as described above (a text that is not
// UTF-8 is refused, its first wrong byte named); errors of writing as AtomicFile.
void write_png(const std::filesystem::path& path, const Image& image, const TextChunks& text = {});

struct PngFile {
  Image image;
  TextChunks text;
};

// Reads any PNG as 8-bit RGB (palettes and grey expanded, alpha dropped, 16 bits cut to 8), with the Latin-1
// of tEXt chunks as UTF-8. Throws kNotFound, kUnavailable, or kDataLoss for a damaged file or one beyond 64
// million pixels.
PngFile read_png(const std::filesystem::path& path);

}  // namespace tessera::image
