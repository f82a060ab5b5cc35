// usage: parity_test PROGRAM MODEL CASE.json f32|bf16
// Runs `PROGRAM generate MODEL` with the call that CASE.json records from Diffusers, and compares the tensors
// that it dumps with those recorded in CASE.safetensors beside it. In f32 every tensor must agree (limits
// below); in bf16 the final latents may be as far from the f32 reference as Diffusers' own bf16 run is, and
// half as far again.
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/checkpoint/host_block.h"
#include "tessera/checkpoint/safetensors.h"
#include "tests/testing/model_copy.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tessera::DType;
using tessera::checkpoint::SafetensorsFile;
using tessera::checkpoint::TensorView;

constexpr double kNoiseLimit = 1e-6;     // absolute
constexpr double kScheduleLimit = 1e-6;  // of each value
constexpr double kTensorLimit = 1e-4;    // of the tensor's largest value
constexpr double kEqualBytes = 0.99;     // of the picture's
constexpr double kBf16Factor = 1.5, kBf16Slack = 0.002;

int run(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  int error = posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error != 0)
    throw std::runtime_error(fmt::format("{} cannot be started: {}", arguments[0], std::strerror(error)));
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) throw std::runtime_error("waitpid failed");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string number(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// The command-line options for an argument of the recorded call.
void add_option(std::vector<std::string>& out, const std::string& name, const json& value) {
  static const std::vector<std::pair<std::string, std::string>> kNames{
      {"prompt", "--prompt"},
      {"prompt_2", "--prompt-2"},
      {"negative_prompt", "--negative-prompt"},
      {"negative_prompt_2", "--negative-prompt-2"},
      {"prompt_3", "--prompt-3"},
      {"negative_prompt_3", "--negative-prompt-3"},
      {"height", "--height"},
      {"width", "--width"},
      {"num_inference_steps", "--steps"},
      {"sigmas", "--sigmas"},
      {"guidance_scale", "--guidance-scale"},
      {"true_cfg_scale", "--true-cfg-scale"},
      {"num_images_per_prompt", "--images-per-prompt"},
      {"max_sequence_length", "--max-sequence-length"},
      {"clip_skip", "--clip-skip"},
      {"text_encoder_out_layers", "--text-encoder-out-layers"},
      {"skip_guidance_layers", "--skip-guidance-layers"},
      {"skip_layer_guidance_scale", "--skip-layer-guidance-scale"},
      {"skip_layer_guidance_start", "--skip-layer-guidance-start"},
      {"skip_layer_guidance_stop", "--skip-layer-guidance-stop"},
      {"seed", "--seed"},
  };
  std::string option;
  for (const auto& [argument, of_program] : kNames) {
    if (argument == name) option = of_program;
  }
  if (option.empty())
    throw std::runtime_error(fmt::format("the case has an argument {} that is not known here", name));
  if (value.is_array() &&
      (name == "sigmas" || name == "skip_guidance_layers" || name == "text_encoder_out_layers")) {
    std::string list;
    for (const json& v : value) list += (list.empty() ? "" : ",") + number(v);
    out.push_back(option + "=" + list);
  } else if (value.is_array()) {
    for (const json& v : value) out.push_back(option + "=" + number(v));
  } else {
    out.push_back(option + "=" + number(value));
  }
}

std::vector<float> floats(const TensorView& tensor) {
  tessera::checkpoint::HostBlock block = tessera::checkpoint::read_tensor(tensor, DType::kF32);
  std::span<const float> values = block.as<float>();
  return {values.begin(), values.end()};
}

std::size_t count_unequal_bytes(const TensorView& a, const TensorView& b) {
  std::size_t n = a.data.size() == b.data.size() ? 0 : a.data.size();
  for (std::size_t i = 0; n == 0 && i < a.data.size(); ++i) n += a.data[i] != b.data[i] ? 1 : 0;
  return n;
}

class Comparison {
 public:
  int failures = 0;
  double largest_ratio = 0;  // of a tensor's distance to its limit
  std::string largest_name;

  void fail(const std::string& what) {
    fmt::print("  FAILED {}\n", what);
    ++failures;
  }

  void compare(const std::string& name, const TensorView& wanted, const TensorView* found) {
    if (found == nullptr) return fail(name + ": is not dumped");
    if (found->shape != wanted.shape || found->dtype != wanted.dtype) {
      return fail(fmt::format("{}: {} {}, wanted {} {}", name, dtype_name(found->dtype),
                              to_string(found->shape), dtype_name(wanted.dtype), to_string(wanted.shape)));
    }
    if (wanted.dtype == DType::kU8) return compare_picture(name, wanted, *found);
    if (!dtype_is_float(wanted.dtype)) {
      if (count_unequal_bytes(wanted, *found) != 0) fail(name + ": ids differ");
      return;
    }
    compare_floats(name, floats(wanted), floats(*found));
  }

 private:
  void compare_floats(const std::string& name, const std::vector<float>& wanted,
                      const std::vector<float>& found) {
    double largest = 0;
    for (float w : wanted) largest = std::max(largest, std::abs(static_cast<double>(w)));
    bool schedule = name == "timesteps" || name == "sigmas";
    double ratio = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      double limit = name == "noise" ? kNoiseLimit
                     : schedule      ? kScheduleLimit * std::abs(static_cast<double>(wanted[i]))
                                     : kTensorLimit * largest;
      double distance = std::abs(static_cast<double>(wanted[i]) - static_cast<double>(found[i]));
      double r = distance == 0 ? 0 : distance / limit;
      if (!(r <= 1))
        return fail(fmt::format("{}[{}]: {}, wanted {} (limit {})", name, i, found[i], wanted[i], limit));
      ratio = std::max(ratio, r);
    }
    note(name, ratio);
  }

  void compare_picture(const std::string& name, const TensorView& wanted, const TensorView& found) {
    std::size_t equal = 0;
    int largest = 0;
    for (std::size_t i = 0; i < wanted.data.size(); ++i) {
      int distance = std::abs(static_cast<int>(wanted.data[i]) - static_cast<int>(found.data[i]));
      largest = std::max(largest, distance);
      equal += distance == 0 ? 1 : 0;
    }
    double part = static_cast<double>(equal) / static_cast<double>(wanted.data.size());
    if (largest > 1 || part < kEqualBytes) {
      fail(fmt::format("{}: off by up to {}, {:.2f} % equal", name, largest, 100 * part));
    }
  }

  void note(const std::string& name, double ratio) {
    if (ratio < largest_ratio) return;
    largest_ratio = ratio;
    largest_name = name;
  }
};

