#include "tessera/base/error.h"
#include "tessera/pipelines/flux_pipeline.h"
#include "tessera/pipelines/stable_diffusion_3_pipeline.h"
#include "tessera/pipelines/text_to_image.h"

namespace tessera::pipelines {

std::unique_ptr<TextToImage> load_pipeline(const checkpoint::ModelFolder& folder, Context& context,
                                           const LoadOptions& options, const Hooks& hooks) {
  if (folder.pipeline_class() == "FluxPipeline") {
    return FluxPipeline::from_pretrained(folder, context, options, hooks);
  }
  if (folder.pipeline_class() == "StableDiffusion3Pipeline") {
    return StableDiffusion3Pipeline::from_pretrained(folder, context, options, hooks);
  }
  fail(ErrorCode::kUnimplemented,
       "{}: the pipeline class {} is not supported; supported: FluxPipeline, "
       "StableDiffusion3Pipeline",
       folder.path().string(), folder.pipeline_class());
}

}  // namespace tessera::pipelines
