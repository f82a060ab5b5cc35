#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/base/env.h"
#include "tessera/checkpoint/align.h"
#include "tessera/cli/command_line.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/console.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/shared.h"

namespace tessera::cli {

int run_align(const std::vector<std::string>& arguments) {
  CommandLine line(
      "tessera align",
      "Copies a checkpoint so that every tensor begins at a multiple of 64 bytes. A CPU then uses "
      "the weights from the mapped files, in the dtype that they are stored in, instead of copying "
      "them to memory. Other programs can read the copy as well.",
      "example:\n  tessera align models/demo demo-aligned\n");
  line.positional("IN", "Diffusers folder, another folder with safetensors files, or Hub id");
  line.positional("OUT", "the folder to be made");
  line.flag("--json", "print one JSON object");
  if (!line.parse(arguments)) return 0;
  std::optional<std::string> in = line.text("IN"), out = line.text("OUT");
  if (!in || !out) throw UsageError(fmt::format("{} is missing", in ? "OUT" : "IN"));

  std::error_code ignored;
  std::filesystem::path folder = *in;
  if (!std::filesystem::is_directory(folder, ignored)) folder = open_model(in).path();
  catch_interrupts();
  checkpoint::Aligned done = checkpoint::align_checkpoint(folder, *out, [](std::int64_t bytes) {
    check_interrupt();
    console::progress(format_bytes(bytes));
  });
  console::clear_progress();
  if (line.given("json")) {
    print_json({{"folder", *out},
                {"files", done.files},
                {"tensors", done.tensors},
                {"bytes", done.bytes},
                {"padding_bytes", done.padding_bytes},
                {"other_files", done.other_files}});
  } else {
    print(fmt::format("{}: {} tensors in {} safetensors file(s), {} ({} of padding), and {} other file(s)\n",
                      *out, with_commas(done.tensors), done.files, format_bytes(done.bytes),
                      format_bytes(done.padding_bytes), done.other_files));
  }
  return 0;
}

}  // namespace tessera::cli
