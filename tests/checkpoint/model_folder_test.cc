#include "tessera/checkpoint/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelFolders : public ::testing::Test {
 protected:
  ModelFolders() {
    std::string pattern = fs::temp_directory_path() / "tessera_mf_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HUGGINGFACE_HUB_CACHE"})
      ::unsetenv(name);
  }
  ~ModelFolders() override {
    fs::remove_all(folder_);
    ::unsetenv("HF_HUB_CACHE");
  }

  fs::path write(const fs::path& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  void write_tensors(const fs::path& name, std::initializer_list<const char*> tensors) const {
    fs::create_directories((folder_ / name).parent_path());
    std::vector<TensorView> views;
    for (const char* t : tensors) views.push_back({t, DType::kF32, {0}, {}, nullptr});
    write_safetensors(folder_ / name, views);
  }
  template <typename F>
  static void fails(F f, const std::string& what) {
    try {
      f();
      ADD_FAILURE() << "no error; expected: " << what;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
  }
  void index_fails(const std::string& weight_map, const std::string& what) const {
    SCOPED_TRACE(weight_map);
    write("vae/model.safetensors.index.json", R"({"weight_map": )" + weight_map + "}");
    fails([&] { TensorSource::open(folder_ / "vae"); }, what);
  }
  void open_fails(const std::string& what) const {
    fails([&] { ModelFolder::open(folder_); }, what);
  }

  fs::path folder_;
};

TEST_F(ModelFolders, TheDemoIsRead) {
  ModelFolder demo = ModelFolder::open(TESSERA_DEMO_MODEL);
  EXPECT_EQ(demo.pipeline_class(), "FluxPipeline");
  EXPECT_EQ(demo.defaults()["height"], 96);
  EXPECT_EQ(demo.component("vae")->class_name, "AutoencoderKL");
  EXPECT_FALSE(demo.component("image_encoder").has_value());
  EXPECT_EQ(demo.config("scheduler")["_class_name"], "FlowMatchEulerDiscreteScheduler");
  EXPECT_GT(demo.source("vae").stored_bytes(), 1000);
  fails([&] { demo.source("image_encoder"); }, "image_encoder");
}

TEST_F(ModelFolders, EveryTestModelIsRead) {
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_TEST_DATA) / "models")) {
    ModelFolder model = ModelFolder::open(entry.path());
    for (const std::string& name : model.component_names()) {
      if (name.starts_with("scheduler")) {
        EXPECT_TRUE(model.config(name).is_object());
      }
      if (name.starts_with("tokenizer") || name.starts_with("scheduler")) continue;
      TensorSource source = model.source(name);
      ASSERT_GT(source.size(), 0u);
      EXPECT_NE(source.find(source.names().back()), nullptr);
    }
  }
}

TEST_F(ModelFolders, RefusesABrokenFolder) {
  open_fails("model_index.json");
  write("model_index.json", "{");
  open_fails("model_index.json");
  write("model_index.json", "[]");
  open_fails("model_index.json");
  write("model_index.json", "{}");
  open_fails("_class_name");
  write("model_index.json", R"({"_class_name": "P", "../vae": ["diffusers", "AutoencoderKL"]})");
  open_fails("../vae");
  write("model_index.json",
        R"({"_class_name": "P", "vae": ["diffusers", "V"], "t": [null, null], "n": null})");
  ModelFolder model = ModelFolder::open(folder_);
  EXPECT_EQ(model.component_names(), std::vector<std::string>{"vae"});
  EXPECT_FALSE(model.component("t").has_value());
  EXPECT_FALSE(model.component("n").has_value());
  fails([&] { model.component("vae"); }, "'vae'");
  fails([&] { ModelFolder::open(write("file", "x")); }, "file");
  fails([&] { ModelFolder::open(std::string(10000, 'x')); }, "xxx");
  fails([&] { ModelFolder::open(""); }, "");
}

TEST_F(ModelFolders, RefusesUnknownDefaults) {
  write("model_index.json", R"({"_class_name": "P"})");
  auto refused = [&](const std::string& defaults, const std::string& what) {
    SCOPED_TRACE(defaults);
    write("tessera.json", R"({"defaults": )" + defaults + "}");
    open_fails(what);
  };
  refused(R"({"hight": 1})", "hight");
  refused(R"({"height": 1.5})", "height");
  refused(R"({"height": "96"})", "height");
  refused(R"({"width": 0})", "width");
  refused(R"({"num_inference_steps": 18446744073709551615})", "num_inference_steps");
  refused(R"({"guidance_scale": -1})", "guidance_scale");
  refused("[]", "defaults");
  write("tessera.json", R"({"default": {}})");
  open_fails("default");
  write("tessera.json", R"({"defaults": {"guidance_scale": 0, "true_cfg_scale": 1.5}})");
  EXPECT_EQ(ModelFolder::open(folder_).defaults()["true_cfg_scale"], 1.5);
}

