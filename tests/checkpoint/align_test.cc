#include "tessera/checkpoint/align.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/checkpoint/safetensors.h"
#include "tessera/checkpoint/tensor_source.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class Align : public ::testing::Test {
 protected:
  Align() {
    std::string pattern = fs::temp_directory_path() / "tessera_align_XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    in_ = root_ / "in";
    out_ = root_ / "out";
    fs::create_directories(in_ / "vae");
  }
  ~Align() override { fs::remove_all(root_); }

  // Writes tensors of u8 with these sizes, filled with numbers that tell them apart, named t0, t1, ...
  void write(const fs::path& file, const std::vector<std::int64_t>& sizes, int first = 0) {
    std::vector<std::vector<std::byte>> data;
    std::vector<TensorView> tensors;
    for (std::int64_t size : sizes) {
      int i = first + static_cast<int>(data.size());
      data.emplace_back(static_cast<std::size_t>(size), static_cast<std::byte>(i + 1));
      tensors.push_back({"t" + std::to_string(i), DType::kU8, {size}, data.back(), nullptr});
    }
    write_safetensors(file, tensors, {{"format", "pt"}});
  }
  // Why `file` is not what the reference reader takes with each tensor at a multiple of 64; "" if it is.
  static std::string fault_of(const fs::path& file) {
    std::string text = read_file(file, 1 << 24);
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof length);
    nlohmann::json header = nlohmann::json::parse(text.substr(8, length));
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const auto& [name, info] : header.items()) {
      if (name == "__metadata__") continue;
      ranges.emplace_back(info["data_offsets"][0], info["data_offsets"][1]);
      bool padding = name.starts_with(kPaddingPrefix);
      if (!padding && (8 + length + ranges.back().first) % 64 != 0) return name + " is not aligned";
      if (padding && info["dtype"] != "U8") return name + " has a dtype";
    }
    std::ranges::sort(ranges);
    std::uint64_t end = 0;
    for (auto [begin, next] : ranges) {
      if (begin != end) return "there is a hole at " + std::to_string(end);
      end = next;
    }
    return 8 + length + end == text.size() ? "" : "the end is wrong";
  }
  std::string failure() {
    try {
      align_checkpoint(in_, out_);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(out_ / "a"));
      return error.what();
    }
    return "";
  }
  std::ptrdiff_t count() const {
    return std::distance(fs::directory_iterator(root_), fs::directory_iterator());
  }

  fs::path root_, in_, out_;
};

TEST_F(Align, PutsEveryTensorAtAMultipleOf64WithoutHoles) {
  write(in_ / "vae" / "model.safetensors", {3, 64, 0, 1, 128, 65, 0, 63, 256, 7});
  ASSERT_NE(fault_of(in_ / "vae" / "model.safetensors"), "");
  Aligned done = align_checkpoint(in_, out_);
  EXPECT_EQ(fault_of(out_ / "vae" / "model.safetensors"), "");
  SafetensorsFile old(in_ / "vae" / "model.safetensors"), made(out_ / "vae" / "model.safetensors");
  EXPECT_THAT(made.metadata(), UnorderedElementsAre(Pair("format", "pt")));
  ASSERT_EQ(made.tensors().size(), old.tensors().size()) << "padding is not seen";
  for (const TensorView& tensor : old.tensors()) {
    const TensorView* copy = made.find(tensor.name);
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(copy->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(copy->data, tensor.data));
    if (!copy->data.empty()) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy->data.data()) % 64, 0);
    }
  }
  EXPECT_EQ(done.files, 1);
  EXPECT_EQ(done.tensors, 10);
  EXPECT_EQ(done.padding_bytes, 61 + 63 + 63 + 1) << "none after the last";
  EXPECT_EQ(done.bytes, static_cast<std::int64_t>(fs::file_size(out_ / "vae" / "model.safetensors")));
}

TEST_F(Align, CopiesTheRestAndFollowsLinks) {
  fs::create_directories(root_ / "blobs");
  write(root_ / "blobs" / "1234", {5, 5});
  fs::create_symlink("../../blobs/1234", in_ / "vae" / "model.safetensors");
  std::ofstream(in_ / "model_index.json") << "{}";
  fs::create_directories(in_ / "empty");
  Aligned done = align_checkpoint(in_, out_ / "");
  EXPECT_EQ(done.files, 1);
  EXPECT_EQ(done.other_files, 1);
  EXPECT_EQ(read_file(out_ / "model_index.json", 10), "{}");
  EXPECT_TRUE(fs::is_directory(out_ / "empty"));
  EXPECT_FALSE(fs::is_symlink(out_ / "vae" / "model.safetensors"));
  EXPECT_EQ(fault_of(out_ / "vae" / "model.safetensors"), "");
}

TEST_F(Align, ShardsStayTogether) {
  write(in_ / "vae" / "model-1.safetensors", {5, 5, 64});
  write(in_ / "vae" / "model-2.safetensors", {9, 9}, 3);
  nlohmann::json map;
  for (int i = 0; i < 5; ++i)
    map["t" + std::to_string(i)] = i < 3 ? "model-1.safetensors" : "model-2.safetensors";
  std::ofstream(in_ / "vae" / "model.safetensors.index.json") << nlohmann::json{{"weight_map", map}};
  EXPECT_EQ(align_checkpoint(in_, out_).files, 2);
  EXPECT_EQ(TensorSource::open(out_ / "vae").size(), 5);
}

TEST_F(Align, RefusesWhatItCannotDoAndLeavesNothing) {
  write(in_ / "a.safetensors", {5, 5});
  fs::create_directory(out_);
  EXPECT_THAT(failure(), HasSubstr("exists already"));
  fs::remove(out_);
  fs::create_symlink("nowhere", out_);
  EXPECT_THAT(failure(), HasSubstr("exists already"));
  out_ = in_ / "vae" / "out";
  EXPECT_THAT(failure(), HasSubstr("lies inside"));
  fs::create_symlink(in_ / "vae", root_ / "link");
  out_ = root_ / "link" / "out";
  EXPECT_THAT(failure(), HasSubstr("lies inside"));
  out_ = root_ / "missing" / "out";
  EXPECT_THAT(failure(), HasSubstr("there is no folder"));
  out_ = root_ / "made";
  fs::resize_file(in_ / "a.safetensors", fs::file_size(in_ / "a.safetensors") - 1);
  EXPECT_THAT(failure(), HasSubstr("a.safetensors"));
  in_ = in_ / "a.safetensors";
  EXPECT_THAT(failure(), HasSubstr("is no folder"));
  EXPECT_EQ(count(), 3) << "in, out (a link) and link";
}

TEST_F(Align, WhatTheCallbackThrowsEndsIt) {
  for (const char* name : {"a.safetensors", "b.safetensors", "c.json"}) write(in_ / name, {5, 5});
  int calls = 0;
  auto progress = [&](std::int64_t bytes) {
    if (++calls == 3) throw std::runtime_error("enough");
    EXPECT_EQ(bytes > 0, calls > 1);
  };
  EXPECT_THROW(align_checkpoint(in_, out_, progress), std::runtime_error);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(count(), 1);
}

}  // namespace
}  // namespace tessera::checkpoint
