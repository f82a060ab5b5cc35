#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/node.h"

namespace tessera::graph {

// A value in the text of a program: its name ("%7", "%arg0") and type.
struct Value {
  std::string name;
  TensorType type;
};

// "tensor<2x3xbf16>"
std::string stablehlo_type(const TensorType& type);

// Writes the body of a StableHLO function, an operation a line. Lowerings are written with it. Functions that
// combine two values want equal types unless they say otherwise.
class Writer {
 public:
  // With `alias` >= 0 the argument's memory may become that result's.
  Value argument(const TensorType& type, int alias = -1);
  // One line "%n = <text> : <signature>", where the caller has already put the operands' names into `text`.
  Value line(const TensorType& result, std::string_view text, std::string_view signature);

  // A constant of the type with every element equal to `value` (infinities and NaN allowed for floats).
  Value splat(double value, const TensorType& type);
  // A rank-1 f32 constant.
  Value f32_constant(std::span<const float> values);
  Value iota(const TensorType& type, int axis);

  // An operation of one operand and a like result: "exponential", "tanh", ...
  Value unary(std::string_view op, const Value& x);
  // An operation of two operands of one type: "add", "multiply", "maximum", ...
  Value binary(std::string_view op, const Value& a, const Value& b);
  // x op constant.
  Value binary(std::string_view op, const Value& x, double constant);
  // "EQ", "LT", ...; a bool result.
  Value compare(std::string_view direction, const Value& a, const Value& b);
  Value select(const Value& condition, const Value& a, const Value& b);
  Value convert(const Value& x, DType dtype);
  Value reshape(const Value& x, const Shape& shape);
  Value transpose(const Value& x, std::span<const std::int64_t> permutation);
  // Axis i of x becomes axis axes[i] of the result.
  Value broadcast(const Value& x, const Shape& shape, std::span<const std::int64_t> axes);
  // numpy-style: axes aligned at the end, extents of 1 repeated.
  Value broadcast_to(const Value& x, const Shape& shape);
  Value slice(const Value& x, std::span<const std::int64_t> begin, std::span<const std::int64_t> end);
  // [begin, end) of one axis.
  Value slice_axis(const Value& x, int axis, std::int64_t begin, std::int64_t end);
  Value concatenate(std::span<const Value> xs, int axis);
  Value pad(const Value& x, double value, std::span<const std::int64_t> low,
            std::span<const std::int64_t> high, std::span<const std::int64_t> interior);
  Value dynamic_slice(const Value& x, std::span<const Value> starts, const Shape& sizes);
  Value dynamic_update_slice(const Value& x, const Value& update, std::span<const Value> starts);
  // Reduces the axes with "add", "maximum", "minimum" or "and", which start at `initial`; the axes go away.
  Value reduce(std::string_view op, const Value& x, std::span<const std::int64_t> axes, double initial);
  // General matrix product. f32 operands ask for full precision. Result axes: batch, a's free, b's free.
  Value dot_general(const Value& a, const Value& b, std::span<const std::int64_t> batch_a,
                    std::span<const std::int64_t> batch_b, std::span<const std::int64_t> contract_a,
                    std::span<const std::int64_t> contract_b, DType result);
  // The sum over the program's replicas 0 to ranks-1, on each of them.
  Value all_reduce(const Value& x, std::int64_t ranks);
  // Calls the function that is registered as `target` (api_version 4) with x and a turn, an i32 scalar, and
  // gets a value like x and the next turn: the calls of a program happen in the order in which they are
  // written. Not within repeat().
  Value call_in_order(std::string_view target, const Value& x);
  // Runs `body` with a counter (i32 scalar) from 0 to trips-1 over the carried value.
  Value repeat(std::int64_t trips, const Value& initial,
               const std::function<Value(const Value& counter, const Value& carried)>& body);

  // The whole module: a function main from the arguments to `results`.
  std::string module(std::span<const Value> results) const;

 private:
  std::string fresh();
  void append(std::string_view text);

  std::vector<Value> arguments_;
  std::vector<int> aliases_;  // one an argument
  std::string body_;
  std::optional<Value> turn_;  // of the last call in order
  int next_ = 0;
  int indent_ = 2;
};

}  // namespace tessera::graph
