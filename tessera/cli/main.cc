#include <fmt/core.h>
#include <malloc.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/shared.h"
#include "tessera/comm/process_group.h"

namespace tessera::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>&);
};

constexpr std::array<Command, 9> kCommands{{
    {"generate", "draw pictures from a prompt", run_generate},
    {"launch", "run generate in several processes, a chip each", run_launch},
    {"info", "say what a checkpoint holds", run_info},
    {"tokenize", "show the tokens that a prompt becomes", run_tokenize},
    {"devices", "list the devices and their plugins", run_devices},
    {"bench", "time one component of a checkpoint", run_bench},
    {"align", "copy a checkpoint so that a CPU can use it from its files", run_align},
    {"cache", "list or clear the compiled programs on disk", run_cache},
    {"plan", "say what fits into a TPU, and how fast it can be", run_plan},
}};

std::string help() {
  std::string text = "tessera " TESSERA_VERSION
                     ": text-to-image checkpoints in the Diffusers layout, on anything that speaks PJRT\n\n"
                     "usage: tessera COMMAND [options]\n\n";
  for (const Command& command : kCommands) text += fmt::format("  {:<10}{}\n", command.name, command.summary);
  return text +
         "\nexamples:\n"
         "  tessera generate -p \"a red apple\" -o apple.png\n"
         "  tessera generate black-forest-labs/FLUX.1-schnell -p \"a lighthouse\" --steps 4 --seed 7 -o "
         "out.png\n"
         "  tessera info models/demo\n"
         "\n'tessera COMMAND --help' explains a command; 'tessera --version' says the version.\n";
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UsageError("a command is missing");
  const std::string& name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    print(help());
    return 0;
  }
  if (name == "--version" || name == "-V") {
    print("tessera " TESSERA_VERSION "\n");
    return 0;
  }
  std::string names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  }
  throw UsageError(fmt::format("{} is no command of this version; the commands are {}", quote(name), names));
}

// What is freed goes back to the system. By itself glibc's malloc comes to serve blocks of up to 32 MiB,
// which is most of a model's activations, from heaps that it seldom gives back: hundreds of megabytes at full
// width.
void return_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

// Of several processes the others are silent while this one speaks.
void know_own_rank() {
  try {
    if (auto place = comm::launch_environment()) console::speak_as_rank(place->rank);
  } catch (const Error&) {
    // The command that cares will say it.
  }
}

// Says what is wrong. What is wrong in one process is mostly wrong in all: the first one says so and ends the
// others, which wait for that a while.
void complain(const std::string& message) {
  constexpr std::chrono::milliseconds kPatience{2000}, kLook{50};
  for (auto waited = kLook; !console::speaks_first() && waited < kPatience; waited += kLook) {
    if (interrupt_asked()) return;
    std::this_thread::sleep_for(kLook);
  }
  console::error(message);
}

// Runs the command line and turns what it throws into one line and an exit status.
int run_guarded(const std::vector<std::string>& arguments) {
  try {
    return run(arguments);
  } catch (const UsageError& e) {
    bool of_command = false;
    for (const Command& command : kCommands) of_command |= !arguments.empty() && arguments[0] == command.name;
    complain(fmt::format("{} (see 'tessera {}--help')", e.what(), of_command ? arguments[0] + " " : ""));
    return 2;
  } catch (const Interrupted&) {
    if (console::speaks_first()) console::error("interrupted; nothing was written");
    return interrupt_status();
  } catch (const std::bad_alloc&) {
    complain("there is not enough memory");
  } catch (const std::exception& e) {
    complain(e.what());
  }
  return 1;
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of writing
  try {
    tessera::cli::return_freed_memory();
    tessera::cli::console::connect_library_log();
    tessera::cli::know_own_rank();
    int status = tessera::cli::run_guarded({argv + 1, argv + argc});
    const tessera::comm::ProcessGroup* group = tessera::comm::ProcessGroup::joined();
    if (group != nullptr && status != 0) group->leave(status);
    return status;
  } catch (...) {
    std::fputs("error: the program failed and could not say why\n", stderr);
    return 1;
  }
}
