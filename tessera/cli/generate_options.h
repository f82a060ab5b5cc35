#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/cli/run_options.h"
#include "tessera/comm/launch_environment.h"
#include "tessera/pipelines/text_to_image.h"

namespace tessera::cli {

// What `tessera generate` was asked for.
struct GenerateRequest : RunOptions {
  std::optional<std::string> model;
  pipelines::Arguments arguments;
  pipelines::Offload offload = pipelines::Offload::kNone;
  std::optional<int> tensor_parallel;  // ranks to split the models over
  std::vector<std::string> replicate;  // components that every rank keeps whole
  bool vae_on_one_device = false;
  // The place of this process among several that share the model; not given if it works alone.
  std::optional<comm::LaunchEnvironment> place;
  bool seed_drawn = false;                    // no --seed: one was drawn
  std::vector<std::filesystem::path> files;   // a picture each
  std::optional<std::filesystem::path> dump;  // folder for the trace
  bool json = false;

  std::size_t images() const { return files.size(); }
  // Of several processes the first one writes and reports.
  bool writes() const { return !place || place->rank == 0; }
};

// Nothing if help was asked for and printed. Throws UsageError for whatever can be known to be wrong without
// looking at the checkpoint.
std::optional<GenerateRequest> parse_generate(const std::vector<std::string>& arguments);

// The option for an argument of a pipeline: "prompt_3" -> "--prompt-3".
std::string option_for(std::string_view argument);
// A pipeline's message about an argument, which begins with its name, as a message about the option.
std::string about_option(std::string_view message);

}  // namespace tessera::cli
