#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/cli/child_processes.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/shared.h"
#include "tessera/comm/process_group.h"
#include "tessera/pjrt/registry.h"
#include "tessera/runtime/context.h"

namespace tessera::cli {
namespace {

constexpr int kMaxProcesses = 256;

constexpr const char* kExamples =
    "examples:\n"
    "  tessera launch -- generate black-forest-labs/FLUX.2-dev -p \"a lighthouse\" -o out.png\n"
    "  tessera launch --nproc 2 --device cpu -- generate -p \"a red apple\" --seed 7 -o apple.png\n"
    "  tessera launch --nproc 8 -- ./my_program\n";

struct LaunchRequest {
  std::optional<int> processes;
  std::string device;
  std::vector<std::string> command;  // generate and its options, or a program
  bool is_generate() const { return command[0] == "generate"; }
};

// The last value of an option among those of another command, "--seed 7" or "--seed=7".
std::optional<std::string> value_in(const std::vector<std::string>& arguments, const std::string& option) {
  std::optional<std::string> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == option) out = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (arguments[i].starts_with(option + "=")) out = arguments[i].substr(option.size() + 1);
  }
  return out;
}

// cpu or tpu: as this command or generate is told, else what the machine has.
std::string device_for(const std::optional<std::string>& mine,
                       const std::optional<std::string>& of_generate) {
  if (mine && of_generate && *mine != *of_generate) {
    throw UsageError(fmt::format("--device {} for launch, and {} for generate", *mine, *of_generate));
  }
  std::string device = mine ? *mine : of_generate ? *of_generate : "";
  if (device.empty()) return pjrt::PluginRegistry().promising("tpu") ? "tpu" : "cpu";
  if (device != "cpu" && device != "tpu") {
    throw UsageError(fmt::format("--device {}: processes that share a model have a device of cpu or tpu each",
                                 quote(device)));
  }
  return device;
}

std::optional<LaunchRequest> parse(const std::vector<std::string>& arguments) {
  auto dashes = std::ranges::find(arguments, "--");
  CommandLine line(
      "tessera launch",
      "Runs generate, or a program of yours, in several processes with a device each, which share one "
      "model: tessera launch [options] -- generate ...",
      kExamples);
  line.option("--nproc", "N", "processes to start (default: the TPU chips of this machine)");
  line.option("--device", "NAME", "cpu or tpu (default: tpu if there is one, else cpu)");
  if (!line.parse({arguments.begin(), dashes})) return std::nullopt;
  LaunchRequest request;
  if (dashes != arguments.end()) request.command.assign(dashes + 1, arguments.end());
  if (request.command.empty())
    throw UsageError("what to run is missing: write it after --, as in -- generate ...");
  const std::string& name = request.command[0];
  if (!request.is_generate() && name.find('/') == std::string::npos) {
    throw UsageError(fmt::format(
        "{} cannot be launched: write generate, or a program with its path as in ./{}", quote(name), name));
  }
  request.processes = line.small_integer("nproc", 1, kMaxProcesses);
  request.device = device_for(line.text("device"),
                              request.is_generate() ? value_in(request.command, "--device") : std::nullopt);
  return request;
}

// All chips of the machine, or as many as are wanted of them.
int count_of(const LaunchRequest& request) {
  int chips = request.device == "tpu" ? pjrt::tpu_chips() : 0;
  if (!request.processes && request.device == "cpu")
    throw UsageError("--nproc is missing: a CPU has no chips to count");
  if (!request.processes && chips == 0) {
    throw UsageError(
        "--nproc is missing, and this machine shows no TPU chips (/dev/accel*, /dev/vfio/*) to count");
  }
  if (request.processes && chips > 0 && *request.processes > chips) {
    throw UsageError(fmt::format("--nproc {}: this machine has {} TPU chip(s)", *request.processes, chips));
  }
  return request.processes.value_or(chips);
}

// This program, or the one that was named.
std::vector<std::string> command_of(const LaunchRequest& request) {
  std::vector<std::string> command = request.command;
  if (!request.is_generate()) return command;
  command.insert(command.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  if (!value_in(command, "--device")) command.push_back("--device=" + request.device);
  if (!value_in(command, "--seed") && !value_in(command, "--help") && !value_in(command, "-h")) {
    std::uint32_t seed = std::random_device()();
    console::note(fmt::format("seed: {}", seed));
    command.push_back(fmt::format("--seed={}", seed));
  }
  return command;
}

// On a CPU they meet through MPI, which wants them started by its own program.
std::vector<ChildProcess> by_mpirun(int count, const std::vector<std::string>& command) {
  if (!comm::has_mpi()) {
    fail(ErrorCode::kUnimplemented,
         "this build has no MPI, through which processes meet on a CPU; install Open MPI (Debian: "
         "libopenmpi-dev "
         "openmpi-bin) and build again");
  }
  // Ranks may outnumber cores; waiting ranks leave the core to others; one container may hold them all.
  std::vector<std::string> line{"mpirun",
                                "-q",
                                "-np",
                                std::to_string(count),
                                "--oversubscribe",
                                "--bind-to",
                                "none",
                                "--mca",
                                "mpi_yield_when_idle",
                                "1",
                                "--mca",
                                "btl_vader_single_copy_mechanism",
                                "none"};
  if (geteuid() == 0) line.emplace_back("--allow-run-as-root");
  line.insert(line.end(), command.begin(), command.end());
  return {{std::move(line), {}}};
}

// Each told its place.
std::vector<ChildProcess> by_ourselves(int count, const std::vector<std::string>& command) {
  std::vector<ChildProcess> out;
  for (int rank = 0; rank < count; ++rank) {
    comm::LaunchEnvironment place{.rank = rank, .local_rank = rank, .world_size = count, .local_size = count};
    comm::Variables variables = comm::tpu_variables(place);
    variables.merge(comm::rank_variables(place));
    out.push_back({command, std::move(variables)});
  }
  return out;
}

}  // namespace

int run_launch(const std::vector<std::string>& arguments) {
  std::optional<LaunchRequest> request = parse(arguments);
  if (!request) return 0;
  if (auto place = comm::launch_environment()) {
    throw UsageError(
        fmt::format("this is rank {} of {} already: launch is what starts the processes, not one of them",
                    place->rank, place->world_size));
  }
  int count = count_of(*request);
  std::vector<std::string> command = command_of(*request);
  std::vector<ChildProcess> children =
      request->device == "cpu" ? by_mpirun(count, command) : by_ourselves(count, command);
  Ending ending = run_together(children);
  // A rank that fails says why itself; one that is killed cannot.
  if (ending.status > 128 && ending.asked == 0) {
    int signal = ending.status - 128;
    fail(ErrorCode::kUnavailable, "a rank was ended by signal {} ({}), and with it the others", signal,
         strsignal(signal));
  }
  return ending.asked != 0 ? 128 + ending.asked : ending.status;
}

}  // namespace tessera::cli
