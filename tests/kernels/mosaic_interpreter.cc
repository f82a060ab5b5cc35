#include "tests/kernels/mosaic_interpreter.h"

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "tessera/base/half.h"

namespace tessera::kernels::testing {
namespace {

using Ints = std::vector<std::int64_t>;

[[noreturn]] void stop(const std::string& what) { throw std::runtime_error("Mosaic: " + what); }

std::int64_t count(const Ints& shape) {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return n;
}

// An SSA value or memory: "f32", "vector<2x3xbf16>", "memref<...>".
struct Data {
  std::string type, element;
  Ints shape;
  std::vector<double> values;
};

Data make(std::string_view type) {
  Data out;
  out.type = type;
  std::string text(type);
  std::size_t open = text.find('<');
  if (open == std::string::npos) {
    out.element = text;
  } else {
    std::string inner = text.substr(open + 1, text.find_first_of(",>", open) - open - 1);
    std::size_t x;
    while ((x = inner.find('x')) != std::string::npos && std::isdigit(static_cast<unsigned char>(inner[0]))) {
      out.shape.push_back(std::stoll(inner.substr(0, x)));
      inner.erase(0, x + 1);
    }
    out.element = inner;
  }
  out.values.assign(static_cast<std::size_t>(count(out.shape)), 0.0);
  return out;
}

struct Statement {
  std::string result, op, attributes;
  std::vector<std::string> operands, operand_types, result_types;
  std::vector<std::string> block_arguments;  // of the first region
  std::vector<std::vector<Statement>> regions;
};

std::vector<std::string> split(const std::string& text) {  // at ", " outside of brackets
  std::vector<std::string> out;
  int depth = 0;
  std::string part;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    depth += c == '<' || c == '(' || c == '[' || c == '{' ? 1 : 0;
    depth -= c == '>' || c == ')' || c == ']' || c == '}' ? 1 : 0;
    if (c == ',' && depth == 0) {
      out.push_back(part);
      part.clear();
      ++i;  // the space
    } else {
      part += c;
    }
  }
  if (!part.empty()) out.push_back(part);
  return out;
}

// Reads what the writer writes: an operation a line, regions between "({" and "})".
class Parser {
 public:
  explicit Parser(std::string_view text) : in_(std::string(text)) {}

  Statement statement(const std::string& line) {
    static const std::regex kHead(
        R"re(^(?:(%\d+) = )?"(?:stable_mosaic\.)?([a-z_.0-9]+)"\(([^)]*)\)(.*)$)re");
    std::smatch m;
    if (!std::regex_match(line, m, kHead)) stop("cannot read: " + line);
    Statement out{m[1], m[2], {}, split(m[3]), {}, {}, {}, {}};
    std::string rest = m[4];
    while (rest == " ({" || rest == "}, {") {
      out.regions.emplace_back();
      while (true) {
        std::string inner = next();
        if (inner.starts_with("^bb0(")) {
          for (const std::string& a : split(inner.substr(5, inner.rfind("):") - 5))) {
            out.block_arguments.push_back(a);
          }
        } else if (inner.starts_with("}")) {
          rest = inner.starts_with("})") ? inner.substr(2) : inner;
          break;
        } else {
          out.regions.back().push_back(statement(inner));
        }
      }
    }
    std::size_t colon = rest.rfind(" : (");
    if (colon == std::string::npos) stop("no type: " + line);
    out.attributes = rest.substr(0, colon);
    std::string types = rest.substr(colon + 4);
    std::size_t arrow = types.find(") -> ");
    out.operand_types = split(types.substr(0, arrow));
    std::string results = types.substr(arrow + 5);
    if (results.starts_with("(")) results = results.substr(1, results.size() - 2);
    out.result_types = split(results);
    return out;
  }

  std::string next() {
    std::string line;
    if (!std::getline(in_, line)) stop("the text ends too early");
    line.erase(0, line.find_first_not_of(' '));
    return line;
  }

