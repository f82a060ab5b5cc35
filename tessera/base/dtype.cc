#include "tessera/base/dtype.h"

#include <array>
#include <cstddef>

namespace tessera {
namespace {

struct Entry {
  DType dtype;
  std::string_view name, stablehlo, safetensors;
  int bits;
  bool is_float;
};

constexpr std::array kEntries{
    Entry{DType::kBool, "bool", "i1", "BOOL", 8, false},
    Entry{DType::kI4, "i4", "i4", "I4", 4, false},
    Entry{DType::kU4, "u4", "ui4", "U4", 4, false},
    Entry{DType::kI8, "i8", "i8", "I8", 8, false},
    Entry{DType::kU8, "u8", "ui8", "U8", 8, false},
    Entry{DType::kI16, "i16", "i16", "I16", 16, false},
    Entry{DType::kU16, "u16", "ui16", "U16", 16, false},
    Entry{DType::kI32, "i32", "i32", "I32", 32, false},
    Entry{DType::kU32, "u32", "ui32", "U32", 32, false},
    Entry{DType::kI64, "i64", "i64", "I64", 64, false},
    Entry{DType::kU64, "u64", "ui64", "U64", 64, false},
    Entry{DType::kF8E4M3FN, "f8e4m3fn", "f8E4M3FN", "F8_E4M3", 8, true},
    Entry{DType::kF8E5M2, "f8e5m2", "f8E5M2", "F8_E5M2", 8, true},
    Entry{DType::kF16, "f16", "f16", "F16", 16, true},
    Entry{DType::kBF16, "bf16", "bf16", "BF16", 16, true},
    Entry{DType::kF32, "f32", "f32", "F32", 32, true},
    Entry{DType::kF64, "f64", "f64", "F64", 64, true},
};

const Entry& entry(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return entry(dtype).name; }
std::string_view dtype_stablehlo_name(DType dtype) { return entry(dtype).stablehlo; }
std::string_view dtype_safetensors_name(DType dtype) { return entry(dtype).safetensors; }
int dtype_bits(DType dtype) { return entry(dtype).bits; }
bool dtype_is_float(DType dtype) { return entry(dtype).is_float; }
bool dtype_is_integer(DType dtype) { return !entry(dtype).is_float && dtype != DType::kBool; }

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  for (const Entry& e : kEntries) {
    if (e.safetensors == name) return e.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  for (const Entry& e : kEntries) {
    if (e.name == name) return e.dtype;
  }
  return std::nullopt;
}

}  // namespace tessera
