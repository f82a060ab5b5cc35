#include "tessera/graph/writer.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/half.h"

namespace tessera::graph {
namespace {

std::string type_list(std::span<const Value> values) {
  std::string out;
  for (const Value& v : values) out += (out.empty() ? "" : ", ") + stablehlo_type(v.type);
  return out;
}

std::string list(std::span<const std::int64_t> values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// A number as StableHLO text; floats that decimal notation cannot say are written as bits.
std::string literal(double value, DType dtype) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (!dtype_is_float(dtype)) return fmt::format("{}", static_cast<std::int64_t>(value));
  if (std::isfinite(value)) return fmt::format("{:.17e}", value);
  auto f = static_cast<float>(value);
  switch (dtype) {
    case DType::kF64:
      return fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(value));
    case DType::kF32:
      return fmt::format("0x{:08X}", std::bit_cast<std::uint32_t>(f));
    case DType::kBF16:
      return fmt::format("0x{:04X}", f32_to_bf16(f));
    case DType::kF16:
      return fmt::format("0x{:04X}", f32_to_f16(f));
    default:
      fail(ErrorCode::kUnimplemented, "no literal of {} for {}", dtype_name(dtype), value);
  }
}

}  // namespace

std::string stablehlo_type(const TensorType& type) {
  std::string out = "tensor<";
  for (std::int64_t d : type.shape) out += std::to_string(d) + "x";
  return out.append(dtype_stablehlo_name(type.dtype)) + ">";
}

void Writer::append(std::string_view text) {
  body_.append(static_cast<std::size_t>(2 * indent_), ' ');
  body_.append(text).push_back('\n');
}

std::string Writer::fresh() { return fmt::format("%{}", next_++); }

Value Writer::argument(const TensorType& type, int alias) {
  aliases_.push_back(alias);
  arguments_.push_back({fmt::format("%arg{}", arguments_.size()), type});
  return arguments_.back();
}

Value Writer::line(const TensorType& result, std::string_view text, std::string_view signature) {
  Value value{fresh(), result};
  append(fmt::format("{} = {} : {}", value.name, text, signature));
  return value;
}

Value Writer::splat(double value, const TensorType& type) {
  return line(type, fmt::format("stablehlo.constant dense<{}>", literal(value, type.dtype)),
              stablehlo_type(type));
}

Value Writer::f32_constant(std::span<const float> values) {
  TensorType type{DType::kF32, {static_cast<std::int64_t>(values.size())}};
  std::string text;
  for (float v : values) text += (text.empty() ? "" : ", ") + literal(v, DType::kF32);
  return line(type, fmt::format("stablehlo.constant dense<[{}]>", text), stablehlo_type(type));
}

Value Writer::iota(const TensorType& type, int axis) {
  return line(type, fmt::format("stablehlo.iota dim = {}", axis), stablehlo_type(type));
}

Value Writer::unary(std::string_view op, const Value& x) {
  return line(x.type, fmt::format("stablehlo.{} {}", op, x.name), stablehlo_type(x.type));
}

Value Writer::binary(std::string_view op, const Value& a, const Value& b) {
  check_internal(a.type == b.type, fmt::format("{} of {} and {}", op, to_string(a.type), to_string(b.type)));
  return line(a.type, fmt::format("stablehlo.{} {}, {}", op, a.name, b.name), stablehlo_type(a.type));
}

Value Writer::binary(std::string_view op, const Value& x, double constant) {
  return binary(op, x, splat(constant, x.type));
}

Value Writer::compare(std::string_view direction, const Value& a, const Value& b) {
  return line(
      {DType::kBool, a.type.shape}, fmt::format("stablehlo.compare {}, {}, {}", direction, a.name, b.name),
      fmt::format("({0}, {0}) -> {1}", stablehlo_type(a.type), stablehlo_type({DType::kBool, a.type.shape})));
}

Value Writer::select(const Value& condition, const Value& a, const Value& b) {
  return line(a.type, fmt::format("stablehlo.select {}, {}, {}", condition.name, a.name, b.name),
              stablehlo_type(condition.type) + ", " + stablehlo_type(a.type));
}

Value Writer::convert(const Value& x, DType dtype) {
  if (x.type.dtype == dtype) return x;
  TensorType type{dtype, x.type.shape};
  return line(type, "stablehlo.convert " + x.name,
              fmt::format("({}) -> {}", stablehlo_type(x.type), stablehlo_type(type)));
}

Value Writer::reshape(const Value& x, const Shape& shape) {
  if (x.type.shape == shape) return x;
  TensorType type{x.type.dtype, shape};
  return line(type, "stablehlo.reshape " + x.name,
              fmt::format("({}) -> {}", stablehlo_type(x.type), stablehlo_type(type)));
}

Value Writer::transpose(const Value& x, std::span<const std::int64_t> permutation) {
  TensorType type{x.type.dtype, {}};
  for (std::int64_t p : permutation) type.shape.push_back(x.type.shape[static_cast<int>(p)]);
  return line(type, fmt::format("stablehlo.transpose {}, dims = {}", x.name, list(permutation)),
              fmt::format("({}) -> {}", stablehlo_type(x.type), stablehlo_type(type)));
}

