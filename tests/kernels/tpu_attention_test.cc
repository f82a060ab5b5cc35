#include "tessera/kernels/tpu/attention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/attention_reference.h"
#include "tests/kernels/mosaic_interpreter.h"
#include "tests/testing/tpu.h"

// The attention kernel for TPUs: run by an interpreter against double precision over small shapes, and
// compiled by the real compiler for the shapes of the published models.
namespace tessera::kernels::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tpu::AttentionShape;
using tpu::AttentionTiles;

// Small enough that shapes of a few hundred have several blocks of queries, chunks and blocks of keys.
constexpr tpu::TileLimits kSmall{32, 128, 1};

std::string name(const AttentionShape& s) {
  return fmt::format("B {} Q {} K {} H {}/{} D {}{}{}", s.batch, s.queries, s.keys, s.heads, s.key_heads,
                     s.head_size, s.causal ? " causal" : "", s.bias ? " bias " + to_string(*s.bias) : "");
}

// [B, S, H, D] as the kernel wants it.
Array laid_out(const Array& x, std::int64_t pack) {
  const Shape& s = x.type.shape;
  if (pack > 0) return {{x.type.dtype, {s[0], s[1], s[2] * s[3]}}, x.values};
  Array y = filled(x.type.dtype, {s[0], s[2], s[1], s[3]}, 0);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    std::int64_t d = i % s[3], h = i / s[3] % s[2], row = i / (s[3] * s[2]) % s[1],
                 b = i / (s[3] * s[2] * s[1]);
    y[((b * s[2] + h) * s[1] + row) * s[3] + d] = x[i];
  }
  return y;
}

struct Operands {
  Array q, k, v;
  std::optional<Array> bias;
};

Operands make(const AttentionShape& s) {
  Operands o{random(DType::kBF16, {s.batch, s.queries, s.heads, s.head_size}, 1, 2),
             random(DType::kBF16, {s.batch, s.keys, s.key_heads, s.head_size}, 2),
             random(DType::kBF16, {s.batch, s.keys, s.key_heads, s.head_size}, 3), std::nullopt};
  if (s.bias) o.bias = random(DType::kBF16, *s.bias, 4);
  return o;
}

Array interpret(const AttentionShape& s, const AttentionTiles& t, const Operands& o, double beyond) {
  std::vector<Array> operands{laid_out(o.q, t.pack), laid_out(o.k, t.pack), laid_out(o.v, t.pack)};
  if (o.bias) {
    operands.push_back(*o.bias);
    if ((*s.bias)[2] == 1) operands.back().type.dtype = DType::kF32;
  }
  return run_kernel(tpu::attention_module(s, t), operands, operands[0].type, beyond);
}

void check(AttentionShape s, const tpu::TileLimits& limits = kSmall) {
  SCOPED_TRACE(name(s));
  s.scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  Operands o = make(s);
  AttentionTiles t = tpu::choose_tiles(s, limits);
  Array y = interpret(s, t, o, NAN);
  Expected e = attention_reference(o.q, o.k, o.v, o.bias ? &*o.bias : nullptr, s.scale, s.causal);
  Array expected{o.q.type, e.values}, terms{o.q.type, e.terms};
  // Weights are rounded to bf16 for the second product.
  expect_close(y, {laid_out(expected, t.pack).values, laid_out(terms, t.pack).values}, {16, 1}, name(s));
  // What lies in memory after the last key and the last query changes no bit.
  expect_equal(interpret(s, t, o, 1e30), y.values, name(s) + ", other memory");
}

AttentionShape shape(std::int64_t queries, std::int64_t keys, std::int64_t heads, std::int64_t d) {
  AttentionShape s;
  s.queries = queries;
  s.keys = keys;
  s.heads = s.key_heads = heads;
  s.head_size = d;
  return s;
}

TEST(TpuAttention, EveryHeadSize) {
  for (std::int64_t d : {8, 16, 32, 64, 72, 80, 96, 128, 256, 512}) check(shape(40, 150, 4, d));
}

