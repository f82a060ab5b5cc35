#include "tessera/runtime/environment_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "tessera/base/file.h"
#include "tessera/kernels/registry.h"
#include "tessera/pjrt/registry.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string key_with(const char* name, const char* value) {
  static const std::shared_ptr<const pjrt::Client> client =
      pjrt::PluginRegistry().load("cpu")->create_client();
  const char* before = std::getenv(name);
  std::string kept = before != nullptr ? before : "";
  ::setenv(name, value, 1);
  std::string key = environment_key(*client);
  before != nullptr ? ::setenv(name, kept.c_str(), 1) : ::unsetenv(name);
  return key;
}

TEST(EnvironmentKey, HoldsWhatAProgramDependsOn) {
  std::string key = key_with("XLA_FLAGS", "");
  EXPECT_EQ(key_with("XLA_FLAGS", ""), key);
  EXPECT_THAT(key, HasSubstr("platform cpu"));
  EXPECT_THAT(key, HasSubstr("\nprocessor "));
  EXPECT_THAT(key, HasSubstr("\nthreads "));
  EXPECT_THAT(key, HasSubstr("\nkernels " + std::to_string(kernels::kKernelSetVersion) + "\n"));
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "PJRT_NPROC"}) {
    EXPECT_NE(key_with(name, "--a=b"), key_with(name, "")) << name;
  }
}

TEST(EnvironmentKey, HoldsTheContentOfAFileOfFlags) {
  std::string pattern = fs::temp_directory_path() / "tessera_flags_XXXXXX";
  fs::path folder = ::mkdtemp(pattern.data()), file = folder / "flags";
  std::ofstream(file) << "--a=1";
  std::string one = key_with("XLA_FLAGS", file.c_str());
  EXPECT_EQ(key_with("XLA_FLAGS", file.c_str()), one);
  std::ofstream(file) << "--a=2";
  EXPECT_NE(key_with("XLA_FLAGS", file.c_str()), one);
  fs::remove_all(folder);
}

// A 64-bit ELF file with one note segment.
std::string elf_file(std::string_view note) {
  std::string text(64 + 56, '\0');
  auto put = [&](std::size_t at, std::size_t bytes, std::uint64_t value) {
    for (std::size_t i = 0; i < bytes; ++i) text[at + i] = static_cast<char>(value >> 8 * i);
  };
  text.replace(0, 5,
               "\x7f"
               "ELF\x02");
  put(32, 8, 64);           // offset of the program headers
  put(56, 2, 1);            // their number
  put(64, 4, 4);            // PT_NOTE
  put(64 + 8, 8, 64 + 56);  // its offset
  put(64 + 32, 8, note.size());
  return text + std::string(note);
}

class BuildId : public ::testing::Test {
 protected:
  BuildId() {
    std::string pattern = fs::temp_directory_path() / "tessera_elf_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~BuildId() override { fs::remove_all(folder_); }
  std::optional<std::string> of(std::string_view text) {
    fs::remove(folder_ / "file");
    std::ofstream(folder_ / "file", std::ios::binary | std::ios::trunc) << text;
    return elf_build_id(folder_ / "file");
  }
  fs::path folder_;
};

TEST_F(BuildId, IsFoundAmongTheNotes) {
  using namespace std::string_view_literals;
  std::string_view other = "\4\0\0\0\3\0\0\0\1\0\0\0ABC\0xyz\0"sv;
  std::string_view id = "\4\0\0\0\2\0\0\0\3\0\0\0GNU\0\xab\x01\0\0"sv;
  EXPECT_EQ(of(elf_file(std::string(other) + std::string(id))), "ab01");
  EXPECT_EQ(of(elf_file(other)), std::nullopt);
  EXPECT_EQ(of("text"), std::nullopt);
  EXPECT_EQ(of(""), std::nullopt);
  EXPECT_EQ(elf_build_id(folder_ / "missing"), std::nullopt);
}

TEST_F(BuildId, DamagedFilesAreHarmless) {
  using namespace std::string_view_literals;
  std::string whole = elf_file("\4\0\0\0\2\0\0\0\3\0\0\0GNU\0\xab\x01\0\0"sv);
  for (std::size_t n = 0; n < whole.size() - 2; ++n) EXPECT_EQ(of(whole.substr(0, n)), std::nullopt) << n;
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    std::string text = whole;
    for (int k = 0; k < 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    if (auto id = of(text)) {
      EXPECT_THAT(*id, MatchesRegex("[0-9a-f]+"));
    }
  }
}

}  // namespace
}  // namespace tessera
