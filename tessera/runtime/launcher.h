#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/graph/program.h"
#include "tessera/pjrt/pjrt.h"
#include "tessera/runtime/compiler.h"
#include "tessera/runtime/memory.h"
#include "tessera/runtime/run_ahead.h"

namespace tessera {

// One plugin's client under one device name, with what is counted on its devices.
struct ClientState {
  std::string device;
  std::shared_ptr<const pjrt::Client> client;
  std::vector<std::shared_ptr<MemoryAccount>> accounts;  // one a device
  RunAhead run_ahead;
  // Held while a program of several devices is launched where the plugin's collectives would meet in the
  // wrong order (Traits::concurrent_collectives), until one with collectives is done.
  std::mutex collectives;
};

// A buffer whose bytes, allocated on the account before, are counted until its last handle is gone.
pjrt::BufferPtr counted(pjrt::BufferPtr buffer, std::shared_ptr<MemoryAccount> account, std::int64_t bytes);

// Which arguments may give their memory to which output, as write_text wants it, where nobody but the program
// holds them and its outputs are all that is held of it; empty for none.
std::vector<int> choose_aliases(const graph::Program& program);

// Runs the program on its mesh (asynchronously) and materialises its outputs. Throws without having changed a
// node. With kOutputsOnly, operands that die give their memory to results of their type.
void launch(const graph::Program& program, graph::Liveness liveness, Compiler& compiler, ClientState& client);

}  // namespace tessera