 private:
  std::istringstream in_;
};

Ints integers(const std::string& text) {
  Ints out;
  static const std::regex kNumber(R"(-?\d+)");
  for (std::sregex_iterator it(text.begin(), text.end(), kNumber), end; it != end; ++it) {
    out.push_back(std::stoll(it->str()));
  }
  return out;
}

// The integers of `name = array<i64: 1, 2>` or `name = [1, 2]`.
Ints list_attribute(const std::string& attributes, const std::string& name) {
  std::smatch m;
  if (!std::regex_search(attributes, m, std::regex(name + R"( = (?:array<i(?:32|64): |\[)([-0-9, ]*)[>\]])")))
    stop("no attribute " + name + " in " + attributes);
  return integers(m[1]);
}

double literal(const std::string& text) {
  if (text.starts_with("0x")) {
    return static_cast<double>(
        std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(text, nullptr, 16))));
  }
  return static_cast<double>(std::stof(text));
}

double to_f32(double x) { return static_cast<double>(static_cast<float>(x)); }

class Machine {
 public:
  // Runs the statements of a block; gives the operands of the last one (yield or return).
  std::vector<Data> run(const std::vector<Statement>& block) {
    for (const Statement& s : block) {
      if (s.op == "func.return" || s.op == "scf.yield") {
        std::vector<Data> out;
        for (const std::string& name : s.operands) out.push_back(get(name));
        return out;
      }
      step(s);
    }
    stop("a block without an end");
  }

  void set(const std::string& name, Data data) { values_[name] = std::move(data); }
  Data& get(const std::string& name) {
    auto it = values_.find(name);
    if (it == values_.end()) stop("no value " + name);
    return it->second;
  }

 private:
  void step(const Statement& s) {
    std::vector<const Data*> x;
    for (std::size_t i = 0; i < s.operands.size(); ++i) {
      x.push_back(&get(s.operands[i]));
      if (i >= s.operand_types.size() || x.back()->type != s.operand_types[i])
        stop(s.op + ": " + s.operands[i] + " is " + x.back()->type + ", not as written");
    }
    if (s.op == "scf.if") {
      run(s.regions.at(x[0]->values[0] != 0 ? 0 : 1));
    } else if (s.op == "scf.for") {
      auto first = x[0]->values[0], end = x[1]->values[0], by = x[2]->values[0];
      std::string counter = s.block_arguments.at(0).substr(0, s.block_arguments[0].find(':'));
      for (double i = first; i < end; i += by) {
        Data c = make("i32");
        c.values[0] = i;
        set(counter, std::move(c));
        run(s.regions.at(0));
      }
    } else if (s.op == "tpu.vector_store") {
      store(*x[0], get(s.operands[1]), x);
    } else {
      set(s.result, compute(s, x));
    }
  }

  // The offset in a memory of element `i` of a block of the given shape that begins at the indices.
  static std::int64_t place(const Data& memory, const Ints& block, std::span<const Data* const> indices,
                            std::int64_t i) {
    std::int64_t offset = 0, scale = 1;
    for (std::size_t axis = block.size(); axis-- > 0;) {
      std::int64_t at = i % block[axis] + static_cast<std::int64_t>(indices[axis]->values[0]);
      if (at < 0 || at >= memory.shape[axis]) stop("an access out of range of " + memory.type);
      offset += at * scale;
      scale *= memory.shape[axis];
      i /= block[axis];
    }
    return offset;
  }

  static void store(const Data& x, Data& memory, std::span<const Data* const> operands) {
    auto indices = operands.subspan(2);
    if (x.shape.size() != memory.shape.size() || indices.size() != x.shape.size() ||
        x.element != memory.element)
      stop("a store of " + x.type + " into " + memory.type);
    for (std::int64_t i = 0; i < count(x.shape); ++i) {
      memory.values[static_cast<std::size_t>(place(memory, x.shape, indices, i))] =
          x.values[static_cast<std::size_t>(i)];
    }
  }

