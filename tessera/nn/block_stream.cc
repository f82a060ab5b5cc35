#include "tessera/nn/block_stream.h"

#include <utility>

#include "tessera/base/error.h"

namespace tessera::nn {

BlockStream::BlockStream(Module& module, ParameterStore& store, Context& context, graph::MeshPtr mesh,
                         DType dtype, Around around)
    : module_(module),
      store_(store),
      context_(context),
      mesh_(std::move(mesh)),
      dtype_(dtype),
      around_(std::move(around)),
      blocks_(store.blocks()),
      placed_(blocks_.size()) {
  if (module.is_compiled()) {
    invalid_argument(
        "{} is compiled as a whole, which needs all its weights at once; with group offload compile its "
        "repeated "
        "blocks (compile_repeated_blocks, --mode compile-blocks)",
        module.class_name());
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) numbers_[blocks_[i].path()] = i;
  store_.drop();
  try {
    store_.place(store_.outside_blocks(), context_, mesh_, dtype_);
    if (!blocks_.empty()) upload(0);
  } catch (...) {
    store_.drop();
    throw;
  }
  module_.watch_blocks(this);
}

BlockStream::~BlockStream() {
  module_.watch_blocks(nullptr);
  if (coming_.valid()) coming_.wait();
  context_.synchronise();
  store_.drop();
}

void BlockStream::upload(std::size_t block) {
  auto place = [&] { store_.place(blocks_[block], context_, mesh_, dtype_); };
  if (around_) {
    around_(blocks_[block].path(), place);
  } else {
    place();
  }
  placed_[block] = true;
}

void BlockStream::await_upload() {
  if (!coming_.valid()) return;
  try {
    coming_.get();
  } catch (...) {
    store_.drop(blocks_[next_]);
    throw;
  }
}

void BlockStream::before(const std::string& block) {
  auto found = numbers_.find(block);
  check_internal(found != numbers_.end(), "a block without weights of its own is run");
  std::size_t now = found->second;
  await_upload();
  // Work in flight may still read the blocks that go.
  context_.synchronise();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (i == now || !placed_[i]) continue;
    store_.drop(blocks_[i]);
    placed_[i] = false;
  }
  if (!placed_[now]) upload(now);
  // After the last comes the first of the next call.
  next_ = (now + 1) % blocks_.size();
  if (next_ != now) coming_ = std::async(std::launch::async, [this, next = next_] { upload(next); });
}

}  // namespace tessera::nn