bool is_compared(const std::string& name) {
  return !name.starts_with("block.") && !name.starts_with("bf16.");
}

bool compare_f32(const json& recorded, const SafetensorsFile& golden, const SafetensorsFile& dump) {
  Comparison comparison;
  int tensors = 0;
  auto compare = [&](const std::string& name, const TensorView& wanted) {
    comparison.compare(name, wanted, dump.find(name));
    ++tensors;
  };
  for (const TensorView& wanted : golden.tensors()) {
    if (is_compared(wanted.name)) compare(wanted.name, wanted);
  }
  const json same = recorded.value("same_tensors", json::object());
  for (const auto& [name, other] : same.items()) {
    const TensorView* wanted = golden.find(other.get<std::string>());
    if (is_compared(name) && wanted != nullptr && golden.find(name) == nullptr) compare(name, *wanted);
  }
  fmt::print("  {} tensors; the largest distance is {:.3f} of its limit ({})\n", tensors,
             comparison.largest_ratio, comparison.largest_name);
  return comparison.failures == 0 && tensors > 0;
}

// The last of latents_step0, latents_step1, ...
std::string final_latents(const SafetensorsFile& file) {
  int step = 0;
  while (file.find(fmt::format("latents_step{}", step)) != nullptr) ++step;
  return fmt::format("latents_step{}", step - 1);
}

bool compare_bf16(const json& recorded, const SafetensorsFile& golden, const SafetensorsFile& dump) {
  std::string name = final_latents(golden);
  const TensorView* wanted = golden.find(name);
  const TensorView* found = dump.find(name);
  if (wanted == nullptr || found == nullptr || wanted->shape != found->shape) {
    fmt::print("  FAILED {}: is missing or has another shape\n", name);
    return false;
  }
  std::vector<float> w = floats(*wanted), f = floats(*found);
  double of_difference = 0, of_reference = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    of_difference += std::pow(static_cast<double>(w[i]) - static_cast<double>(f[i]), 2);
    of_reference += std::pow(static_cast<double>(w[i]), 2);
  }
  double distance = std::sqrt(of_difference / of_reference);
  double theirs = recorded.at("bf16").at("final_latents").at("relative_rms").get<double>();
  double limit = kBf16Factor * theirs + kBf16Slack;
  fmt::print("  {}: relative rms distance from f32 {:.5f} (Diffusers' own bf16: {:.5f}, limit {:.5f})\n",
             name, distance, theirs, limit);
  return distance <= limit;
}

bool test_case(const std::string& program, const std::string& model, const fs::path& file,
               const std::string& dtype, const fs::path& work) {
  json recorded = json::parse(std::ifstream(file));
  const json changes = recorded.value("override", json::object());
  std::string folder =
      changes.empty() ? model : tessera::testing::edited_model(model, changes, work / "model").string();
  std::vector<std::string> arguments{program,  "generate", folder, "--dtype",      dtype,
                                     "--dump", work,       "-o",   work / "%d.png"};
  add_option(arguments, "seed", recorded.at("seed"));
  for (const auto& [name, value] : recorded.at("call").items()) add_option(arguments, name, value);
  if (int status = run(arguments); status != 0) {
    fmt::print("  FAILED: the program ended with {}\n", status);
    return false;
  }
  SafetensorsFile golden(fs::path(file).replace_extension(".safetensors")), dump(work / "trace.safetensors");
  return dtype == "f32" ? compare_f32(recorded, golden, dump) : compare_bf16(recorded, golden, dump);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: parity_test PROGRAM MODEL CASE.json f32|bf16\n");
    return 2;
  }
  std::string work = (fs::temp_directory_path() / "tessera-parity-XXXXXX").string();
  if (mkdtemp(work.data()) == nullptr) return 2;
  bool good = false;
  try {
    fmt::print("{} in {}\n", argv[3], argv[4]);
    std::fflush(stdout);
    good = test_case(argv[1], argv[2], argv[3], argv[4], work);
  } catch (const std::exception& e) {
    fmt::print("  FAILED: {}\n", e.what());
  }
  std::error_code ignored;
  fs::remove_all(work, ignored);
  return good ? 0 : 1;
}
