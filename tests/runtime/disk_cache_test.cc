#include "tessera/runtime/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// A program's bytes, told apart by `seed`.
std::string payload(std::size_t size, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() {
    std::string pattern = fs::temp_directory_path() / "tessera_cache_XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    folder_ = root_ / "cache";
    set_log_callback([this](LogLevel level, const std::string& message) {
      if (level == LogLevel::kWarning) warnings_.push_back(message);
    });
  }
  ~DiskCacheTest() override {
    set_log_callback(nullptr);
    fs::remove_all(root_);
  }

  DiskCache cache(std::int64_t limit = DiskCacheOptions::kDefaultSizeLimit) const {
    return DiskCache({folder_, limit});
  }
  fs::path file_of(const std::string& key) const {
    for (const DiskCache::Entry& entry : cache().entries()) {
      if (entry.key == key) return entry.file;
    }
    return {};
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> found;
    for (const DiskCache::Entry& entry : cache().entries()) found.push_back(entry.key);
    return found;
  }
  std::size_t temporaries() const {
    std::size_t count = 0;
    for (const auto& file : fs::directory_iterator(folder_)) count += file.path().extension() == ".tmp";
    return count;
  }
  static std::string content(const fs::path& path) { return read_file(path, std::size_t{1} << 30); }
  static void write(const fs::path& path, std::string_view text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  // As if the entry had last been used that many seconds ago.
  static void age(const fs::path& path, int seconds) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }

  fs::path root_, folder_;
  std::vector<std::string> warnings_;
};

TEST_F(DiskCacheTest, RemembersAcrossObjects) {
  std::string big = payload(300'000), key = "a\nb" + std::string(1, '\0') + "c";
  cache().store(key, big);
  cache().store("empty", "");
  DiskCache later = cache();
  EXPECT_EQ(later.load(key), big);
  EXPECT_EQ(later.load("empty"), "");
  EXPECT_EQ(later.load("a"), std::nullopt);
  later.store(key, "other");
  EXPECT_EQ(cache().load(key), "other");
  EXPECT_EQ(later.stats().entries, 2);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheTest, OthersCannotPutProgramsThere) {
  cache().store("a", "x");
  EXPECT_EQ(fs::status(folder_).permissions() & (fs::perms::group_all | fs::perms::others_all),
            fs::perms::none);
}

TEST_F(DiskCacheTest, TwoHundredDamagedEntriesAreWarningsAndAreMadeAnew) {
  constexpr int kEntries = 200;
  std::mt19937 random(20);
  auto key_of = [](int i) { return "program " + std::to_string(i); };
  for (int i = 0; i < kEntries; ++i) cache().store(key_of(i), payload(500, static_cast<unsigned>(i)));
  for (int i = 0; i < kEntries; ++i) {
    fs::path path = file_of(key_of(i));
    std::string text = content(path);
    std::size_t at = i < 50 ? static_cast<std::size_t>(i) : random() % text.size();
    switch (i < 50 ? 0 : i % 5) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text += "more";
        break;
      case 3:
        text = payload(text.size(), 7);
        break;
      case 4: {  // another program's
        DiskCache other({root_ / "other"});
        other.store("other", payload(500));
        text = content(other.entries().at(0).file);
        break;
      }
    }
    write(path, text);
  }
  DiskCache later = cache();
  for (int i = 0; i < kEntries; ++i) {
    warnings_.clear();
    EXPECT_EQ(later.load(key_of(i)), std::nullopt) << i;
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("it is compiled anew"))) << i;
    EXPECT_EQ(later.load(key_of(i)), std::nullopt) << i;
    EXPECT_THAT(warnings_, SizeIs(1)) << "it was not removed";
    later.store(key_of(i), "new");
    EXPECT_EQ(later.load(key_of(i)), "new") << i;
  }
  EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(DiskCacheTest, SwappedEntriesAreNoticed) {
  cache().store("a", payload(100, 1));
  cache().store("b", payload(100, 2));
  fs::path a = file_of("a"), b = file_of("b");
  fs::rename(a, root_ / "t");
  fs::rename(b, a);
  fs::rename(root_ / "t", b);
  EXPECT_EQ(cache().load("a"), std::nullopt);
  EXPECT_EQ(cache().load("b"), std::nullopt);
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("it holds another program"), HasSubstr("it holds another program")));
}

