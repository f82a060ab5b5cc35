#include "tests/pjrt/fake_plugin/fake_plugin.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

// A PJRT plugin that computes nothing: a program hands its arguments back. Everything else a test decides.

using tessera::pjrt::fake::Control;

// Never destroyed, so that the objects which no test could free are not leaks.
extern "C" Control* const tessera_fake_plugin;
Control* const tessera_fake_plugin = new Control;

namespace {
Control& control = *tessera_fake_plugin;
}  // namespace

struct PJRT_Error {
  std::string message;
  PJRT_Error_Code code;
};

// What an event is waiting for, shared with whoever signals it.
struct Signal {
  std::mutex mutex;
  bool ready = false;
  PJRT_Error_Code code{};
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> callbacks;
};

struct PJRT_Event {
  std::shared_ptr<Signal> signal;
};

struct PJRT_DeviceDescription {
  int id;
  std::string text;
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
};

struct PJRT_Client {
  std::vector<PJRT_Device> devices;
  std::vector<PJRT_Device*> list;
  std::string platform;
};

struct PJRT_TopologyDescription {
  PJRT_DeviceDescription device;
  PJRT_DeviceDescription* list[1];
};

struct PJRT_Buffer {
  PJRT_Buffer_Type type;
  std::vector<std::int64_t> dims;
  std::vector<char> data;
  std::shared_ptr<Signal> done;  // with memory used in place: fires when the buffer is gone
  PJRT_Client* client;
};

struct PJRT_Executable {
  std::size_t outputs;
};

struct PJRT_LoadedExecutable {
  PJRT_Client* client;
  std::size_t outputs;
};

struct PJRT_SerializedExecutable {
  std::string bytes;
};

