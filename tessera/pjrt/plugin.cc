#include <dlfcn.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/pjrt/api.h"

namespace tessera::pjrt {
namespace {

// Puts back what a plugin changes in how the process takes requests to stop: libtpu, as it is loaded, answers
// SIGTERM with a trace of its stack, and ignores SIGHUP. Other signals it needs for itself.
class KeptSignals {
 public:
  KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
  ~KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &kept_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> kept_{};
};

const PJRT_Api* open_library(const std::filesystem::path& path) {
  // Plugins write notices, and errors that they also return, to standard error, which is the user's screen.
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    fail(ErrorCode::kUnavailable, "the plugin {} cannot be loaded: {}", path.string(),
         why ? why : "unknown reason");
  }
  auto* get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get == nullptr) {
    fail(ErrorCode::kUnavailable, "{} is no PJRT plugin: it has no GetPjrtApi", path.string());
  }
  const PJRT_Api* table = get();
  if (table == nullptr) fail(ErrorCode::kUnavailable, "{}: GetPjrtApi gave nothing", path.string());
  return table;
}

// Traits follow the platform where a plugin has no way to say.
Traits traits_of(const std::string& platform) {
  Traits traits;
  traits.zero_copy = platform == "cpu";
  traits.host_code = platform == "cpu";
  traits.concurrent_collectives = platform == "tpu" || platform == "cuda";
  return traits;
}

std::vector<PJRT_Device*> addressable_devices(const Api& api, PJRT_Client* client) {
  auto args = make_args<PJRT_Client_AddressableDevices_Args>(PJRT_Client_AddressableDevices_Args_STRUCT_SIZE);
  args.client = client;
  TESSERA_PJRT(api, PJRT_Client_AddressableDevices, args);
  return {args.addressable_devices, args.addressable_devices + args.num_addressable_devices};
}

}  // namespace

std::shared_ptr<const Plugin> Plugin::load(const std::filesystem::path& path) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::shared_ptr<const Plugin>> loaded;
  std::error_code ignored;
  std::filesystem::path real = std::filesystem::weakly_canonical(path, ignored);
  if (real.empty()) real = path;
  std::lock_guard lock(mutex);
  auto& entry = loaded[real];
  if (entry) return entry;

  KeptSignals signals;
  auto api = std::make_shared<Api>();
  api->path = path.string();
  api->table = open_library(real);  // not `path`: a bare name would be looked for elsewhere
  if (api->table->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy)) {
    fail(ErrorCode::kUnavailable, "{}: its table of functions is too short to be a PJRT plugin's",
         path.string());
  }
  if (api->table->pjrt_api_version.major_version != PJRT_API_MAJOR) {
    fail(ErrorCode::kUnimplemented, "{} speaks version {}.{} of the PJRT C API; Tessera speaks {}.x",
         path.string(), api->table->pjrt_api_version.major_version,
         api->table->pjrt_api_version.minor_version, PJRT_API_MAJOR);
  }
  auto args = make_args<PJRT_Plugin_Initialize_Args>(PJRT_Plugin_Initialize_Args_STRUCT_SIZE);
  TESSERA_PJRT(*api, PJRT_Plugin_Initialize, args);
  auto plugin = std::shared_ptr<Plugin>(new Plugin());
  plugin->path_ = path;
  plugin->api_ = std::move(api);
  entry = std::move(plugin);
  return entry;
}

Version Plugin::version() const {
  return {api_->table->pjrt_api_version.major_version, api_->table->pjrt_api_version.minor_version};
}

NamedValues Plugin::attributes() const {
  auto args = make_args<PJRT_Plugin_Attributes_Args>(PJRT_Plugin_Attributes_Args_STRUCT_SIZE);
  TESSERA_PJRT(*api_, PJRT_Plugin_Attributes, args);
  return to_named_values(args.attributes, args.num_attributes);
}

bool Plugin::has_extension(int type) const {
  for (const PJRT_Extension_Base* e = api_->table->extension_start; e != nullptr; e = e->next) {
    if (number(e->type) == type) return true;
  }
  return false;
}

