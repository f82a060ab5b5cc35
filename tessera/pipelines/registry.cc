#include <fmt/ranges.h>

#include <map>
#include <ranges>
#include <string>

#include "tessera/base/error.h"
#include "tessera/pipelines/flux2_pipeline.h"
#include "tessera/pipelines/flux_pipeline.h"
#include "tessera/pipelines/stable_diffusion_3_pipeline.h"
#include "tessera/pipelines/text_to_image.h"

namespace tessera::pipelines {
namespace {

template <typename Pipeline>
std::unique_ptr<TextToImage> load(const checkpoint::ModelFolder& folder, Context& context,
                                  const LoadOptions& options, const Hooks& hooks) {
  return Pipeline::from_pretrained(folder, context, options, hooks);
}

}  // namespace

std::unique_ptr<TextToImage> load_pipeline(const checkpoint::ModelFolder& folder, Context& context,
                                           const LoadOptions& options, const Hooks& hooks) {
  using Load = std::unique_ptr<TextToImage> (*)(const checkpoint::ModelFolder&, Context&, const LoadOptions&,
                                                const Hooks&);
  static const std::map<std::string, Load> known{
      {"FluxPipeline", load<FluxPipeline>},
      {"Flux2Pipeline", load<Flux2Pipeline>},
      {"Flux2KleinPipeline", load<Flux2KleinPipeline>},
      {"StableDiffusion3Pipeline", load<StableDiffusion3Pipeline>}};
  auto it = known.find(folder.pipeline_class());
  if (it != known.end()) return it->second(folder, context, options, hooks);
  fail(ErrorCode::kUnimplemented, "{}: the pipeline class {} is not supported; supported: {}",
       folder.path().string(), folder.pipeline_class(), fmt::join(std::views::keys(known), ", "));
}

}  // namespace tessera::pipelines
