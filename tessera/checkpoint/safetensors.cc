#include "tessera/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/file.h"
#include "tessera/base/json.h"
#include "tessera/base/quote.h"

namespace tessera::checkpoint {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "safetensors data are used as they lie in the file");

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kDataAlignment = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

// What the messages about one tensor begin with.
std::string at(const std::filesystem::path& path, std::string_view tensor) {
  return fmt::format("{}: tensor {}", path.string(), quote(tensor));
}

// The header of a file whose bytes are given, and where the data begin.
std::pair<json, std::size_t> read_header(const std::filesystem::path& path,
                                         std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < kLengthBytes) {
    fail(ErrorCode::kDataLoss, "{}: has {} bytes, too few for a safetensors file; it may be cut short",
         path.string(), bytes.size());
  }
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeader) {
    fail(ErrorCode::kDataLoss,
         "{}: says that its header has {} bytes (at most {} are read); it is no safetensors file",
         path.string(), length, kMaxHeader);
  }
  if (length > bytes.size() - kLengthBytes) {
    fail(ErrorCode::kDataLoss,
         "{}: its header should have {} bytes, but the file ends after {}; it may be cut short",
         path.string(), length, bytes.size() - kLengthBytes);
  }
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                        static_cast<std::size_t>(length));
  json header = parse_json(text, fmt::format("{}: safetensors header", path.string()), 3);
  if (!header.is_object()) {
    fail(ErrorCode::kDataLoss, "{}: the safetensors header is no JSON object", path.string());
  }
  return {std::move(header), kLengthBytes + static_cast<std::size_t>(length)};
}

const json& entry(const json& info, const char* key, const std::string& where) {
  auto found = info.is_object() ? info.find(key) : info.end();
  if (!info.is_object() || found == info.end()) fail(ErrorCode::kDataLoss, "{}: has no \"{}\"", where, key);
  return *found;
}

DType read_dtype(const json& value, const std::string& where) {
  if (!value.is_string()) fail(ErrorCode::kDataLoss, "{}: its dtype is no text", where);
  const auto& name = value.get_ref<const std::string&>();
  auto dtype = dtype_from_safetensors_name(name);
  if (!dtype) fail(ErrorCode::kDataLoss, "{}: unknown dtype {}", where, quote(name));
  return *dtype;
}

Shape read_shape(const json& value, const std::string& where) {
  if (!value.is_array()) fail(ErrorCode::kDataLoss, "{}: its shape is no list", where);
  if (value.size() > Shape::kMaxRank) {
    fail(ErrorCode::kDataLoss, "{}: its shape has {} axes; at most {} are supported", where, value.size(),
         Shape::kMaxRank);
  }
  std::vector<std::int64_t> dims;
  for (const json& d : value) {
    if (!d.is_number_unsigned() || d.get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
      fail(ErrorCode::kDataLoss, "{}: its shape holds {}, which is no extent", where, quote(d.dump()));
    }
    dims.push_back(d.get<std::int64_t>());
  }
  try {
    return Shape(dims);
  } catch (const Error& e) {
    fail(ErrorCode::kDataLoss, "{}: {}", where, e.what());
  }
}

// Bytes that the elements take, or nothing if they do not fill whole bytes or the count does not fit.
std::optional<std::uint64_t> bytes_of(const Shape& shape, DType dtype) {
  auto elements = static_cast<std::uint64_t>(shape.elements());
  auto bits = static_cast<std::uint64_t>(dtype_bits(dtype));
  if (elements > (std::uint64_t{1} << 62) / bits || elements * bits % 8 != 0) return std::nullopt;
  return elements * bits / 8;
}