  static Data compute(const Statement& s, const std::vector<const Data*>& x) {
    Data y = make(s.result_types.at(0));
    auto n = y.values.size();
    auto want = [&](bool ok) {
      if (!ok) stop(s.op + " with operands that do not fit: " + s.result + " of " + y.type);
    };
    auto elementwise = [&](auto&& f) {
      for (const Data* operand : x) want(operand->values.size() == n && operand->shape == y.shape);
      for (std::size_t i = 0; i < n; ++i) y.values[i] = f(i);
      return y;
    };
    auto a = [&](std::size_t i) { return x[0]->values[i]; };
    auto b = [&](std::size_t i) { return x[1]->values[i]; };
    auto floats = [&](auto&& f) {
      want(y.element == "f32");
      for (const Data* operand : x) want(operand->type == y.type);
      return elementwise([&](std::size_t i) { return to_f32(f(i)); });
    };
    auto whole = [&](auto&& f) {
      for (const Data* operand : x)
        want(operand->type == y.type && (y.element == "i32" || y.element == "i1"));
      return elementwise(f);
    };
    if (s.op == "arith.constant") {
      std::smatch m;
      if (!std::regex_search(s.attributes, m, std::regex("value = (?:dense<)?([-+.0-9a-fA-Fxe]+)")))
        stop("a constant without a value: " + s.attributes);
      double value = y.element == "f32" ? literal(m[1]) : std::stod(m[1]);
      y.values.assign(n, value);
      return y;
    }
    if (s.op == "arith.addf") return floats([&](std::size_t i) { return a(i) + b(i); });
    if (s.op == "arith.subf") return floats([&](std::size_t i) { return a(i) - b(i); });
    if (s.op == "arith.mulf") return floats([&](std::size_t i) { return a(i) * b(i); });
    if (s.op == "arith.divf") return floats([&](std::size_t i) { return a(i) / b(i); });
    if (s.op == "arith.maximumf") {
      return floats(
          [&](std::size_t i) { return std::isnan(a(i)) || std::isnan(b(i)) ? NAN : std::max(a(i), b(i)); });
    }
    if (s.op == "math.exp") return floats([&](std::size_t i) { return std::exp(a(i)); });
    if (s.op == "math.exp2") return floats([&](std::size_t i) { return std::exp2(a(i)); });
    if (s.op == "math.rsqrt") return floats([&](std::size_t i) { return 1 / std::sqrt(a(i)); });
    if (s.op == "arith.addi") return whole([&](std::size_t i) { return a(i) + b(i); });
    if (s.op == "arith.subi") return whole([&](std::size_t i) { return a(i) - b(i); });
    if (s.op == "arith.muli") return whole([&](std::size_t i) { return a(i) * b(i); });
    if (s.op == "arith.divsi") return whole([&](std::size_t i) { return std::trunc(a(i) / b(i)); });
    if (s.op == "arith.minsi") return whole([&](std::size_t i) { return std::min(a(i), b(i)); });
    if (s.op == "arith.andi") return whole([&](std::size_t i) { return a(i) != 0 && b(i) != 0 ? 1.0 : 0.0; });
    if (s.op == "arith.cmpi" || s.op == "arith.cmpf") {
      want(x[0]->type == x[1]->type && y.element == "i1");
      std::smatch m;
      std::regex_search(s.attributes, m, std::regex("predicate = (\\d+)"));
      int predicate = std::stoi(m[1]);
      bool of_floats = s.op == "arith.cmpf";
      want(of_floats ? predicate == 1 : x[0]->element == "i32");
      return elementwise([&](std::size_t i) {
        if (of_floats || predicate == 0) return a(i) == b(i) ? 1.0 : 0.0;
        if (predicate == 2) return a(i) < b(i) ? 1.0 : 0.0;
        if (predicate == 3) return a(i) <= b(i) ? 1.0 : 0.0;
        if (predicate == 5) return a(i) >= b(i) ? 1.0 : 0.0;
        stop("predicate " + std::to_string(predicate));
      });
    }
    if (s.op == "arith.select") {
      want(x[0]->element == "i1" && x[1]->type == y.type && x[2]->type == y.type);
      return elementwise([&](std::size_t i) { return a(i) != 0 ? b(i) : x[2]->values[i]; });
    }
    if (s.op == "arith.extf") {
      want(x[0]->element == "bf16" && y.element == "f32");
      return elementwise(a);
    }
    if (s.op == "arith.truncf") {
      want(x[0]->element == "f32" && y.element == "bf16");
      return elementwise([&](std::size_t i) { return round_to(a(i), DType::kBF16); });
    }
    if (s.op == "tpu.assume_multiple") {
      if (std::fmod(a(0), static_cast<double>(integers(s.attributes)[0])) != 0)
        stop("a wrong assume_multiple");
      return elementwise(a);
    }
    if (s.op == "arith.index_cast") return elementwise(a);
    if (s.op == "vector.shape_cast") {
      want(x[0]->values.size() == n && x[0]->element == y.element);
      y.values = x[0]->values;
      return y;
    }
    if (s.op == "vector.broadcast") return broadcast(*x[0], std::move(y));
    if (s.op == "tpu.iota") {
      std::int64_t axis = list_attribute(s.attributes, "dimensions").at(0), inner = 1;
      for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < y.shape.size(); ++i) inner *= y.shape[i];
      return elementwise([&](std::size_t i) {
        return static_cast<double>(static_cast<std::int64_t>(i) / inner %
                                   y.shape[static_cast<std::size_t>(axis)]);
      });
    }
    if (s.op == "vector.extract_strided_slice") {
      want((list_attribute(s.attributes, "offsets") == Ints{0, 0}) && x[0]->shape.size() == 2 &&
           list_attribute(s.attributes, "sizes") == y.shape && y.shape[1] == 1);
      for (std::size_t i = 0; i < n; ++i) y.values[i] = a(i * static_cast<std::size_t>(x[0]->shape[1]));
      return y;
    }
    if (s.op == "vector.multi_reduction") return reduce(s, *x[0], *x[1], std::move(y));
    if (s.op == "vector.load") {
      want(x[0]->element == y.element && x.size() == y.shape.size() + 1 &&
           x[0]->shape.size() == y.shape.size());
      for (std::size_t i = 0; i < n; ++i) {
        y.values[i] = x[0]->values[static_cast<std::size_t>(
            place(*x[0], y.shape, std::span(x).subspan(1), static_cast<std::int64_t>(i)))];
      }
      return y;
    }
    if (s.op == "tpu.matmul") return matmul(s, *x[0], *x[1], *x[2], std::move(y));
    stop("no operation " + s.op);
  }

  static Data broadcast(const Data& x, Data y) {
    if (x.element != y.element || x.shape.size() > y.shape.size()) stop("a broadcast of " + x.type);
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      std::size_t rest = i, from = 0, scale = 1;
      for (std::size_t axis = y.shape.size(); axis-- > 0;) {
        auto extent = static_cast<std::size_t>(y.shape[axis]);
        std::size_t at = rest % extent;
        rest /= extent;
        if (axis + x.shape.size() < y.shape.size()) continue;
        auto mine = static_cast<std::size_t>(x.shape[axis + x.shape.size() - y.shape.size()]);
        if (mine != 1 && mine != extent) stop("a broadcast of " + x.type + " to " + y.type);
        from += (mine == 1 ? 0 : at) * scale;
        scale *= mine;
      }
      y.values[i] = x.values[from];
    }
    return y;
  }

  static Data reduce(const Statement& s, const Data& x, const Data& initial, Data y) {
    bool sum = s.attributes.find("#vector.kind<add>") != std::string::npos;
    if (!sum && s.attributes.find("#vector.kind<maximumf>") == std::string::npos)
      stop("kind of " + s.attributes);
    if (list_attribute(s.attributes, "reduction_dims") != Ints{1} || initial.type != y.type ||
        x.shape != Ints{y.shape[0], x.shape.at(1)})
      stop("a reduction of " + x.type + " to " + y.type);
    auto columns = static_cast<std::size_t>(x.shape[1]);
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      double value = initial.values[i];
      for (std::size_t j = 0; j < columns; ++j) {
        double e = x.values[i * columns + j];
        value = sum ? value + e : std::isnan(value) || std::isnan(e) ? NAN : std::max(value, e);
      }
      y.values[i] = to_f32(value);
    }
    return y;
  }

  static Data matmul(const Statement& s, const Data& a, const Data& b, const Data& c, Data y) {
    bool transposed = s.attributes.find("<[1], [1], [0], [0], [0, 0, 1, 0], [], []>") != std::string::npos;
    if (!transposed && s.attributes.find("<[1], [0], [0], [1], [0, 0, 1, 1], [], []>") == std::string::npos)
      stop("dimension numbers of " + s.attributes);
    auto m = static_cast<std::size_t>(a.shape.at(0)), k = static_cast<std::size_t>(a.shape.at(1)),
         n = static_cast<std::size_t>(y.shape.at(1));
    Ints expected = transposed ? Ints{y.shape[1], a.shape[1]} : Ints{a.shape[1], y.shape[1]};
    if (a.element != "bf16" || b.element != "bf16" || b.shape != expected || c.type != y.type ||
        y.shape[0] != a.shape[0])
      stop("a product of " + a.type + " and " + b.type);
    for (std::size_t i = 0; i < m; ++i) {
      std::vector<double> row(c.values.begin() + static_cast<std::ptrdiff_t>(i * n),
                              c.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
      for (std::size_t l = 0; l < k; ++l) {
        double f = a.values[i * k + l];
        for (std::size_t j = 0; j < n; ++j)
          row[j] += f * (transposed ? b.values[j * k + l] : b.values[l * n + j]);
      }
      for (std::size_t j = 0; j < n; ++j) y.values[i * n + j] = to_f32(row[j]);
    }
    return y;
  }

  std::map<std::string, Data> values_;
};

