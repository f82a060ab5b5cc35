#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "tessera/nn/module.h"
#include "tessera/nn/parameter.h"

namespace tessera::nn {

// Runs a module on a device that need not hold its weights: of its repeated blocks only the one that runs is
// there and the one after it, which is uploaded meanwhile by a thread of this object's; what belongs to no
// block stays. So the device holds at most the rest and two blocks. The numbers are those of a module that is
// there as a whole.
//
// For the time that it lives the module's calls must come one after another.
class BlockStream final : BlockWatcher {
 public:
  // Called with a block's path and what uploads it, which it has to run: for traces. From any thread.
  using Around = std::function<void(const std::string& block, const std::function<void()>& upload)>;

  // Places what belongs to no block, and the first block. Throws kInvalidArgument for a module that is
  // compiled as a whole (one program, with all weights as its arguments), kOutOfMemory if that does not fit.
  BlockStream(Module& module, ParameterStore& store, Context& context, graph::MeshPtr mesh, DType dtype,
              Around around = {});
  // Waits for what is being uploaded, and for work that reads the weights; drops all of them.
  ~BlockStream() override;
  BlockStream(const BlockStream&) = delete;
  BlockStream& operator=(const BlockStream&) = delete;

 private:
  void before(const std::string& block) override;
  void upload(std::size_t block);
  void await_upload();

  Module& module_;
  ParameterStore& store_;
  Context& context_;
  graph::MeshPtr mesh_;
  DType dtype_;
  Around around_;
  std::vector<ParameterStore::Part> blocks_;
  std::map<std::string, std::size_t, std::less<>> numbers_;  // of the blocks, by path
  std::vector<bool> placed_;
  std::future<void> coming_;  // the upload of the block that comes next
  std::size_t next_ = 0;
};

}  // namespace tessera::nn
