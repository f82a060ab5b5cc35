#include "tessera/runtime/launcher.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tessera {
namespace {

using graph::NodePtr;

// The deleter of a counted buffer.
struct Release {
  pjrt::BufferPtr buffer;
  std::shared_ptr<MemoryAccount> account;
  std::int64_t bytes;
  void operator()(pjrt::Buffer*) {
    buffer.reset();
    account->release(bytes);
  }
};

// For each argument whether nobody but the program holds it, so that it dies with this launch. Uploads do not
// count: what a program made is the plugin's memory, an upload may be the host's own. So of a component's
// thousands of weights nothing is counted.
std::vector<bool> dying(const graph::Program& program) {
  std::unordered_map<const graph::Node*, long> inside;  // holders within the program; 1 for its list
  for (const NodePtr& argument : program.arguments) {
    if (argument->op() != nullptr) inside[argument.get()] = 1;
  }
  for (const NodePtr& step : program.steps) {
    for (const NodePtr& operand : step->operands()) {
      if (auto it = inside.find(operand.get()); it != inside.end()) ++it->second;
    }
  }
  std::vector<bool> out(program.arguments.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const NodePtr& argument = program.arguments[i];
    auto it = inside.find(argument.get());
    out[i] = it != inside.end() && argument.use_count() == it->second &&
             std::ranges::all_of(argument->buffers(), [](const auto& b) { return b.use_count() == 1; });
  }
  return out;
}

// Pairs dying arguments with outputs of their type.
std::vector<int> choose_aliases(const graph::Program& program, const std::vector<bool>& dies) {
  std::vector<int> aliases(program.arguments.size(), -1);
  std::vector<bool> taken(program.outputs.size());
  bool any = false;
  for (std::size_t a = 0; a < aliases.size(); ++a) {
    for (std::size_t o = 0; dies[a] && aliases[a] < 0 && o < taken.size(); ++o) {
      if (taken[o] || program.outputs[o]->type() != program.arguments[a]->type()) continue;
      taken[o] = any = true;
      aliases[a] = static_cast<int>(o);
    }
  }
  if (!any) aliases.clear();
  return aliases;
}

// What one launch gives away: which arguments, and which output has the memory of which argument.
struct Donation {
  std::vector<std::int64_t> kept;  // arguments with an alias that must survive
  std::vector<int> donor;          // for each output the argument, or -1; empty if nothing is given

