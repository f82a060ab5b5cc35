#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/shape.h"

// RAII over the PJRT C API. Nothing here prints or aborts: a plugin's error becomes a tessera::Error that
// carries the plugin's message (with line and column for program text). Only this room includes pjrt_c_api.h.
namespace tessera::pjrt {

class Client;
class Plugin;
struct Api;  // the plugin's table of functions, checked for size and null before use

// A value of a plugin's or device's attribute, or of a client option.
using NamedValue = std::variant<std::string, std::int64_t, std::vector<std::int64_t>, float, bool>;
using NamedValues = std::map<std::string, NamedValue, std::less<>>;

// What a platform can and cannot do.
struct Traits {
  bool zero_copy = false;               // immutable host memory aligned to 64 bytes is used in place
  bool concurrent_collectives = false;  // several programs with collectives may be in flight on one client
  bool memory_stats = false;            // devices report bytes in use and their limit
  bool donation = true;                 // an operand's memory may become the result's
  bool host_code = false;               // compiled programs hold code for this machine's processor
};

struct Version {
  int major = 0, minor = 0;
};

// A completion that the device will signal.
class Event {
 public:
  Event() = default;  // an event that is ready
  Event(std::shared_ptr<const Api> api, void* event);
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  bool ready() const;
  // Blocks; throws what the device reported.
  void await() const;

 private:
  std::shared_ptr<const Api> api_;
  void* event_ = nullptr;
};

// A device of a client, or of a topology without one.
struct DeviceInfo {
  int id = 0;
  int process = 0;   // which drives it, where several share the hardware
  std::string kind;  // "cpu", "TPU v6 lite", ...
  std::string text;  // the plugin's own description
  NamedValues attributes;
};

struct MemoryStats {
  std::int64_t bytes_in_use = 0;
  std::optional<std::int64_t> bytes_limit;
};

// Sizes in bytes that a compiled program needs, per device.
struct CompiledMemoryStats {
  std::int64_t code = 0, arguments = 0, outputs = 0, alias = 0, temp = 0;
};

// One array on one device. Destroying it frees the memory once the programs that read it have run.
class Buffer {
 public:
  Buffer(std::shared_ptr<const Client> client, void* buffer);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  // Bytes the array takes on its device, as the plugin counts them (or dense bytes where it does not say).
  std::int64_t size_on_device() const;
  Shape shape() const;
  DType dtype() const;
  // Copies to `destination` (dense, major to minor, i4 and u4 a byte an element; its size must be that of the
  // array). The event signals the end.
  Event copy_to_host(std::span<std::byte> destination) const;
  // Signals when the array has been computed (or carries the error that stopped it).
  Event ready_event() const;
  bool is_deleted() const;
  void* handle() const { return buffer_; }

 private:
  std::shared_ptr<const Client> client_;
  void* buffer_;
};

using BufferPtr = std::shared_ptr<Buffer>;

struct CompileOptions {
  int num_replicas = 1;
  // Ids of the devices that run the replicas; empty for the client's first ones.
  std::vector<int> device_ids;
  // Less optimised (XLA's level O1) and compiled several times sooner: for a program whose sizes and costs
  // are wanted, which come out nearly the same.
  bool quick = false;
  // Settings of the plugin's compiler, by its own names. If it refuses one, all are left out.
  std::map<std::string, std::int64_t> settings = {};

  // Settings for programs that take turns on a device of the platform, each with other weights than the last.
  void set_for_platform(std::string_view platform);
  // The CompileOptionsProto that PJRT wants.
  std::string serialize() const;
};

struct ExecuteOptions {
  // Positions of arguments that must survive although the program was compiled to reuse them.
  std::span<const std::int64_t> non_donatable;
};

// A compiled program: loaded on a client's devices, or (from Topology::compile) only compiled.
class Executable {
 public:
  Executable(std::shared_ptr<const Client> client, std::shared_ptr<const Api> api, void* loaded,
             void* executable);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable();

  // Launches on every device of the program: arguments[d][i] is argument i on device d. Returns results in
  // the same order; they may still be being computed. If `done` is given it receives one event a device.
  std::vector<std::vector<BufferPtr>> execute(std::span<const std::vector<const Buffer*>> arguments,
                                              const ExecuteOptions& options = {},
                                              std::vector<Event>* done = nullptr) const;
  // The same for one device, without the nesting.
  std::vector<BufferPtr> execute_one(std::span<const Buffer* const> arguments,
                                     const ExecuteOptions& options = {}, Event* done = nullptr) const;
  int num_outputs() const { return num_outputs_; }
  std::string serialize() const;
  CompiledMemoryStats memory_stats() const;
  // "flops", "bytes accessed", ... Throws kUnimplemented where the plugin does not count them (as XLA:CPU's).
  std::map<std::string, double> cost_analysis() const;

