#include "tessera/kernels/tpu/mosaic.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <map>

#include "tessera/base/error.h"

namespace tessera::kernels::mosaic {
namespace {

using Shape = std::vector<std::int64_t>;

Type vector_of(std::string_view element, std::span<const std::int64_t> shape) {
  return {Type::Kind::kVector, std::string(element), {shape.begin(), shape.end()}};
}
Type scalar_of(std::string_view element) { return {Type::Kind::kScalar, std::string(element), {}}; }
Type with_element(Type type, std::string_view element) {
  type.element = element;
  return type;
}

// An f32 as text; what decimal notation cannot say is written as bits.
std::string literal(double value) {
  auto f = static_cast<float>(value);
  if (std::isfinite(f)) return fmt::format("{:.9e}", f);
  return fmt::format("0x{:08X}", std::bit_cast<std::uint32_t>(f));
}

template <typename T>
std::string joined(std::span<const T> values, std::string (*text)(const T&)) {
  std::string out;
  for (const T& v : values) out += (out.empty() ? "" : ", ") + text(v);
  return out;
}
std::string names(std::span<const Value> values) {
  return joined<Value>(values, [](const Value& v) { return v.name; });
}
std::string types(std::span<const Value> values) {
  return joined<Value>(values, [](const Value& v) { return v.type.text(); });
}

std::string_view attributes_of(std::string_view op) {
  if (op == "arith.addi" || op == "arith.muli" || op == "arith.subi")
    return "overflowFlags = #arith.overflow<none>";
  if (op == "arith.minsi" || op == "arith.maxsi" || op == "arith.divsi" || op == "arith.andi") return "";
  return "fastmath = #arith.fastmath<none>";
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j > bytes.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63];
    }
  }
  return out;
}

}  // namespace

std::string Type::text() const {
  std::string extents;
  for (std::int64_t d : shape) extents += fmt::format("{}x", d);
  switch (kind) {
    case Kind::kVector:
      return fmt::format("vector<{}{}>", extents, element);
    case Kind::kMemref:
      return fmt::format("memref<{}{}, #tpu.memory_space<vmem>>", extents, element);
    default:
      return element;
  }
}

std::string Writer::fresh() { return fmt::format("%{}", next_++); }

void Writer::line(std::string_view text) { body_.append("    ").append(text).append("\n"); }

Value Writer::emit(std::string_view op, std::span<const Value> operands, const Type& result,
                   std::string_view attributes) {
  Value value{fresh(), result};
  line(fmt::format("{} = \"stable_mosaic.{}\"({}){} : ({}) -> {}", value.name, op, names(operands),
                   attributes.empty() ? "" : fmt::format(" {{{}}}", attributes), types(operands),
                   result.text()));
  return value;
}

Value Writer::i32(std::int64_t value) {
  return emit("arith.constant", {}, scalar_of("i32"), fmt::format("value = {} : i32", value));
}

Value Writer::index(std::int64_t value) {
  return emit("arith.constant", {}, scalar_of("index"), fmt::format("value = {} : index", value));
}

Value Writer::splat(double value, std::span<const std::int64_t> shape) {
  Type type = vector_of("f32", shape);
  return emit("arith.constant", {}, type, fmt::format("value = dense<{}> : {}", literal(value), type.text()));
}

Value Writer::same(std::string_view op, std::initializer_list<Value> operands) {
  return emit(op, operands, operands.begin()->type, attributes_of(op));
}

Value Writer::iota(std::span<const std::int64_t> shape, int axis) {
  return emit("tpu.iota", {}, vector_of("i32", shape), fmt::format("dimensions = array<i32: {}>", axis));
}

Value Writer::broadcast(const Value& x, std::span<const std::int64_t> shape) {
  return emit("vector.broadcast", std::array{x}, vector_of(x.type.element, shape));
}

Value Writer::shape_cast(const Value& x, std::span<const std::int64_t> shape) {
  if (std::equal(shape.begin(), shape.end(), x.type.shape.begin(), x.type.shape.end())) return x;
  return emit("vector.shape_cast", std::array{x}, vector_of(x.type.element, shape));
}

