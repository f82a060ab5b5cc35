#pragma once

#include "tessera/pipelines/text_to_image.h"

namespace tessera::testing {

// The ways of running a pipeline: execution modes, and what is compiled.
enum class Way { kEager, kBlocking, kFused, kCompile, kCompileBlocks };
inline constexpr Way kWays[] = {Way::kEager, Way::kBlocking, Way::kFused, Way::kCompile, Way::kCompileBlocks};

inline const char* name(Way way) {
  constexpr const char* kNames[] = {"eager", "eager-blocking", "fused", "compile", "compile-blocks"};
  return kNames[static_cast<int>(way)];
}

inline Context::Options options(Way way) {
  Context::Options out;
  out.mode = way == Way::kFused      ? ExecutionMode::kFused
             : way == Way::kBlocking ? ExecutionMode::kEagerBlocking
                                     : ExecutionMode::kEager;
  return out;
}

// The pipeline of the checkpoint, where the options put it, with what the way compiles.
inline std::unique_ptr<pipelines::TextToImage> load(const std::filesystem::path& model, Context& context,
                                                    Way way, const pipelines::LoadOptions& load_options) {
  auto pipeline =
      pipelines::load_pipeline(checkpoint::ModelFolder::open(model.string()), context, load_options);
  if (way == Way::kCompile) {
    for (pipelines::Component* component : pipeline->components())
      component->module->compile({.fullgraph = true});
  } else if (way == Way::kCompileBlocks) {
    pipeline->module("transformer").compile_repeated_blocks({.fullgraph = true});
  }
  return pipeline;
}
inline std::unique_ptr<pipelines::TextToImage> load(const std::filesystem::path& model, Context& context,
                                                    Way way, DType dtype = DType::kF32) {
  return load(model, context, way, pipelines::LoadOptions{.dtype = dtype});
}

}  // namespace tessera::testing
