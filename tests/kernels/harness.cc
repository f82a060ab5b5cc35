#include "tests/kernels/harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "tessera/base/half.h"
#include "tessera/kernels/registry.h"
#include "tessera/pjrt/registry.h"

namespace tessera::kernels::testing {
namespace {

class NoEvaluator : public graph::Evaluator {
 public:
  void recorded(const graph::NodePtr&) override {}
  void evaluate(std::span<const graph::NodePtr>, graph::Liveness) override {}
  std::vector<std::byte> read(const graph::NodePtr&) override { return {}; }
};

struct Device {
  NoEvaluator evaluator;
  pjrt::PluginRegistry registry;
  std::shared_ptr<const pjrt::Client> client = registry.load("cpu")->create_client({});
  graph::MeshPtr mesh =
      std::make_shared<graph::Mesh>(graph::Mesh{"cpu", client->platform_name(), {0}, &evaluator, 0});

  // Compiled programs by their text: the same program serves many values.
  std::map<std::string, std::shared_ptr<pjrt::Executable>> programs;

  static Device& get() {
    static Device device;
    return device;
  }
};

// A mesh for programs that are only written.
graph::MeshPtr paper_mesh(std::string_view platform) {
  static NoEvaluator evaluator;
  std::string name(platform);
  return std::make_shared<graph::Mesh>(graph::Mesh{name, name, {0}, &evaluator, 0});
}

// How many results were compared and how near the worst came to its tolerance: printed at the end.
struct Summary : ::testing::Environment {
  int cases = 0;
  std::int64_t elements = 0;
  double worst = 0;
  std::string where = "none";
  void TearDown() override {
    if (cases > 0) {
      fmt::print("compared {} results, {} elements; largest error is {:.2f} of its tolerance ({})\n", cases,
                 elements, worst, where);
    }
  }
};
Summary* const summary = dynamic_cast<Summary*>(::testing::AddGlobalTestEnvironment(new Summary));

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

void encode(double value, DType dtype, std::byte* p) {
  switch (dtype) {
    case DType::kF32:
      return store(p, static_cast<float>(value));
    case DType::kBF16:
      return store(p, f32_to_bf16(static_cast<float>(value)));
    case DType::kF16:
      return store(p, f32_to_f16(static_cast<float>(value)));
    case DType::kI64:
      return store(p, static_cast<std::int64_t>(value));
    case DType::kI32:
      return store(p, static_cast<std::int32_t>(value));
    case DType::kI8:
      return store(p, static_cast<std::int8_t>(value));
    default:
      return store(p, static_cast<std::uint8_t>(value));  // u8 and bool
  }
}

double decode(const std::byte* p, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(load<float>(p));
    case DType::kBF16:
      return static_cast<double>(bf16_to_f32(load<std::uint16_t>(p)));
    case DType::kF16:
      return static_cast<double>(f16_to_f32(load<std::uint16_t>(p)));
    case DType::kI64:
      return static_cast<double>(load<std::int64_t>(p));
    case DType::kI32:
      return static_cast<double>(load<std::int32_t>(p));
    case DType::kI8:
      return static_cast<double>(load<std::int8_t>(p));
    default:
      return static_cast<double>(load<std::uint8_t>(p));
  }
}

std::size_t width(DType dtype) { return static_cast<std::size_t>(dtype_bits(dtype) / 8); }

double smallest_normal(DType dtype) { return dtype == DType::kF16 ? 0x1p-14 : 0x1p-126; }

double largest(DType dtype) {
  if (dtype == DType::kF16) return 65504;
  if (dtype == DType::kBF16) return 0x1.FEp127;
  return static_cast<double>(std::numeric_limits<float>::max());
}

}  // namespace

double round_to(double value, DType dtype) {
  std::byte bytes[8] = {};
  encode(value, dtype, bytes);
  return decode(bytes, dtype);
}

double roundoff(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-8;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

Array array(DType dtype, Shape shape, std::vector<double> values) {
  for (double& v : values) v = round_to(v, dtype);
  return {{dtype, shape}, std::move(values)};
}

Array filled(DType dtype, Shape shape, double value) {
  return array(dtype, shape, std::vector<double>(static_cast<std::size_t>(shape.elements()), value));
}

Array random(DType dtype, Shape shape, unsigned seed, double scale, double offset) {
  std::mt19937 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& v : values) v = (static_cast<double>(engine()) * 0x1p-31 - 1) * scale + offset;
  return array(dtype, shape, std::move(values));
}

