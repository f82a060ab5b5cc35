#include "tessera/runtime/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <tuple>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/kernels/cpu/handlers.h"
#include "tessera/kernels/registry.h"
#include "tessera/runtime/compiler.h"
#include "tessera/runtime/launcher.h"
#include "tessera/runtime/pending.h"

namespace tessera {
namespace {

// The error, saying which part of the model the program was that failed.
Error located(const Error& error, const graph::Program& program) {
  std::string_view first, last;
  for (const graph::NodePtr& step : program.steps) {
    if (first.empty()) first = step->where();
    if (!step->where().empty()) last = step->where();
  }
  std::string_view message = error.what();
  if (first.empty() || message.find(last) != std::string_view::npos) return error;
  if (first == last) return Error(error.code(), fmt::format("{} (in {})", message, first));
  return Error(error.code(), fmt::format("{} (in a program of {} operations, from {} to {})", message,
                                         program.steps.size(), first, last));
}

// Waits for the results of one operation, so that what goes wrong on the device is known here.
void wait(const graph::Node& node) {
  for (const pjrt::BufferPtr& buffer : node.buffers()) buffer->ready_event().await();
}

// Whether the devices are such that each process of the group has one.
void check_spread(const pjrt::Client& client, const comm::ProcessGroup& group) {
  if (group.meets_on_host()) {
    if (client.plugin().takes_ffi_handlers()) return;
    fail(ErrorCode::kUnimplemented, "the plugin {} cannot call what adds up between processes",
         client.plugin().path().string());
  }
  std::vector<pjrt::DeviceInfo> all = client.devices_everywhere();
  if (client.devices().size() == 1 && all.size() == static_cast<std::size_t>(group.size())) return;
  invalid_argument(
      "{} processes share a model with a device each; this one has {} of {} devices in all "
      "(TPU_VISIBLE_CHIPS and "
      "TPU_PROCESS_BOUNDS say how they are shared out)",
      group.size(), client.devices().size(), all.size());
}

}  // namespace

DeviceName DeviceName::parse(const std::string& text) {
  DeviceName device{text.substr(0, text.find(':')), 0};
  bool known = false;
  for (const std::string& name : pjrt::device_names()) known = known || name == device.name;
  if (auto colon = text.find(':'); known && colon != std::string::npos) {
    const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
    auto [stop, code] = std::from_chars(begin, end, device.index);
    known = code == std::errc() && stop == end && begin != end && device.index >= 0;
  }
  if (!known) {
    invalid_argument("'{}' is no device; write one of {}, alone or with an index as in cpu:0", text,
                     fmt::join(pjrt::device_names(), ", "));
  }
  return device;
}

struct Context::Impl {
  std::shared_ptr<pjrt::PluginRegistry> plugins;
  std::int64_t memory_limit = 0;
  pjrt::NamedValues client_options;
  std::optional<Compiler> compiler;
  ExecutionMode mode = ExecutionMode::kEager;

  std::mutex mutex;  // guards the two below
  std::vector<std::unique_ptr<ClientState>> clients;
  // By device name, positions, and first rank.
  std::map<std::tuple<std::string, std::vector<int>, int>, graph::MeshPtr> meshes;

  std::atomic<std::int64_t> operations{0}, host_transfers{0};

  ClientState& state(const graph::Mesh& mesh) {
    std::lock_guard lock(mutex);
    return *clients[static_cast<std::size_t>(mesh.client)];
  }

  // The number of the client for a device name, started if need be; called with the mutex held.
  int client_for(const std::string& device) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      if (clients[i]->device == device) return static_cast<int>(i);
    }
    auto state = std::make_unique<ClientState>();
    state->device = device;
    pjrt::NamedValues its_options = client_options;
    if (device != "cpu")
      std::erase_if(its_options, [](const auto& o) { return o.first.starts_with("cpu_"); });
    std::shared_ptr<const pjrt::Plugin> plugin = plugins->load(device);
    state->client = pjrt::create_client(*plugin, device, its_options);
    kernels::register_handlers(*plugin, state->client->platform_name());
    for (std::size_t i = 0; i < state->client->devices().size(); ++i) {
      state->accounts.push_back(
          std::make_shared<MemoryAccount>(fmt::format("{}:{}", device, i), memory_limit));
    }
    clients.push_back(std::move(state));
    return static_cast<int>(clients.size()) - 1;
  }

  graph::MeshPtr mesh(Context& context, const std::string& name, std::vector<int> indices,
                      const comm::ProcessGroup* group);
};

Context::Context() : Context(Options()) {}