TEST_F(DiskCacheTest, WhatIsNoFileIsAWarning) {
  for (const char* key : {"folder", "pipe", "endless", "huge"}) cache().store(key, "x");
  fs::path folder = file_of("folder"), pipe = file_of("pipe"), endless = file_of("endless"),
           huge = file_of("huge");
  for (const fs::path& path : {folder, pipe, endless}) fs::remove(path);
  fs::create_directories(folder / "full");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", endless);
  fs::resize_file(huge, std::uintmax_t{1} << 40);
  for (const char* key : {"folder", "pipe", "endless", "huge"}) {
    warnings_.clear();
    EXPECT_EQ(cache().load(key), std::nullopt) << key;
    EXPECT_THAT(warnings_, SizeIs(1)) << key;
  }
  warnings_.clear();
  EXPECT_FALSE(fs::exists(pipe) || fs::is_symlink(endless) || fs::exists(huge));
  EXPECT_EQ(cache().stats().entries, 0);
  cache().store("folder", "x");  // cannot be: one warning
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("it is a folder")));
}

TEST_F(DiskCacheTest, ARefusedProgramIsForgotten) {
  cache().store("a", "x");
  cache().forget("a", "no such\ninstruction");
  EXPECT_EQ(cache().load("a"), std::nullopt);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("('no such\\ninstruction')")));
}

TEST_F(DiskCacheTest, TheOldestUsedGoFirst) {
  constexpr std::int64_t kLimit = 10'500;
  DiskCache small = cache(kLimit);
  for (int i = 0; i < 10; ++i) {
    std::string key(1, static_cast<char>('a' + i));
    small.store(key, payload(1000 - 41));
    age(file_of(key), 100 - i);
  }
  EXPECT_EQ(small.stats().bytes, 10'000);
  EXPECT_NE(small.load("a"), std::nullopt);  // used now
  small.store("k", payload(1000 - 41));
  EXPECT_LE(small.stats().bytes, kLimit);
  EXPECT_NE(small.load("a"), std::nullopt);
  EXPECT_NE(small.load("k"), std::nullopt);
  EXPECT_EQ(small.load("b"), std::nullopt);
  EXPECT_NE(small.load("j"), std::nullopt);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheTest, TheLimitHoldsForWhatOthersStored) {
  for (int i = 0; i < 10; ++i) {
    cache().store(std::to_string(i), payload(1000));
    age(file_of(std::to_string(i)), 100 - i);
  }
  DiskCache small = cache(3000);
  small.store("new", payload(1000));
  EXPECT_LE(small.stats().bytes, 3000);
  EXPECT_THAT(keys(), ElementsAre("new", "9"));
  small.store("larger than the limit", payload(4000));
  EXPECT_THAT(keys(), ElementsAre("new", "9"));
  for (int i = 0; i < 300; ++i) {
    small.store("x" + std::to_string(i), payload(900));
    ASSERT_LE(small.stats().bytes, 3000);
  }
}

TEST_F(DiskCacheTest, ListsAndClearsItsOwnFilesOnly) {
  DiskCache kept = cache();
  EXPECT_THAT(kept.entries(), IsEmpty());
  EXPECT_EQ(kept.clear().entries, 0);
  kept.store("a", "x");
  kept.store("b", "y");
  age(file_of("b"), 50);
  write(folder_ / "notes.txt", "mine");
  write(folder_ / "0123.tessera-program", "mine");
  EXPECT_THAT(keys(), ElementsAre("a", "b"));
  write(file_of("b"), "damaged");
  EXPECT_THAT(keys(), UnorderedElementsAre("a", ""));
  DiskCache::Stats removed = kept.clear();
  EXPECT_EQ(removed.entries, 2);
  EXPECT_EQ(removed.bytes, 40 + 2 + 7);
  EXPECT_EQ(kept.stats().entries, 0);
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt") && fs::exists(folder_ / "0123.tessera-program"));
}

TEST_F(DiskCacheTest, AFileInPlaceOfTheFolderIsAnError) {
  write(folder_, "");
  try {
    cache();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(folder_.string() + ", is a file"));
  }
}

