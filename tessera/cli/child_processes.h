#pragma once

#include <string>
#include <vector>

#include "tessera/comm/launch_environment.h"

namespace tessera::cli {

// A program to be run: looked for as a shell does, with these variables besides those of this process.
struct ChildProcess {
  std::vector<std::string> command;
  comm::Variables variables;
};

// How processes that belong together ended.
struct Ending {
  int status =
      0;  // of the first that failed, as a shell counts: 128 and the number of the signal that ended it
  int asked = 0;  // the signal by which this process was asked to stop; 0 if it was not
};

// Runs them until all have ended. What this process is asked by SIGINT, SIGTERM or SIGHUP they are asked as
// well. If one fails the others are asked to stop, and made to a few seconds later; if this process is
// killed, they are asked too. Throws kUnavailable, with all ended, if one cannot be started. For the main
// thread.
Ending run_together(const std::vector<ChildProcess>& children);

}  // namespace tessera::cli