TEST(TpuAttention, AnyLength) {
  for (std::int64_t keys : {1, 7, 127, 128, 129, 255, 256, 300, 384})
    check(shape(keys % 50 + 1, keys, 2, 64));
  for (std::int64_t queries : {1, 16, 31, 32, 33, 77}) check(shape(queries, 200, 1, 72));
}

TEST(TpuAttention, TilesOfFullSize) {
  AttentionShape s = shape(77, 77, 2, 64);
  s.causal = true;
  check(s, {});
  check(shape(200, 700, 1, 128), {});
  check(shape(40, 600, 1, 512), {});
}

TEST(TpuAttention, GroupedKeyHeads) {
  for (std::int64_t d : {64, 80, 128}) {
    for (bool causal : {false, true}) {
      AttentionShape s = shape(50, 140, 8, d);
      s.batch = 2;
      s.key_heads = 2;
      s.causal = causal;
      check(s);
    }
  }
}

TEST(TpuAttention, Causal) {
  for (auto [queries, keys] : {std::pair{77, 77}, {300, 300}, {40, 300}, {300, 40}, {256, 256}}) {
    for (std::int64_t d : {64, 96}) {
      AttentionShape s = shape(queries, keys, 2, d);
      s.causal = true;
      check(s);
    }
  }
}

TEST(TpuAttention, Bias) {
  for (std::int64_t d : {64, 72}) {
    for (const Shape& bias : {Shape{1, 4, 40, 150}, Shape{2, 4, 40, 150}, Shape{1, 1, 40, 150},
                              Shape{2, 1, 1, 150}, Shape{1, 4, 1, 150}, Shape{2, 1, 20, 150}}) {
      for (bool causal : {false, true}) {
        AttentionShape s = shape(20, 150, 4, d);
        s.batch = 2;
        s.bias = bias;
        s.causal = causal;
        check(s);
      }
    }
  }
}

// Keys hidden by minus infinity, or by the most negative number of bf16 as Diffusers does, count for nothing;
// a row whose every key is hidden gives zeros.
TEST(TpuAttention, HiddenKeys) {
  for (double hidden :
       {-std::numeric_limits<double>::infinity(), static_cast<double>(std::bit_cast<float>(0xFF7F0000U))}) {
    for (std::int64_t d : {64, 80}) {
      AttentionShape s = shape(24, 200, 2, d);
      s.batch = 2;
      s.bias = Shape{2, 1, 1, 200};
      Operands o = make(s);
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t j = 0; j < 200; ++j) (*o.bias)[b * 200 + j] = j < (b == 0 ? 90 : 150) ? 0 : hidden;
      }
      AttentionTiles t = tpu::choose_tiles(s, kSmall);
      Array masked = interpret(s, t, o, NAN);
      for (std::int64_t i = o.v.size() / 2 + 150 * 2 * d; i < o.v.size(); ++i) o.v[i] = 1e30;
      for (std::int64_t i = 90 * 2 * d; i < o.v.size() / 2; ++i) o.k[i] = -3;
      expect_equal(interpret(s, t, o, NAN), masked.values, "hidden keys of other values");
      Expected e = attention_reference(o.q, o.k, o.v, &*o.bias, s.scale, false);
      Array expected{o.q.type, e.values}, terms{o.q.type, e.terms};
      expect_close(masked, {laid_out(expected, t.pack).values, laid_out(terms, t.pack).values}, {16, 1},
                   "hidden");
    }
  }
  AttentionShape s = shape(24, 200, 2, 64);
  s.bias = Shape{1, 1, 1, 200};
  Operands o = make(s);
  o.bias->values.assign(200, -INFINITY);
  for (double y : interpret(s, tpu::choose_tiles(s, kSmall), o, NAN).values) ASSERT_EQ(y, 0);
}

TEST(TpuAttention, LargeScores) {
  AttentionShape s = shape(16, 200, 2, 64);
  Operands o = make(s);
  for (double& x : o.q.values) x *= 1024;
  for (double& x : o.k.values) x *= 1024;
  AttentionTiles t = tpu::choose_tiles(s, kSmall);
  Expected e = attention_reference(o.q, o.k, o.v, nullptr, s.scale, false);
  expect_close(interpret(s, t, o, NAN), {e.values, e.terms}, {16, 1}, "scores of millions");
}

