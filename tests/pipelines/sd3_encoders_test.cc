#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "tessera/base/error.h"
#include "tessera/pipelines/text_to_image.h"
#include "tests/testing/pipeline_parity.h"

// Stable Diffusion 3 without some of its text encoders, and components that do not belong together.
namespace tessera::pipelines {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A copy of the compact sd35-medium (links, but for what is changed) that goes away again.
class Checkpoint {
 public:
  Checkpoint() {
    std::string name = (fs::temp_directory_path() / "tessera-sd3-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
    fs::path source = testing::compact_data() / "models" / "sd35-medium";
    for (const auto& entry : fs::recursive_directory_iterator(source)) {
      fs::path to = path_ / fs::relative(entry.path(), source);
      if (entry.is_directory()) {
        fs::create_directories(to);
      } else if (entry.path().extension() == ".json") {
        fs::copy_file(entry.path(), to);
      } else {
        fs::create_symlink(fs::absolute(entry.path()), to);
      }
    }
  }
  ~Checkpoint() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  // model_index.json says null for the component.
  void leave_out(const std::string& component) {
    edit("model_index.json", [&](json& index) { index[component] = {nullptr, nullptr}; });
  }
  void edit(const std::string& file, const std::function<void(json&)>& change) {
    json content = json::parse(std::ifstream(path_ / file));
    change(content);
    fs::permissions(path_ / file, fs::perms::owner_write, fs::perm_options::add);
    std::ofstream(path_ / file) << content;
  }
  std::unique_ptr<TextToImage> load(Context& context) const {
    return load_pipeline(checkpoint::ModelFolder::open(path_.string()), context);
  }

 private:
  fs::path path_;
};

// The recorded call of the basic case, for one step.
Trace run(const Checkpoint& checkpoint, const testing::Golden& golden) {
  static Context context;  // shared, so that each program is compiled once
  Arguments arguments = testing::arguments_of(golden);
  arguments.num_inference_steps = 1;
  Trace trace;
  Hooks hooks;
  hooks.trace = &trace;
  Result result = checkpoint.load(context)->generate(arguments, hooks);
  EXPECT_EQ(result.images.size(), 1U);
  return trace;
}

// What of [1, rows, columns] a component fills.
struct Part {
  std::int64_t row_begin, row_end, column_begin, column_end;
  bool holds(std::int64_t r, std::int64_t c) const {
    return r >= row_begin && r < row_end && c >= column_begin && c < column_end;
  }
};

// Zeros in the part, the recorded numbers elsewhere.
void expect_zeros(const Trace& trace, const testing::Golden& golden, const std::string& name,
                  const Part& part) {
  const Trace::Entry& entry = trace.entries().at(name);
  std::vector<float> mine = testing::values(entry), reference = testing::to_f32(golden.at(name));
  ASSERT_EQ(mine.size(), reference.size()) << name;
  std::int64_t columns = entry.shape[entry.shape.rank() - 1];
  double worst = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    auto k = static_cast<std::int64_t>(i);
    float wanted = part.holds(k / columns, k % columns) ? 0.0f : reference[i];
    worst = std::max(worst, std::abs(static_cast<double>(mine[i]) - static_cast<double>(wanted)));
  }
  EXPECT_LE(worst, 1e-4) << name;
}

std::int64_t setting(const testing::Golden& golden, const std::string& component, const char* key) {
  return json::parse(std::ifstream(golden.model_folder / component / "config.json"))[key].get<std::int64_t>();
}

TEST(Sd3Encoders, AbsentT5CountsAsZeros) {
  Checkpoint checkpoint;
  checkpoint.leave_out("text_encoder_3");
  checkpoint.leave_out("tokenizer_3");
  testing::Golden golden = testing::load_golden(testing::compact_data(), "sd35-medium", "basic");
  Trace trace = run(checkpoint, golden);
  std::int64_t rows = golden.at("prompt_embeds").shape[1], columns = golden.at("prompt_embeds").shape[2];
  EXPECT_EQ(rows, 77 + 32);  // max_sequence_length, not CLIP's 77 once more
  expect_zeros(trace, golden, "prompt_embeds", {77, rows, 0, columns});
  expect_zeros(trace, golden, "negative_prompt_embeds", {77, rows, 0, columns});
  expect_zeros(trace, golden, "pooled_prompt_embeds", {0, 0, 0, 0});
  EXPECT_FALSE(trace.entries().contains("text_encoder_3.input_ids"));
}

TEST(Sd3Encoders, AbsentSecondClipCountsAsZeros) {
  Checkpoint checkpoint;
  checkpoint.leave_out("text_encoder_2");
  testing::Golden golden = testing::load_golden(testing::compact_data(), "sd35-medium", "basic");
  Trace trace = run(checkpoint, golden);
  std::int64_t columns = golden.at("prompt_embeds").shape[2],
               pooled = golden.at("pooled_prompt_embeds").shape[1];
  expect_zeros(trace, golden, "prompt_embeds",
               {0, 77, setting(golden, "text_encoder", "hidden_size"), columns});
  expect_zeros(trace, golden, "pooled_prompt_embeds",
               {0, 1, setting(golden, "text_encoder", "projection_dim"), pooled});
}

TEST(Sd3Encoders, AbsentFirstClipCountsAsZeros) {
  Checkpoint checkpoint;
  checkpoint.leave_out("text_encoder");
  testing::Golden golden = testing::load_golden(testing::compact_data(), "sd35-medium", "basic");
  Trace trace = run(checkpoint, golden);
  expect_zeros(trace, golden, "prompt_embeds", {0, 77, 0, setting(golden, "text_encoder", "hidden_size")});
  expect_zeros(trace, golden, "pooled_prompt_embeds",
               {0, 1, 0, setting(golden, "text_encoder", "projection_dim")});
}

TEST(Sd3Encoders, WithoutAnyThePromptIsZeros) {
  Checkpoint checkpoint;
  for (const char* component : {"text_encoder", "text_encoder_2", "text_encoder_3"})
    checkpoint.leave_out(component);
  testing::Golden golden = testing::load_golden(testing::compact_data(), "sd35-medium", "basic");
  Trace trace = run(checkpoint, golden);
  std::int64_t rows = golden.at("prompt_embeds").shape[1], columns = golden.at("prompt_embeds").shape[2];
  expect_zeros(trace, golden, "prompt_embeds", {0, rows, 0, columns});
  expect_zeros(trace, golden, "pooled_prompt_embeds", {0, 1, 0, columns * 100});
}

TEST(Sd3Encoders, ComponentsThatDoNotBelongTogetherAreRefused) {
  auto refused = [](const std::string& message, const std::string& file,
                    const std::function<void(json&)>& change) {
    Checkpoint checkpoint;
    checkpoint.edit(file, change);
    Context context;
    try {
      checkpoint.load(context);
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kDataLoss) << e.what();
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  };
  // Tensors and dual_attention_layers that disagree, either way.
  auto dual = [](std::vector<int> layers) {
    return [layers](json& config) { config["dual_attention_layers"] = layers; };
  };
  refused("transformer_blocks.2.attn2", "transformer/config.json", dual({0, 1, 2}));
  refused("transformer_blocks.1.attn2", "transformer/config.json", dual({0}));
  refused("'dual_attention_layers' is [0,9]", "transformer/config.json", dual({0, 9}));
  refused("caption_projection_dim", "transformer/config.json",
          [](json& config) { config["caption_projection_dim"] = 7; });
}

}  // namespace
}  // namespace tessera::pipelines