TEST_F(ModelFolders, ShardsAreChecked) {
  write_tensors("vae/a.safetensors", {"x", "y"});
  write_tensors("vae/b.safetensors", {"z"});
  write_tensors("vae/c.safetensors", {"x"});
  write_tensors("outside.safetensors", {"x"});
  index_fails(R"({"x": "../outside.safetensors"})", "outside");
  index_fails(R"({"x": ")" + (folder_ / "outside.safetensors").string() + R"("})", "outside");
  index_fails(R"({"x": ".."})", "'x'");
  index_fails(R"({"x": ""})", "'x'");
  index_fails(R"({"x": 1})", "'x'");
  index_fails(R"({"x": "missing.safetensors"})", "missing.safetensors");
  index_fails(R"({"x": ")" + std::string(5000, 'n') + R"("})", "nnn");
  index_fails(R"({"x": "a.safetensors", "q": "b.safetensors"})", "'q'");
  index_fails(R"({"y": "a.safetensors", "x": "c.safetensors"})", "'x'");
  index_fails(R"({"x": "a.safetensors", "x": "b.safetensors"})", "'x'");
  index_fails("[]", "weight_map");
  write("vae/model.safetensors.index.json",
        R"({"weight_map": {"x": "a.safetensors", "z": "b.safetensors"}})");
  TensorSource source = TensorSource::open(folder_ / "vae");
  EXPECT_EQ(source.names(), (std::vector<std::string>{"x", "y", "z"}));
  EXPECT_EQ(source.files().size(), 2u);
}

TEST_F(ModelFolders, SaysWhatIsThereInsteadOfWeights) {
  fails([&] { TensorSource::open(folder_ / "vae"); }, "vae");
  write("vae/diffusion_pytorch_model.bin", "");
  fails([&] { TensorSource::open(folder_ / "vae"); }, "diffusion_pytorch_model.bin");
  write_tensors("unet/diffusion_pytorch_model.fp16.safetensors", {"x"});
  fails([&] { TensorSource::open(folder_ / "unet"); }, "diffusion_pytorch_model.fp16.safetensors");
  EXPECT_THROW(TensorSource("s", {{"x", DType::kF32, {0}, {}, {}}, {"x", DType::kF32, {0}, {}, {}}}), Error);
}

TEST_F(ModelFolders, HubIdsAreFoundInTheCache) {
  ::setenv("HF_HUB_CACHE", (folder_ / "hub").c_str(), 1);
  fails([&] { ModelFolder::open("org/name"); }, (folder_ / "hub" / "models--org--name").string());
  write("hub/models--org--name/snapshots/abc123/model_index.json", R"({"_class_name": "P"})");
  write("hub/models--org--name/refs/main", "abc123\n");
  EXPECT_EQ(ModelFolder::open("org/name").pipeline_class(), "P");
  write("secret/model_index.json", R"({"_class_name": "P"})");
  for (const char* reference : {"../../../secret", "..", "", "/", "abc/../abc123"}) {
    write("hub/models--org--name/refs/main", reference);
    EXPECT_THROW(ModelFolder::open("org/name"), Error) << reference;
  }
  write("hub/models--org--name/refs/main", "fed987");
  fails([&] { ModelFolder::open("org/name"); }, "fed987");
  for (const char* id : {"org", "org/", "/name", "org/..", "../name", "a/b/c"}) {
    EXPECT_THROW(find_in_hub_cache(id), Error) << id;
  }
}

TEST_F(ModelFolders, TheCacheIsWhereHuggingfaceHubPutsIt) {
  ::setenv("HOME", folder_.c_str(), 1);
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(hub_cache_folder(), "/x/huggingface/hub");
  ::setenv("HF_HOME", "/h", 1);
  EXPECT_EQ(hub_cache_folder(), "/h/hub");
  ::setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_EQ(hub_cache_folder(), "/c");
  ::setenv("HF_HUB_CACHE", "~/c", 1);
  EXPECT_EQ(hub_cache_folder(), folder_ / "c");
  ::setenv("HF_HUB_CACHE", "~", 1);
  EXPECT_EQ(hub_cache_folder(), folder_);
  ::setenv("HF_HUB_CACHE", "~c", 1);  // another user's name, or just a name
  EXPECT_EQ(hub_cache_folder(), "~c");
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HF_HOME", "~/h", 1);
  EXPECT_EQ(hub_cache_folder(), folder_ / "h/hub");
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) ::unsetenv(name);
  EXPECT_TRUE(hub_cache_folder().string().ends_with("/.cache/huggingface/hub"));
}

}  // namespace
}  // namespace tessera::checkpoint
