#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/graph/lowering.h"
#include "tessera/graph/program.h"
#include "tessera/pjrt/pjrt.h"
#include "tessera/runtime/disk_cache.h"
#include "tessera/runtime/program_cache.h"

namespace tessera {

// Makes programs into executables: found in memory, loaded from disk, or compiled. Safe from several threads.
class Compiler {
 public:
  // Without a disk cache (null) programs are remembered in this process only.
  Compiler(const graph::LoweringTable& lowerings, std::shared_ptr<DiskCache> disk)
      : lowerings_(lowerings), disk_(std::move(disk)) {}

  // The executable for the program on its mesh's devices of the client. `aliases` says which arguments may
  // give their memory to which output if the program has to be compiled now (write_text). Throws what the
  // plugin reports; for a program of several operations the message names the one that fails alone.
  CompiledProgram& compiled(const graph::Program& program, const pjrt::Client& client,
                            const std::vector<int>& aliases);

  std::int64_t compiles() const { return compiles_; }
  double compile_seconds() const { return compile_seconds_; }
  std::int64_t memory_hits() const { return memory_hits_; }
  std::int64_t disk_hits() const { return disk_hits_; }
  std::int64_t programs() const { return static_cast<std::int64_t>(cache_.size()); }

 private:
  std::unique_ptr<CompiledProgram> make(const graph::Program& program, const pjrt::Client& client,
                                        std::vector<int> aliases);
  // Nothing if the disk has no usable entry.
  std::shared_ptr<pjrt::Executable> load(const std::string& key, const pjrt::Client& client,
                                         const pjrt::CompileOptions& options);
  void store(const std::string& key, const pjrt::Executable& executable);
  const std::string& environment_of(const pjrt::Client& client);
  std::shared_ptr<pjrt::Executable> compile(const graph::Program& program, const pjrt::Client& client,
                                            const std::string& text, const pjrt::CompileOptions& options);
  // The text of the program; an error names the operation.
  std::string write(const graph::Program& program, const std::vector<int>& aliases) const;

  const graph::LoweringTable& lowerings_;
  std::shared_ptr<DiskCache> disk_;
  ProgramCache cache_;
  std::mutex mutex_;  // guards environments_
  std::map<const pjrt::Client*, std::string> environments_;
  std::atomic<std::int64_t> compiles_{0}, memory_hits_{0}, disk_hits_{0};
  std::atomic<double> compile_seconds_{0};
};

}  // namespace tessera