TEST_F(DiskCacheTest, AFolderThatCannotBeMadeIsOneWarning) {
  for (fs::path folder : {fs::path("/proc/tessera"), root_ / "file" / "cache"}) {
    write(root_ / "file", "");
    warnings_.clear();
    DiskCache kept({folder});
    EXPECT_EQ(kept.load("a"), std::nullopt);
    kept.store("a", "x");
    kept.store("b", "x");
    EXPECT_EQ(kept.load("a"), std::nullopt);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr(folder.string() + ": cannot be made"))) << folder;
  }
}

TEST_F(DiskCacheTest, AFolderThatGoesAwayIsMadeAgainAndAFileInItsPlaceIsOneWarning) {
  DiskCache kept = cache();
  kept.store("a", "x");
  fs::remove_all(folder_);
  EXPECT_EQ(kept.load("a"), std::nullopt);
  kept.store("a", "y");
  EXPECT_EQ(kept.load("a"), "y");
  fs::remove_all(folder_);
  write(folder_, "");
  EXPECT_EQ(kept.load("a"), std::nullopt);
  EXPECT_THAT(warnings_, IsEmpty());
  kept.store("a", "x");
  kept.store("b", "x");
  EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(DiskCacheTest, AReadOnlyFolderServesWhatItHas) {
  cache().store("a", "x");
  cache().store("damaged", "x");
  fs::path damaged = file_of("damaged");
  write(damaged, "?");
  fs::permissions(root_, static_cast<fs::perms>(0755));
  fs::permissions(folder_, static_cast<fs::perms>(0555));
  bool root = ::geteuid() == 0;  // for whom permissions do not count
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  DiskCache kept = cache();
  EXPECT_EQ(kept.load("a"), "x");
  kept.store("b", "x");
  kept.store("c", "x");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("not kept for the next time")));
  warnings_.clear();
  EXPECT_EQ(kept.load("damaged"), std::nullopt);
  EXPECT_THAT(warnings_, SizeIs(1));
  EXPECT_THROW(kept.clear(), Error);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder_, static_cast<fs::perms>(0755));
  EXPECT_TRUE(fs::exists(damaged));
}

