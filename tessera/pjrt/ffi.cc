#include "tessera/base/error.h"
#include "tessera/pjrt/api.h"

// The FFI extension of the PJRT C API: how a plugin learns of functions that programs call by name. Its
// structs are those of xla/pjrt/c/pjrt_c_api_ffi_extension.h, which the pinned header does not include.
namespace tessera::pjrt {
namespace {

struct RegisterHandlerArgs {
  std::size_t struct_size;
  const char* target_name;
  std::size_t target_name_size;
  void* handler;
  const char* platform_name;
  std::size_t platform_name_size;
  int traits;
};

struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_id_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterHandlerArgs* args);
};

// Null if the plugin has none, or an older one that is too short.
const FfiExtension* find_extension(const PJRT_Api& table) {
  for (const PJRT_Extension_Base* e = table.extension_start; e != nullptr; e = e->next) {
    if (number(e->type) != PJRT_Extension_Type_FFI) continue;
    const auto* found = reinterpret_cast<const FfiExtension*>(e);
    return e->struct_size >= sizeof(FfiExtension) && found->register_handler != nullptr ? found : nullptr;
  }
  return nullptr;
}

}  // namespace

bool Plugin::takes_ffi_handlers() const { return find_extension(*api_->table) != nullptr; }

void Plugin::register_ffi_handler(std::string_view name, void* handler, std::string_view platform) const {
  const FfiExtension* extension = find_extension(*api_->table);
  if (extension == nullptr) {
    fail(ErrorCode::kUnimplemented,
         "the plugin {} takes no functions that programs could call ({} was offered)", api_->path, name);
  }
  auto args = make_args<RegisterHandlerArgs>(sizeof(RegisterHandlerArgs));
  args.target_name = name.data();
  args.target_name_size = name.size();
  args.handler = handler;
  args.platform_name = platform.data();
  args.platform_name_size = platform.size();
  api_->check(extension->register_handler(&args), "PJRT_FFI_Register_Handler");
}

}  // namespace tessera::pjrt
