#include "tessera/plan/plan.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tessera/base/env.h"
#include "tessera/base/error.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/shared.h"
#include "tessera/plan/save.h"

namespace tessera::cli {
namespace {

plan::Request request_of(const CommandLine& line) {
  plan::Request r;
  r.height = line.integer("height", 16, 8192).value_or(r.height);
  r.width = line.integer("width", 16, 8192).value_or(r.width);
  if (r.height % 16 != 0 || r.width % 16 != 0) throw UsageError("--height and --width are multiples of 16");
  r.batch = line.integer("batch", 1, 64).value_or(r.batch);
  r.steps = line.integer("steps", 1, 1000);
  r.max_sequence_length = line.integer("max-sequence-length", 1, 512);
  if (line.choice("dtype", {"bf16", "f32"}).value_or("bf16") == "f32") r.dtype = DType::kF32;
  r.exact = line.given("exact");
  r.tensor_parallel = line.small_integer("tensor-parallel", 1, plan::Plan::kMostRanks).value_or(1);
  r.replicate = line.values("replicate");
  if (!r.replicate.empty() && !line.given("tensor-parallel"))
    throw UsageError("--replicate needs --tensor-parallel");
  return r;
}

// Of a built-in model, or a folder.
plan::ModelFacts facts_of(const std::optional<std::string>& model, const std::string& built_in) {
  if (model) {
    if (auto facts = plan::published(*model)) return *facts;
  }
  checkpoint::ModelFolder folder = [&] {
    try {
      return open_model(model);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{}; built in are {}", e.what(), built_in));
    }
  }();
  return plan::facts_of(folder);
}

// The mode in which a machine looks for those programs.
const char* saved_for(const plan::Request& request) { return request.exact ? "compile" : "fused"; }

std::string about_saved(const plan::SavedPrograms& saved, const std::string& folder,
                        const plan::Request& request) {
  return fmt::format(
      "\n{} programs ({}) are in {}, for --mode {} with TESSERA_CACHE_DIR={} on one host of that topology "
      "with "
      "the same libtpu; that they load there is unverified without a chip\n",
      saved.count, format_bytes(saved.bytes), folder, saved_for(request), folder);
}

}  // namespace

int run_plan(const std::vector<std::string>& arguments) {
  CommandLine line(
      "tessera plan",
      "Says what of a model fits into a TPU and how fast it can be at best, from libtpu's compiler; "
      "needs no TPU and no weights.",
      "examples:\n  tessera plan flux.1-schnell --topology v6e:1x1\n"
      "  tessera plan models/demo --topology v6e-8 --height 96 --width 96\n");
  std::string names;
  for (const std::string& name : plan::published_names()) names += (names.empty() ? "" : ", ") + name;
  line.positional("MODEL", "a folder or Hub id (config files are enough), or one of " + names);
  line.option("--topology", "NAME", "as in v6e:1x1, v6e-8, tpu7x:2x2x1 (default: v6e:1x1)");
  line.option("--height", "PIXELS", "default: 1024");
  line.option("--width", "PIXELS", "default: 1024");
  line.option("--batch", "N", "pictures at a time (default: 1)");
  line.option("--steps", "N", "default: the model's");
  line.option("--max-sequence-length", "N", "tokens of the long text encoder");
  line.option("--dtype", "TYPE", "bf16 or f32 (default: bf16)");
  line.option("--tensor-parallel", "N", "split over the first N devices of the topology (default: 1)");
  line.option("--replicate", "COMPONENT", "what every device is to keep whole, as in text_encoder_2", true);
  line.flag("--exact", "compile whole components instead of one block of each kind");
  line.option("--save", "DIR",
              "keep the compiled programs in a folder that a TPU machine with this libtpu takes as its "
              "TESSERA_CACHE_DIR (loading them there is unverified without a chip)");
  line.flag("--json", "print one JSON object");
  if (!line.parse(arguments)) return 0;

  std::optional<std::string> model = line.text("MODEL");
  plan::Request request = request_of(line);
  plan::ModelFacts facts = facts_of(model, names);
  std::optional<std::string> folder = line.text("save");
  request.as_run = folder.has_value();
  if (folder) plan::check_writable(*folder);
  std::optional<plan::SavedPrograms> saved;
  auto save = [&](const std::vector<plan::KeyedProgram>& programs) {
    catch_interrupts();  // what is begun is finished
    saved = plan::save(programs, *folder);
    end_on_interrupts();
  };
  end_on_interrupts();
  plan::PlanHooks hooks{.progress = console::progress, .programs = {}};
  if (folder) hooks.programs = save;
  plan::Plan result = plan::make_plan(facts, request, line.text("topology").value_or("v6e:1x1"), hooks);
  console::clear_progress();
  if (line.given("json")) {
    nlohmann::ordered_json out = plan::to_json(result);
    if (saved) {
      out["saved"] = {{"folder", *folder},
                      {"programs", saved->count},
                      {"bytes", saved->bytes},
                      {"for_mode", saved_for(request)}};
    }
    print_json(out);
  } else {
    print(plan::to_table(result));
    if (saved) print(about_saved(*saved, *folder, request));
  }
  return 0;
}

}  // namespace tessera::cli