Context::Context(Options options) : impl_(std::make_unique<Impl>()) {
  impl_->plugins = options.plugins ? std::move(options.plugins) : std::make_shared<pjrt::PluginRegistry>();
  impl_->client_options = std::move(options.client_options);
  if (!options.disk_cache) {
    auto found = disk_cache_options_from_environment();
    options.disk_cache = found ? std::make_shared<DiskCache>(*found) : nullptr;
  }
  impl_->compiler.emplace(options.lowerings != nullptr ? *options.lowerings : kernels::lowerings(),
                          *options.disk_cache);
  if (!options.mode) options.mode = execution_mode_from_environment();
  impl_->mode = options.mode.value_or(ExecutionMode::kEager);
  constexpr const char* kLimit = "TESSERA_DEVICE_MEMORY_LIMIT";
  if (options.memory_limit) {
    impl_->memory_limit = *options.memory_limit;
  } else if (auto text = env(kLimit)) {
    impl_->memory_limit = parse_bytes(*text, kLimit);
  }
}

Context::~Context() { synchronise(); }

graph::MeshPtr Context::mesh(const DeviceName& device) { return mesh(std::span(&device, 1)); }

graph::MeshPtr Context::mesh(std::span<const DeviceName> devices) {
  if (devices.empty()) invalid_argument("a mesh of no devices was asked for");
  const std::string& name = devices.front().name;
  std::vector<int> indices;
  for (const DeviceName& device : devices) {
    if (device.name != name) {
      invalid_argument("a mesh has devices of one kind; {} and {} were given", name, device.name);
    }
    if (std::ranges::find(indices, device.index) != indices.end()) {
      invalid_argument("{}:{} is in the mesh twice", name, device.index);
    }
    indices.push_back(device.index);
  }
  return impl_->mesh(*this, name, std::move(indices), nullptr);
}

graph::MeshPtr Context::mesh(const DeviceName& device, const comm::ProcessGroup& group) {
  return impl_->mesh(*this, device.name, {device.index}, &group);
}

graph::MeshPtr Context::Impl::mesh(Context& context, const std::string& name, std::vector<int> indices,
                                   const comm::ProcessGroup* group) {
  std::lock_guard lock(mutex);
  graph::MeshPtr& mesh = meshes[{name, indices, group == nullptr ? -1 : group->rank()}];
  if (mesh) return mesh;
  int number = client_for(name);
  const pjrt::Client& client = *clients[static_cast<std::size_t>(number)]->client;
  auto count = static_cast<int>(client.devices().size());
  for (int index : indices) {
    if (index >= 0 && index < count) continue;
    invalid_argument("device {}:{} does not exist: there are {} {} device(s), counted from 0", name, index,
                     count, name);
  }
  if (group != nullptr) check_spread(client, *group);
  auto made = std::make_shared<graph::Mesh>();
  made->device = name;
  made->platform = client.platform_name();
  made->devices = std::move(indices);
  made->evaluator = &context;
  made->client = number;
  if (group != nullptr) {
    made->first_rank = group->rank();
    made->ranks_elsewhere = group->size() - 1;
  }
  return mesh = std::move(made);
}

std::optional<DeviceName> Context::first_accelerator() {
  for (const char* name : {"tpu", "cuda"}) {
    if (!impl_->plugins->promising(name)) continue;
    try {
      mesh({name, 0});
      return DeviceName{name, 0};
    } catch (const Error& error) {
      log(LogLevel::kInfo, "no {} device: {}", name, error.what());
    }
  }
  return std::nullopt;
}

const pjrt::Client& Context::client(const graph::Mesh& mesh) const { return *impl_->state(mesh).client; }

Tensor Context::from_host(std::span<const std::byte> data, DType dtype, const Shape& shape,
                          const graph::MeshPtr& mesh, std::shared_ptr<const void> keep_alive,
                          bool parameter) {
  std::vector<std::span<const std::byte>> shards(mesh->devices.size(), data);
  std::vector<std::shared_ptr<const void>> owners;
  if (keep_alive) owners.assign(shards.size(), keep_alive);
  return from_shards(shards, dtype, shape, mesh, owners, parameter);
}

Tensor Context::from_shards(std::span<const std::span<const std::byte>> shards, DType dtype,
                            const Shape& shape, const graph::MeshPtr& mesh,
                            std::span<const std::shared_ptr<const void>> keep_alive, bool parameter) {
  if (shards.size() != mesh->devices.size()) {
    invalid_argument("{} shards were given for a mesh of {} device(s)", shards.size(), mesh->devices.size());
  }
  ClientState& state = impl_->state(*mesh);
  std::vector<pjrt::BufferPtr> buffers;
  for (std::size_t r = 0; r < shards.size(); ++r) {
    const auto& account = state.accounts[static_cast<std::size_t>(mesh->devices[r])];
    auto memory = keep_alive.empty() ? pjrt::HostMemory::kCopy : pjrt::HostMemory::kZeroCopy;
    auto dense = static_cast<std::int64_t>(shards[r].size());
    account->allocate(dense);
    pjrt::BufferPtr buffer;
    std::int64_t bytes = dense;
    try {
      buffer = state.client->buffer_from_host(shards[r], dtype, shape, mesh->devices[r], memory,
                                              keep_alive.empty() ? nullptr : keep_alive[r]);
      bytes = buffer->size_on_device();
    } catch (...) {
      account->release(dense);
      throw;
    }
    account->release(dense);
    account->allocate(bytes);
    buffers.push_back(counted(std::move(buffer), account, bytes));
  }
  if (!parameter) ++impl_->host_transfers;
  return Tensor(std::make_shared<graph::Node>(graph::TensorType{dtype, shape}, mesh, std::move(buffers)));
}