std::span<const std::byte> read_range(const json& value, std::span<const std::byte> data,
                                      const std::string& where) {
  bool ok =
      value.is_array() && value.size() == 2 && value[0].is_number_unsigned() && value[1].is_number_unsigned();
  if (!ok)
    fail(ErrorCode::kDataLoss, "{}: its data_offsets are {}, not two numbers", where, quote(value.dump()));
  auto begin = value[0].get<std::uint64_t>(), end = value[1].get<std::uint64_t>();
  if (begin > end)
    fail(ErrorCode::kDataLoss, "{}: its data begin at {}, after their end at {}", where, begin, end);
  if (end > data.size()) {
    fail(ErrorCode::kDataLoss,
         "{}: its data end at {}, but the file has {} bytes of data; it may be cut short", where, end,
         data.size());
  }
  return data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

TensorView read_tensor_info(const std::string& name, const json& info, std::span<const std::byte> data,
                            const std::filesystem::path& path) {
  std::string where = at(path, name);
  TensorView tensor;
  tensor.name = name;
  tensor.dtype = read_dtype(entry(info, "dtype", where), where);
  tensor.shape = read_shape(entry(info, "shape", where), where);
  tensor.data = read_range(entry(info, "data_offsets", where), data, where);
  auto wanted = bytes_of(tensor.shape, tensor.dtype);
  if (!wanted || *wanted != tensor.data.size()) {
    fail(ErrorCode::kDataLoss, "{}: has {} bytes of data, which is not what {}{} takes", where,
         tensor.data.size(), dtype_name(tensor.dtype), to_string(tensor.shape));
  }
  return tensor;
}

std::map<std::string, std::string> read_metadata(const json& value, const std::filesystem::path& path) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) fail(ErrorCode::kDataLoss, "{}: __metadata__ is no JSON object", path.string());
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      fail(ErrorCode::kDataLoss, "{}: __metadata__ {} is no text", path.string(), quote(key));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// No two tensors share a byte, and the last one ends where the file does.
void check_layout(const std::vector<TensorView>& tensors, std::span<const std::byte> data,
                  const std::filesystem::path& path) {
  std::vector<const TensorView*> order;
  for (const TensorView& t : tensors) {
    if (!t.data.empty()) order.push_back(&t);
  }
  std::ranges::sort(order, {}, [](const TensorView* t) { return t->data.data(); });
  const std::byte* end = data.data();
  const TensorView* previous = nullptr;
  for (const TensorView* t : order) {
    if (t->data.data() < end) {
      fail(ErrorCode::kDataLoss, "{}: its data overlap those of tensor {}", at(path, t->name),
           quote(previous->name));
    }
    end = t->data.data() + t->data.size();
    previous = t;
  }
  auto rest = data.data() + data.size() - end;
  if (rest != 0) {
    fail(ErrorCode::kDataLoss, "{}: {} bytes follow the last tensor{}; the file is damaged", path.string(),
         rest, previous == nullptr ? "" : " " + quote(previous->name));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  auto file = MappedFile::open(path);
  auto [header, data_begin] = read_header(path, file->bytes());
  auto data = file->bytes().subspan(data_begin);
  for (const auto& [name, info] : header.items()) {
    if (name == kMetadataKey) {
      metadata_ = read_metadata(info, path);
      continue;
    }
    tensors_.push_back(read_tensor_info(name, info, data, path));
    tensors_.back().owner = file;
  }
  std::ranges::sort(tensors_, {}, &TensorView::name);
  check_layout(tensors_, data, path);
  std::erase_if(tensors_, [](const TensorView& t) { return t.name.starts_with(kPaddingPrefix); });
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  auto found = std::ranges::lower_bound(tensors_, name, {},
                                        [](const TensorView& t) { return std::string_view(t.name); });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  std::uint64_t offset = 0;
  for (const TensorView& t : tensors) {
    if (t.name.empty() || t.name == kMetadataKey || header.contains(t.name)) {
      invalid_argument("{}: the name is empty, reserved or given twice", at(path, t.name));
    }
    if (bytes_of(t.shape, t.dtype) != t.data.size()) {
      invalid_argument("{}: {} bytes were given for {}{}", at(path, t.name), t.data.size(),
                       dtype_name(t.dtype), to_string(t.shape));
    }
    json shape = json::array();
    for (std::int64_t d : t.shape) shape.push_back(static_cast<std::uint64_t>(d));
    header[t.name] = {{"dtype", dtype_safetensors_name(t.dtype)},
                      {"shape", std::move(shape)},
                      {"data_offsets", {offset, offset + t.data.size()}}};
    offset += t.data.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    invalid_argument("{}: a tensor's name or a metadata entry is not UTF-8", path.string());
  }
  text.append((kDataAlignment - (kLengthBytes + text.size()) % kDataAlignment) % kDataAlignment, ' ');
  if (text.size() > kMaxHeader)
    invalid_argument("{}: a header of {} bytes is too long", path.string(), text.size());

  AtomicFile file(path);
  std::uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (const TensorView& t : tensors) file.write(t.data);
  file.commit();
}

}  // namespace tessera::checkpoint