// As on a full disk, the system refuses to write from some byte on.
TEST_F(DiskCacheTest, AFullDiskIsOneWarning) {
  DiskCache kept = cache();
  kept.store("small", "x");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit{10'000, before.rlim_max};
  auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  kept.store("a", payload(50'000));
  kept.store("b", payload(50'000));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("not kept for the next time")));
  EXPECT_EQ(temporaries(), 0);
  EXPECT_THAT(keys(), ElementsAre("small"));
  EXPECT_EQ(kept.load("small"), "x");
}

// Runs f in a process of its own, which ends without the test program's clean-up.
template <typename F>
pid_t in_child(F&& f) {
  pid_t child = ::fork();
  if (child == 0) {
    try {
      f();
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  }
  return child;
}

TEST_F(DiskCacheTest, ProcessesAndThreadsShareAFolder) {
  constexpr int kPrograms = 40;
  auto key_of = [](int i) { return std::to_string(i); };
  auto use = [&](unsigned seed) {
    DiskCache kept({folder_});
    std::mt19937 random(seed);
    for (int n = 0; n < 400; ++n) {
      int i = static_cast<int>(random() % kPrograms);
      std::string wanted = payload(3000, static_cast<unsigned>(i));
      if (auto found = kept.load(key_of(i)); found && *found != wanted) throw std::runtime_error("wrong");
      if (n % 5 == 0) kept.store(key_of(i), wanted);
      if (n % 150 == 149) kept.clear();
    }
  };
  // Children count warnings as faults: whatever others do meanwhile, no entry may look damaged.
  set_log_callback([](LogLevel level, const std::string& message) {
    if (level == LogLevel::kWarning) throw std::runtime_error(message);
  });
  std::vector<pid_t> children;
  for (unsigned p = 0; p < 3; ++p) {
    children.push_back(in_child([&] {
      std::jthread other([&] { use(100 + p); });
      use(p);
    }));
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(temporaries(), 0);
}

TEST_F(DiskCacheTest, KilledWritersLeaveAUsableCache) {
  auto key_of = [](int i) { return std::to_string(i); };
  std::mt19937 random(5);
  const std::string bytes = payload(2'000'000);
  cache().store("first", "x");
  std::size_t left = 0;
  for (int round = 0; round < 20; ++round) {
    pid_t child = in_child([&] {
      DiskCache kept({folder_});
      for (int i = 0;; i = (i + 1) % 10) kept.store(key_of(i), bytes);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % 8000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    left += temporaries();
    DiskCache kept = cache();
    for (int i = 0; i < 10; ++i) {
      if (auto found = kept.load(key_of(i))) {
        EXPECT_EQ(*found, bytes);
      }
    }
    kept.store("next", "y");
    EXPECT_EQ(temporaries(), 0) << "the first store of a process clears up";
  }
  EXPECT_GT(left, 0) << "no writer was killed while it wrote: the test shows nothing";
  EXPECT_EQ(cache().load("first"), "x");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheTest, OnlyAbandonedTemporariesGo) {
  fs::create_directory(folder_);
  AtomicFile file(folder_ / "somebody's");
  file.write(std::as_bytes(std::span("half")));
  write(folder_ / ".tessera-1-0.tmp", "half");
  write(folder_ / "my.tmp", "mine");
  EXPECT_EQ(remove_abandoned_temporaries(folder_), 1);
  file.commit(AtomicFile::Durability::kFast);
  EXPECT_TRUE(fs::exists(folder_ / "somebody's") && fs::exists(folder_ / "my.tmp"));
  EXPECT_EQ(remove_abandoned_temporaries(root_ / "missing"), 0);
}

// The environment says where programs are kept; each test sets all of its variables.
class DiskCacheEnvironment : public DiskCacheTest {
 protected:
  void set(const char* dir, const char* xdg, const char* home, const char* limit = nullptr) {
    auto put = [](const char* name, const char* value) {
      value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
    };
    put("TESSERA_CACHE_DIR", dir);
    put("XDG_CACHE_HOME", xdg);
    put("HOME", home);
    put("TESSERA_CACHE_LIMIT", limit);
  }
  std::string folder() {
    auto options = disk_cache_options_from_environment();
    return options ? options->folder.string() : "none";
  }
};

TEST_F(DiskCacheEnvironment, SaysWhere) {
  set("/a", "/x", "/h");
  EXPECT_EQ(folder(), "/a");
  set(nullptr, "/x", "/h");
  EXPECT_EQ(folder(), "/x/tessera");
  set(nullptr, "relative", "/h");
  EXPECT_EQ(folder(), "/h/.cache/tessera");
  set(nullptr, "", "/h");
  EXPECT_EQ(folder(), "/h/.cache/tessera");
  set("", "/x", "/h");
  EXPECT_EQ(folder(), "none");
  set(nullptr, nullptr, nullptr);
  EXPECT_EQ(folder(), "none");
}

TEST_F(DiskCacheEnvironment, SaysHowMuch) {
  set("/a", nullptr, nullptr);
  EXPECT_EQ(disk_cache_options_from_environment()->size_limit, std::int64_t{4} << 30);
  set("/a", nullptr, nullptr, "5MiB");
  EXPECT_EQ(disk_cache_options_from_environment()->size_limit, 5 << 20);
  set("/a", nullptr, nullptr, "0");
  EXPECT_EQ(folder(), "none");
  set("/a", nullptr, nullptr, "much");
  try {
    folder();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("TESSERA_CACHE_LIMIT: 'much' is no size"));
  }
}

TEST_F(DiskCacheEnvironment, AFileIsAnErrorWhereItWasNamedAndAWarningElsewhere) {
  write(root_ / "tessera", "");
  set((root_ / "tessera").c_str(), nullptr, nullptr);
  EXPECT_THROW(folder(), Error);
  EXPECT_THAT(warnings_, IsEmpty());
  set(nullptr, root_.c_str(), nullptr);
  EXPECT_EQ(folder(), "none");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is a file")));
}

TEST(ProgramKey, TellsEverythingApart) {
  std::string key = program_key("cpu", "text", "options");
  EXPECT_EQ(program_key("cpu", "text", "options"), key);
  EXPECT_NE(program_key("tpu", "text", "options"), key);
  EXPECT_NE(program_key("cpu", "texts", "options"), key);
  EXPECT_NE(program_key("cpu", "text", "option"), key);
  EXPECT_NE(program_key("cpu", "texto", "ptions"), key);
}

}  // namespace
}  // namespace tessera
