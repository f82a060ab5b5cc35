#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

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
    std::string module = tpu::heads_module(s, t, {1e-6, false});
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
      std::string module = tpu::heads_module(s, t, {std::nullopt, true});
      Array y = run_kernel(module, operands, x.type, 1e30);
      expect_close(y, e, {2, 0}, name(s));
    }
  }
}

// Two streams, each normed with its own weight, joined and rotated.
TEST(TpuHeads, TwoStreams) {
  for (HeadsShape s :
       {HeadsShape{1, 32, 3, 128, 40}, HeadsShape{2, 48, 4, 64, 7}, HeadsShape{2, 16, 2, 256, 100}}) {
    SCOPED_TRACE(name(s));
    HeadsTiles t = tpu::choose_tiles(s, 32, 256);
    HeadsShape second = s, all = s;
    second.rows = s.second_rows;
    all.rows = s.rows + s.second_rows;
    Array x = make(s), y = make(second);
    Array weights[] = {random(DType::kF32, {1, s.head_size}, 2), random(DType::kF32, {1, s.head_size}, 5)};
    Array cos = random(DType::kF32, {all.rows, s.head_size}, 2),
          sin = random(DType::kF32, {all.rows, s.head_size}, 3);
    Array partners = filled(DType::kBF16, {t.width, t.width}, 0);
    for (std::int64_t i = 0; i < t.width; ++i) partners[i * t.width + (i ^ 1)] = i % 2 == 1 ? -1 : 1;
    graph::TensorType type{DType::kBF16, {s.batch, all.rows, s.heads * s.head_size}};
    // The three steps alone, and all in one.
    Array joined = filled(DType::kBF16, type.shape, 0);
    std::int64_t width = s.heads * s.head_size;
    for (const auto& [part, shape, weight, from] :
         {std::tuple{&x, s, &weights[0], std::int64_t{0}}, std::tuple{&y, second, &weights[1], s.rows}}) {
      HeadsShape alone = shape;
      alone.second_rows = 0;
      Array normed = run_kernel(tpu::heads_module(alone, t, {1e-6, false}),
                                {*part, repeated(*weight, t.width)}, part->type, NAN);
      for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t i = 0; i < alone.rows * width; ++i)
          joined[(b * all.rows + from) * width + i] = normed[b * alone.rows * width + i];
    }
    std::vector<Array> tables{repeated(cos, t.width), repeated(sin, t.width), partners};
    std::vector<Array> streams{x, y, repeated(weights[0], t.width), repeated(weights[1], t.width)};
    expect_equal(run_kernel(tpu::heads_module(s, t, {1e-6, false}), streams, type, NAN), joined.values,
                 "joined");
    all.second_rows = 0;
    std::vector<Array> operands{joined};
    operands.insert(operands.end(), tables.begin(), tables.end());
    Array turned = run_kernel(tpu::heads_module(all, t, {std::nullopt, true}), operands, type, NAN);
    streams.insert(streams.end(), tables.begin(), tables.end());
    expect_equal(run_kernel(tpu::heads_module(s, t, {1e-6, true}), streams, type, NAN), turned.values,
                 "turned");
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
  EXPECT_EQ(tpu::choose_tiles({1, 512, 24, 128, 4096}).rows, 256);
  EXPECT_EQ(tpu::choose_tiles({1, 80, 24, 128, 4096}).rows, 80);
  EXPECT_EQ(tpu::choose_tiles({1, 272, 24, 128, 4096}).rows, 16);
  EXPECT_FALSE(tpu::serves({1, 77, 24, 128, 4096}));  // a block would belong to both
  EXPECT_FALSE(tpu::serves({1, 5, 3, 64}));           // heads that do not fill the lanes
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

std::string joint_program(std::int64_t first, std::int64_t second, std::int64_t heads, std::int64_t head_size,
                          bool norm, bool rope, DType dtype = DType::kBF16) {
  graph::TensorType weight{dtype, {head_size}}, table{DType::kF32, {first + second, head_size}};
  std::vector<graph::TensorType> operands{{dtype, {1, first, heads, head_size}},
                                          {dtype, {1, second, heads, head_size}}};
  if (norm) operands.insert(operands.end(), {weight, weight});
  if (rope) operands.insert(operands.end(), {table, table});
  return text_of(
      graph::kQkNormRope,
      {{"streams", std::int64_t{2}}, {"norm", norm}, {"rope", rope}, {"halves", false}, {"eps", 1e-6}},
      operands, nullptr, "tpu");
}

TEST(TpuHeads, WhereTheKernelsAreUsed) {
  auto kernels_in = [](const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find("tpu_custom_call", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(kernels_in(joint_program(512, 4096, 24, 128, true, true)), 1u);
  EXPECT_EQ(kernels_in(joint_program(4096, 333, 24, 64, true, false)), 1u);
  EXPECT_EQ(kernels_in(joint_program(512, 4096, 24, 128, false, true)), 1u);
  EXPECT_EQ(kernels_in(joint_program(77, 4096, 24, 128, true, true)), 3u);  // one after another
  EXPECT_EQ(kernels_in(joint_program(512, 4096, 24, 128, true, true, DType::kF32)), 0u);

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
    for (const std::string& text :
         {joint_program(512, 4096, 24, 128, true, true), joint_program(4096, 333, 24, 64, true, false),
          joint_program(77, 300, 4, 128, true, true), joint_program(32, 17, 8, 32, false, true)})
      ::tessera::testing::tpu_topology(topology).compile(text);
    ::tessera::testing::tpu_topology(topology).compile(norm_program({2, 333, 38, 64}));
    ::tessera::testing::tpu_topology(topology).compile(rope_program({1, 77, 2, 256}, false));
    ::tessera::testing::tpu_topology(topology).compile(rope_program({1, 77, 4, 32}, true));
    ::tessera::testing::tpu_topology(topology).compile(norm_program({1, 1000, 8, 32}));
  }
}

}  // namespace
}  // namespace tessera::kernels::testing
