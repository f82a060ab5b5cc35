#include "tessera/image/png.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/quote.h"
#include "tessera/text/unicode.h"

namespace tessera::image {
namespace {

constexpr std::int64_t kMaxPixels = std::int64_t{64} << 20;

// libpng is C: its errors leave it by longjmp, to the nearest `guarded`, and exceptions do not pass through
// its frames. What went wrong waits here.
struct Problem {
  char message[200] = "it failed without a reason";
  std::exception_ptr thrown;  // by what libpng called; wins over the message

  // Throws it as an error of the file `what`.
  [[noreturn]] void raise(const std::string& what) const {
    if (thrown) std::rethrow_exception(thrown);
    fail(ErrorCode::kDataLoss, "{}: {}", what, message);
  }
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* problem = static_cast<Problem*>(png_get_error_ptr(png));
  std::snprintf(problem->message, sizeof(problem->message), "%s", message);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}

// Calls work(); false if libpng gave up on the way. Nothing that `work` has on its stack may need a
// destructor.
template <typename Work>
bool guarded(png_structp png, const Work& work) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  work();
  return true;
}

struct Writer {
  explicit Writer(const std::string& what) {
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &problem, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_write_struct(&png, nullptr);
      fail(ErrorCode::kOutOfMemory, "no memory for writing {}", what);
    }
  }
  ~Writer() { png_destroy_write_struct(&png, &info); }
  Problem problem;
  png_structp png = nullptr;
  png_infop info = nullptr;
};

struct Reader {
  explicit Reader(const std::string& what) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &problem, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      fail(ErrorCode::kOutOfMemory, "no memory for reading {}", what);
    }
  }
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Problem problem;
  png_structp png = nullptr;
  png_infop info = nullptr;
};

void write_bytes(png_structp png, png_bytep data, std::size_t n) {
  auto* problem = static_cast<Problem*>(png_get_error_ptr(png));
  try {
    static_cast<AtomicFile*>(png_get_io_ptr(png))->write(std::as_bytes(std::span(data, n)));
    return;
  } catch (...) {
    problem->thrown = std::current_exception();
  }
  png_error(png, "the file cannot be written");
}
void flush_nothing(png_structp) {}

// The rest of a file in memory.
void read_bytes(png_structp png, png_bytep data, std::size_t n) {
  auto* rest = static_cast<std::string_view*>(png_get_io_ptr(png));
  if (n > rest->size()) png_error(png, "the file is cut short");
  std::memcpy(data, rest->data(), n);
  rest->remove_prefix(n);
}

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\n'; });
}

void check(const Image& image, const TextChunks& chunks) {
  auto wanted = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) * 3;
  if (image.width <= 0 || image.height <= 0 || image.channels != 3 || image.pixels.size() != wanted) {
    invalid_argument("a picture of {} x {} with {} channels and {} bytes cannot be written as RGB",
                     image.width, image.height, image.channels, image.pixels.size());
  }
  for (const auto& [key, value] : chunks) {
    bool printable = std::ranges::all_of(key, [](char c) { return c >= 0x20 && c < 0x7f; });
    if (key.empty() || key.size() > 79 || !printable || value.find('\0') != std::string::npos) {
      invalid_argument("{} is no keyword of a PNG text, or its text has a zero byte", quote(key));
    }
    text::check_utf8(value, fmt::format("the PNG text {}", key));
  }
}

// A tEXt chunk is Latin-1, an iTXt chunk UTF-8.
TextChunks text_chunks(const Reader& r) {
  TextChunks out;
  png_textp chunks = nullptr;
  int count = 0;
  png_get_text(r.png, r.info, &chunks, &count);
  for (int i = 0; i < count; ++i) {
    std::string value = chunks[i].text ? chunks[i].text : "";
    if (chunks[i].compression == PNG_TEXT_COMPRESSION_NONE ||
        chunks[i].compression == PNG_TEXT_COMPRESSION_zTXt) {
      std::string latin1 = std::exchange(value, "");
      for (char c : latin1) value += text::encode_utf8(static_cast<unsigned char>(c));
    }
    out.emplace_back(chunks[i].key, std::move(value));
  }
  return out;
}

}  // namespace

void write_png(const std::filesystem::path& path, const Image& image, const TextChunks& text) {
  check(image, text);
  std::string what = path.string();
  std::vector<png_text> chunks(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto& [key, value] = text[i];
    bool ascii = is_ascii(value);
    chunks[i].compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    chunks[i].key = const_cast<char*>(key.c_str());
    chunks[i].text = const_cast<char*>(value.c_str());
    (ascii ? chunks[i].text_length : chunks[i].itxt_length) = value.size();
  }
  AtomicFile file(path);
  {
    Writer w(what);
    bool written = guarded(w.png, [&] {
      png_set_write_fn(w.png, &file, write_bytes, flush_nothing);
      png_set_IHDR(w.png, w.info, static_cast<png_uint_32>(image.width),
                   static_cast<png_uint_32>(image.height), 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                   PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
      png_set_text(w.png, w.info, chunks.data(), static_cast<int>(chunks.size()));
      png_write_info(w.png, w.info);
      std::size_t row = static_cast<std::size_t>(image.width) * 3;
      for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
        png_write_row(w.png, image.pixels.data() + y * row);
      }
      png_write_end(w.png, w.info);
    });
    if (!written) w.problem.raise(what);
  }
  file.commit();
}

PngFile read_png(const std::filesystem::path& path) {
  std::string what = path.string();
  std::string content = read_file(path, std::size_t{1} << 30);
  std::string_view rest = content;
  if (content.size() < 8 || png_sig_cmp(reinterpret_cast<png_const_bytep>(content.data()), 0, 8) != 0) {
    fail(ErrorCode::kDataLoss, "{}: it is no PNG", what);
  }
  Reader r(what);
  bool begun = guarded(r.png, [&] {
    png_set_read_fn(r.png, &rest, read_bytes);
    png_read_info(r.png, r.info);
  });
  if (!begun) r.problem.raise(what);
  std::int64_t width = png_get_image_width(r.png, r.info), height = png_get_image_height(r.png, r.info);
  if (width * height > kMaxPixels)
    fail(ErrorCode::kDataLoss, "{}: {} x {} pixels are too many", what, width, height);
  std::size_t row = static_cast<std::size_t>(width) * 3;
  PngFile out;
  out.image = {static_cast<int>(width), static_cast<int>(height), 3, {}};
  out.image.pixels.resize(row * static_cast<std::size_t>(height));
  bool read = guarded(r.png, [&] {
    png_set_strip_16(r.png);
    png_set_expand(r.png);
    png_set_gray_to_rgb(r.png);
    png_set_strip_alpha(r.png);
    int passes = png_set_interlace_handling(r.png);
    png_read_update_info(r.png, r.info);
    if (png_get_rowbytes(r.png, r.info) != row) png_error(r.png, "its rows are not RGB");
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
        png_read_row(r.png, out.image.pixels.data() + y * row, nullptr);
      }
    }
    png_read_end(r.png, r.info);
  });
  if (!read) r.problem.raise(what);
  out.text = text_chunks(r);
  return out;
}

}  // namespace tessera::image
