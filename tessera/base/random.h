#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

// Random numbers as torch's CPU generator draws them: the same sequence of draws, values equal to within 1e-6
// (torch's vectorised logarithm and cosine differ from exact arithmetic by that much). Not for several
// threads at once.
class Generator {
 public:
  // As torch.Generator("cpu").manual_seed(seed): only the low 32 bits of the seed count.
  explicit Generator(std::uint64_t seed);

  std::uint64_t seed() const { return seed_; }

  // What torch.randn(shape, generator=..., dtype=...) returns for n elements, row-major; f32, bf16, f16 and
  // f64. bf16 and f16 are the rounded values, held as f32. Throws kInvalidArgument for a negative n,
  // kUnimplemented for another dtype.
  std::vector<float> randn(std::int64_t n, DType dtype = DType::kF32);
  // The same in double precision, which keeps what f64 has.
  std::vector<double> randn_f64(std::int64_t n, DType dtype = DType::kF64);

 private:
  std::uint32_t next32();
  std::uint64_t next64();
  double small_normal();

  std::uint64_t seed_;
  std::array<std::uint32_t, 624> state_;
  int position_;
  std::optional<double> kept_;  // the sine value of the last pair, for the next call below 16 elements
};

}  // namespace tessera
