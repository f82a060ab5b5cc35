#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::text {

// A regular expression (PCRE2, in UTF-8, with Unicode's classes) that cuts texts into words. `\s` and `\S`
// outside a class, and `\s` inside one, are the property White_Space, as in the tokenizers that patterns come
// from: PCRE2's own notion of it is another.
class Pattern {
 public:
  // Throws kDataLoss, beginning with `what`, for an expression that does not compile.
  Pattern(std::string_view expression, const std::string& what);

  // Calls f with each match, one after another. Throws kDataLoss for a match that takes too many steps.
  using Visitor = std::function<void(std::string_view)>;
  void for_each_match(std::string_view text, const Visitor& f) const;
  // And with what lies between them.
  void for_each_piece(std::string_view text, const Visitor& f) const;

 private:
  void scan(std::string_view text, const Visitor& match, const Visitor* gap) const;
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
  std::string what_;
};

}  // namespace tessera::text
