#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/kernels/tpu/heads.h"
#include "tests/kernels/mosaic_interpreter.h"
#include "tests/testing/tpu.h"

// The kernels that work on each head of queries and keys: run by the interpreter against double precision,
// and compiled by the real compiler.
namespace tessera::kernels::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tpu::HeadsShape;
using tpu::HeadsTiles;

std::string name(const HeadsShape& s) {
  return fmt::format("B {} S {} H {} D {}", s.batch, s.rows, s.heads, s.head_size);
}

Array make(const HeadsShape& s) {
  return random(DType::kBF16, {s.batch, s.rows, s.heads * s.head_size}, 1, 2);
}

// x [rows, D] beside itself.
Array repeated(const Array& x, std::int64_t width) {
  const Shape& s = x.type.shape;
  Array y = filled(x.type.dtype, {s[0], width}, 0);
  for (std::int64_t i = 0; i < y.size(); ++i) y[i] = x[i / width * s[1] + i % width % s[1]];
  return y;
}

const HeadsShape kShapes[] = {{1, 40, 3, 128}, {2, 33, 4, 64},  {1, 1, 2, 256},
                              {2, 100, 8, 32}, {1, 70, 1, 512}, {3, 16, 24, 128}};

TEST(TpuHeads, RmsNorm) {
  for (const HeadsShape& s : kShapes) {
    SCOPED_TRACE(name(s));
    HeadsTiles t = tpu::choose_tiles(s, 32, 256);
    Array x = make(s), weight = random(DType::kF32, {1, s.head_size}, 2);
    Expected e;
    for (std::int64_t head = 0; head < x.size() / s.head_size; ++head) {
      double square = 0;
      for (std::int64_t d = 0; d < s.head_size; ++d) square += std::pow(x[head * s.head_size + d], 2);
      double scale = 1 / std::sqrt(square / static_cast<double>(s.head_size) + 1e-6);
      for (std::int64_t d = 0; d < s.head_size; ++d) {
        e.values.push_back(x[head * s.head_size + d] * scale * weight[d]);
        e.terms.push_back(std::abs(e.values.back()));
      }
    }
    std::string module = tpu::rms_norm_module(s, t, 1e-6);
    Array y = run_kernel(module, {x, repeated(weight, t.width)}, x.type, NAN);
    expect_close(y, e, {8, 0}, name(s));
    expect_equal(run_kernel(module, {x, repeated(weight, t.width)}, x.type, 1e30), y.values, "other memory");
  }
}

TEST(TpuHeads, Rope) {
  for (const HeadsShape& s : kShapes) {
    for (bool halves : {false, true}) {
      SCOPED_TRACE(name(s));
      HeadsTiles t = tpu::choose_tiles(s, 32, 256);
      Array x = make(s), cos = random(DType::kF32, {s.rows, s.head_size}, 2),
            sin = random(DType::kF32, {s.rows, s.head_size}, 3);
      std::int64_t apart = halves ? s.head_size / 2 : 1;
      Array partners = filled(DType::kBF16, {t.width, t.width}, 0);
      Expected e;
      for (std::int64_t i = 0; i < t.width; ++i) {
        bool second = i / apart % 2 == 1;
        partners[i * t.width + i + (second ? -apart : apart)] = second ? -1 : 1;
      }
      for (std::int64_t i = 0; i < x.size(); ++i) {
        bool second = i % s.head_size / apart % 2 == 1;
        std::int64_t row = i / (s.heads * s.head_size) % s.rows, at = row * s.head_size + i % s.head_size;
        double a = x[i] * cos[at], b = (second ? x[i - apart] : -x[i + apart]) * sin[at];
        e.values.push_back(a + b);
        e.terms.push_back(std::abs(a) + std::abs(b));
      }
      std::vector<Array> operands{x, repeated(cos, t.width), repeated(sin, t.width), partners};
      std::string module = tpu::rope_module(s, t);
      Array y = run_kernel(module, operands, x.type, 1e30);
      expect_close(y, e, {2, 0}, name(s));
    }
  }
}

TEST(TpuHeads, Tiles) {
  HeadsTiles flux = tpu::choose_tiles({1, 4608, 24, 128});
  EXPECT_EQ(flux.width, 128);
  EXPECT_EQ(flux.groups, 8);
  EXPECT_EQ(flux.rows, 256);
  EXPECT_EQ(tpu::choose_tiles({2, 4096, 38, 64}).groups, 1);  // 19 pairs of heads
  EXPECT_EQ(tpu::choose_tiles({1, 5, 24, 128}).rows, 16);
  for (const HeadsShape& s : {HeadsShape{1, 65536, 64, 128}, {1, 65536, 8, 512}, {1, 65536, 64, 64}})
    EXPECT_LE(tpu::choose_tiles(s).vmem_bytes, std::int64_t{32} << 20) << name(s);
  EXPECT_FALSE(tpu::serves({1, 5, 3, 64}));  // heads that do not fill the lanes
  EXPECT_FALSE(tpu::serves({1, 5, 4, 96}));
  EXPECT_FALSE(tpu::serves({1, 0, 4, 128}));
}

std::string norm_program(const Shape& x, DType dtype = DType::kBF16) {
  return text_of(graph::kRmsNorm, {{"eps", 1e-6}}, {{dtype, x}, {dtype, {x[-1]}}}, nullptr, "tpu");
}

std::string rope_program(const Shape& x, bool halves, DType dtype = DType::kBF16) {
  graph::TensorType table{DType::kF32, {x[1], x[3]}};
  return text_of(graph::kRope, {{"halves", halves}}, {{dtype, x}, table, table}, nullptr, "tpu");
}

TEST(TpuHeads, WhereTheKernelsAreUsed) {
  EXPECT_THAT(norm_program({1, 40, 24, 128}), HasSubstr("head_rms_norm"));
  EXPECT_THAT(rope_program({1, 40, 24, 64}, false), HasSubstr("tpu_custom_call"));
  for (const std::string& text : {norm_program({1, 40, 24, 128}, DType::kF32), norm_program({1, 40, 4096}),
                                  norm_program({1, 40, 3, 64}), rope_program({1, 40, 3, 64}, true),
                                  rope_program({1, 40, 4, 128}, true, DType::kF32)})
    EXPECT_THAT(text, Not(HasSubstr("custom_call")));
}

// The compiler takes them, and needs no memory for what the common form would lay out anew.
TEST(TpuCompiler, Heads) {
  TESSERA_NEEDS_LIBTPU();
  for (const char* topology : {"v5e:2x2", "v6e:1x1", "tpu7x:1x1x1"}) {
    const graph::TensorType x{DType::kBF16, {1, 4608, 24, 128}};
    for (const std::string& text :
         {norm_program(x.shape), rope_program(x.shape, false), rope_program(x.shape, true)}) {
      auto program = ::tessera::testing::tpu_topology(topology).compile(text);
      EXPECT_GT(program->cost_analysis().at("bytes accessed"), 0) << topology;
    }
    ::tessera::testing::tpu_topology(topology).compile(norm_program({2, 333, 38, 64}));
    ::tessera::testing::tpu_topology(topology).compile(rope_program({1, 77, 2, 256}, false));
    ::tessera::testing::tpu_topology(topology).compile(rope_program({1, 77, 4, 32}, true));
    ::tessera::testing::tpu_topology(topology).compile(norm_program({1, 1000, 8, 32}));
  }
}

}  // namespace
}  // namespace tessera::kernels::testing