namespace {

std::mutex held_mutex;
std::vector<std::shared_ptr<Signal>> held;

template <typename Object>
Object* track(const char* kind, Object* object) {
  control.live[object] = kind;
  return object;
}

template <typename Object>
void destroy(Object* object) {
  if (control.live.erase(object) == 0) std::abort();  // twice, or not ours
  delete object;
}

PJRT_Error* make_error(PJRT_Error_Code code, std::string message) {
  return track("error", new PJRT_Error{std::move(message), code});
}

// Every function begins with this: checks what all arguments have in common, and fails if the test wants it.
template <typename Args>
PJRT_Error* begin(const char* function, const Args* args, std::size_t size) {
  if (args->struct_size != size || args->extension_start != nullptr) ++control.bad_arguments;
  auto planned = control.faults.calls.find(function);
  if (planned == control.faults.calls.end()) return nullptr;
  return make_error(planned->second, control.faults.message);
}

#define BEGIN(function) \
  if (PJRT_Error* planned = begin(#function, args, function##_Args_STRUCT_SIZE)) return planned

void fire(Signal& signal) {
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> callbacks;
  {
    std::lock_guard lock(signal.mutex);
    signal.ready = true;
    callbacks.swap(signal.callbacks);
  }
  for (auto [callback, user] : callbacks) {
    callback(signal.code == 0 ? nullptr : make_error(signal.code, "the event's error"), user);
  }
}

void fire_held() {
  std::vector<std::shared_ptr<Signal>> signals;
  {
    std::lock_guard lock(held_mutex);
    signals.swap(held);
  }
  for (auto& signal : signals) fire(*signal);
}

std::shared_ptr<Signal> make_signal() {
  auto signal = std::make_shared<Signal>();
  signal->code = control.faults.event;
  signal->ready = !control.faults.hold_events;
  if (control.faults.hold_events) {
    std::lock_guard lock(held_mutex);
    held.push_back(signal);
  }
  return signal;
}

PJRT_Event* make_event(std::shared_ptr<Signal> signal) {
  return track("event", new PJRT_Event{std::move(signal)});
}

std::size_t type_bytes(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_F32:
    case PJRT_Buffer_Type_S32:
      return 4;
    case PJRT_Buffer_Type_BF16:
      return 2;
    default:
      return 1;
  }
}

// Errors.

void error_destroy(PJRT_Error_Destroy_Args* args) {
  if (args->struct_size != PJRT_Error_Destroy_Args_STRUCT_SIZE) ++control.bad_arguments;
  destroy(args->error);
}

void error_message(PJRT_Error_Message_Args* args) {
  if (args->struct_size != PJRT_Error_Message_Args_STRUCT_SIZE) ++control.bad_arguments;
  if (control.faults.error_without_message) return;
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

PJRT_Error* error_get_code(PJRT_Error_GetCode_Args* args) {
  if (control.faults.error_without_code) return make_error(PJRT_Error_Code_INTERNAL, "an error has no code");
  args->code = args->error->code;
  return nullptr;
}

// The plugin.

PJRT_Error* plugin_initialize(PJRT_Plugin_Initialize_Args* args) {
  BEGIN(PJRT_Plugin_Initialize);
  return nullptr;
}

PJRT_NamedValue named(const char* name, PJRT_NamedValue_Type type) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name;
  value.name_size = std::strlen(name);
  value.type = type;
  value.value_size = 1;
  return value;
}

PJRT_Error* plugin_attributes(PJRT_Plugin_Attributes_Args* args) {
  BEGIN(PJRT_Plugin_Attributes);
  static constexpr std::int64_t kList[] = {1, 2, 3};
  static const std::vector<PJRT_NamedValue> values = [] {
    auto text = named("text", PJRT_NamedValue_kString);
    text.string_value = "words and more";
    text.value_size = 5;
    auto number = named("number", PJRT_NamedValue_kInt64);
    number.int64_value = -7;
    auto list = named("list", PJRT_NamedValue_kInt64List);
    list.int64_array_value = kList;
    list.value_size = 3;
    auto real = named("real", PJRT_NamedValue_kFloat);
    real.float_value = 0.5f;
    auto flag = named("flag", PJRT_NamedValue_kBool);
    flag.bool_value = true;
    auto unknown = named("unknown", static_cast<PJRT_NamedValue_Type>(7));  // of a later version
    return std::vector{text, number, list, real, flag, unknown};
  }();
  args->attributes = values.data();
  args->num_attributes = values.size();
  return nullptr;
}

// Events.

PJRT_Error* event_destroy(PJRT_Event_Destroy_Args* args) {
  destroy(args->event);
  BEGIN(PJRT_Event_Destroy);
  return nullptr;
}

PJRT_Error* event_is_ready(PJRT_Event_IsReady_Args* args) {
  BEGIN(PJRT_Event_IsReady);
  std::lock_guard lock(args->event->signal->mutex);
  args->is_ready = args->event->signal->ready;
  return nullptr;
}

PJRT_Error* event_await(PJRT_Event_Await_Args* args) {
  BEGIN(PJRT_Event_Await);
  Signal& signal = *args->event->signal;
  std::lock_guard lock(signal.mutex);
  if (!signal.ready) return make_error(PJRT_Error_Code_DEADLINE_EXCEEDED, "this wait would never end");
  return signal.code == 0 ? nullptr : make_error(signal.code, "the event's error");
}

PJRT_Error* event_on_ready(PJRT_Event_OnReady_Args* args) {
  BEGIN(PJRT_Event_OnReady);
  Signal& signal = *args->event->signal;
  {
    std::lock_guard lock(signal.mutex);
    signal.callbacks.emplace_back(args->callback, args->user_arg);
    if (!signal.ready) return nullptr;
  }
  fire(signal);
  return nullptr;
}

// Clients and devices.

void keep_options(const PJRT_NamedValue* options, std::size_t count) {
  control.options.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& o = options[i];
    if (o.struct_size != PJRT_NamedValue_STRUCT_SIZE) ++control.bad_arguments;
    std::string text = std::string(o.name, o.name_size) + "=";
    if (o.type == PJRT_NamedValue_kString) text.append(o.string_value, o.value_size);
    if (o.type == PJRT_NamedValue_kInt64) text += std::to_string(o.int64_value);
    if (o.type == PJRT_NamedValue_kFloat) text += std::to_string(o.float_value);
    if (o.type == PJRT_NamedValue_kBool) text += o.bool_value ? "true" : "false";
    if (o.type == PJRT_NamedValue_kInt64List) {
      for (std::size_t j = 0; j < o.value_size; ++j) text += std::to_string(o.int64_array_value[j]) + ",";
    }
    control.options.push_back(std::move(text));
  }
}

PJRT_Error* client_create(PJRT_Client_Create_Args* args) {
  BEGIN(PJRT_Client_Create);
  keep_options(args->create_options, args->num_options);
  auto client = std::make_unique<PJRT_Client>();
  client->platform = control.platform;
  client->devices = {{{10, "fake device 10"}}, {{11, "fake device 11"}}};
  for (PJRT_Device& device : client->devices) client->list.push_back(&device);
  args->client = track("client", client.release());
  return nullptr;
}

PJRT_Error* client_destroy(PJRT_Client_Destroy_Args* args) {
  destroy(args->client);
  BEGIN(PJRT_Client_Destroy);
  return nullptr;
}

PJRT_Error* client_platform_name(PJRT_Client_PlatformName_Args* args) {
  BEGIN(PJRT_Client_PlatformName);
  args->platform_name = args->client->platform.data();
  args->platform_name_size = args->client->platform.size();
  return nullptr;
}

PJRT_Error* client_platform_version(PJRT_Client_PlatformVersion_Args* args) {
  BEGIN(PJRT_Client_PlatformVersion);
  args->platform_version = "fake 1.0";
  args->platform_version_size = 8;
  return nullptr;
}

PJRT_Error* client_addressable_devices(PJRT_Client_AddressableDevices_Args* args) {
  BEGIN(PJRT_Client_AddressableDevices);
  args->addressable_devices = args->client->list.data();
  args->num_addressable_devices = args->client->list.size();
  return nullptr;
}

PJRT_Error* device_get_description(PJRT_Device_GetDescription_Args* args) {
  BEGIN(PJRT_Device_GetDescription);
  args->device_description = &args->device->description;
  return nullptr;
}

PJRT_Error* device_memory_stats(PJRT_Device_MemoryStats_Args* args) {
  BEGIN(PJRT_Device_MemoryStats);
  args->bytes_in_use = 1000 + args->device->description.id;
  args->bytes_limit_is_set = args->device->description.id == 10;
  args->bytes_limit = 2000;
  return nullptr;
}

PJRT_Error* description_id(PJRT_DeviceDescription_Id_Args* args) {
  BEGIN(PJRT_DeviceDescription_Id);
  args->id = args->device_description->id;
  return nullptr;
}

PJRT_Error* description_kind(PJRT_DeviceDescription_Kind_Args* args) {
  BEGIN(PJRT_DeviceDescription_Kind);
  args->device_kind = "Fake v1";
  args->device_kind_size = 7;
  return nullptr;
}

PJRT_Error* description_to_string(PJRT_DeviceDescription_ToString_Args* args) {
  BEGIN(PJRT_DeviceDescription_ToString);
  args->to_string = args->device_description->text.data();
  args->to_string_size = args->device_description->text.size();
  return nullptr;
}

PJRT_Error* description_attributes(PJRT_DeviceDescription_Attributes_Args* args) {
  BEGIN(PJRT_DeviceDescription_Attributes);
  static const PJRT_NamedValue value = [] {
    auto v = named("device_memory_bytes_limit", PJRT_NamedValue_kInt64);
    v.int64_value = 33546042880;
    return v;
  }();
  args->attributes = &value;
  args->num_attributes = 1;
  return nullptr;
}

// Buffers.

PJRT_Buffer* make_buffer(PJRT_Buffer buffer) { return track("buffer", new PJRT_Buffer(std::move(buffer))); }

PJRT_Error* buffer_from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  BEGIN(PJRT_Client_BufferFromHostBuffer);
  control.semantics = args->host_buffer_semantics;
  control.host_data = args->data;
  std::vector<std::int64_t> dims(args->dims, args->dims + args->num_dims);
  std::size_t size = type_bytes(args->type);
  for (std::int64_t extent : dims) size *= static_cast<std::size_t>(extent);
  const char* data = static_cast<const char*>(args->data);
  std::shared_ptr<Signal> done;
  if (args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy) {
    done = std::make_shared<Signal>();
    done->code = control.faults.event;
  }
  if (!control.faults.no_done_event) args->done_with_host_buffer = make_event(done ? done : make_signal());
  args->buffer =
      make_buffer({args->type, std::move(dims), {data, data + size}, std::move(done), args->client});
  return nullptr;
}

