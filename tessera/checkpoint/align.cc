#include "tessera/checkpoint/align.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/quote.h"
#include "tessera/checkpoint/host_block.h"
#include "tessera/checkpoint/safetensors.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

// Deep enough for any checkpoint; a link to a folder above itself ends here.
constexpr int kMaxDepth = 16;

[[noreturn]] void fail_on(const fs::path& path, const char* what, const std::error_code& error) {
  fail(ErrorCode::kUnavailable, "{}: cannot be {}: {}", path.string(), what, error.message());
}

bool is_aligned_size(const TensorView& tensor) { return tensor.data.size() % HostBlock::kAlignment == 0; }

// The tensors in the order of the new file, with padding between those that need it.
std::vector<TensorView> laid_out(std::vector<TensorView> tensors) {
  static constexpr std::array<std::byte, HostBlock::kAlignment> kZeros{};
  std::ranges::sort(tensors, {}, [](const TensorView& t) { return t.data.data(); });
  std::ranges::stable_partition(tensors, is_aligned_size);
  std::vector<TensorView> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out.push_back(tensors[i]);
    std::size_t over = tensors[i].data.size() % HostBlock::kAlignment;
    if (over == 0 || i + 1 == tensors.size()) continue;
    auto rest = static_cast<std::int64_t>(HostBlock::kAlignment - over);
    out.push_back({fmt::format("{}{}", kPaddingPrefix, i),
                   DType::kU8,
                   {rest},
                   std::span(kZeros).first(static_cast<std::size_t>(rest)),
                   nullptr});
  }
  return out;
}

class Copier {
 public:
  explicit Copier(const std::function<void(std::int64_t)>& progress) : progress_(progress) {}

  void folder(const fs::path& from, const fs::path& to, int depth = 0) {
    if (depth > kMaxDepth)
      invalid_argument("{}: folders are nested too deep; is there a link to a folder above?", from.string());
    std::error_code error;
    fs::create_directory(to, error);
    if (error) fail_on(to, "made", error);
    fs::directory_iterator it(from, error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      const fs::path &source = it->path(), target = to / source.filename();
      fs::file_status status = fs::status(source, error);
      if (fs::is_directory(status)) {
        folder(source, target, depth + 1);
      } else if (fs::is_regular_file(status)) {
        file(source, target);
      } else {
        invalid_argument("{}: is neither a file nor a folder, so that it cannot be copied", source.string());
      }
    }
    if (error) fail_on(from, "read", error);
  }

  const Aligned& result() const { return result_; }

 private:
  void file(const fs::path& from, const fs::path& to) {
    if (progress_) progress_(written_);
    std::error_code error;
    if (from.extension() == ".safetensors") {
      align(from, to);
    } else {
      fs::copy_file(from, to, error);
      if (error) fail_on(from, "copied", error);
      ++result_.other_files;
    }
    auto size = fs::file_size(to, error);
    if (!error) written_ += static_cast<std::int64_t>(size);
  }

  void align(const fs::path& from, const fs::path& to) {
    SafetensorsFile file(from);
    std::vector<TensorView> tensors = laid_out(file.tensors());
    write_safetensors(to, tensors, file.metadata());
    ++result_.files;
    result_.tensors += static_cast<std::int64_t>(file.tensors().size());
    for (const TensorView& tensor : tensors) {
      if (tensor.owner == nullptr) result_.padding_bytes += static_cast<std::int64_t>(tensor.data.size());
    }
    std::error_code ignored;
    auto size = fs::file_size(to, ignored);
    if (!ignored) result_.bytes += static_cast<std::int64_t>(size);
  }

  const std::function<void(std::int64_t)>& progress_;
  std::int64_t written_ = 0;
  Aligned result_;
};

// Whether `path` is `folder` or lies in it; both exist.
bool lies_in(fs::path path, const fs::path& folder) {
  std::error_code ignored;
  for (path = fs::canonical(path, ignored); !path.empty(); path = path.parent_path()) {
    if (fs::equivalent(path, folder, ignored)) return true;
    if (path == path.root_path()) break;
  }
  return false;
}

// A folder that is gone again unless it is renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

Aligned align_checkpoint(const fs::path& in, const fs::path& out,
                         const std::function<void(std::int64_t)>& progress) {
  std::error_code error;
  if (!fs::is_directory(in, error)) invalid_argument("{}: is no folder", quote(in.string()));
  fs::path target = out.has_filename() ? out : out.parent_path();  // "x/" is x
  if (target.empty() || fs::exists(fs::symlink_status(target, error)))
    invalid_argument("{}: exists already; name a folder that does not", quote(out.string()));
  fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, error))
    fail(ErrorCode::kNotFound, "{}: cannot be made: there is no folder {}", target.string(), parent.string());
  if (lies_in(parent, in))
    invalid_argument("{}: lies inside {}; name a folder outside", quote(out.string()), in.string());

  TemporaryFolder temporary(parent / fmt::format(".tessera-align-{}", ::getpid()));
  Copier copier(progress);
  copier.folder(in, temporary.path());
  if (progress) progress(copier.result().bytes);
  if (fs::exists(fs::symlink_status(target, error)))
    invalid_argument("{}: was made by somebody else meanwhile", target.string());
  fs::rename(temporary.path(), target, error);
  if (error) fail_on(target, "made", error);
  return copier.result();
}

}  // namespace tessera::checkpoint