Value Writer::broadcast(const Value& x, const Shape& shape, std::span<const std::int64_t> axes) {
  if (x.type.shape == shape) return x;
  TensorType type{x.type.dtype, shape};
  return line(type, fmt::format("stablehlo.broadcast_in_dim {}, dims = {}", x.name, list(axes)),
              fmt::format("({}) -> {}", stablehlo_type(x.type), stablehlo_type(type)));
}

Value Writer::broadcast_to(const Value& x, const Shape& shape) {
  std::vector<std::int64_t> axes;
  for (int i = 0; i < x.type.shape.rank(); ++i) axes.push_back(shape.rank() - x.type.shape.rank() + i);
  return broadcast(x, shape, axes);
}

Value Writer::slice(const Value& x, std::span<const std::int64_t> begin, std::span<const std::int64_t> end) {
  TensorType type{x.type.dtype, {}};
  std::string ranges;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    type.shape.push_back(end[i] - begin[i]);
    ranges += fmt::format("{}{}:{}", i ? ", " : "", begin[i], end[i]);
  }
  if (type == x.type) return x;
  return line(type, fmt::format("stablehlo.slice {} [{}]", x.name, ranges),
              fmt::format("({}) -> {}", stablehlo_type(x.type), stablehlo_type(type)));
}

Value Writer::slice_axis(const Value& x, int axis, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> low(static_cast<std::size_t>(x.type.shape.rank()), 0), high;
  for (std::int64_t d : x.type.shape) high.push_back(d);
  low[static_cast<std::size_t>(axis)] = begin;
  high[static_cast<std::size_t>(axis)] = end;
  return slice(x, low, high);
}

Value Writer::concatenate(std::span<const Value> xs, int axis) {
  TensorType type = xs.front().type;
  std::int64_t extent = 0;
  std::string names;
  for (const Value& x : xs) {
    extent += x.type.shape[axis];
    names += (names.empty() ? "" : ", ") + x.name;
  }
  type.shape.set(axis, extent);
  return line(type, fmt::format("stablehlo.concatenate {}, dim = {}", names, axis),
              fmt::format("({}) -> {}", type_list(xs), stablehlo_type(type)));
}

Value Writer::pad(const Value& x, double value, std::span<const std::int64_t> low,
                  std::span<const std::int64_t> high, std::span<const std::int64_t> interior) {
  TensorType type{x.type.dtype, {}};
  for (int i = 0; i < x.type.shape.rank(); ++i) {
    auto k = static_cast<std::size_t>(i);
    std::int64_t d = x.type.shape[i];
    type.shape.push_back(low[k] + high[k] + d + (d > 0 ? (d - 1) * interior[k] : 0));
  }
  Value fill = splat(value, {x.type.dtype, {}});
  return line(
      type,
      fmt::format("stablehlo.pad {}, {}, low = {}, high = {}, interior = {}", x.name, fill.name, list(low),
                  list(high), list(interior)),
      fmt::format("({}, {}) -> {}", stablehlo_type(x.type), stablehlo_type(fill.type), stablehlo_type(type)));
}

Value Writer::dynamic_slice(const Value& x, std::span<const Value> starts, const Shape& sizes) {
  TensorType type{x.type.dtype, sizes};
  std::string names;
  for (const Value& s : starts) names += ", " + s.name;
  return line(type,
              fmt::format("stablehlo.dynamic_slice {}{}, sizes = {}", x.name, names, list(sizes.dims())),
              fmt::format("({}, {}) -> {}", stablehlo_type(x.type), type_list(starts), stablehlo_type(type)));
}

Value Writer::dynamic_update_slice(const Value& x, const Value& update, std::span<const Value> starts) {
  std::string names;
  for (const Value& s : starts) names += ", " + s.name;
  return line(x.type, fmt::format("stablehlo.dynamic_update_slice {}, {}{}", x.name, update.name, names),
              fmt::format("({0}, {1}, {2}) -> {0}", stablehlo_type(x.type), stablehlo_type(update.type),
                          type_list(starts)));
}

Value Writer::reduce(std::string_view op, const Value& x, std::span<const std::int64_t> axes,
                     double initial) {
  TensorType type{x.type.dtype, {}};
  for (int i = 0; i < x.type.shape.rank(); ++i) {
    bool reduced = false;
    for (std::int64_t a : axes) reduced = reduced || a == i;
    if (!reduced) type.shape.push_back(x.type.shape[i]);
  }
  Value start = splat(initial, {x.type.dtype, {}});
  return line(type,
              fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = {}", x.name,
                          start.name, op, list(axes)),
              fmt::format("({}, {}) -> {}", stablehlo_type(x.type), stablehlo_type(start.type),
                          stablehlo_type(type)));
}