PJRT_Error* buffer_destroy(PJRT_Buffer_Destroy_Args* args) {
  std::shared_ptr<Signal> done = args->buffer->done;
  destroy(args->buffer);
  if (done) {
    if (control.faults.hold_events) {
      std::lock_guard lock(held_mutex);
      held.push_back(done);  // a program is still reading
    } else {
      fire(*done);
    }
  }
  BEGIN(PJRT_Buffer_Destroy);
  return nullptr;
}

PJRT_Error* buffer_element_type(PJRT_Buffer_ElementType_Args* args) {
  BEGIN(PJRT_Buffer_ElementType);
  args->type = args->buffer->type;
  return nullptr;
}

PJRT_Error* buffer_dimensions(PJRT_Buffer_Dimensions_Args* args) {
  BEGIN(PJRT_Buffer_Dimensions);
  static const std::vector<std::int64_t> ones(64, 1);
  bool lie = control.faults.rank != 0;
  args->dims = lie ? ones.data() : args->buffer->dims.data();
  args->num_dims = lie ? control.faults.rank : args->buffer->dims.size();
  return nullptr;
}

PJRT_Error* buffer_size(PJRT_Buffer_OnDeviceSizeInBytes_Args* args) {
  BEGIN(PJRT_Buffer_OnDeviceSizeInBytes);
  args->on_device_size_in_bytes = args->buffer->data.size() + 512;  // a device may pad
  return nullptr;
}

