#include <cstdio>

#include "tessera/base/error.h"
#include "tessera/base/shape.h"

// Uses a header, a symbol of a library and an exception of the installed package.
int main() {
  auto shape = tessera::broadcast_shapes({3, 1}, {2});
  if (tessera::to_string(shape) != "[3, 2]") return 1;
  try {
    tessera::broadcast_shapes({3}, {2});
    return 1;
  } catch (const tessera::Error& error) {
    std::printf("%s\n", error.what());
    return error.code() == tessera::ErrorCode::kInvalidArgument ? 0 : 1;
  }
}
