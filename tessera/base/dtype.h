#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

// Element types, named as StableHLO and safetensors name them. The narrow ones (fp8, int8, int4) have a name
// from the start so that storage formats can be described; arithmetic is in f32, bf16 and the integers used
// as indices.
enum class DType : std::uint8_t {
  kBool,
  kI4,
  kU4,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF8E4M3FN,
  kF8E5M2,
  kF16,
  kBF16,
  kF32,
  kF64,
};

// "f32", "bf16", "i32", "bool", ...: the name used in options, messages and files of this project.
std::string_view dtype_name(DType dtype);

// "f32", "bf16", "i32", "ui32", "i1", "f8E4M3FN", ...: the name in StableHLO text.
std::string_view dtype_stablehlo_name(DType dtype);

// "F32", "BF16", "I32", "BOOL", "F8_E4M3", ...: the name in a safetensors header.
std::string_view dtype_safetensors_name(DType dtype);

// The dtype with the given safetensors name, if there is one.
std::optional<DType> dtype_from_safetensors_name(std::string_view name);

// The dtype for "f32"/"float32", "bf16"/"bfloat16", "f16"/"float16" and the other names of dtype_name, if
// any.
std::optional<DType> dtype_from_name(std::string_view name);

// Bits an element takes when packed (4 for int4, 8 for bool).
int dtype_bits(DType dtype);

// Bytes that n packed elements take, rounded up.
inline std::int64_t dtype_bytes(DType dtype, std::int64_t elements) {
  return (elements * dtype_bits(dtype) + 7) / 8;
}

bool dtype_is_float(DType dtype);
bool dtype_is_integer(DType dtype);

}  // namespace tessera
