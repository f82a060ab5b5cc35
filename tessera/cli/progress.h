#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace tessera::cli {

// A line on standard error that says how far a run is, kept up to date in place; silent where that is no
// terminal.
class Progress {
 public:
  Progress();
  ~Progress();
  void stage(std::string_view name);
  void step(int done, int count);
  // Wipes the line away.
  void clear();

 private:
  void show(const std::string& text);
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point loop_start_;
};

}  // namespace tessera::cli
