#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tessera/pipelines/text_to_image.h"
#include "tests/testing/golden.h"
#include "tests/testing/pipeline_parity.h"

// A call that any compact pipeline answers soon, and its trace beside another's: for what must not change the
// numbers.
namespace tessera::testing {

inline std::filesystem::path compact(const std::string& model) { return compact_data() / "models" / model; }

inline pipelines::Arguments small_call() {
  return {.prompt = {"a red fox"},
          .height = 64,
          .width = 64,
          .num_inference_steps = 2,
          .max_sequence_length = 64,
          .seeds = {3}};
}

inline pipelines::Trace traced(const pipelines::TextToImage& pipeline, pipelines::Result* result = nullptr) {
  pipelines::Trace trace;
  pipelines::Hooks hooks;
  hooks.trace = &trace;
  pipelines::Result mine = pipeline.generate(small_call(), hooks);
  if (result != nullptr) *result = std::move(mine);
  return trace;
}

// Every tensor within 1e-4 of its own maximum.
inline void expect_same(const pipelines::Trace& mine, const pipelines::Trace& other,
                        const std::string& what) {
  ASSERT_EQ(mine.entries().size(), other.entries().size());
  for (const auto& [key, entry] : other.entries()) {
    if (entry.dtype != DType::kF32) continue;
    EXPECT_LE(relative_to_max(values(mine.entries().at(key)), values(entry)), 1e-4) << what << " " << key;
  }
}

}  // namespace tessera::testing
