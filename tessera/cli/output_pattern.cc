#include "tessera/cli/output_pattern.h"

#include <fmt/format.h>

#include <cctype>

#include "tessera/cli/common.h"

namespace tessera::cli {

OutputPattern::OutputPattern(const std::string& text) {
  constexpr std::size_t kMaxWidth = 2;  // digits of a width
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& part = numbered_ ? after_ : before_;
    if (text[i] != '%') {
      part += text[i];
      continue;
    }
    if (text.compare(i, 2, "%%") == 0) {
      part += '%';
      ++i;
      continue;
    }
    std::size_t d = i + 1;
    while (d < text.size() && std::isdigit(static_cast<unsigned char>(text[d]))) ++d;
    std::string digits = text.substr(i + 1, d - i - 1);
    if (d >= text.size() || text[d] != 'd' || numbered_ || digits.size() > kMaxWidth) {
      throw UsageError(fmt::format(
          "-o {}: it may hold one %d (or %03d) for the number of the image; %% is a percent sign", text));
    }
    numbered_ = true;
    zeros_ = digits.starts_with('0');
    width_ = digits.empty() ? 0 : std::stoi(digits);
    i = d;
  }
  if (text.empty() || text.ends_with('/')) throw UsageError("-o: the name of a file is wanted");
}

std::filesystem::path OutputPattern::path(int index, int count) const {
  if (numbered_) {
    std::string number = zeros_ ? fmt::format("{:0{}}", index, width_) : fmt::format("{:{}}", index, width_);
    return before_ + number + after_;
  }
  if (count == 1) return before_;
  std::filesystem::path whole = before_;
  std::filesystem::path name = whole.stem();
  name += fmt::format("-{}", index);
  name += whole.extension();
  return whole.parent_path() / name;
}

}  // namespace tessera::cli
