#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/cli/common.h"

namespace {

constexpr int kFailed = 1, kWrongUsage = 2;

int report(const std::string& message, int status) {
  std::string line = message;
  std::ranges::replace(line, '\n', ' ');
  std::fputs(fmt::format("error: {}\n", line).c_str(), stderr);
  return status;
}

int run(int argc, char** argv) {
  CLI::App app{"Text-to-image checkpoints in the Diffusers folder layout, on CPU, TPU and GPU.", "tessera"};
  app.set_version_flag("--version", std::string("tessera ") + TESSERA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tessera generate -p \"a red apple\" -o apple.png\n"
      "  tessera generate black-forest-labs/FLUX.1-schnell -p \"a fox\" --steps 4 --guidance-scale 0 --dtype "
      "bf16\n"
      "  tessera info models/demo");
  tessera::cli::add_generate(app);
  tessera::cli::add_info(app);
  tessera::cli::add_tokenize(app);
  tessera::cli::add_devices(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help and --version
  } catch (const CLI::ParseError& e) {
    return report(fmt::format("{} (see tessera --help)", e.what()), kWrongUsage);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int status = kFailed;
  try {
    tessera::cli::install_log();
    status = run(argc, argv);
  } catch (const tessera::cli::UsageError& e) {
    status = report(e.what(), kWrongUsage);
  } catch (const std::exception& e) {
    status = report(e.what(), kFailed);
  }
  tessera::set_log_callback({});
  return status;
}
