#pragma once

#include <pjrt_c_api.h>

#include <cstring>
#include <string>
#include <string_view>

#include "tessera/pjrt/pjrt.h"

// Inside the PJRT room: the plugin's table of functions and the translation of its errors.
namespace tessera::pjrt {

struct Api {
  const PJRT_Api* table = nullptr;
  std::string path;  // of the plugin, for messages

  // The function at `member`, null if the plugin's table is too short for it or leaves it empty.
  template <typename Function>
  Function find(Function PJRT_Api::*member) const {
    const auto* begin = reinterpret_cast<const char*>(table);
    const auto* field = reinterpret_cast<const char*>(&(table->*member));
    if (field + sizeof(Function) > begin + table->struct_size) return nullptr;
    return table->*member;
  }
  // As find, but throws kUnimplemented, naming the function.
  template <typename Function>
  Function get(Function PJRT_Api::*member, const char* name) const {
    Function function = find(member);
    if (function == nullptr) missing(name);
    return function;
  }
  // Throws the plugin's error, if there is one, and frees it.
  void check(PJRT_Error* error, std::string_view what) const;
  // Frees an error that nobody will see.
  void drop(PJRT_Error* error) const noexcept;

 private:
  [[noreturn]] void missing(const char* name) const;
};

// Arguments of a PJRT function: zeroed, with their size filled in.
template <typename Args>
Args make_args(std::size_t size) {
  Args args{};
  args.struct_size = size;
  return args;
}

// The number behind an enumerator that the plugin wrote: a newer plugin has some that the header does not
// name.
template <typename Enum>
int number(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int out;
  std::memcpy(&out, &value, sizeof(out));
  return out;
}

NamedValues to_named_values(const PJRT_NamedValue* values, std::size_t count);
DeviceInfo describe_device(const Api& api, PJRT_DeviceDescription* description);
PJRT_Buffer_Type to_pjrt_type(DType dtype);
DType from_pjrt_type(int type);
// Bytes that an array takes in host memory: dense, and a byte an element for the types narrower than that.
std::size_t host_bytes(DType dtype, const Shape& shape);

// Client and topology options in the form the C API wants; keeps a view of `values`.
class NamedValueList {
 public:
  explicit NamedValueList(const NamedValues& values);
  const PJRT_NamedValue* data() const { return list_.data(); }
  std::size_t size() const { return list_.size(); }

 private:
  std::vector<PJRT_NamedValue> list_;
};

}  // namespace tessera::pjrt

// Calls a PJRT function that returns an error; throws if it is missing or fails.
#define TESSERA_PJRT(api, function, args) \
  (api).check((api).get(&PJRT_Api::function, #function)(&(args)), #function)
