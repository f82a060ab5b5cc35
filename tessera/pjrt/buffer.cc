#include <utility>

#include "tessera/base/error.h"
#include "tessera/pjrt/api.h"

namespace tessera::pjrt {
namespace {

PJRT_Buffer* raw(void* buffer) { return static_cast<PJRT_Buffer*>(buffer); }

}  // namespace

Buffer::Buffer(std::shared_ptr<const Client> client, void* buffer)
    : client_(std::move(client)), buffer_(buffer) {}

Buffer::~Buffer() {
  const Api& api = *client_->api();
  auto args = make_args<PJRT_Buffer_Destroy_Args>(PJRT_Buffer_Destroy_Args_STRUCT_SIZE);
  args.buffer = raw(buffer_);
  if (auto destroy = api.find(&PJRT_Api::PJRT_Buffer_Destroy)) api.drop(destroy(&args));
}

std::int64_t Buffer::size_on_device() const {
  const Api& api = *client_->api();
  if (auto function = api.find(&PJRT_Api::PJRT_Buffer_OnDeviceSizeInBytes)) {
    auto args =
        make_args<PJRT_Buffer_OnDeviceSizeInBytes_Args>(PJRT_Buffer_OnDeviceSizeInBytes_Args_STRUCT_SIZE);
    args.buffer = raw(buffer_);
    PJRT_Error* error = function(&args);
    if (error == nullptr) return static_cast<std::int64_t>(args.on_device_size_in_bytes);
    api.drop(error);
  }
  return dtype_bytes(dtype(), shape().elements());
}

Shape Buffer::shape() const {
  auto args = make_args<PJRT_Buffer_Dimensions_Args>(PJRT_Buffer_Dimensions_Args_STRUCT_SIZE);
  args.buffer = raw(buffer_);
  TESSERA_PJRT(*client_->api(), PJRT_Buffer_Dimensions, args);
  return Shape(std::span<const std::int64_t>(args.dims, args.num_dims));
}

DType Buffer::dtype() const {
  auto args = make_args<PJRT_Buffer_ElementType_Args>(PJRT_Buffer_ElementType_Args_STRUCT_SIZE);
  args.buffer = raw(buffer_);
  TESSERA_PJRT(*client_->api(), PJRT_Buffer_ElementType, args);
  return from_pjrt_type(number(args.type));
}

Event Buffer::copy_to_host(std::span<std::byte> destination) const {
  Shape extents = shape();
  std::size_t dense = host_bytes(dtype(), extents);
  if (destination.size() != dense) {
    invalid_argument("copy_to_host: {} bytes of room for an array of {}", destination.size(), dense);
  }
  if (dense == 0) return {};
  // Without a layout the device's own comes back, which need not be dense and major to minor.
  std::int64_t minor_to_major[Shape::kMaxRank];
  for (int i = 0; i < extents.rank(); ++i) minor_to_major[i] = extents.rank() - 1 - i;
  auto layout = make_args<PJRT_Buffer_MemoryLayout>(PJRT_Buffer_MemoryLayout_STRUCT_SIZE);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled = make_args<PJRT_Buffer_MemoryLayout_Tiled>(PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE);
  layout.tiled.minor_to_major = minor_to_major;
  layout.tiled.minor_to_major_size = static_cast<std::size_t>(extents.rank());
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>(PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE);
  args.src = raw(buffer_);
  args.host_layout = &layout;
  args.dst = destination.data();
  args.dst_size = destination.size();
  TESSERA_PJRT(*client_->api(), PJRT_Buffer_ToHostBuffer, args);
  return {client_->api(), args.event};
}

Event Buffer::ready_event() const {
  auto args = make_args<PJRT_Buffer_ReadyEvent_Args>(PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE);
  args.buffer = raw(buffer_);
  TESSERA_PJRT(*client_->api(), PJRT_Buffer_ReadyEvent, args);
  return {client_->api(), args.event};
}

bool Buffer::is_deleted() const {
  auto args = make_args<PJRT_Buffer_IsDeleted_Args>(PJRT_Buffer_IsDeleted_Args_STRUCT_SIZE);
  args.buffer = raw(buffer_);
  TESSERA_PJRT(*client_->api(), PJRT_Buffer_IsDeleted, args);
  return args.is_deleted;
}

}  // namespace tessera::pjrt
