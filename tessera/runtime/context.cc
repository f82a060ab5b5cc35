#include "tessera/runtime/context.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <chrono>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/kernels/registry.h"
#include "tessera/runtime/program_cache.h"
#include "tessera/runtime/run_ahead.h"

namespace tessera {
namespace {

// One plugin's client under one device name, with what is counted on its devices.
struct ClientState {
  std::string device;
  std::shared_ptr<const pjrt::Client> client;
  std::vector<std::shared_ptr<MemoryAccount>> accounts;
  RunAhead run_ahead;
};

std::exception_ptr with_location(const Error& error, std::string_view where) {
  if (where.empty()) return std::make_exception_ptr(error);
  return std::make_exception_ptr(Error(error.code(), fmt::format("{} (in {})", error.what(), where)));
}

// A buffer whose bytes are counted until the last handle is gone.
pjrt::BufferPtr counted(pjrt::BufferPtr buffer, std::shared_ptr<MemoryAccount> account, std::int64_t bytes) {
  pjrt::Buffer* raw = buffer.get();
  return {raw, [buffer = std::move(buffer), account = std::move(account), bytes](pjrt::Buffer*) mutable {
            buffer.reset();
            account->release(bytes);
          }};
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
  ProgramCache programs;

  std::mutex mutex;  // guards the two below
  std::vector<std::unique_ptr<ClientState>> clients;
  std::map<std::pair<std::string, int>, graph::MeshPtr> meshes;

  std::atomic<std::int64_t> compiles{0}, cache_hits{0}, operations{0}, host_transfers{0};
  std::atomic<double> compile_seconds{0};

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
    state->client = plugins->load(device)->create_client(client_options);
    for (std::size_t i = 0; i < state->client->devices().size(); ++i) {
      state->accounts.push_back(
          std::make_shared<MemoryAccount>(fmt::format("{}:{}", device, i), memory_limit));
    }
    clients.push_back(std::move(state));
    return static_cast<int>(clients.size()) - 1;
  }

