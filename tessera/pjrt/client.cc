#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/pjrt/api.h"

namespace tessera::pjrt {
namespace {

PJRT_Client* raw(void* client) { return static_cast<PJRT_Client*>(client); }

PJRT_Program make_program(std::string_view text) {
  auto program = make_args<PJRT_Program>(PJRT_Program_STRUCT_SIZE);
  program.code = const_cast<char*>(text.data());  // the API reads it only
  program.code_size = text.size();
  static constexpr std::string_view kFormat = "mlir";
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

void* unload(const Api& api, PJRT_LoadedExecutable* loaded) {
  auto args = make_args<PJRT_LoadedExecutable_GetExecutable_Args>(
      PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE);
  args.loaded_executable = loaded;
  TESSERA_PJRT(api, PJRT_LoadedExecutable_GetExecutable, args);
  return args.executable;
}

// Takes over a loaded executable; frees it if it cannot be asked for what it is.
std::shared_ptr<Executable> wrap(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* loaded) {
  std::shared_ptr<const Api> api = client->api();
  void* executable = nullptr;
  try {
    executable = unload(*api, loaded);
  } catch (...) {
    auto args = make_args<PJRT_LoadedExecutable_Destroy_Args>(PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE);
    args.executable = loaded;
    if (auto destroy = api->find(&PJRT_Api::PJRT_LoadedExecutable_Destroy)) api->drop(destroy(&args));
    throw;
  }
  return std::make_shared<Executable>(std::move(client), std::move(api), loaded, executable);
}

// Compiles, or loads, with what the plugin's compiler knows: another version of it may know other settings.
template <typename Make>
std::shared_ptr<Executable> with_known_settings(const CompileOptions& options, const Make& make) {
  try {
    return make(options);
  } catch (const Error& error) {
    if (options.settings.empty() ||
        std::string_view(error.what()).find("No such compile option") == std::string_view::npos)
      throw;
    CompileOptions known = options;
    known.settings.clear();
    return make(known);
  }
}

PJRT_Device* device_at(const std::vector<void*>& devices, int index) {
  if (index < 0 || static_cast<std::size_t>(index) >= devices.size()) {
    invalid_argument("there is no device {}: the client has {}, counted from 0", index, devices.size());
  }
  return static_cast<PJRT_Device*>(devices[static_cast<std::size_t>(index)]);
}

// Holds host memory until an event fires.
struct Held {
  std::shared_ptr<const Api> api;
  std::shared_ptr<const void> memory;
};

void release_held(PJRT_Error* error, void* user) {
  std::unique_ptr<Held> held(static_cast<Held*>(user));
  held->api->drop(error);
}

// Releases `memory` once the event has fired; waits for it where the plugin has no callbacks.
void hold_until(const std::shared_ptr<const Api>& api, const Event& event, PJRT_Event* raw_event,
                std::shared_ptr<const void> memory) {
  auto on_ready = api->find(&PJRT_Api::PJRT_Event_OnReady);
  if (on_ready == nullptr) {
    event.await();
    return;
  }
  auto held = std::make_unique<Held>(Held{api, std::move(memory)});
  auto args = make_args<PJRT_Event_OnReady_Args>(PJRT_Event_OnReady_Args_STRUCT_SIZE);
  args.event = raw_event;
  args.callback = release_held;
  args.user_arg = held.get();
  api->check(on_ready(&args), "PJRT_Event_OnReady");
  held.release();  // the callback has it now
}

}  // namespace

Client::~Client() {
  if (client_ == nullptr) return;
  auto args = make_args<PJRT_Client_Destroy_Args>(PJRT_Client_Destroy_Args_STRUCT_SIZE);
  args.client = raw(client_);
  if (auto destroy = api_->find(&PJRT_Api::PJRT_Client_Destroy)) api_->drop(destroy(&args));
}

std::vector<DeviceInfo> Client::devices_everywhere() const {
  auto args = make_args<PJRT_Client_Devices_Args>(PJRT_Client_Devices_Args_STRUCT_SIZE);
  args.client = raw(client_);
  TESSERA_PJRT(*api_, PJRT_Client_Devices, args);
  std::vector<DeviceInfo> out;
  for (PJRT_Device* device : std::span(args.devices, args.num_devices)) {
    auto description =
        make_args<PJRT_Device_GetDescription_Args>(PJRT_Device_GetDescription_Args_STRUCT_SIZE);
    description.device = device;
    TESSERA_PJRT(*api_, PJRT_Device_GetDescription, description);
    out.push_back(describe_device(*api_, description.device_description));
  }
  std::ranges::sort(out, {}, [](const DeviceInfo& d) { return std::pair(d.process, d.id); });
  return out;
}

std::optional<MemoryStats> Client::memory_stats(int device_index) const {
  auto function = api_->find(&PJRT_Api::PJRT_Device_MemoryStats);
  if (function == nullptr) return std::nullopt;
  auto args = make_args<PJRT_Device_MemoryStats_Args>(PJRT_Device_MemoryStats_Args_STRUCT_SIZE);
  args.device = device_at(device_handles_, device_index);
  if (PJRT_Error* error = function(&args)) {
    api_->drop(error);
    return std::nullopt;
  }
  MemoryStats stats{args.bytes_in_use, std::nullopt};
  if (args.bytes_limit_is_set) stats.bytes_limit = args.bytes_limit;
  return stats;
}

BufferPtr Client::buffer_from_host(std::span<const std::byte> data, DType dtype, const Shape& shape,
                                   int device_index, HostMemory memory,
                                   std::shared_ptr<const void> keep_alive) const {
  std::size_t dense = host_bytes(dtype, shape);
  if (data.size() != dense) {
    invalid_argument("an array {}{} takes {} bytes; {} were given", dtype_name(dtype), to_string(shape),
                     dense, data.size());
  }
  PJRT_Device* device = device_at(device_handles_, device_index);
  constexpr std::uintptr_t kZeroCopyAlignment = 64;
  // In place the memory is in use until the buffer is gone and all that was launched on it has run, which
  // only the event's callback tells (waiting for it here would be for ever).
  bool in_place = memory == HostMemory::kZeroCopy && keep_alive && traits_.zero_copy && dense > 0 &&
                  api_->find(&PJRT_Api::PJRT_Event_OnReady) != nullptr &&
                  reinterpret_cast<std::uintptr_t>(data.data()) % kZeroCopyAlignment == 0;
  static constexpr std::byte kNothing{};
  auto args =
      make_args<PJRT_Client_BufferFromHostBuffer_Args>(PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE);
  args.client = raw(client_);
  args.data = dense == 0 ? &kNothing : data.data();
  args.type = to_pjrt_type(dtype);
  args.dims = shape.dims().data();
  args.num_dims = shape.dims().size();
  args.device = device;
  bool copies = !in_place && (memory == HostMemory::kCopy || !keep_alive);
  args.host_buffer_semantics = in_place ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                               : copies ? PJRT_HostBufferSemantics_kImmutableOnlyDuringCall
                                        : PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  TESSERA_PJRT(*api_, PJRT_Client_BufferFromHostBuffer, args);
  Event done(api_, args.done_with_host_buffer);
  auto buffer = std::make_shared<Buffer>(shared_from_this(), args.buffer);
  if (!copies && args.done_with_host_buffer != nullptr) {
    try {
      hold_until(api_, done, args.done_with_host_buffer, keep_alive);
    } catch (...) {
      // The memory goes back to the caller, so nothing may read it any more.
      buffer.reset();
      done.await();
      throw;
    }
  }
  return buffer;
}

std::shared_ptr<Executable> Client::compile(std::string_view stablehlo, const CompileOptions& options) const {
  return with_known_settings(options,
                             [&](const CompileOptions& known) { return compile_as(stablehlo, known); });
}

std::shared_ptr<Executable> Client::compile_as(std::string_view stablehlo,
                                               const CompileOptions& options) const {
  PJRT_Program program = make_program(stablehlo);
  std::string serialized = options.serialize();
  auto args = make_args<PJRT_Client_Compile_Args>(PJRT_Client_Compile_Args_STRUCT_SIZE);
  args.client = raw(client_);
  args.program = &program;
  args.compile_options = serialized.data();
  args.compile_options_size = serialized.size();
  TESSERA_PJRT(*api_, PJRT_Client_Compile, args);
  return wrap(shared_from_this(), args.executable);
}

std::shared_ptr<Executable> Client::deserialize(std::string_view bytes, const CompileOptions& options) const {
  return with_known_settings(options,
                             [&](const CompileOptions& known) { return deserialize_as(bytes, known); });
}

std::shared_ptr<Executable> Client::deserialize_as(std::string_view bytes,
                                                   const CompileOptions& options) const {
  std::string serialized = options.serialize();
  auto args =
      make_args<PJRT_Executable_DeserializeAndLoad_Args>(PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE);
  args.client = raw(client_);
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  args.overridden_serialized_compile_options = serialized.data();
  args.overridden_serialized_compile_options_size = serialized.size();
  TESSERA_PJRT(*api_, PJRT_Executable_DeserializeAndLoad, args);
  return wrap(shared_from_this(), args.loaded_executable);
}

Topology::~Topology() {
  if (topology_ == nullptr) return;
  auto args =
      make_args<PJRT_TopologyDescription_Destroy_Args>(PJRT_TopologyDescription_Destroy_Args_STRUCT_SIZE);
  args.topology = static_cast<PJRT_TopologyDescription*>(topology_);
  if (auto destroy = api_->find(&PJRT_Api::PJRT_TopologyDescription_Destroy)) api_->drop(destroy(&args));
}

std::shared_ptr<Executable> Topology::compile(std::string_view stablehlo,
                                              const CompileOptions& options) const {
  return with_known_settings(options,
                             [&](const CompileOptions& known) { return compile_as(stablehlo, known); });
}

std::shared_ptr<Executable> Topology::compile_as(std::string_view stablehlo,
                                                 const CompileOptions& options) const {
  PJRT_Program program = make_program(stablehlo);
  std::string serialized = options.serialize();
  auto args = make_args<PJRT_Compile_Args>(PJRT_Compile_Args_STRUCT_SIZE);
  args.topology = static_cast<PJRT_TopologyDescription*>(topology_);
  args.program = &program;
  args.compile_options = serialized.data();
  args.compile_options_size = serialized.size();
  TESSERA_PJRT(*api_, PJRT_Compile, args);
  return std::make_shared<Executable>(nullptr, api_, nullptr, args.executable);
}

}  // namespace tessera::pjrt
