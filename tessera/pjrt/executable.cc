#include <array>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/pjrt/api.h"

namespace tessera::pjrt {
namespace {

PJRT_Executable* raw(void* executable) { return static_cast<PJRT_Executable*>(executable); }

std::size_t count_outputs(const Api& api, void* executable) {
  auto args = make_args<PJRT_Executable_NumOutputs_Args>(PJRT_Executable_NumOutputs_Args_STRUCT_SIZE);
  args.executable = raw(executable);
  TESSERA_PJRT(api, PJRT_Executable_NumOutputs, args);
  return args.num_outputs;
}

void destroy(const Api& api, void* loaded, void* executable) noexcept {
  if (executable != nullptr) {
    auto args = make_args<PJRT_Executable_Destroy_Args>(PJRT_Executable_Destroy_Args_STRUCT_SIZE);
    args.executable = raw(executable);
    if (auto function = api.find(&PJRT_Api::PJRT_Executable_Destroy)) api.drop(function(&args));
  }
  if (loaded != nullptr) {
    auto args = make_args<PJRT_LoadedExecutable_Destroy_Args>(PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE);
    args.executable = static_cast<PJRT_LoadedExecutable*>(loaded);
    if (auto function = api.find(&PJRT_Api::PJRT_LoadedExecutable_Destroy)) api.drop(function(&args));
  }
}

PJRT_ExecuteOptions make_options(const ExecuteOptions& options) {
  auto out = make_args<PJRT_ExecuteOptions>(PJRT_ExecuteOptions_STRUCT_SIZE);
  out.non_donatable_input_indices = options.non_donatable.data();
  out.num_non_donatable_input_indices = options.non_donatable.size();
  return out;
}

}  // namespace

Executable::Executable(std::shared_ptr<const Client> client, std::shared_ptr<const Api> api, void* loaded,
                       void* executable)
    : client_(std::move(client)), api_(std::move(api)), loaded_(loaded), executable_(executable) {
  try {
    num_outputs_ = static_cast<int>(count_outputs(*api_, executable_));
  } catch (...) {
    destroy(*api_, loaded_, executable_);
    throw;
  }
}

Executable::~Executable() { destroy(*api_, loaded_, executable_); }

std::vector<std::vector<BufferPtr>> Executable::execute(std::span<const std::vector<const Buffer*>> arguments,
                                                        const ExecuteOptions& options,
                                                        std::vector<Event>* done) const {
  if (loaded_ == nullptr) fail(ErrorCode::kUnimplemented, "a program compiled for a topology cannot be run");
  std::size_t devices = arguments.size();
  std::vector<std::vector<PJRT_Buffer*>> inputs(devices), outputs(devices);
  std::vector<PJRT_Buffer* const*> input_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (std::size_t d = 0; d < devices; ++d) {
    if (arguments[d].size() != arguments[0].size())
      invalid_argument("execute: devices with different argument counts");
    for (const Buffer* b : arguments[d]) inputs[d].push_back(static_cast<PJRT_Buffer*>(b->handle()));
    outputs[d].resize(static_cast<std::size_t>(num_outputs_));
    input_lists.push_back(inputs[d].data());
    output_lists.push_back(outputs[d].data());
  }
  std::vector<PJRT_Event*> events(done != nullptr ? devices : 0);
  PJRT_ExecuteOptions execute_options = make_options(options);
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>(PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
  args.executable = static_cast<PJRT_LoadedExecutable*>(loaded_);
  args.options = &execute_options;
  args.argument_lists = input_lists.data();
  args.num_devices = devices;
  args.num_args = devices == 0 ? 0 : arguments[0].size();
  args.output_lists = output_lists.data();
  args.device_complete_events = done != nullptr ? events.data() : nullptr;
  TESSERA_PJRT(*api_, PJRT_LoadedExecutable_Execute, args);
  std::vector<std::vector<BufferPtr>> results(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    for (PJRT_Buffer* b : outputs[d]) results[d].push_back(std::make_shared<Buffer>(client_, b));
  }
  if (done != nullptr) {
    done->clear();
    for (PJRT_Event* event : events) done->emplace_back(api_, event);
  }
  return results;
}

std::vector<BufferPtr> Executable::execute_one(std::span<const Buffer* const> arguments,
                                               const ExecuteOptions& options, Event* done) const {
  if (loaded_ == nullptr) fail(ErrorCode::kUnimplemented, "a program compiled for a topology cannot be run");
  // The usual few arguments and results are kept on the stack.
  constexpr std::size_t kFew = 16;
  std::array<PJRT_Buffer*, kFew> few_inputs, few_outputs;
  std::vector<PJRT_Buffer*> many_inputs, many_outputs;
  PJRT_Buffer** inputs = few_inputs.data();
  PJRT_Buffer** outputs = few_outputs.data();
  auto num_outputs = static_cast<std::size_t>(num_outputs_);
  if (arguments.size() > kFew) {
    many_inputs.resize(arguments.size());
    inputs = many_inputs.data();
  }
  if (num_outputs > kFew) {
    many_outputs.resize(num_outputs);
    outputs = many_outputs.data();
  }
  for (std::size_t i = 0; i < arguments.size(); ++i)
    inputs[i] = static_cast<PJRT_Buffer*>(arguments[i]->handle());
  PJRT_Buffer* const* input_list = inputs;
  PJRT_Event* event = nullptr;
  PJRT_ExecuteOptions execute_options = make_options(options);
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>(PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
  args.executable = static_cast<PJRT_LoadedExecutable*>(loaded_);
  args.options = &execute_options;
  args.argument_lists = &input_list;
  args.num_devices = 1;
  args.num_args = arguments.size();
  args.output_lists = &outputs;
  args.device_complete_events = done != nullptr ? &event : nullptr;
  TESSERA_PJRT(*api_, PJRT_LoadedExecutable_Execute, args);
  std::vector<BufferPtr> results;
  results.reserve(num_outputs);
  for (std::size_t i = 0; i < num_outputs; ++i)
    results.push_back(std::make_shared<Buffer>(client_, outputs[i]));
  if (done != nullptr) *done = Event(api_, event);
  return results;
}

std::string Executable::serialize() const {
  auto args = make_args<PJRT_Executable_Serialize_Args>(PJRT_Executable_Serialize_Args_STRUCT_SIZE);
  args.executable = raw(executable_);
  TESSERA_PJRT(*api_, PJRT_Executable_Serialize, args);
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter != nullptr)
    args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

CompiledMemoryStats Executable::memory_stats() const {
  auto args = make_args<PJRT_Executable_GetCompiledMemoryStats_Args>(
      PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE);
  args.executable = raw(executable_);
  TESSERA_PJRT(*api_, PJRT_Executable_GetCompiledMemoryStats, args);
  return {.code = args.generated_code_size_in_bytes,
          .arguments = args.argument_size_in_bytes,
          .outputs = args.output_size_in_bytes,
          .alias = args.alias_size_in_bytes,
          .temp = args.temp_size_in_bytes};
}

std::map<std::string, double> Executable::cost_analysis() const {
  auto args =
      make_args<PJRT_Executable_GetCostAnalysis_Args>(PJRT_Executable_GetCostAnalysis_Args_STRUCT_SIZE);
  args.executable = raw(executable_);
  TESSERA_PJRT(*api_, PJRT_Executable_GetCostAnalysis, args);
  std::map<std::string, double> out;
  for (const auto& [name, value] : to_named_values(args.properties, args.num_properties)) {
    if (const auto* f = std::get_if<float>(&value)) out[name] = static_cast<double>(*f);
    if (const auto* n = std::get_if<std::int64_t>(&value)) out[name] = static_cast<double>(*n);
  }
  return out;
}

}  // namespace tessera::pjrt