  // The program's executable and sizes, compiled if this is the first time.
  CompiledProgram compiled(const graph::Program& program, ProgramCache::Entry& entry,
                           const pjrt::Client& client);
  void launch(const graph::Program& program);
};

Context::Context() : Context(Options()) {}

Context::Context(Options options) : impl_(std::make_unique<Impl>()) {
  impl_->plugins = options.plugins ? std::move(options.plugins) : std::make_shared<pjrt::PluginRegistry>();
  impl_->client_options = std::move(options.client_options);
  constexpr const char* kLimit = "TESSERA_DEVICE_MEMORY_LIMIT";
  if (options.memory_limit) {
    impl_->memory_limit = *options.memory_limit;
  } else if (auto text = env(kLimit)) {
    impl_->memory_limit = parse_bytes(*text, kLimit);
  }
}

Context::~Context() { synchronise(); }

graph::MeshPtr Context::mesh(const DeviceName& device) {
  std::lock_guard lock(impl_->mutex);
  graph::MeshPtr& mesh = impl_->meshes[{device.name, device.index}];
  if (mesh) return mesh;
  int client = impl_->client_for(device.name);
  const pjrt::Client& pjrt_client = *impl_->clients[static_cast<std::size_t>(client)]->client;
  auto count = static_cast<int>(pjrt_client.devices().size());
  if (device.index < 0 || device.index >= count) {
    invalid_argument("device {}:{} does not exist: there are {} {} device(s), counted from 0", device.name,
                     device.index, count, device.name);
  }
  auto made = std::make_shared<graph::Mesh>();
  made->device = device.name;
  made->platform = pjrt_client.platform_name();
  made->devices = {device.index};
  made->evaluator = this;
  made->client = client;
  return mesh = std::move(made);
}

const pjrt::Client& Context::client(const graph::Mesh& mesh) const { return *impl_->state(mesh).client; }

Tensor Context::from_host(std::span<const std::byte> data, DType dtype, const Shape& shape,
                          const graph::MeshPtr& mesh, std::shared_ptr<const void> keep_alive,
                          bool parameter) {
  ClientState& state = impl_->state(*mesh);
  auto memory = keep_alive ? pjrt::HostMemory::kZeroCopy : pjrt::HostMemory::kCopy;
  std::vector<pjrt::BufferPtr> buffers;
  for (int device : mesh->devices) {
    const auto& account = state.accounts[static_cast<std::size_t>(device)];
    auto dense = static_cast<std::int64_t>(data.size());
    account->allocate(dense);
    pjrt::BufferPtr buffer;
    std::int64_t bytes = dense;
    try {
      buffer = state.client->buffer_from_host(data, dtype, shape, device, memory, keep_alive);
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

std::vector<std::byte> Context::read(const graph::NodePtr& node) {
  if (node->state() == graph::Node::State::kPending) evaluate(std::span(&node, 1));
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(dtype_bytes(node->type().dtype, node->type().shape.elements())));
  node->buffers().front()->copy_to_host(bytes).await();
  ++impl_->host_transfers;
  return bytes;
}

void Context::recorded(const graph::NodePtr& node) { evaluate(std::span(&node, 1)); }

void Context::evaluate(std::span<const graph::NodePtr> nodes) {
  try {
    impl_->launch(graph::cut(nodes));
  } catch (const Error& error) {
    std::exception_ptr located = with_location(error, nodes.back()->where());
    for (const graph::NodePtr& node : nodes) node->set_error(located);
    std::rethrow_exception(located);
  }
}

CompiledProgram Context::Impl::compiled(const graph::Program& program, ProgramCache::Entry& entry,
                                        const pjrt::Client& client) {
  std::lock_guard lock(entry.mutex);
  if (entry.program.executable) {
    ++cache_hits;
    return entry.program;
  }
  auto start = std::chrono::steady_clock::now();
  pjrt::CompileOptions options;
  options.num_replicas = program.mesh->size();
  for (int device : program.mesh->devices) {
    options.device_ids.push_back(client.devices()[static_cast<std::size_t>(device)].id);
  }
  CompiledProgram made;
  made.executable = client.compile(graph::write_text(program, kernels::lowerings()), options);
  made.scratch_bytes = made.executable->memory_stats().temp;
  for (const graph::NodePtr& output : program.outputs) {
    made.output_bytes.push_back(dtype_bytes(output->type().dtype, output->type().shape.elements()));
  }
  entry.program = made;
  ++compiles;
  compile_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return made;
}

void Context::Impl::launch(const graph::Program& program) {
  ClientState& client = state(*program.mesh);
  std::shared_ptr<ProgramCache::Entry> entry = programs.entry(program.fingerprint, program.mesh->client);
  CompiledProgram ready = compiled(program, *entry, *client.client);
  std::int64_t bytes = ready.scratch_bytes;
  for (std::int64_t b : ready.output_bytes) bytes += b;
  client.run_ahead.reserve(bytes);

  const std::vector<int>& devices = program.mesh->devices;
  std::vector<std::vector<const pjrt::Buffer*>> arguments(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    arguments[d].reserve(program.arguments.size());
    for (const graph::NodePtr& argument : program.arguments)
      arguments[d].push_back(argument->buffers()[d].get());
  }
  // Counted before launching, so that a limit refuses the launch and not the device.
  auto account_all = [&](auto&& f) {
    for (int device : devices) f(*client.accounts[static_cast<std::size_t>(device)]);
  };
  std::int64_t output_bytes = bytes - ready.scratch_bytes;
  account_all([&](MemoryAccount& account) { account.allocate(output_bytes); });
  std::vector<pjrt::Event> done;
  std::vector<std::vector<pjrt::BufferPtr>> results;
  try {
    account_all([&](MemoryAccount& account) { account.scratch(ready.scratch_bytes); });
    if (devices.size() == 1) {
      done.resize(1);
      results.push_back(ready.executable->execute_one(arguments[0], {}, &done[0]));
    } else {
      results = ready.executable->execute(arguments, {}, &done);
    }
    if (!ready.output_bytes_known) {
      std::lock_guard lock(entry->mutex);
      for (std::size_t i = 0; i < results[0].size(); ++i)
        ready.output_bytes[i] = results[0][i]->size_on_device();
      ready.output_bytes_known = true;
    }
  } catch (...) {
    account_all([&](MemoryAccount& account) { account.release(output_bytes); });
    throw;
  }
  for (pjrt::Event& event : done) client.run_ahead.launched(std::move(event), bytes);
  account_all([&](MemoryAccount& account) { account.release(output_bytes); });

  for (std::size_t o = 0; o < program.outputs.size(); ++o) {
    std::vector<pjrt::BufferPtr> buffers;
    buffers.reserve(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      const auto& account = client.accounts[static_cast<std::size_t>(devices[d])];
      account->allocate(ready.output_bytes[o]);
      buffers.push_back(counted(std::move(results[d][o]), account, ready.output_bytes[o]));
    }
    program.outputs[o]->materialise(std::move(buffers));
  }
  operations += static_cast<std::int64_t>(program.steps.size());
}

void Context::synchronise() {
  std::lock_guard lock(impl_->mutex);
  for (const auto& client : impl_->clients) client->run_ahead.drain();
}

Statistics Context::statistics() const {
  Statistics s;
  s.compiles = impl_->compiles;
  s.compile_seconds = impl_->compile_seconds;
  s.cache_hits = impl_->cache_hits;
  s.programs = static_cast<std::int64_t>(impl_->programs.size());
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