Value Writer::first_column(const Value& x, std::int64_t columns) {
  std::int64_t rows = x.type.shape[0];
  if (columns == x.type.shape[1]) return x;
  Value column =
      emit("vector.extract_strided_slice", std::array{x}, vector_of(x.type.element, Shape{rows, 1}),
           fmt::format("offsets = [0, 0], sizes = [{}, 1], strides = [1, 1]", rows));
  return broadcast(column, Shape{rows, columns});
}

Value Writer::extend(const Value& x) {
  return emit("arith.extf", std::array{x}, with_element(x.type, "f32"));
}

Value Writer::truncate(const Value& x) {
  return emit("arith.truncf", std::array{x}, with_element(x.type, "bf16"));
}

Value Writer::compare(std::string_view predicate, const Value& a, const Value& b) {
  // The numbers that MLIR gives to the predicates of arith.cmpi and arith.cmpf.
  static const std::map<std::string_view, int> numbers{
      {"eq", 0}, {"slt", 2}, {"sle", 3}, {"sge", 5}, {"oeq", 1}};
  bool floats = a.type.element == "f32";
  return emit(floats ? "arith.cmpf" : "arith.cmpi", std::array{a, b}, with_element(a.type, "i1"),
              fmt::format("{}predicate = {} : i64", floats ? "fastmath = #arith.fastmath<none>, " : "",
                          numbers.at(predicate)));
}

Value Writer::select(const Value& condition, const Value& a, const Value& b) {
  return emit("arith.select", std::array{condition, a, b}, a.type);
}

Value Writer::reduce_rows(std::string_view kind, const Value& x) {
  Shape rows{x.type.shape[0]};
  Value initial = splat(kind == "add" ? 0 : -INFINITY, rows);
  Value reduced = emit("vector.multi_reduction", std::array{x, initial}, vector_of("f32", rows),
                       fmt::format("kind = #vector.kind<{}>, reduction_dims = array<i64: 1>", kind));
  return shape_cast(reduced, Shape{rows[0], 1});
}

Value Writer::matmul(const Value& a, const Value& b, bool transposed) {
  Shape shape{a.type.shape[0], b.type.shape[transposed ? 0 : 1]};
  Value zero = splat(0, shape);
  return emit("tpu.matmul", std::array{a, b, zero}, zero.type,
              fmt::format("dimension_numbers = #tpu.dot_dimension_numbers<[1], [{0}], [0], [{1}], "
                          "[0, 0, 1, {1}], [], []>, transpose_lhs = false, transpose_rhs = false",
                          transposed ? 1 : 0, transposed ? 0 : 1));
}

Value Writer::to_index(const Value& i, std::int64_t multiple) {
  Value known =
      emit("tpu.assume_multiple", std::array{i}, i.type, fmt::format("multiple = {} : i32", multiple));
  return emit("arith.index_cast", std::array{known}, scalar_of("index"));
}

Value Writer::load(const Value& ref, std::span<const Value> indices, std::span<const std::int64_t> shape) {
  std::vector<Value> operands{ref};
  operands.insert(operands.end(), indices.begin(), indices.end());
  return emit("vector.load", operands, vector_of(ref.type.element, shape));
}

void Writer::store(const Value& x, const Value& ref, std::span<const Value> indices) {
  std::vector<Value> operands{x, ref};
  operands.insert(operands.end(), indices.begin(), indices.end());
  line(fmt::format(
      "\"stable_mosaic.tpu.vector_store\"({}) {{add = false, operandSegmentSizes = array<i32: 1, 1, {}, 0>, "
      "strides = array<i32>}} : ({}) -> ()",
      names(operands), indices.size(), types(operands)));
}

std::vector<Value> Writer::origin(const Value& ref) {
  return std::vector<Value>(ref.type.shape.size(), index(0));
}

void Writer::when(const Value& condition, const std::function<void()>& body) {
  line(fmt::format("\"stable_mosaic.scf.if\"({}) ({{", condition.name));
  body();
  line("\"stable_mosaic.scf.yield\"() : () -> ()");
  line("}, {");
  line("\"stable_mosaic.scf.yield\"() : () -> ()");
  line("}) : (i1) -> ()");
}

