#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Writes kernels for TPUs: modules of Mosaic, the dialect of MLIR in which Pallas hands kernels to libtpu, as
// text in MLIR's generic form. A kernel runs once for each point of a grid; each operand and result is seen
// through a window (a block of it in the chip's vector memory) that moves with the grid.
namespace tessera::kernels::mosaic {

// "f32", "vector<512x128xbf16>", "memref<...>": an element type and, for all but scalars, extents.
struct Type {
  enum class Kind { kScalar, kVector, kMemref };
  Kind kind = Kind::kScalar;
  std::string element;
  std::vector<std::int64_t> shape;

  std::string text() const;
};

struct Value {
  std::string name;
  Type type;
};

// A block of an operand or a result. The index map gives the block's position (in blocks, an i32 an axis) for
// a point of the grid, using the writer that it is given.
class Writer;
using IndexMap = std::function<std::vector<Value>(Writer& writer, std::span<const Value> grid)>;
struct Window {
  std::string element;
  std::vector<std::int64_t> block;
  IndexMap index;
};

// Writes the body of one function. Binary operations want equal types.
class Writer {
 public:
  Value i32(std::int64_t value);
  Value index(std::int64_t value);
  // A vector of f32 with every element equal to `value`.
  Value splat(double value, std::span<const std::int64_t> shape);
  // `op` ("arith.addf", "math.exp2", ...) of operands of one type, with a result of that type.
  Value same(std::string_view op, std::initializer_list<Value> operands);
  // x[i] = i along `axis`.
  Value iota(std::span<const std::int64_t> shape, int axis);
  // Repeats a scalar, or extents of 1 of a vector.
  Value broadcast(const Value& x, std::span<const std::int64_t> shape);
  // The same elements in another shape.
  Value shape_cast(const Value& x, std::span<const std::int64_t> shape);
  // The first column of a matrix [M, N], repeated: [M, columns].
  Value first_column(const Value& x, std::int64_t columns);
  // bf16 -> f32 and back, rounded to nearest even.
  Value extend(const Value& x);
  Value truncate(const Value& x);
  // Comparisons give i1. Signed: "eq", "slt", "sle", "sge"; floats: "oeq".
  Value compare(std::string_view predicate, const Value& a, const Value& b);
  Value select(const Value& condition, const Value& a, const Value& b);
  // Over the last axis of a matrix [M, N] of f32, "maximumf" or "add": [M, 1].
  Value reduce_rows(std::string_view kind, const Value& x);
  // a [M, K] b [K, N], or b [N, K] with `transposed`, of bf16, summed in f32.
  Value matmul(const Value& a, const Value& b, bool transposed);
  // A multiple of `multiple` as an index.
  Value to_index(const Value& i, std::int64_t multiple);
  Value load(const Value& ref, std::span<const Value> indices, std::span<const std::int64_t> shape);
  void store(const Value& x, const Value& ref, std::span<const Value> indices);
  // Zeros, for loads and stores of whole blocks.
  std::vector<Value> origin(const Value& ref);
  void when(const Value& condition, const std::function<void()>& body);
  // For i32 i from `first` up to, not including, `end`.
  void loop(const Value& first, const Value& end, const std::function<void(const Value& i)>& body);

 private:
  friend std::string kernel(
      std::span<const std::int64_t> grid, std::span<const std::string_view> semantics,
      std::span<const Window> windows, std::span<const Type> scratch,
      const std::function<void(Writer&, std::span<const Value>, std::span<const Value>)>& body);
  Value emit(std::string_view op, std::span<const Value> operands, const Type& result,
             std::string_view attributes = {});
  void line(std::string_view text);
  std::string fresh();

  std::string body_;
  int next_ = 0;
};

// The text of a module: `body` gets the grid's point and then the windows and the scratch as references.
// `semantics` are "parallel" or "arbitrary", one an axis of the grid.
std::string kernel(std::span<const std::int64_t> grid, std::span<const std::string_view> semantics,
                   std::span<const Window> windows, std::span<const Type> scratch,
                   const std::function<void(Writer& writer, std::span<const Value> grid,
                                            std::span<const Value> references)>& body);

// What XLA is told about a kernel, in total over its grid.
struct Cost {
  double flops = 0, transcendentals = 0, bytes = 0;
};

// The backend_config of the custom call "tpu_custom_call" that runs a module: JSON with the module in base64.
// `vmem_bytes`: how much vector memory it may take.
std::string backend_config(std::string_view module, const Cost& cost, std::int64_t vmem_bytes);

}  // namespace tessera::kernels::mosaic
