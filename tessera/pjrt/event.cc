#include <utility>

#include "tessera/base/error.h"
#include "tessera/pjrt/api.h"

namespace tessera::pjrt {

Event::Event(std::shared_ptr<const Api> api, void* event) : api_(std::move(api)), event_(event) {}

Event::Event(Event&& other) noexcept
    : api_(std::move(other.api_)), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(event_, other.event_);
  return *this;
}

Event::~Event() {
  if (event_ == nullptr) return;
  auto args = make_args<PJRT_Event_Destroy_Args>(PJRT_Event_Destroy_Args_STRUCT_SIZE);
  args.event = static_cast<PJRT_Event*>(event_);
  if (auto destroy = api_->find(&PJRT_Api::PJRT_Event_Destroy)) api_->drop(destroy(&args));
}

bool Event::ready() const {
  if (event_ == nullptr) return true;
  auto args = make_args<PJRT_Event_IsReady_Args>(PJRT_Event_IsReady_Args_STRUCT_SIZE);
  args.event = static_cast<PJRT_Event*>(event_);
  TESSERA_PJRT(*api_, PJRT_Event_IsReady, args);
  return args.is_ready;
}

void Event::await() const {
  if (event_ == nullptr) return;
  auto args = make_args<PJRT_Event_Await_Args>(PJRT_Event_Await_Args_STRUCT_SIZE);
  args.event = static_cast<PJRT_Event*>(event_);
  TESSERA_PJRT(*api_, PJRT_Event_Await, args);
}

}  // namespace tessera::pjrt