// Whole keys and values stay in vector memory where they fit, so that they are read once a head.
TEST(TpuAttention, Tiles) {
  AttentionTiles flux = tpu::choose_tiles(shape(4608, 4608, 24, 128));
  EXPECT_EQ(flux.key_blocks, 1);
  EXPECT_EQ(flux.query_blocks, 9);
  EXPECT_EQ(flux.pack, 1);
  AttentionTiles sd3 = tpu::choose_tiles(shape(4429, 4429, 24, 64));
  EXPECT_EQ(sd3.pack, 2);
  EXPECT_EQ(sd3.tail, 333);
  EXPECT_EQ(sd3.tail_chunk, 384);
  EXPECT_EQ(sd3.key_block, 8 * 512 + 384);
  EXPECT_EQ(tpu::choose_tiles(shape(100, 100, 3, 64)).pack, 0);  // an odd number of heads
  for (std::int64_t d : {8, 64, 72, 80, 96, 128, 256, 512}) {
    for (std::int64_t length : {1, 77, 512, 4429, 4608, 16896, 65536}) {
      for (std::int64_t heads : {1, 24}) {
        for (bool bias : {false, true}) {
          AttentionShape s = shape(length, length, heads, d);
          if (bias) s.bias = Shape{1, heads, length, length};
          AttentionTiles t = tpu::choose_tiles(s);
          EXPECT_LE(t.vmem_bytes, std::int64_t{60} << 20) << name(s);
          EXPECT_GE(t.key_blocks * t.key_block, length) << name(s);
          EXPECT_LT((t.key_blocks - 1) * t.key_block, length) << name(s);
          EXPECT_GE(t.query_blocks * t.query_block, length) << name(s);
        }
      }
    }
  }
}

std::string program(const AttentionShape& s, DType dtype = DType::kBF16) {
  std::vector<graph::TensorType> operands{{dtype, {s.batch, s.queries, s.heads, s.head_size}},
                                          {dtype, {s.batch, s.keys, s.key_heads, s.head_size}},
                                          {dtype, {s.batch, s.keys, s.key_heads, s.head_size}}};
  if (s.bias) operands.push_back({dtype, *s.bias});
  return text_of(graph::kAttention, {{"scale", 0.125}, {"causal", s.causal}}, operands, nullptr, "tpu");
}

TEST(TpuAttention, WhereTheKernelIsUsed) {
  EXPECT_THAT(program(shape(77, 77, 4, 64)), HasSubstr("@tpu_custom_call"));
  EXPECT_THAT(program(shape(77, 77, 4, 64)), Not(HasSubstr("stablehlo.transpose")));
  EXPECT_THAT(program(shape(77, 77, 4, 72)), HasSubstr("stablehlo.transpose"));
  for (const std::string& text : {program(shape(77, 77, 4, 64), DType::kF32), program(shape(77, 77, 4, 6)),
                                  program(shape(7, 7, 1, 1024))}) {
    EXPECT_THAT(text, Not(HasSubstr("custom_call")));
  }
  EXPECT_THAT(program(shape(7, 0, 4, 64)), Not(HasSubstr("custom_call")));
}

TEST(TpuAttention, CostCountsWhatIsRead) {
  AttentionShape s = shape(4608, 4608, 24, 128);
  mosaic::Cost cost = tpu::attention_cost(s, tpu::choose_tiles(s));
  EXPECT_EQ(cost.flops, 4.0 * 4608 * 4608 * 24 * 128);
  EXPECT_EQ(cost.transcendentals, 4608.0 * 4608 * 24);
  EXPECT_EQ(cost.bytes, 4.0 * 4608 * 24 * 128 * 2);
  AttentionShape vae = shape(16384, 16384, 1, 512);
  AttentionTiles t = tpu::choose_tiles(vae);
  EXPECT_GT(t.key_blocks, 1);
  EXPECT_EQ(tpu::attention_cost(vae, t).bytes,
            2.0 * 16384 * 512 * 2 + static_cast<double>(t.query_blocks) * 2 * 16384 * 512 * 2);
}

