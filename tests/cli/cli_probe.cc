// Looks into what the program wrote, and damages checkpoints for tests.
// usage: cli_probe json POINTER...       reads one JSON object from standard input, prints the values at the
// pointers
//        cli_probe png FILE              prints "WIDTHxHEIGHT", lines KEYWORD=TEXT, and a hash of the pixels
//        cli_probe tensors FILE          prints the names in a safetensors file
//        cli_probe edit FILE drop NAME | rename NAME NEW | copy NAME NEW | flatten NAME | nan NAME
//        cli_probe raw FILE HEADER BYTES writes a safetensors file with that header and so many zero bytes of
//        data
#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/checkpoint/safetensors.h"
#include "tessera/image/png.h"

namespace {

using Arguments = std::vector<std::string>;
namespace fs = std::filesystem;
namespace checkpoint = tessera::checkpoint;

void print_json(const Arguments& pointers) {
  nlohmann::json json = nlohmann::json::parse(std::cin);  // throws unless it is one value and nothing else
  if (!json.is_object()) throw std::runtime_error("no JSON object");
  for (const std::string& pointer : pointers) {
    std::cout << json.at(nlohmann::json::json_pointer(pointer)).dump() << '\n';
  }
}

void print_png(const fs::path& file) {
  tessera::image::PngFile png = tessera::image::read_png(file);
  std::cout << png.image.width << 'x' << png.image.height << '\n';
  for (const auto& [keyword, text] : png.text) std::cout << keyword << '=' << text << '\n';
  const auto& pixels = png.image.pixels;
  std::string_view bytes(reinterpret_cast<const char*>(pixels.data()), pixels.size());
  std::cout << "pixels " << std::hash<std::string_view>()(bytes) << '\n';
}

// The tensor as one row.
void flatten(checkpoint::TensorView& tensor) { tensor.shape = tessera::Shape{1, tensor.shape.elements()}; }

// The first element becomes a NaN; `storage` keeps the bytes.
void put_nan(checkpoint::TensorView& tensor, std::vector<std::byte>& storage) {
  storage.assign(tensor.data.begin(), tensor.data.end());
  std::uint16_t bf16 = 0x7fc0;
  float f32 = std::nanf("");
  if (tensor.dtype == tessera::DType::kBF16) {
    std::memcpy(storage.data(), &bf16, sizeof(bf16));
  } else if (tensor.dtype == tessera::DType::kF32) {
    std::memcpy(storage.data(), &f32, sizeof(f32));
  } else {
    throw std::runtime_error("nan: neither bf16 nor f32");
  }
  tensor.data = storage;
}

void edit(const fs::path& file, const std::string& what, const Arguments& names) {
  checkpoint::SafetensorsFile source(file);
  std::vector<checkpoint::TensorView> tensors;
  std::vector<std::byte> storage;
  bool found = false;
  for (checkpoint::TensorView tensor : source.tensors()) {
    if (tensor.name == names.at(0)) {
      found = true;
      if (what == "drop") continue;
      if (what == "copy") tensors.push_back(tensor);
      if (what == "rename" || what == "copy") tensor.name = names.at(1);
      if (what == "flatten") flatten(tensor);
      if (what == "nan") put_nan(tensor, storage);
    }
    tensors.push_back(tensor);
  }
  if (!found) throw std::runtime_error(fmt::format("{} has no tensor {}", file.string(), names.at(0)));
  checkpoint::write_safetensors(file, tensors);
}

void write_raw(const fs::path& file, const std::string& header, std::size_t bytes) {
  std::ofstream out(file, std::ios::binary);
  for (int i = 0; i < 8; ++i) out.put(static_cast<char>((header.size() >> (8 * i)) & 0xff));
  out << header << std::string(bytes, '\0');
  if (!out) throw std::runtime_error("cannot write " + file.string());
}

void run(const Arguments& a) {
  const std::string& command = a.at(0);
  if (command == "json") return print_json({a.begin() + 1, a.end()});
  if (command == "png") return print_png(a.at(1));
  if (command == "tensors") {
    checkpoint::SafetensorsFile file(a.at(1));
    for (const checkpoint::TensorView& tensor : file.tensors()) std::cout << tensor.name << '\n';
    return;
  }
  if (command == "edit") return edit(a.at(1), a.at(2), {a.begin() + 3, a.end()});
  if (command == "raw") return write_raw(a.at(1), a.at(2), std::stoul(a.at(3)));
  throw std::runtime_error("unknown command " + command);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "cli_probe: " << e.what() << '\n';
    return 1;
  }
}
