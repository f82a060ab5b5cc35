#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/comm/process_group.h"
#include "tessera/graph/program.h"
#include "tessera/pjrt/registry.h"
#include "tessera/runtime/disk_cache.h"
#include "tessera/runtime/execution_mode.h"
#include "tessera/runtime/memory.h"
#include "tessera/runtime/tensor.h"

namespace tessera {

// What a Context has done so far.
struct Statistics {
  std::int64_t compiles = 0;
  double compile_seconds = 0;
  std::int64_t cache_hits = 0;      // programs found in memory
  std::int64_t disk_hits = 0;       // programs found on disk
  std::int64_t programs = 0;        // distinct programs
  std::int64_t operations = 0;      // operations launched
  std::int64_t host_transfers = 0;  // arrays moved between host and device, either way, but for parameters
};

// A device by the user's name for it, as in "cpu" or "tpu:1".
struct DeviceName {
  std::string name = "cpu";
  int index = 0;
  // Throws kInvalidArgument, listing the names there are.
  static DeviceName parse(const std::string& text);
};

// Everything that work needs: devices, compiled programs, accounting. Explicit: there is no global one. May
// be used from several threads. Tensors must not outlive it.
class Context : public graph::Evaluator {
 public:
  struct Options {
    // Plugins to use instead of those that are found.
    std::shared_ptr<pjrt::PluginRegistry> plugins = {};
    // Bytes a device may hold; the environment's TESSERA_DEVICE_MEMORY_LIMIT if not given.
    std::optional<std::int64_t> memory_limit = {};
    // Options for the clients, such as {"cpu_device_count": 8}; those for the CPU go to no other.
    pjrt::NamedValues client_options = {};
    // How operations become programs; if not given, as the environment says
    // (execution_mode_from_environment), else strict eager.
    std::optional<ExecutionMode> mode = {};
    // Where compiled programs are kept for later processes; if not given, as the environment says
    // (disk_cache_options_from_environment); null for nowhere.
    std::optional<std::shared_ptr<DiskCache>> disk_cache = {};
    // How operations are lowered, where not as kernels/ does it; outlives the context.
    const graph::LoweringTable* lowerings = nullptr;
  };

  Context();
  explicit Context(Options options);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The mesh of the one named device. The plugin is loaded on first use; the same device gives the same mesh.
  graph::MeshPtr mesh(const DeviceName& device = {});
  // A mesh of several devices of one name, each once: the ranks of a tensor-parallel model, in this order.
  // Throws kInvalidArgument for devices of different names (a mesh has one platform) or given twice. On the
  // CPU there are as many as the client option cpu_device_count says.
  graph::MeshPtr mesh(std::span<const DeviceName> devices);
  // The mesh of a model that the processes of the group share, a device each: `device` is this process's, and
  // its rank is the process's. Every process makes it, and calls what uses it in the same order. Throws
  // kInvalidArgument where the devices that the processes have are not one each.
  graph::MeshPtr mesh(const DeviceName& device, const comm::ProcessGroup& group);
  // The first device that is no CPU ("tpu", then "cuda"), if this machine seems to have one. A plugin that
  // was named by hand is believed; others are tried only where the hardware shows itself.
  std::optional<DeviceName> first_accelerator();
  const pjrt::Client& client(const graph::Mesh& mesh) const;

  // A tensor on every device of the mesh from dense host data. With `keep_alive` the data may be used in
  // place where the platform can (64-byte aligned); without it, it is copied before the call returns. Counts
  // as a host transfer unless it is a parameter.
  Tensor from_host(std::span<const std::byte> data, DType dtype, const Shape& shape,
                   const graph::MeshPtr& mesh, std::shared_ptr<const void> keep_alive = nullptr,
                   bool parameter = false);
  // A tensor whose rank r has shards[r], dense data of `shape`, on the r-th device of the mesh. `keep_alive`
  // is empty or has an entry a shard. Counts as a host transfer unless it is a parameter.
  Tensor from_shards(std::span<const std::span<const std::byte>> shards, DType dtype, const Shape& shape,
                     const graph::MeshPtr& mesh, std::span<const std::shared_ptr<const void>> keep_alive = {},
                     bool parameter = false);
  Tensor from_f32(std::span<const float> values, const Shape& shape, const graph::MeshPtr& mesh);
  Tensor from_i32(std::span<const std::int32_t> values, const Shape& shape, const graph::MeshPtr& mesh);

  // The tensor on another mesh; `x` is the same on all its ranks. Where its first device is all of that mesh
  // nothing is copied, else the array crosses through the host (a transfer each way).
  Tensor to(const Tensor& x, const graph::MeshPtr& mesh);

  // The mode of this thread: that of the innermost ScopedExecutionMode, else the context's.
  ExecutionMode mode() const;

  // graph::Evaluator.
  void recorded(const graph::NodePtr& node) override;
  void evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness liveness) override;
  std::vector<std::byte> read(const graph::NodePtr& node) override;

  // Waits for everything that was launched.
  void synchronise();

  Statistics statistics() const;
  // Bytes counted on one device of the mesh.
  const MemoryAccount& memory(const graph::Mesh& mesh, int device = 0) const;
  void reset_memory_peaks();

 private:
  struct Impl;
  void materialise(const graph::NodePtr& node);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