Tensor Context::from_f32(std::span<const float> values, const Shape& shape, const graph::MeshPtr& mesh) {
  return from_host(std::as_bytes(values), DType::kF32, shape, mesh);
}

Tensor Context::from_i32(std::span<const std::int32_t> values, const Shape& shape,
                         const graph::MeshPtr& mesh) {
  return from_host(std::as_bytes(values), DType::kI32, shape, mesh);
}

Tensor Context::to(const Tensor& x, const graph::MeshPtr& mesh) {
  if (x.mesh() == mesh) return x;
  const graph::NodePtr& node = x.node();
  if (mesh->client != x.mesh()->client || mesh->size() != 1 || mesh->devices[0] != x.mesh()->devices[0])
    return from_host(x.to_bytes(), x.dtype(), x.shape(), mesh);
  if (const Recording* recording = Recording::current()) recording->check_read();
  materialise(node);
  return Tensor(
      std::make_shared<graph::Node>(node->type(), mesh, std::vector<pjrt::BufferPtr>{node->buffers()[0]}));
}

void Context::materialise(const graph::NodePtr& node) {
  if (node->state() == graph::Node::State::kPending) PendingGraph::of_this_thread().cut();
  // Recorded by another thread.
  if (node->state() == graph::Node::State::kPending) evaluate(std::span(&node, 1), graph::Liveness::kUnknown);
}

ExecutionMode Context::mode() const { return ScopedExecutionMode::current().value_or(impl_->mode); }

std::vector<std::byte> Context::read(const graph::NodePtr& node) {
  if (const Recording* recording = Recording::current()) recording->check_read();
  materialise(node);
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(dtype_bytes(node->type().dtype, node->type().shape.elements())));
  node->buffers().front()->copy_to_host(bytes).await();
  ++impl_->host_transfers;
  return bytes;
}

void Context::recorded(const graph::NodePtr& node) {
  PendingGraph& pending = PendingGraph::of_this_thread();
  ExecutionMode now = mode();
  if (Recording::current() != nullptr) {
    pending.add(node);
  } else if (now == ExecutionMode::kFused) {
    pending.add(node);
    if (pending.over_limit()) pending.cut();
  } else {
    // What another mode left comes first, so that nothing is computed twice.
    pending.cut();
    evaluate(std::span(&node, 1), graph::Liveness::kUnknown);
  }
}

void Context::evaluate(std::span<const graph::NodePtr> nodes, graph::Liveness liveness) {
  std::optional<graph::Program> program;
  try {
    program = graph::cut(nodes);
    launch(*program, liveness, *impl_->compiler, impl_->state(*program->mesh));
    impl_->operations += static_cast<std::int64_t>(program->steps.size());
    if (mode() == ExecutionMode::kEagerBlocking) {
      for (const graph::NodePtr& node : nodes) wait(*node);
    }
  } catch (const Error& error) {
    Error seen = program ? located(error, *program) : error;
    for (const graph::NodePtr& node : nodes) node->set_error(std::make_exception_ptr(seen));
    throw seen;
  }
}

void Context::synchronise() {
  std::lock_guard lock(impl_->mutex);
  for (const auto& client : impl_->clients) client->run_ahead.drain();
}

Statistics Context::statistics() const {
  Statistics s;
  s.compiles = impl_->compiler->compiles();
  s.compile_seconds = impl_->compiler->compile_seconds();
  s.cache_hits = impl_->compiler->memory_hits();
  s.disk_hits = impl_->compiler->disk_hits();
  s.programs = impl_->compiler->programs();
  s.operations = impl_->operations;
  s.host_transfers = impl_->host_transfers;
  return s;
}

const MemoryAccount& Context::memory(const graph::Mesh& mesh, int device) const {
  return *impl_->state(mesh)
              .accounts[static_cast<std::size_t>(mesh.devices[static_cast<std::size_t>(device)])];
}

void Context::reset_memory_peaks() {
  std::lock_guard lock(impl_->mutex);
  for (const auto& client : impl_->clients) {
    for (const auto& account : client->accounts) account->reset_peak();
  }
}

}  // namespace tessera