PJRT_Error* buffer_is_deleted(PJRT_Buffer_IsDeleted_Args* args) {
  BEGIN(PJRT_Buffer_IsDeleted);
  args->is_deleted = false;
  return nullptr;
}

PJRT_Error* buffer_ready_event(PJRT_Buffer_ReadyEvent_Args* args) {
  BEGIN(PJRT_Buffer_ReadyEvent);
  args->event = make_event(make_signal());
  return nullptr;
}

PJRT_Error* buffer_to_host(PJRT_Buffer_ToHostBuffer_Args* args) {
  BEGIN(PJRT_Buffer_ToHostBuffer);
  const PJRT_Buffer_MemoryLayout* layout = args->host_layout;
  if (layout == nullptr || layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled) {
    return make_error(PJRT_Error_Code_INVALID_ARGUMENT, "no dense layout was asked for");
  }
  std::memcpy(args->dst, args->src->data.data(), args->src->data.size());
  args->event = make_event(make_signal());
  return nullptr;
}

// Programs.

PJRT_LoadedExecutable* make_loaded(PJRT_Client* client) {
  return track("loaded executable", new PJRT_LoadedExecutable{client, control.outputs});
}

PJRT_Executable* make_executable(std::size_t outputs) {
  return track("executable", new PJRT_Executable{outputs});
}

PJRT_Error* refuse_setting(std::string_view options) {
  const std::string& name = control.unknown_setting;
  if (name.empty() || options.find(name) == std::string_view::npos) return nullptr;
  return make_error(PJRT_Error_Code_INVALID_ARGUMENT, "No such compile option: '" + name + "'");
}

void keep_program(const PJRT_Program* program, const char* options, std::size_t size) {
  if (program->struct_size != PJRT_Program_STRUCT_SIZE) ++control.bad_arguments;
  control.program.assign(program->code, program->code_size);
  control.format.assign(program->format, program->format_size);
  control.compile_options.assign(options, size);
}

PJRT_Error* client_compile(PJRT_Client_Compile_Args* args) {
  BEGIN(PJRT_Client_Compile);
  if (PJRT_Error* refused = refuse_setting({args->compile_options, args->compile_options_size}))
    return refused;
  keep_program(args->program, args->compile_options, args->compile_options_size);
  args->executable = make_loaded(args->client);
  return nullptr;
}

PJRT_Error* compile(PJRT_Compile_Args* args) {
  BEGIN(PJRT_Compile);
  if (PJRT_Error* refused = refuse_setting({args->compile_options, args->compile_options_size}))
    return refused;
  keep_program(args->program, args->compile_options, args->compile_options_size);
  args->executable = make_executable(control.outputs);
  return nullptr;
}

PJRT_Error* executable_destroy(PJRT_Executable_Destroy_Args* args) {
  destroy(args->executable);
  BEGIN(PJRT_Executable_Destroy);
  return nullptr;
}

PJRT_Error* executable_num_outputs(PJRT_Executable_NumOutputs_Args* args) {
  BEGIN(PJRT_Executable_NumOutputs);
  args->num_outputs = args->executable->outputs;
  return nullptr;
}

