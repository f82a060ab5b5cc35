#define PCRE2_CODE_UNIT_WIDTH 8
#include "tessera/text/pattern.h"

#include <pcre2.h>

#include <array>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"

namespace tessera::text {
namespace {

constexpr std::size_t kLongestExpression = 4096;

// What is_white_space of unicode.h holds for, as it stands in a character class.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The expression with `\s` and `\S` spelled out.
std::string spell_white_space(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      char next = expression[++i];
      if (next == 's' && in_class) {
        out += kWhiteSpace;
      } else if (!in_class && (next == 's' || next == 'S')) {
        out.append(next == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
      } else {
        out.append({c, next});
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

void Pattern::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Pattern::Pattern(std::string_view expression, const std::string& what) : what_(what) {
  if (expression.size() > kLongestExpression) {
    fail(ErrorCode::kDataLoss, "{}: a pattern of {} bytes", what, expression.size());
  }
  std::string spelled = spell_white_space(expression);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
  if (code == nullptr) {
    fail(ErrorCode::kDataLoss, "{}: the pattern {} does not compile: {}", what, quote(expression, 200),
         message(error));
  }
  code_.reset(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // slower without, but right
}

void Pattern::scan(std::string_view text, const Visitor& match, const Visitor* gap) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
  std::size_t at = 0;
  while (at < text.size()) {
    // Every match has at least a character.
    std::uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int found = pcre2_match(code, subject, text.size(), at, options, data.get(), nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code, subject, text.size(), at, options | PCRE2_NO_JIT, data.get(), nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 1) fail(ErrorCode::kDataLoss, "{}: the text cannot be split: {}", what_, message(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    // Look-behind assertions can move the start of a match before where it was looked for.
    if (range[0] < at || range[1] <= range[0]) break;
    if (gap != nullptr && range[0] > at) (*gap)(text.substr(at, range[0] - at));
    match(text.substr(range[0], range[1] - range[0]));
    at = range[1];
  }
  if (gap != nullptr && at < text.size()) (*gap)(text.substr(at));
}

void Pattern::for_each_match(std::string_view text, const Visitor& f) const { scan(text, f, nullptr); }
void Pattern::for_each_piece(std::string_view text, const Visitor& f) const { scan(text, f, &f); }

}  // namespace tessera::text
