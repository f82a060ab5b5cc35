#include "tessera/nn/module.h"

#include "tessera/base/error.h"

namespace tessera::nn {
namespace {

void check(const std::string& what, const CompileOptions& options) {
  if (!options.dynamic) return;
  invalid_argument(
      "{}: dynamic = true is not possible, because programs have static shapes; leave it out: each new size "
      "is compiled once and kept",
      what);
}

}  // namespace

void Module::compile(const CompileOptions& options) {
  check(class_name_, options);
  whole_ = options;
  blocks_.reset();
}

void Module::compile_repeated_blocks(const CompileOptions& options) {
  check(class_name_, options);
  if (!has_repeated_blocks_) {
    invalid_argument("{} has no repeated blocks; compile it as a whole, with compile()", class_name_);
  }
  blocks_ = options;
  whole_.reset();
}

void Module::compile_nothing() {
  whole_.reset();
  blocks_.reset();
}

void Module::announce(const std::string& block) const {
  if (Recording::current() != nullptr) {
    invalid_argument("{}: its blocks come one by one, and cannot be part of a larger program", class_name_);
  }
  PendingGraph::of_this_thread().cut();
  watcher_->before(block);
}

Module::Region::Region(const std::string& what, const std::optional<CompileOptions>& compiled,
                       std::shared_ptr<const std::string> where)
    : inside_(Recording::current() != nullptr) {
  if (!inside_) {
    PendingGraph::of_this_thread().cut();
    if (compiled) recording_.emplace(what, compiled->fullgraph);
  }
  if (where) location_.emplace(std::move(where));
}

void Module::Region::finish() {
  location_.reset();
  recording_.reset();
  if (!inside_) PendingGraph::of_this_thread().cut();
}

}  // namespace tessera::nn
