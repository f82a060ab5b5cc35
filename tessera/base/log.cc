#include "tessera/base/log.h"

#include <memory>
#include <mutex>

namespace tessera {
namespace {

std::mutex mutex;
std::shared_ptr<const LogCallback> current;

std::shared_ptr<const LogCallback> callback() {
  std::lock_guard lock(mutex);
  return current;
}

}  // namespace

void set_log_callback(LogCallback cb) {
  std::lock_guard lock(mutex);
  current = cb ? std::make_shared<const LogCallback>(std::move(cb)) : nullptr;
}

bool log_enabled() { return callback() != nullptr; }

void log_message(LogLevel level, const std::string& message) {
  if (auto cb = callback()) (*cb)(level, message);
}

}  // namespace tessera
