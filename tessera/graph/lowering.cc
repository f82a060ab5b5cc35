#include "tessera/graph/lowering.h"

#include "tessera/base/error.h"

namespace tessera::graph {

void LoweringTable::add(std::string_view op, Lowering lowering, std::string_view platform) {
  table_[{std::string(op), std::string(platform)}] = lowering;
}

Lowering LoweringTable::find(std::string_view op, std::string_view platform) const {
  for (std::string_view p : {platform, std::string_view()}) {
    auto it = table_.find(std::pair(std::string(op), std::string(p)));
    if (it != table_.end()) return it->second;
  }
  fail(ErrorCode::kUnimplemented, "the operation {} has no lowering for the platform {}", op, platform);
}

}  // namespace tessera::graph
