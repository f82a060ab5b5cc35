#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/graph/program.h"
#include "tessera/pjrt/pjrt.h"

namespace tessera {

// A program that is ready to launch, with what launching it takes.
struct CompiledProgram {
  std::shared_ptr<pjrt::Executable> executable;
  std::int64_t scratch_bytes = 0;  // per device, while it runs
  std::vector<std::int64_t>
      output_bytes;  // per output, on one device; dense sizes until the first launch corrects them
  bool output_bytes_known = false;
};

// Programs by fingerprint and client. Each is compiled once, also when several threads ask at the same time.
class ProgramCache {
 public:
  struct Entry {
    std::mutex mutex;  // held while compiling, and while the sizes are corrected
    CompiledProgram program;
  };

  // The entry for the program; it may be empty, to be filled under its mutex.
  std::shared_ptr<Entry> entry(const graph::Fingerprint& fingerprint, int client);
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<graph::Fingerprint, int>, std::shared_ptr<Entry>> entries_;
};

}  // namespace tessera
