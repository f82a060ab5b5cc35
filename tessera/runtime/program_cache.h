#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tessera/graph/program.h"
#include "tessera/pjrt/pjrt.h"

namespace tessera {

// A program that is ready to launch, with what launching it takes.
struct CompiledProgram {
  std::shared_ptr<pjrt::Executable> executable;
  std::int64_t scratch_bytes = 0;          // per device, while it runs
  std::vector<std::int64_t> output_bytes;  // per output, on one device, dense
  bool has_collectives = false;            // ranks meet in it
  // For each argument, the output whose memory it may become, or -1; empty if there is none.
  std::vector<int> aliases;

  // Bytes of the outputs as the device has them; the dense sizes until the first launch told.
  const std::vector<std::int64_t>& device_output_bytes() const {
    return measured_.load(std::memory_order_acquire) ? measured_bytes_ : output_bytes;
  }
  // Notes what the device gave a launch's results.
  void measure(std::span<const pjrt::BufferPtr> results);

 private:
  std::mutex mutex_;
  std::atomic<bool> measured_{false};
  std::vector<std::int64_t> measured_bytes_;
};

// Programs by fingerprint and mesh. Each is compiled once, also when several threads ask at the same time.
class ProgramCache {
 public:
  struct Entry {
    std::mutex mutex;  // held while compiling
    std::atomic<CompiledProgram*> ready{nullptr};
    std::unique_ptr<CompiledProgram> owned;
  };

  // The entry for the program; it may be empty, to be filled under its mutex. Lives as long as the cache.
  Entry& entry(const graph::Fingerprint& fingerprint, const graph::Mesh& mesh);
  std::size_t size() const;

 private:
  struct Key {
    graph::Fingerprint fingerprint;
    const graph::Mesh* mesh;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>(key.fingerprint.low ^ reinterpret_cast<std::uintptr_t>(key.mesh));
    }
  };
  mutable std::mutex mutex_;
  std::unordered_map<Key, std::unique_ptr<Entry>, Hash> entries_;
};

}  // namespace tessera
