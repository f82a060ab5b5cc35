#pragma once

#include <optional>
#include <string_view>

#include "tessera/pipelines/text_to_image.h"

// Which of the arguments each pipeline has. Known without its weights.
namespace tessera::pipelines {

// The first argument of the call, by its Diffusers name, that pipelines of this class do not have; nothing if
// there is none, or for a class that is not supported.
std::optional<std::string_view> lacking_argument(std::string_view pipeline_class, const Arguments& arguments);

// Throws kInvalidArgument that names the pipeline and that argument.
void refuse_lacking_arguments(std::string_view pipeline_class, const Arguments& arguments);

}  // namespace tessera::pipelines