// Copies between an array and a window of it that begins at `begin`; what lies beyond the array is `beyond`
// in the window, and not copied out.
void copy_window(Array& array, Data& window, const Ints& begin, bool out, double beyond) {
  const Shape& shape = array.type.shape;
  for (std::int64_t i = 0; i < count(window.shape); ++i) {
    std::int64_t rest = i, offset = 0, scale = 1;
    bool inside = true;
    for (std::size_t axis = window.shape.size(); axis-- > 0;) {
      std::int64_t at = rest % window.shape[axis] + begin[axis];
      rest /= window.shape[axis];
      inside = inside && at < shape[static_cast<int>(axis)];
      offset += at * scale;
      scale *= shape[static_cast<int>(axis)];
    }
    double& mine = window.values[static_cast<std::size_t>(i)];
    if (!out) {
      mine = inside ? array[offset] : beyond;
    } else if (inside) {
      array[offset] = mine;
    }
  }
}

}  // namespace

Array run_kernel(std::string_view module, const std::vector<Array>& operands, const graph::TensorType& result,
                 double beyond) {
  Parser parser(module);
  Statement top = parser.statement(parser.next());
  if (top.op != "builtin.module" || top.attributes.find("stable_mosaic.version = 11") == std::string::npos)
    stop("no module of version 11");
  const std::vector<Statement>& functions = top.regions.at(0);
  const Statement& main = functions.at(0);
  Ints grid = list_attribute(main.attributes, "iteration_bounds");
  std::vector<Array> arrays = operands;
  arrays.push_back(filled(result.dtype, result.shape, NAN));
  if (functions.size() != arrays.size() + 1) stop("as many index maps as operands and results are wanted");

  std::vector<std::string> names, types;
  for (const std::string& a : main.block_arguments) {
    names.push_back(a.substr(0, a.find(':')));
    types.push_back(a.substr(a.find(':') + 2));
  }
  Machine machine;
  for (std::size_t i = grid.size(); i < names.size(); ++i) {
    Data memory = make(types[i]);
    memory.values.assign(memory.values.size(), NAN);
    machine.set(names[i], std::move(memory));
  }
  std::vector<std::optional<Ints>> held(arrays.size());  // where each window begins at the moment
  auto window = [&](std::size_t i) -> Data& { return machine.get(names[grid.size() + i]); };
  auto flush = [&] {
    if (held.back()) copy_window(arrays.back(), window(arrays.size() - 1), *held.back(), true, beyond);
  };
  for (std::int64_t p = 0; p < count(grid); ++p) {
    std::vector<Data> point(grid.size(), make("i32"));
    std::int64_t rest = p;
    for (std::size_t axis = grid.size(); axis-- > 0;) {
      point[axis].values[0] = static_cast<double>(rest % grid[axis]);
      rest /= grid[axis];
    }
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const Statement& map = functions[i + 1];
      Machine local;
      for (std::size_t axis = 0; axis < grid.size(); ++axis) {
        local.set(map.block_arguments[axis].substr(0, map.block_arguments[axis].find(':')), point[axis]);
      }
      std::vector<Data> position = local.run(map.regions.at(0));
      Ints begin;
      for (std::size_t axis = 0; axis < position.size(); ++axis) {
        begin.push_back(static_cast<std::int64_t>(position[axis].values[0]) * window(i).shape.at(axis));
        if (begin.back() >= arrays[i].type.shape[static_cast<int>(axis)]) stop("a window beyond its array");
      }
      if (held[i] == begin) continue;
      bool is_result = i + 1 == arrays.size();
      if (is_result) {
        flush();
        window(i).values.assign(window(i).values.size(), NAN);
      } else {
        copy_window(arrays[i], window(i), begin, false, beyond);
      }
      held[i] = begin;
    }
    for (std::size_t axis = 0; axis < grid.size(); ++axis) machine.set(names[axis], point[axis]);
    machine.run(main.regions.at(0));
  }
  flush();
  return arrays.back();
}

}  // namespace tessera::kernels::testing