 private:
  std::shared_ptr<const Client> client_;
  std::shared_ptr<const Api> api_;
  void* loaded_;
  void* executable_;
  int num_outputs_ = 0;
};

// What may happen to host memory that is handed over.
enum class HostMemory {
  kCopy,      // copied before the call returns
  kZeroCopy,  // used in place where the platform can (Traits::zero_copy), else copied; `keep_alive` is held
              // until then
};

// The devices of one plugin in this process.
class Client : public std::enable_shared_from_this<Client> {
 public:
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return *plugin_; }
  // "cpu", "tpu", "cuda", as the plugin says it.
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }
  const Traits& traits() const { return traits_; }
  // Devices this process can use.
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  // Those of all processes that share the hardware, by process and then by id.
  std::vector<DeviceInfo> devices_everywhere() const;
  // Nothing where the plugin does not say.
  std::optional<MemoryStats> memory_stats(int device_index) const;

  // Makes an array on devices()[device_index] from dense host data (i4 and u4: a byte an element). With
  // kZeroCopy `keep_alive` owns the data and is released when the buffer is destroyed or the copy is done.
  BufferPtr buffer_from_host(std::span<const std::byte> data, DType dtype, const Shape& shape,
                             int device_index, HostMemory memory = HostMemory::kCopy,
                             std::shared_ptr<const void> keep_alive = nullptr) const;
  // Compiles StableHLO text.
  std::shared_ptr<Executable> compile(std::string_view stablehlo, const CompileOptions& options = {}) const;
  // Loads what Executable::serialize gave, on the same platform and plugin build, with the options that it
  // was compiled with.
  std::shared_ptr<Executable> deserialize(std::string_view bytes, const CompileOptions& options = {}) const;

  const std::shared_ptr<const Api>& api() const { return api_; }
  void* handle() const { return client_; }

 private:
  friend class Plugin;
  Client() = default;
  std::shared_ptr<Executable> compile_as(std::string_view stablehlo, const CompileOptions& options) const;
  std::shared_ptr<Executable> deserialize_as(std::string_view bytes, const CompileOptions& options) const;
  std::shared_ptr<const Plugin> plugin_;
  std::shared_ptr<const Api> api_;
  void* client_ = nullptr;
  std::string platform_name_, platform_version_;
  Traits traits_;
  std::vector<DeviceInfo> devices_;
  std::vector<void*> device_handles_;
};

// A machine that need not be there: what an ahead-of-time compiler targets.
class Topology {
 public:
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  const Plugin& plugin() const { return *plugin_; }
  const std::string& platform_name() const { return platform_name_; }
  // Empty where the plugin does not say.
  const std::string& platform_version() const { return platform_version_; }
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  // Compiles without a client; the result can be serialised and asked for its sizes, not run.
  std::shared_ptr<Executable> compile(std::string_view stablehlo, const CompileOptions& options = {}) const;

 private:
  friend class Plugin;
  Topology() = default;
  std::shared_ptr<Executable> compile_as(std::string_view stablehlo, const CompileOptions& options) const;
  std::shared_ptr<const Plugin> plugin_;
  std::shared_ptr<const Api> api_;
  void* topology_ = nullptr;
  std::string platform_name_, platform_version_;
  std::vector<DeviceInfo> devices_;
};

// A loaded plugin (a shared library with GetPjrtApi). Never unloaded: plugins do not survive that.
class Plugin : public std::enable_shared_from_this<Plugin> {
 public:
  // Loads and initialises the library at `path`; loading the same file again gives the same object. What the
  // library changes in how the process takes requests to stop (SIGTERM, ...) is put back. Throws
  // kUnavailable if it cannot be loaded or is no plugin, kUnimplemented for a major version that is not ours.
  static std::shared_ptr<const Plugin> load(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  Version version() const;
  NamedValues attributes() const;
  // Whether the plugin's chain of extensions has this PJRT_Extension_Type.
  bool has_extension(int type) const;
  // Whether programs may call functions of ours.
  bool takes_ffi_handlers() const;
  // From now on programs that are compiled or loaded for `platform` ("Host" is the CPU) call `handler`, an
  // XLA_FFI_Handler*, as the custom call `name` of api_version 4. Throws kUnimplemented where the plugin
  // takes none, and what the plugin says of a name that is taken.
  void register_ffi_handler(std::string_view name, void* handler, std::string_view platform) const;
  // Starts a client. CPU takes {"cpu_device_count": N}.
  std::shared_ptr<const Client> create_client(const NamedValues& options = {}) const;
  // Describes hardware by name ("v6e:2x4") for ahead-of-time compilation.
  std::shared_ptr<const Topology> topology(const std::string& name, const NamedValues& options = {}) const;
  const std::shared_ptr<const Api>& api() const { return api_; }

 private:
  Plugin() = default;
  std::filesystem::path path_;
  std::shared_ptr<const Api> api_;
};

}  // namespace tessera::pjrt