// --- The real compiler ---

constexpr const char* kTopologies[] = {"v5e:2x2", "v6e:1x1", "tpu7x:1x1x1"};

void compile(const AttentionShape& s, const char* topology) {
  SCOPED_TRACE(fmt::format("{} for {}", name(s), topology));
  try {
    auto program_ = ::tessera::testing::tpu_topology(topology).compile(program(s));
    // XLA counts what the kernel said.
    double flops = tpu::attention_cost(s, tpu::choose_tiles(s)).flops;
    EXPECT_GE(program_->cost_analysis().at("flops"), flops * (1 - 1e-6));
  } catch (const Error& e) {
    ADD_FAILURE() << e.what();
  }
}

TEST(TpuCompiler, Sample) {
  TESSERA_NEEDS_LIBTPU();
  compile(shape(4608, 4608, 24, 128), "v6e:1x1");
  compile(shape(4429, 4429, 24, 64), "tpu7x:1x1x1");
  AttentionShape s = shape(512, 512, 64, 64);  // T5-XXL
  s.bias = Shape{1, 64, 512, 512};
  compile(s, "v6e:1x1");
  s = shape(512, 512, 32, 128);  // Mistral 3
  s.key_heads = 8;
  s.causal = true;
  s.bias = Shape{1, 1, 1, 512};
  compile(s, "v5e:2x2");
  for (std::int64_t d : {72, 80, 96}) compile(shape(333, 333, 3, d), "tpu7x:1x1x1");
}

// Every attention of the published models at 512, 1024 and 2048 pixels.
std::vector<AttentionShape> published() {
  std::vector<AttentionShape> out;
  for (std::int64_t side : {512, 1024, 2048}) {
    std::int64_t image = side / 16 * (side / 16);
    for (std::int64_t text : {256, 512}) out.push_back(shape(text + image, text + image, 24, 128));  // FLUX.1
    for (std::int64_t heads :
         {24, 38}) {  // Stable Diffusion 3.5, with guidance; medium has one for the image only
      for (std::int64_t tokens : {image, image + 333, image + 589}) {
        out.push_back(shape(tokens, tokens, heads, 64));
        out.back().batch = 2;
      }
    }
    for (std::int64_t heads : {48, 32, 24, 6}) {  // FLUX.2, whole and shared by 8 chips
      out.push_back(shape(512 + image, 512 + image, heads, 128));
    }
    out.push_back(shape(side / 8 * (side / 8), side / 8 * (side / 8), 1, 512));  // the decoder's middle
  }
  for (std::int64_t length : {128, 256, 512}) {  // T5-XXL
    out.push_back(shape(length, length, 64, 64));
    out.back().bias = Shape{1, 64, length, length};
  }
  for (std::int64_t heads : {12, 20}) {  // CLIP-L and CLIP-G
    out.push_back(shape(77, 77, heads, 64));
    out.back().causal = true;
  }
  for (std::int64_t heads : {32, 16}) {  // Mistral 3 and Qwen3, whose prompts are padded
    out.push_back(shape(512, 512, heads, 128));
    out.back().key_heads = 8;
    out.back().causal = true;
    out.push_back(out.back());
    out.back().bias = Shape{1, 1, 1, 512};
    out.push_back(out.back());
    out.back().bias = Shape{1, 1, 512, 512};
  }
  return out;
}

TEST(SlowTpuCompiler, EveryPublishedShape) {
  TESSERA_NEEDS_LIBTPU();
  for (const char* topology : kTopologies) {
    for (const AttentionShape& s : published()) compile(s, topology);
  }
}

TEST(SlowTpuCompiler, EveryHeadSizeWithEveryBias) {
  TESSERA_NEEDS_LIBTPU();
  for (const char* topology : kTopologies) {
    for (std::int64_t d : {64, 72, 80, 96, 128, 256, 512}) {
      for (std::int64_t rows : {0, 1, 333}) {
        AttentionShape s = shape(333, 600, 4, d);
        s.causal = rows == 0;
        if (rows > 0) s.bias = Shape{1, 1, rows, 600};
        compile(s, topology);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::testing
