#include "tessera/pjrt/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::pjrt {
namespace {

ErrorCode translate(int code) {
  switch (code) {
    case PJRT_Error_Code_INVALID_ARGUMENT:
    case PJRT_Error_Code_OUT_OF_RANGE:
    case PJRT_Error_Code_ALREADY_EXISTS:
      return ErrorCode::kInvalidArgument;
    case PJRT_Error_Code_NOT_FOUND:
      return ErrorCode::kNotFound;
    case PJRT_Error_Code_RESOURCE_EXHAUSTED:
      return ErrorCode::kOutOfMemory;
    case PJRT_Error_Code_UNIMPLEMENTED:
      return ErrorCode::kUnimplemented;
    case PJRT_Error_Code_UNAVAILABLE:
    case PJRT_Error_Code_FAILED_PRECONDITION:
    case PJRT_Error_Code_PERMISSION_DENIED:
    case PJRT_Error_Code_UNAUTHENTICATED:
    case PJRT_Error_Code_DEADLINE_EXCEEDED:
      return ErrorCode::kUnavailable;
    case PJRT_Error_Code_DATA_LOSS:
      return ErrorCode::kDataLoss;
    default:
      return ErrorCode::kInternal;
  }
}

constexpr std::array<std::pair<DType, PJRT_Buffer_Type>, 17> kTypes{{
    {DType::kBool, PJRT_Buffer_Type_PRED},
    {DType::kI4, PJRT_Buffer_Type_S4},
    {DType::kU4, PJRT_Buffer_Type_U4},
    {DType::kI8, PJRT_Buffer_Type_S8},
    {DType::kU8, PJRT_Buffer_Type_U8},
    {DType::kI16, PJRT_Buffer_Type_S16},
    {DType::kU16, PJRT_Buffer_Type_U16},
    {DType::kI32, PJRT_Buffer_Type_S32},
    {DType::kU32, PJRT_Buffer_Type_U32},
    {DType::kI64, PJRT_Buffer_Type_S64},
    {DType::kU64, PJRT_Buffer_Type_U64},
    {DType::kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN},
    {DType::kF8E5M2, PJRT_Buffer_Type_F8E5M2},
    {DType::kF16, PJRT_Buffer_Type_F16},
    {DType::kBF16, PJRT_Buffer_Type_BF16},
    {DType::kF32, PJRT_Buffer_Type_F32},
    {DType::kF64, PJRT_Buffer_Type_F64},
}};

// A plugin's message on one line: a line break and the white space around it become "; ".
std::string one_line(std::string_view message) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::string out;
  while (!message.empty()) {
    std::size_t end = std::min(message.find('\n'), message.size());
    std::string_view line = message.substr(0, end);
    message.remove_prefix(std::min(end + 1, message.size()));
    std::size_t first = line.find_first_not_of(kSpace);
    if (first == std::string_view::npos) continue;
    line = line.substr(first, line.find_last_not_of(kSpace) + 1 - first);
    out.append(out.empty() ? "" : "; ").append(line);
  }
  return out;
}

}  // namespace

void Api::missing(const char* name) const {
  fail(ErrorCode::kUnimplemented, "the plugin {} has no {}: it is older or smaller than what Tessera needs",
       path, name);
}

void Api::drop(PJRT_Error* error) const noexcept {
  if (error == nullptr) return;
  if (auto destroy = find(&PJRT_Api::PJRT_Error_Destroy)) {
    auto args = make_args<PJRT_Error_Destroy_Args>(PJRT_Error_Destroy_Args_STRUCT_SIZE);
    args.error = error;
    destroy(&args);
  }
}

void Api::check(PJRT_Error* error, std::string_view what) const {
  if (error == nullptr) return;
  ErrorCode code = ErrorCode::kInternal;
  std::string message = "no message";
  if (auto read = find(&PJRT_Api::PJRT_Error_Message)) {
    auto args = make_args<PJRT_Error_Message_Args>(PJRT_Error_Message_Args_STRUCT_SIZE);
    args.error = error;
    read(&args);
    if (args.message != nullptr) message = one_line({args.message, args.message_size});
  }
  if (auto read = find(&PJRT_Api::PJRT_Error_GetCode)) {
    auto args = make_args<PJRT_Error_GetCode_Args>(PJRT_Error_GetCode_Args_STRUCT_SIZE);
    args.error = error;
    PJRT_Error* second = read(&args);
    if (second == nullptr) code = translate(number(args.code));
    drop(second);
  }
  drop(error);
  throw Error(code, fmt::format("{}: {}", what, message));
}