PJRT_Error* executable_cost_analysis(PJRT_Executable_GetCostAnalysis_Args* args) {
  BEGIN(PJRT_Executable_GetCostAnalysis);
  static const std::vector<PJRT_NamedValue> values = [] {
    auto flops = named("flops", PJRT_NamedValue_kFloat);
    flops.float_value = 1e6f;
    auto calls = named("calls", PJRT_NamedValue_kInt64);
    calls.int64_value = 3;
    auto name = named("name", PJRT_NamedValue_kString);
    name.string_value = "x";
    return std::vector{flops, calls, name};
  }();
  args->properties = values.data();
  args->num_properties = values.size();
  return nullptr;
}

PJRT_Error* executable_memory_stats(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  BEGIN(PJRT_Executable_GetCompiledMemoryStats);
  args->generated_code_size_in_bytes = 1;
  args->argument_size_in_bytes = 2;
  args->output_size_in_bytes = 3;
  args->alias_size_in_bytes = 4;
  args->temp_size_in_bytes = 5;
  return nullptr;
}

void serialized_destroy(PJRT_SerializedExecutable* serialized) { destroy(serialized); }

PJRT_Error* executable_serialize(PJRT_Executable_Serialize_Args* args) {
  BEGIN(PJRT_Executable_Serialize);
  args->serialized_executable =
      track("serialized executable", new PJRT_SerializedExecutable{std::string("bytes\0more", 10)});
  args->serialized_bytes = args->serialized_executable->bytes.data();
  args->serialized_bytes_size = args->serialized_executable->bytes.size();
  args->serialized_executable_deleter = serialized_destroy;
  return nullptr;
}

PJRT_Error* deserialize(PJRT_Executable_DeserializeAndLoad_Args* args) {
  BEGIN(PJRT_Executable_DeserializeAndLoad);
  control.program.assign(args->serialized_executable, args->serialized_executable_size);
  control.compile_options.assign(args->overridden_serialized_compile_options,
                                 args->overridden_serialized_compile_options_size);
  args->loaded_executable = make_loaded(args->client);
  return nullptr;
}

PJRT_Error* loaded_destroy(PJRT_LoadedExecutable_Destroy_Args* args) {
  destroy(args->executable);
  BEGIN(PJRT_LoadedExecutable_Destroy);
  return nullptr;
}

PJRT_Error* loaded_get_executable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
  BEGIN(PJRT_LoadedExecutable_GetExecutable);
  args->executable = make_executable(args->loaded_executable->outputs);
  return nullptr;
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  BEGIN(PJRT_LoadedExecutable_Execute);
  const PJRT_ExecuteOptions& options = *args->options;
  if (options.struct_size != PJRT_ExecuteOptions_STRUCT_SIZE) ++control.bad_arguments;
  control.non_donatable.assign(options.non_donatable_input_indices,
                               options.non_donatable_input_indices + options.num_non_donatable_input_indices);
  control.devices = args->num_devices;
  control.arguments = args->num_args;
  control.events_asked = args->device_complete_events != nullptr;
  for (std::size_t d = 0; d < args->num_devices; ++d) {
    for (std::size_t i = 0; i < args->executable->outputs; ++i) {
      const PJRT_Buffer& source = *args->argument_lists[d][i % args->num_args];
      args->output_lists[d][i] = make_buffer({source.type, source.dims, source.data, {}, source.client});
    }
    if (args->device_complete_events) args->device_complete_events[d] = make_event(make_signal());
  }
  return nullptr;
}

// Topologies.

PJRT_Error* topology_create(PJRT_TopologyDescription_Create_Args* args) {
  BEGIN(PJRT_TopologyDescription_Create);
  control.topology_name.assign(args->topology_name, args->topology_name_size);
  keep_options(args->create_options, args->num_options);
  args->topology = track("topology", new PJRT_TopologyDescription{{10, "fake device 10"}, {}});
  args->topology->list[0] = &args->topology->device;
  return nullptr;
}

PJRT_Error* topology_destroy(PJRT_TopologyDescription_Destroy_Args* args) {
  destroy(args->topology);
  BEGIN(PJRT_TopologyDescription_Destroy);
  return nullptr;
}

PJRT_Error* topology_platform_name(PJRT_TopologyDescription_PlatformName_Args* args) {
  BEGIN(PJRT_TopologyDescription_PlatformName);
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}