void Writer::loop(const Value& first, const Value& end, const std::function<void(const Value&)>& body) {
  Value one = i32(1), counter{fresh(), scalar_of("i32")};
  line(fmt::format("\"stable_mosaic.scf.for\"({}, {}, {}) ({{", first.name, end.name, one.name));
  line(fmt::format("^bb0({}: i32):", counter.name));
  body(counter);
  line("\"stable_mosaic.scf.yield\"() : () -> ()");
  line("}) : (i32, i32, i32) -> ()");
}

std::string kernel(std::span<const std::int64_t> grid, std::span<const std::string_view> semantics,
                   std::span<const Window> windows, std::span<const Type> scratch,
                   const std::function<void(Writer&, std::span<const Value>, std::span<const Value>)>& body) {
  Writer main;
  std::vector<Value> point, references;
  for (std::size_t i = 0; i < grid.size(); ++i) point.push_back({main.fresh(), scalar_of("i32")});
  for (const Window& w : windows) {
    references.push_back({main.fresh(), {Type::Kind::kMemref, w.element, w.block}});
  }
  for (const Type& type : scratch) references.push_back({main.fresh(), type});
  body(main, point, references);

  std::vector<Value> arguments = point;
  arguments.insert(arguments.end(), references.begin(), references.end());
  auto block_head = [](std::span<const Value> values) {
    return joined<Value>(values, [](const Value& v) { return v.name + ": " + v.type.text(); });
  };
  std::string parameters, order;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    parameters += fmt::format("{}{{transform_indices = @transform_{}, window_bounds = array<i64: {}>}}",
                              i == 0 ? "" : ", ", i, fmt::join(windows[i].block, ", "));
  }
  for (std::string_view s : semantics) {
    order += fmt::format("{}#tpu.dimension_semantics<{}>", order.empty() ? "" : ", ", s);
  }
  std::string out = fmt::format(
      "\"builtin.module\"() ({{\n  \"stable_mosaic.func.func\"() ({{\n  ^bb0({}):\n{}"
      "    \"stable_mosaic.func.return\"() : () -> ()\n"
      "  }}) {{dimension_semantics = [{}], function_type = ({}) -> (), iteration_bounds = array<i64: {}>, "
      "scalar_prefetch = 0 : i64, scratch_operands = {} : i64, sym_name = \"main\", "
      "tpu.core_type = #tpu.core_type<tc>, window_params = [{}]}} : () -> ()\n",
      block_head(arguments), main.body_, order, types(arguments), fmt::join(grid, ", "), scratch.size(),
      parameters);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    Writer transform;
    std::vector<Value> at;
    for (std::size_t axis = 0; axis < grid.size(); ++axis) {
      at.push_back({transform.fresh(), scalar_of("i32")});
    }
    std::vector<Value> position = windows[i].index(transform, at);
    out += fmt::format(
        "  \"stable_mosaic.func.func\"() ({{\n  ^bb0({}):\n{}    \"stable_mosaic.func.return\"({}) : ({}) -> "
        "()\n"
        "  }}) {{function_type = ({}) -> ({}), sym_name = \"transform_{}\"}} : () -> ()\n",
        block_head(at), transform.body_, names(position), types(position), types(at), types(position), i);
  }
  return out + "}) {stable_mosaic.version = 11 : i64} : () -> ()\n";
}

std::string backend_config(std::string_view module, const Cost& cost, std::int64_t vmem_bytes) {
  return fmt::format(
      R"({{"custom_call_config": {{"body": "{}", "cost_estimate": {{"flops": {:.0f}, "transcendentals": {:.0f}, )"
      R"("bytes_accessed": {:.0f}, "remote_bytes_transferred": 0}}, "serialization_format": 1, )"
      R"("needs_layout_passes": true}}, "scoped_memory_configs": [{{"memory_space": 1, "offset": 0, "size": {}}}]}})",
      base64(module), cost.flops, cost.transcendentals, cost.bytes, vmem_bytes);
}

}  // namespace tessera::kernels::mosaic