  Donation(const graph::Program& program, const CompiledProgram& ready, const std::vector<bool>& dies) {
    for (std::size_t a = 0; a < ready.aliases.size(); ++a) {
      if (ready.aliases[a] < 0) continue;
      if (dies.empty() || !dies[a]) {
        kept.push_back(static_cast<std::int64_t>(a));
      } else {
        donor.resize(program.outputs.size(), -1);
        donor[static_cast<std::size_t>(ready.aliases[a])] = static_cast<int>(a);
      }
    }
  }
  int of(std::size_t output) const { return donor.empty() ? -1 : donor[output]; }
};

// Bytes allocated ahead of a launch on every device of it, given back unless they are handed on.
class Reservation {
 public:
  Reservation(ClientState& client, const std::vector<int>& devices, std::int64_t bytes)
      : Reservation(client, devices, bytes, Empty()) {
    for (int device : devices_) {
      client_.accounts[static_cast<std::size_t>(device)]->allocate(bytes_);
      ++done_;
    }
  }
  ~Reservation() {
    for (std::size_t i = 0; i < done_; ++i)
      client_.accounts[static_cast<std::size_t>(devices_[i])]->release(bytes_);
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  // The bytes belong to the results from now on; they turned out to be `actual`.
  void hand_on(std::int64_t actual) {
    for (std::size_t i = 0; i < std::exchange(done_, 0); ++i)
      client_.accounts[static_cast<std::size_t>(devices_[i])]->release(bytes_ - actual);
  }

 private:
  struct Empty {};
  // Complete before anything is allocated, so that the destructor undoes a part.
  Reservation(ClientState& client, const std::vector<int>& devices, std::int64_t bytes, Empty)
      : client_(client), devices_(devices), bytes_(bytes) {}

  ClientState& client_;
  const std::vector<int>& devices_;
  std::int64_t bytes_;
  std::size_t done_ = 0;
};

std::vector<std::vector<pjrt::BufferPtr>> execute(const graph::Program& program, const CompiledProgram& ready,
                                                  const Donation& donation, std::vector<pjrt::Event>& done) {
  std::size_t devices = program.mesh->devices.size();
  std::vector<std::vector<const pjrt::Buffer*>> arguments(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    arguments[d].reserve(program.arguments.size());
    for (const NodePtr& argument : program.arguments) arguments[d].push_back(argument->buffers()[d].get());
  }
  pjrt::ExecuteOptions options{.non_donatable = donation.kept};
  if (devices != 1) return ready.executable->execute(arguments, options, &done);
  done.resize(1);
  std::vector<std::vector<pjrt::BufferPtr>> results;
  results.push_back(ready.executable->execute_one(arguments[0], options, &done[0]));
  return results;
}

}  // namespace

std::vector<int> choose_aliases(const graph::Program& program) {
  return choose_aliases(program, dying(program));
}

pjrt::BufferPtr counted(pjrt::BufferPtr buffer, std::shared_ptr<MemoryAccount> account, std::int64_t bytes) {
  pjrt::Buffer* raw = buffer.get();
  return {raw, Release{std::move(buffer), std::move(account), bytes}};
}

void launch(const graph::Program& program, graph::Liveness liveness, Compiler& compiler,
            ClientState& client) {
  std::vector<bool> dies;
  std::vector<int> aliases;
  if (liveness == graph::Liveness::kOutputsOnly && client.client->traits().donation) {
    dies = dying(program);
    aliases = choose_aliases(program, dies);
  }
  CompiledProgram& ready = compiler.compiled(program, *client.client, aliases);
  Donation donation(program, ready, dies);
  // Bytes on a device of the outputs that get memory of their own.
  auto fresh = [&] {
    std::int64_t bytes = 0;
    const std::vector<std::int64_t>& sizes = ready.device_output_bytes();
    for (std::size_t o = 0; o < sizes.size(); ++o) bytes += donation.of(o) < 0 ? sizes[o] : 0;
    return bytes;
  };
  std::int64_t fresh_bytes = fresh();
  std::int64_t launch_bytes = fresh_bytes + ready.scratch_bytes;
  client.run_ahead.reserve(launch_bytes);

  // Counted before launching, so that a limit refuses the launch and not the device.
  const std::vector<int>& devices = program.mesh->devices;
  Reservation reservation(client, devices, fresh_bytes);
  for (int device : devices) client.accounts[static_cast<std::size_t>(device)]->scratch(ready.scratch_bytes);
  std::vector<pjrt::Event> done;
  std::unique_lock<std::mutex> turn;
  if (program.mesh->ranks() > 1 && !client.client->traits().concurrent_collectives)
    turn = std::unique_lock(client.collectives);
  std::vector<std::vector<pjrt::BufferPtr>> results = execute(program, ready, donation, done);
  if (turn && ready.has_collectives) {
    for (const pjrt::Event& event : done) event.await();
  }
  turn = {};
  for (pjrt::Event& event : done) client.run_ahead.launched(std::move(event), launch_bytes);
  ready.measure(results[0]);
  reservation.hand_on(fresh());

  for (std::size_t o = 0; o < program.outputs.size(); ++o) {
    std::vector<pjrt::BufferPtr> buffers;
    buffers.reserve(devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      std::int64_t bytes = ready.device_output_bytes()[o];
      if (int donor = donation.of(o); donor >= 0) {
        // The argument's bytes are the output's from now on.
        const NodePtr& argument = program.arguments[static_cast<std::size_t>(donor)];
        bytes = std::exchange(std::get_deleter<Release>(argument->buffers()[d])->bytes, 0);
      }
      buffers.push_back(
          counted(std::move(results[d][o]), client.accounts[static_cast<std::size_t>(devices[d])], bytes));
    }
    program.outputs[o]->materialise(std::move(buffers));
  }
}

}  // namespace tessera
