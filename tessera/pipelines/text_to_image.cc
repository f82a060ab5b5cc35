#include "tessera/pipelines/text_to_image.h"

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera::pipelines {

void TextToImage::to(const DeviceName& device) { residence_.to(residence_.context().mesh(device)); }

void TextToImage::enable_model_cpu_offload(const std::optional<DeviceName>& device) {
  std::optional<DeviceName> chosen = device ? device : residence_.context().first_accelerator();
  if (!chosen) log(LogLevel::kWarning, "model offload: there is no accelerator; the work is done on the CPU");
  residence_.offload_to(residence_.context().mesh(chosen.value_or(DeviceName{})));
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
