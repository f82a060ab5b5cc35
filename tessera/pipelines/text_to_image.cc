#include "tessera/pipelines/text_to_image.h"

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera::pipelines {

void TextToImage::settle(const LoadOptions& options) {
  if (options.tensor_parallel && options.device)
    invalid_argument("a pipeline is split over a mesh or goes to a device, not both");
  if (options.tensor_parallel) {
    for (Component* component : residence_.components())
      component->on_one_device = options.tensor_parallel->vae_on_one_device && component->name == "vae";
    residence_.split_over(options.tensor_parallel->mesh);
  }
  if (options.device) to(*options.device);
}

void TextToImage::to(const DeviceName& device) { residence_.to(residence_.context().mesh(device)); }

std::int64_t TextToImage::bytes_read() const {
  std::int64_t bytes = 0;
  for (const Component* component : residence_.components()) bytes += component->store->bytes_read();
  return bytes;
}

void TextToImage::enable_model_cpu_offload(const std::optional<DeviceName>& device) {
  offload(device, Offload::kModel);
}

void TextToImage::enable_group_offload(const std::optional<DeviceName>& device) {
  offload(device, Offload::kGroup);
}

void TextToImage::offload(const std::optional<DeviceName>& device, Offload offload) {
  std::optional<DeviceName> chosen = device ? device : residence_.context().first_accelerator();
  if (!chosen) log(LogLevel::kWarning, "offload: there is no accelerator; the work is done on the CPU");
  residence_.offload_to(residence_.context().mesh(chosen.value_or(DeviceName{})), offload);
}

nn::Module& TextToImage::module(std::string_view name) {
  std::string names;
  for (Component* component : residence_.components()) {
    if (component->name == name) return *component->module;
    names.append(names.empty() ? "" : ", ").append(component->name);
  }
  invalid_argument("{} has no component '{}'; its components are {}", class_name(), name, names);
}

}  // namespace tessera::pipelines
