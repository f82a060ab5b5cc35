#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "tessera/runtime/pending.h"

namespace tessera::nn {

// How a module becomes programs, as torch.compile's arguments.
struct CompileOptions {
  // Reading a value on the host during the call is an error; otherwise it cuts the program there.
  bool fullgraph = false;
  // Programs have static shapes: each new size is compiled once and kept. True is refused.
  bool dynamic = false;
};

// Hears of each repeated block of a module's call before it is recorded, with everything before it launched.
class BlockWatcher {
 public:
  virtual ~BlockWatcher() = default;
  // `block` is its path: "transformer_blocks.3".
  virtual void before(const std::string& block) = 0;
};

// A part of a model that can be compiled: a text encoder, a transformer, a decoder.
//
// In every mode a call of a module, and each of its repeated blocks, begins and ends a program where
// operations are deferred. A compiled module is one program, with its weights and inputs as arguments: so it
// may be moved, offloaded and called with other sizes at will, and a size that was seen before compiles
// nothing. With compiled blocks there is one program for each kind of block, whatever their number.
class Module {
 public:
  // Records whole calls from now on. Throws kInvalidArgument for `dynamic`.
  void compile(const CompileOptions& options = {});
  // Records each repeated block from now on; what is between them is done in the surrounding mode. Throws
  // kInvalidArgument for `dynamic`, or if the module has no repeated blocks.
  void compile_repeated_blocks(const CompileOptions& options = {});
  // Undoes both.
  void compile_nothing();
  // Whether calls are recorded as a whole.
  bool is_compiled() const { return whole_.has_value(); }
  bool has_repeated_blocks() const { return has_repeated_blocks_; }
  // From now on the watcher, which lives as long as it is set, hears of the blocks; null for nobody.
  void watch_blocks(BlockWatcher* watcher) { watcher_ = watcher; }
  // "FluxTransformer2DModel"
  const std::string& class_name() const { return class_name_; }

 protected:
  explicit Module(std::string class_name, bool has_repeated_blocks = true)
      : class_name_(std::move(class_name)), has_repeated_blocks_(has_repeated_blocks) {}
  ~Module() = default;

  // Runs `f`, a whole call of the module, and returns what it returns.
  template <typename F>
  auto call(F&& f) const {
    return run(whole_, nullptr, f);
  }
  // Runs `f`, one repeated block; `where` is its path, for messages. What f returns or changes outside must
  // be all that is left of it: no handle on an inner value, or that becomes a result of the program too.
  template <typename F>
  auto block(const std::shared_ptr<const std::string>& where, F&& f) const {
    if (watcher_ != nullptr) announce(*where);
    return run(blocks_, where, f);
  }

 private:
  // One program's part of a call: cuts what was pending before it, and what it has left.
  class Region {
   public:
    Region(const std::string& what, const std::optional<CompileOptions>& compiled,
           std::shared_ptr<const std::string> where);
    // Cuts; not in the destructor, because that may throw.
    void finish();

   private:
    bool inside_;  // part of a larger program that is being recorded
    std::optional<Recording> recording_;
    std::optional<graph::ScopedLocation> location_;
  };

  template <typename F>
  auto run(const std::optional<CompileOptions>& compiled, std::shared_ptr<const std::string> where,
           F& f) const {
    Region region(class_name_, compiled, std::move(where));
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      region.finish();
    } else {
      auto result = f();
      region.finish();
      return result;
    }
  }

  void announce(const std::string& block) const;

  std::string class_name_;
  bool has_repeated_blocks_;
  std::optional<CompileOptions> whole_, blocks_;
  BlockWatcher* watcher_ = nullptr;
};

}  // namespace tessera::nn
