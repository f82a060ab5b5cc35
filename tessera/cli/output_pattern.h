#pragma once

#include <filesystem>
#include <string>

namespace tessera::cli {

// The name that -o gives: it may hold one %d (or %3d, %03d) for the number of the image; %% is a percent
// sign.
class OutputPattern {
 public:
  // Throws UsageError for another use of %, and for an empty name.
  explicit OutputPattern(const std::string& text);
  // The file for image `index` of `count`. Without %d, "-0", "-1", ... stand before the ending where there
  // are several.
  std::filesystem::path path(int index, int count) const;

 private:
  std::string before_, after_;
  bool numbered_ = false;
  bool zeros_ = false;
  int width_ = 0;
};

}  // namespace tessera::cli