PJRT_Error* topology_devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  BEGIN(PJRT_TopologyDescription_GetDeviceDescriptions);
  args->descriptions = args->topology->list;
  args->num_descriptions = 1;
  return nullptr;
}

PJRT_Extension_Base second_extension{sizeof(PJRT_Extension_Base), PJRT_Extension_Type_Layouts, nullptr};
PJRT_Extension_Base extension{sizeof(PJRT_Extension_Base), PJRT_Extension_Type_FFI, &second_extension};

PJRT_Api make_api() {
  PJRT_Api api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.extension_start = &extension;
  api.pjrt_api_version = {sizeof(PJRT_Api_Version), nullptr, PJRT_API_MAJOR, PJRT_API_MINOR};
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_get_code;
  api.PJRT_Plugin_Initialize = plugin_initialize;
  api.PJRT_Plugin_Attributes = plugin_attributes;
  api.PJRT_Event_Destroy = event_destroy;
  api.PJRT_Event_IsReady = event_is_ready;
  api.PJRT_Event_Await = event_await;
  api.PJRT_Event_OnReady = event_on_ready;
  api.PJRT_Client_Create = client_create;
  api.PJRT_Client_Destroy = client_destroy;
  api.PJRT_Client_PlatformName = client_platform_name;
  api.PJRT_Client_PlatformVersion = client_platform_version;
  api.PJRT_Client_AddressableDevices = client_addressable_devices;
  api.PJRT_Client_Compile = client_compile;
  api.PJRT_Client_BufferFromHostBuffer = buffer_from_host;
  api.PJRT_DeviceDescription_Id = description_id;
  api.PJRT_DeviceDescription_Attributes = description_attributes;
  api.PJRT_DeviceDescription_Kind = description_kind;
  api.PJRT_DeviceDescription_ToString = description_to_string;
  api.PJRT_Device_GetDescription = device_get_description;
  api.PJRT_Device_MemoryStats = device_memory_stats;
  api.PJRT_Executable_Destroy = executable_destroy;
  api.PJRT_Executable_NumOutputs = executable_num_outputs;
  api.PJRT_Executable_GetCostAnalysis = executable_cost_analysis;
  api.PJRT_Executable_Serialize = executable_serialize;
  api.PJRT_LoadedExecutable_Destroy = loaded_destroy;
  api.PJRT_LoadedExecutable_GetExecutable = loaded_get_executable;
  api.PJRT_LoadedExecutable_Execute = execute;
  api.PJRT_Executable_DeserializeAndLoad = deserialize;
  api.PJRT_Buffer_Destroy = buffer_destroy;
  api.PJRT_Buffer_ElementType = buffer_element_type;
  api.PJRT_Buffer_Dimensions = buffer_dimensions;
  api.PJRT_Buffer_OnDeviceSizeInBytes = buffer_size;
  api.PJRT_Buffer_IsDeleted = buffer_is_deleted;
  api.PJRT_Buffer_ToHostBuffer = buffer_to_host;
  api.PJRT_Buffer_ReadyEvent = buffer_ready_event;
  api.PJRT_TopologyDescription_Create = topology_create;
  api.PJRT_TopologyDescription_Destroy = topology_destroy;
  api.PJRT_TopologyDescription_PlatformName = topology_platform_name;
  api.PJRT_TopologyDescription_GetDeviceDescriptions = topology_devices;
  api.PJRT_Compile = compile;
  api.PJRT_Executable_GetCompiledMemoryStats = executable_memory_stats;
  return api;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = make_api();
  control.api = &api;
  control.fire_events = fire_held;
  const char* chosen = std::getenv("TESSERA_FAKE_PLUGIN");
  std::string_view mode = chosen ? chosen : "";
  if (mode == "null") return nullptr;
  if (mode == "major") api.pjrt_api_version.major_version = PJRT_API_MAJOR + 1;
  if (mode == "short") api.struct_size = offsetof(PJRT_Api, PJRT_Error_Destroy) - 1;
  if (mode == "no_initialize") api.PJRT_Plugin_Initialize = nullptr;
  if (mode == "signals") {
    for (int signal : {SIGTERM, SIGHUP, SIGUSR1}) std::signal(signal, SIG_IGN);
  }
  if (mode == "fail_initialize") control.faults.calls["PJRT_Plugin_Initialize"] = PJRT_Error_Code_INTERNAL;
  return &api;
}
