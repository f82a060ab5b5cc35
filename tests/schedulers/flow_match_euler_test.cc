#include "tessera/schedulers/flow_match_euler.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tessera/base/error.h"

namespace tessera::schedulers {
namespace {

using nlohmann::json;

FlowMatchEulerConfig config_of(const json& j) {
  return FlowMatchEulerConfig::from_json(nn::Config(j, "scheduler"));
}

// Every recorded schedule. FLUX.1 and FLUX.2 pass sigmas from 1 to 1/n; SD3 passes none.
void check_goldens(const std::filesystem::path& file) {
  std::ifstream in(file);
  json goldens = json::parse(in);
  int checked = 0;
  for (const json& g : goldens) {
    std::string name = g["config"];
    bool flux = name.starts_with("flux");
    FlowMatchEulerConfig config = config_of(g["scheduler_config"]);
    int steps = g["num_inference_steps"];
    double mu = 0;
    if (flux) {
      auto tokens = g["image_seq_len"].get<std::int64_t>();
      mu = name == "flux2" ? empirical_mu(tokens, steps) : calculate_shift(config, tokens);
      if (g["mu"].is_number()) {
        EXPECT_NEAR(mu, g["mu"].get<double>(), 1e-12);
      }
    }
    std::optional<std::vector<double>> sigmas;
    if (flux) sigmas = linspace(1.0, 1.0 / steps, steps);
    Schedule s = flow_match_schedule(config, steps, sigmas, mu);
    ASSERT_EQ(s.sigmas.size(), g["sigmas"].size()) << name << " " << steps;
    for (std::size_t i = 0; i < s.sigmas.size(); ++i) {
      double r = g["sigmas"][i];
      EXPECT_NEAR(s.sigmas[i], r, 1e-6 * r) << name << " " << steps << " sigma " << i;
    }
    for (std::size_t i = 0; i < s.timesteps.size(); ++i) {
      double r = g["timesteps"][i];
      EXPECT_NEAR(s.timesteps[i], r, 1e-6 * r) << name << " " << steps << " timestep " << i;
    }
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

// The line in the steps ends at 4300 tokens, with a jump.
TEST(Scheduler, EmpiricalMu) {
  EXPECT_NEAR(empirical_mu(4096, 4), 2.291180, 1e-6);
  EXPECT_NEAR(empirical_mu(4096, 28), 2.151443, 1e-6);
  EXPECT_NEAR(empirical_mu(1024, 28), 1.859177, 1e-6);
  EXPECT_NEAR(empirical_mu(4300, 28), 2.170851, 1e-6);
  EXPECT_NEAR(empirical_mu(4301, 28), 1.184697, 1e-6);
  EXPECT_NEAR(empirical_mu(4301, 50), 1.184697, 1e-6);
}

TEST(Scheduler, RecordedSchedules) {
  check_goldens(std::filesystem::path(TESSERA_TEST_DATA) / "goldens/scheduler.json");
}
TEST(ReferenceScheduler, RecordedSchedules) {
  std::filesystem::path file = std::filesystem::path(TESSERA_REFERENCE_DATA) / "goldens/scheduler.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "the larger reference set is not beside the project";
  check_goldens(file);
}

TEST(Scheduler, AStaticShiftAppliesTwice) {
  Schedule s = flow_match_schedule(config_of(json{{"shift", 3.0}}), 4, std::nullopt, 0);
  const double expected[] = {1, .857692, .602151, .008929, 0};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(s.sigmas[i], expected[i], 1e-5);
}

TEST(Scheduler, DynamicShift) {
  FlowMatchEulerConfig config = config_of(json{{"use_dynamic_shifting", true}});
  EXPECT_NEAR(calculate_shift(config, 256), 0.5, 1e-12);
  EXPECT_NEAR(calculate_shift(config, 1024), 0.63, 1e-12);
  EXPECT_NEAR(calculate_shift(config, 4096), 1.15, 1e-12);
  Schedule s = flow_match_schedule(config, 4, linspace(1, 0.25, 4), 0.63);
  const double expected[] = {1, .849235, .652489, .384945, 0};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(s.sigmas[i], expected[i], 1e-5);
}

// mu / (mu + 1 / s - 1), by hand.
TEST(Scheduler, LinearTimeShift) {
  FlowMatchEulerConfig config =
      config_of(json{{"use_dynamic_shifting", true}, {"time_shift_type", "linear"}});
  Schedule s = flow_match_schedule(config, 4, linspace(1, 0.25, 4), 0.5);
  const double expected[] = {1, 0.6, 1.0 / 3, 1.0 / 7, 0};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(s.sigmas[i], expected[i], 1e-6);
}

// 1 - (1 - s) * (1 - terminal) / (1 - last), by hand.
TEST(Scheduler, ShiftTerminalStretchesToItsLastLevel) {
  FlowMatchEulerConfig config = config_of(json{{"shift_terminal", 0.1}});
  Schedule s = flow_match_schedule(config, 4, linspace(1, 0.25, 4), 0);
  const double expected[] = {1, 0.7, 0.4, 0.1, 0};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(s.sigmas[i], expected[i], 1e-6);
  EXPECT_NEAR(s.timesteps[3], 100, 1e-4);
  EXPECT_THROW(config_of(json{{"shift_terminal", 1.0}}), Error);
  // A single level of 1 has nothing to stretch.
  EXPECT_THROW(flow_match_schedule(config, 1, linspace(1, 1, 1), 0), Error);
}

TEST(Scheduler, LevelsThatAreNotFiniteAreAnError) {
  FlowMatchEulerConfig config = config_of(json{{"use_dynamic_shifting", true}, {"max_shift", 1e6}});
  EXPECT_THROW(flow_match_schedule(config, 4, linspace(1, 0.25, 4), calculate_shift(config, 4096)), Error);
}

TEST(Scheduler, RefusesByNameWhatItDoesNotSupport) {
  for (const char* key : {"use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "invert_sigmas",
                          "stochastic_sampling"}) {
    try {
      config_of(json{{key, true}});
      ADD_FAILURE() << key;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnimplemented);
      EXPECT_NE(std::string(e.what()).find(key), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(config_of(json{{"time_shift_type", "cubic"}}), Error);
  EXPECT_THROW(config_of(json{{"shift", "three"}}), Error);
  EXPECT_THROW(config_of(json{{"shift", 0}}), Error);
  EXPECT_THROW(flow_match_schedule({}, 0, std::nullopt, 0), Error);
  EXPECT_THROW(flow_match_schedule({}, 1, std::vector<double>{1.5}, 0), Error);
  EXPECT_THROW(flow_match_schedule({}, 1, std::vector<double>{0.0}, 0), Error);
}

}  // namespace
}  // namespace tessera::schedulers
