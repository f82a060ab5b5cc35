#include "tessera/kernels/cpu/handlers.h"

#include <xla/ffi/api/ffi.h>

#include <mutex>
#include <set>
#include <string>

#include "tessera/base/error.h"
#include "tessera/comm/process_group.h"

namespace tessera::kernels {
namespace {

namespace ffi = xla::ffi;

// Exceptions must not pass through the plugin.
ffi::Error all_reduce(ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::S32> turn,
                      ffi::Result<ffi::Buffer<ffi::F32>> sum, ffi::Result<ffi::Buffer<ffi::S32>> next) {
  try {
    const comm::ProcessGroup* group = comm::ProcessGroup::joined();
    check_internal(group != nullptr, "a sum over processes, and none were joined");
    group->all_reduce_sum({x.typed_data(), x.element_count()}, {sum->typed_data(), sum->element_count()});
    *next->typed_data() = *turn.typed_data() + 1;
    return ffi::Error::Success();
  } catch (const std::exception& e) {
    return ffi::Error::Internal(e.what());
  }
}

XLA_FFI_DEFINE_HANDLER(handle_all_reduce, all_reduce,
                       ffi::Ffi::Bind()
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Arg<ffi::Buffer<ffi::S32>>()
                           .Ret<ffi::Buffer<ffi::F32>>()
                           .Ret<ffi::Buffer<ffi::S32>>());

}  // namespace

void register_handlers(const pjrt::Plugin& plugin, std::string_view platform) {
  if (platform != "cpu" || !plugin.takes_ffi_handlers()) return;
  static std::mutex mutex;
  static std::set<const pjrt::Plugin*> done;  // a plugin is never unloaded
  std::lock_guard lock(mutex);
  if (done.contains(&plugin)) return;
  plugin.register_ffi_handler(kAllReduceOnHost, reinterpret_cast<void*>(handle_all_reduce), "Host");
  done.insert(&plugin);
}

}  // namespace tessera::kernels
