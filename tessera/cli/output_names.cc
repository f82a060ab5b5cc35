#include "tessera/cli/output_names.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/quote.h"
#include "tessera/cli/command_line.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// A pattern taken apart: the text before and after the number, and how the number is written.
struct Pattern {
  std::string before, after;
  bool numbered = false;
  bool zeros = false;
  int width = 0;

  std::string name(std::size_t number) const {
    if (!numbered) return before;
    return before + (zeros ? fmt::format("{:0{}}", number, width) : fmt::format("{:{}}", number, width)) +
           after;
  }
};

Pattern parse_pattern(const std::string& text) {
  Pattern out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& part = out.numbered ? out.after : out.before;
    if (text[i] != '%') {
      part += text[i];
      continue;
    }
    std::size_t begin = i++;
    if (i < text.size() && text[i] == '%') {
      part += '%';
      continue;
    }
    bool zeros = i < text.size() && text[i] == '0';
    int width = 0;
    while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0 && width < 100) {
      width = width * 10 + (text[i++] - '0');
    }
    if (i >= text.size() || text[i] != 'd' || width > 9) {
      throw UsageError(fmt::format(
          "-o {}: {} is not understood; a picture's number is %d or %03d, and %% is a percent sign",
          quote(text), quote(text.substr(begin, i + 1 - begin))));
    }
    if (out.numbered) throw UsageError(fmt::format("-o {}: only one %d may be there", quote(text)));
    out.numbered = true;
    out.zeros = zeros;
    out.width = width;
  }
  return out;
}

void refuse_other_formats(const fs::path& file, const std::string& pattern) {
  std::string ending = file.extension().string();
  std::ranges::transform(ending, ending.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  constexpr std::array<std::string_view, 8> kOthers{".jpg", ".jpeg", ".webp", ".gif",
                                                    ".bmp", ".tif",  ".tiff", ".avif"};
  if (std::ranges::find(kOthers, ending) != kOthers.end()) {
    throw UsageError(
        fmt::format("-o {}: pictures are written as PNG; let the name end in .png", quote(pattern)));
  }
}

}  // namespace

std::vector<fs::path> output_names(const std::string& pattern, std::size_t count) {
  Pattern parsed = parse_pattern(pattern);
  std::vector<fs::path> names;
  for (std::size_t i = 0; i < count; ++i) {
    fs::path file = parsed.name(i);
    if (!parsed.numbered && count > 1) {
      file.replace_filename(fmt::format("{}-{}{}", file.stem().string(), i, file.extension().string()));
    }
    if (parsed.name(i).empty() || parsed.name(i).ends_with('/')) {
      throw UsageError(fmt::format("-o {}: a file name is missing", quote(pattern)));
    }
    refuse_other_formats(file, pattern);
    names.push_back(std::move(file));
  }
  return names;
}

void check_writable(const fs::path& file) {
  std::error_code ignored;
  fs::file_status status = fs::status(file, ignored);
  // Opening a pipe to look whether it can be written would be seen at its other end.
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) return;
  AtomicFile probe(file);
}

void check_folder(const fs::path& folder) {
  fs::path there = fs::absolute(folder);
  std::error_code ignored;
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, ignored)) {
    fail(ErrorCode::kUnavailable, "{}: cannot be made: {} is not a folder", folder.string(), there.string());
  }
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    fail(ErrorCode::kUnavailable, "{}: cannot be written: {}", folder.string(),
         std::system_category().message(errno));
  }
}

}  // namespace tessera::cli