Value Writer::dot_general(const Value& a, const Value& b, std::span<const std::int64_t> batch_a,
                          std::span<const std::int64_t> batch_b, std::span<const std::int64_t> contract_a,
                          std::span<const std::int64_t> contract_b, DType result) {
  TensorType type{result, {}};
  auto contains = [](std::span<const std::int64_t> axes, int i) {
    for (std::int64_t a2 : axes) {
      if (a2 == i) return true;
    }
    return false;
  };
  for (std::int64_t i : batch_a) type.shape.push_back(a.type.shape[static_cast<int>(i)]);
  for (int i = 0; i < a.type.shape.rank(); ++i) {
    if (!contains(batch_a, i) && !contains(contract_a, i)) type.shape.push_back(a.type.shape[i]);
  }
  for (int i = 0; i < b.type.shape.rank(); ++i) {
    if (!contains(batch_b, i) && !contains(contract_b, i)) type.shape.push_back(b.type.shape[i]);
  }
  std::string batching =
      batch_a.empty() ? "" : fmt::format("batching_dims = {} x {}, ", list(batch_a), list(batch_b));
  std::string_view precision = a.type.dtype == DType::kF32 ? "HIGHEST" : "DEFAULT";
  return line(
      type,
      fmt::format("stablehlo.dot_general {}, {}, {}contracting_dims = {} x {}, precision = [{}, {}]", a.name,
                  b.name, batching, list(contract_a), list(contract_b), precision, precision),
      fmt::format("({}, {}) -> {}", stablehlo_type(a.type), stablehlo_type(b.type), stablehlo_type(type)));
}

Value Writer::repeat(std::int64_t trips, const Value& initial,
                     const std::function<Value(const Value&, const Value&)>& body) {
  TensorType index{DType::kI32, {}};
  Value zero = splat(0, index);
  std::string id = fresh().substr(1);
  Value counter{"%counter" + id, index}, carried{"%carried" + id, initial.type};
  std::string types = stablehlo_type(index) + ", " + stablehlo_type(initial.type);
  append(fmt::format("%{}:2 = stablehlo.while({} = {}, {} = {}) : {}", id, counter.name, zero.name,
                     carried.name, initial.name, types));
  append("cond {");
  ++indent_;
  Value going = compare("LT", counter, splat(static_cast<double>(trips), index));
  append(fmt::format("stablehlo.return {} : {}", going.name, stablehlo_type(going.type)));
  --indent_;
  append("} do {");
  ++indent_;
  Value next = body(counter, carried);
  Value count = binary("add", counter, 1);
  append(fmt::format("stablehlo.return {}, {} : {}", count.name, next.name, types));
  --indent_;
  append("}");
  return {fmt::format("%{}#1", id), initial.type};
}

Value Writer::all_reduce(const Value& x, std::int64_t ranks) {
  std::string group, scalar = stablehlo_type({x.type.dtype, {}}),
                     pad(static_cast<std::size_t>(2 * indent_), ' ');
  for (std::int64_t rank = 0; rank < ranks; ++rank) group += fmt::format("{}{}", rank == 0 ? "" : ", ", rank);
  std::string text = fmt::format(
      "\"stablehlo.all_reduce\"({0}) ({{\n"
      "{1}^bb0(%a: {2}, %b: {2}):\n"
      "{1}  %sum = stablehlo.add %a, %b : {2}\n"
      "{1}  stablehlo.return %sum : {2}\n"
      "{1}}}) {{replica_groups = dense<[[{3}]]> : tensor<1x{4}xi64>, "
      "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}}",
      x.name, pad, scalar, group, ranks);
  return line(x.type, text, fmt::format("({0}) -> {0}", stablehlo_type(x.type)));
}

Value Writer::call_in_order(std::string_view target, const Value& x) {
  check_internal(indent_ == 2, "a call in order within a loop");
  if (!turn_) turn_ = splat(0, {DType::kI32, {}});
  std::string id = fresh(), type = stablehlo_type(x.type), turn = stablehlo_type(turn_->type);
  append(fmt::format(
      "{0}:2 = stablehlo.custom_call @{1}({2}, {3}) {{api_version = 4 : i32, backend_config = {{}}}} "
      ": ({4}, {5}) -> ({4}, {5})",
      id, target, x.name, turn_->name, type, turn));
  turn_->name = id + "#1";
  return {id + "#0", x.type};
}

std::string Writer::module(std::span<const Value> results) const {
  std::string parameters, names;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    parameters +=
        fmt::format("{}{}: {}", i == 0 ? "" : ", ", arguments_[i].name, stablehlo_type(arguments_[i].type));
    if (aliases_[i] >= 0) parameters += fmt::format(" {{tf.aliasing_output = {} : i32}}", aliases_[i]);
  }
  for (const Value& r : results) names += (names.empty() ? "" : ", ") + r.name;
  std::string types = type_list(results);
  return fmt::format("module {{\n  func.func public @main({}) -> ({}) {{\n{}    return {} : {}\n  }}\n}}\n",
                     parameters, types, body_, names, types);
}

}  // namespace tessera::graph
