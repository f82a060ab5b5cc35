#pragma once

#include <string>
#include <vector>

// The subcommands. Each takes the arguments after its name and returns the exit status, or throws: UsageError
// for a command line that cannot be obeyed, Interrupted after Ctrl-C, anything else for what went wrong.
namespace tessera::cli {

int run_generate(const std::vector<std::string>& arguments);
int run_launch(const std::vector<std::string>& arguments);
int run_info(const std::vector<std::string>& arguments);
int run_tokenize(const std::vector<std::string>& arguments);
int run_plan(const std::vector<std::string>& arguments);
int run_devices(const std::vector<std::string>& arguments);
int run_bench(const std::vector<std::string>& arguments);
int run_align(const std::vector<std::string>& arguments);
int run_cache(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