std::shared_ptr<const Client> Plugin::create_client(const NamedValues& options) const {
  NamedValueList list(options);
  auto args = make_args<PJRT_Client_Create_Args>(PJRT_Client_Create_Args_STRUCT_SIZE);
  args.create_options = list.data();
  args.num_options = list.size();
  TESSERA_PJRT(*api_, PJRT_Client_Create, args);
  auto client = std::shared_ptr<Client>(new Client());
  client->plugin_ = shared_from_this();
  client->api_ = api_;
  client->client_ = args.client;

  auto name = make_args<PJRT_Client_PlatformName_Args>(PJRT_Client_PlatformName_Args_STRUCT_SIZE);
  name.client = args.client;
  TESSERA_PJRT(*api_, PJRT_Client_PlatformName, name);
  client->platform_name_.assign(name.platform_name, name.platform_name_size);
  if (auto function = api_->find(&PJRT_Api::PJRT_Client_PlatformVersion)) {
    auto version = make_args<PJRT_Client_PlatformVersion_Args>(PJRT_Client_PlatformVersion_Args_STRUCT_SIZE);
    version.client = args.client;
    api_->check(function(&version), "PJRT_Client_PlatformVersion");
    client->platform_version_.assign(version.platform_version, version.platform_version_size);
  }
  for (PJRT_Device* device : addressable_devices(*api_, args.client)) {
    auto description =
        make_args<PJRT_Device_GetDescription_Args>(PJRT_Device_GetDescription_Args_STRUCT_SIZE);
    description.device = device;
    TESSERA_PJRT(*api_, PJRT_Device_GetDescription, description);
    client->devices_.push_back(describe_device(*api_, description.device_description));
    client->device_handles_.push_back(device);
  }
  client->traits_ = traits_of(client->platform_name_);
  client->traits_.memory_stats = !client->devices_.empty() && client->memory_stats(0).has_value();
  return client;
}

std::shared_ptr<const Topology> Plugin::topology(const std::string& name, const NamedValues& options) const {
  NamedValueList list(options);
  auto args =
      make_args<PJRT_TopologyDescription_Create_Args>(PJRT_TopologyDescription_Create_Args_STRUCT_SIZE);
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = list.data();
  args.num_options = list.size();
  TESSERA_PJRT(*api_, PJRT_TopologyDescription_Create, args);
  auto topology = std::shared_ptr<Topology>(new Topology());
  topology->plugin_ = shared_from_this();
  topology->api_ = api_;
  topology->topology_ = args.topology;

  auto platform = make_args<PJRT_TopologyDescription_PlatformName_Args>(
      PJRT_TopologyDescription_PlatformName_Args_STRUCT_SIZE);
  platform.topology = args.topology;
  TESSERA_PJRT(*api_, PJRT_TopologyDescription_PlatformName, platform);
  topology->platform_name_.assign(platform.platform_name, platform.platform_name_size);
  if (auto function = api_->find(&PJRT_Api::PJRT_TopologyDescription_PlatformVersion)) {
    auto version = make_args<PJRT_TopologyDescription_PlatformVersion_Args>(
        PJRT_TopologyDescription_PlatformVersion_Args_STRUCT_SIZE);
    version.topology = args.topology;
    api_->check(function(&version), "PJRT_TopologyDescription_PlatformVersion");
    topology->platform_version_.assign(version.platform_version, version.platform_version_size);
  }
  auto devices = make_args<PJRT_TopologyDescription_GetDeviceDescriptions_Args>(
      PJRT_TopologyDescription_GetDeviceDescriptions_Args_STRUCT_SIZE);
  devices.topology = args.topology;
  TESSERA_PJRT(*api_, PJRT_TopologyDescription_GetDeviceDescriptions, devices);
  for (std::size_t i = 0; i < devices.num_descriptions; ++i) {
    topology->devices_.push_back(describe_device(*api_, devices.descriptions[i]));
  }
  return topology;
}

}  // namespace tessera::pjrt