NamedValues to_named_values(const PJRT_NamedValue* values, std::size_t count) {
  NamedValues out;
  for (std::size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& v = values[i];
    std::string name(v.name, v.name_size);
    switch (number(v.type)) {
      case PJRT_NamedValue_kString:
        out[name] = std::string(v.string_value, v.value_size);
        break;
      case PJRT_NamedValue_kInt64:
        out[name] = v.int64_value;
        break;
      case PJRT_NamedValue_kInt64List:
        out[name] = std::vector<std::int64_t>(v.int64_array_value, v.int64_array_value + v.value_size);
        break;
      case PJRT_NamedValue_kFloat:
        out[name] = v.float_value;
        break;
      case PJRT_NamedValue_kBool:
        out[name] = v.bool_value;
        break;
    }
  }
  return out;
}

NamedValueList::NamedValueList(const NamedValues& values) {
  for (const auto& [name, value] : values) {
    auto v = make_args<PJRT_NamedValue>(PJRT_NamedValue_STRUCT_SIZE);
    v.name = name.data();
    v.name_size = name.size();
    v.value_size = 1;
    if (const auto* s = std::get_if<std::string>(&value)) {
      v.type = PJRT_NamedValue_kString;
      v.string_value = s->data();
      v.value_size = s->size();
    } else if (const auto* n = std::get_if<std::int64_t>(&value)) {
      v.type = PJRT_NamedValue_kInt64;
      v.int64_value = *n;
    } else if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
      v.type = PJRT_NamedValue_kInt64List;
      v.int64_array_value = list->data();
      v.value_size = list->size();
    } else if (const auto* f = std::get_if<float>(&value)) {
      v.type = PJRT_NamedValue_kFloat;
      v.float_value = *f;
    } else {
      v.type = PJRT_NamedValue_kBool;
      v.bool_value = std::get<bool>(value);
    }
    list_.push_back(v);
  }
}

DeviceInfo describe_device(const Api& api, PJRT_DeviceDescription* description) {
  DeviceInfo info;
  auto id = make_args<PJRT_DeviceDescription_Id_Args>(PJRT_DeviceDescription_Id_Args_STRUCT_SIZE);
  id.device_description = description;
  TESSERA_PJRT(api, PJRT_DeviceDescription_Id, id);
  info.id = id.id;
  auto kind = make_args<PJRT_DeviceDescription_Kind_Args>(PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE);
  kind.device_description = description;
  TESSERA_PJRT(api, PJRT_DeviceDescription_Kind, kind);
  info.kind.assign(kind.device_kind, kind.device_kind_size);
  // A plugin may leave out the rest.
  if (auto function = api.find(&PJRT_Api::PJRT_DeviceDescription_ProcessIndex)) {
    auto process = make_args<PJRT_DeviceDescription_ProcessIndex_Args>(
        PJRT_DeviceDescription_ProcessIndex_Args_STRUCT_SIZE);
    process.device_description = description;
    api.check(function(&process), "PJRT_DeviceDescription_ProcessIndex");
    info.process = process.process_index;
  }
  if (auto function = api.find(&PJRT_Api::PJRT_DeviceDescription_ToString)) {
    auto text =
        make_args<PJRT_DeviceDescription_ToString_Args>(PJRT_DeviceDescription_ToString_Args_STRUCT_SIZE);
    text.device_description = description;
    api.check(function(&text), "PJRT_DeviceDescription_ToString");
    info.text.assign(text.to_string, text.to_string_size);
  }
  if (auto function = api.find(&PJRT_Api::PJRT_DeviceDescription_Attributes)) {
    auto args =
        make_args<PJRT_DeviceDescription_Attributes_Args>(PJRT_DeviceDescription_Attributes_Args_STRUCT_SIZE);
    args.device_description = description;
    api.check(function(&args), "PJRT_DeviceDescription_Attributes");
    info.attributes = to_named_values(args.attributes, args.num_attributes);
  }
  return info;
}

PJRT_Buffer_Type to_pjrt_type(DType dtype) {
  for (auto [d, type] : kTypes) {
    if (d == dtype) return type;
  }
  fail(ErrorCode::kUnimplemented, "no array of {} on a device", dtype_name(dtype));
}

std::size_t host_bytes(DType dtype, const Shape& shape) {
  std::int64_t width = std::max(dtype_bits(dtype) / 8, 1), elements = shape.elements();
  if (elements > std::numeric_limits<std::int64_t>::max() / width) {
    invalid_argument("an array {}{} is larger than memory can be", dtype_name(dtype), to_string(shape));
  }
  return static_cast<std::size_t>(elements * width);
}

DType from_pjrt_type(int type) {
  for (auto [dtype, t] : kTypes) {
    if (t == type) return dtype;
  }
  fail(ErrorCode::kUnimplemented, "a device array of PJRT type {} has no dtype here", type);
}

}  // namespace tessera::pjrt