Array run(const graph::OpDef& op, graph::Attributes attributes, const std::vector<Array>& operands,
          const graph::LoweringTable* lowerings) {
  Device& device = Device::get();
  std::vector<graph::NodePtr> nodes;
  for (const Array& a : operands) {
    std::vector<std::byte> bytes(a.values.size() * width(a.type.dtype));
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      encode(a.values[i], a.type.dtype, bytes.data() + i * width(a.type.dtype));
    }
    nodes.push_back(std::make_shared<graph::Node>(
        a.type, device.mesh,
        std::vector{device.client->buffer_from_host(bytes, a.type.dtype, a.type.shape, 0)}));
  }
  auto node = std::make_shared<graph::Node>(op, std::move(attributes), nodes);
  graph::Program program = graph::cut(std::vector<graph::NodePtr>{node});
  std::string text = graph::write_text(program, lowerings ? *lowerings : kernels::lowerings());
  std::shared_ptr<pjrt::Executable>& executable = device.programs[text];
  if (!executable) executable = device.client->compile(text);
  std::vector<const pjrt::Buffer*> arguments;
  for (const graph::NodePtr& a : program.arguments) arguments.push_back(a->buffers()[0].get());
  pjrt::BufferPtr result = executable->execute_one(arguments).at(0);
  Array out{node->type(), {}};
  EXPECT_EQ(result->shape(), out.type.shape);
  EXPECT_EQ(result->dtype(), out.type.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(out.type.shape.elements()) * width(out.type.dtype));
  result->copy_to_host(bytes).await();
  for (std::size_t i = 0; i < bytes.size(); i += width(out.type.dtype)) {
    out.values.push_back(decode(bytes.data() + i, out.type.dtype));
  }
  return out;
}

std::string text_of(const graph::OpDef& op, graph::Attributes attributes,
                    const std::vector<graph::TensorType>& operands, const graph::LoweringTable* lowerings,
                    std::string_view platform) {
  graph::MeshPtr mesh = paper_mesh(platform);
  std::vector<graph::NodePtr> nodes;
  for (const graph::TensorType& t : operands) {
    nodes.push_back(std::make_shared<graph::Node>(t, mesh, std::vector<pjrt::BufferPtr>{}));
  }
  auto node = std::make_shared<graph::Node>(op, std::move(attributes), std::move(nodes));
  return graph::write_text(graph::cut(std::vector<graph::NodePtr>{node}),
                           lowerings ? *lowerings : kernels::lowerings());
}

void expect_close(const Array& mine, const Expected& expected, Tolerance tolerance, const std::string& what) {
  DType dtype = mine.type.dtype;
  std::string name = fmt::format("{} {}", what, to_string(mine.type));
  ASSERT_EQ(mine.values.size(), expected.values.size()) << name;
  ++summary->cases;
  summary->elements += mine.size();
  for (std::size_t i = 0; i < mine.values.size(); ++i) {
    double got = mine.values[i], want = expected.values[i];
    double term = std::abs(expected.terms.empty() ? want : expected.terms[i]), u = roundoff(dtype);
    bool ok;
    if (std::isnan(want)) {
      ok = std::isnan(got);
    } else if (std::abs(want) > largest(dtype)) {
      ok = got == std::copysign(INFINITY, want) || std::abs(got) >= largest(dtype) * (1 - 4 * u);
    } else {
      double allowed =
          u * std::abs(want) + (tolerance.f32_units * 0x1p-24 + tolerance.dtype_units * u) * term;
      double ratio = std::abs(got - want) / std::max(allowed, smallest_normal(dtype));
      ok = ratio <= 1;
      if (!(ratio <= summary->worst)) {
        summary->worst = ratio;
        summary->where = name;
      }
    }
    if (!ok) {
      ADD_FAILURE() << name << ": element " << i << " is " << fmt::format("{:.9g}", got) << ", not "
                    << fmt::format("{:.9g}", want);
      return;
    }
  }
}

void expect_equal(const Array& mine, const std::vector<double>& expected, const std::string& what) {
  ++summary->cases;
  summary->elements += mine.size();
  EXPECT_EQ(mine.values, expected) << what << " " << to_string(mine.type);
}

}  // namespace tessera::kernels::testing
