#include "tessera/runtime/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/graph/shape_rules.h"
#include "tessera/runtime/environment_key.h"

namespace tessera {
namespace {

using graph::NodePtr;

// The operation alone, its operands as arguments.
graph::Program alone(const graph::Program& program, const NodePtr& step) {
  graph::Program out;
  out.mesh = program.mesh;
  out.steps = {step};
  out.outputs = {step};
  for (const NodePtr& operand : step->operands()) {
    if (std::ranges::find(out.arguments, operand) == out.arguments.end()) out.arguments.push_back(operand);
  }
  return out;
}

// "gelu, written in transformer.proj_mlp"
std::string describe(const graph::Node& step) {
  std::string name(step.op()->name);
  return step.where().empty() ? name : fmt::format("{}, written in {}", name, step.where());
}

Error located(const Error& error, const graph::Node& step) {
  return Error(error.code(), fmt::format("{} ({})", error.what(), describe(step)));
}

pjrt::CompileOptions options_for(const graph::Mesh& mesh, const pjrt::Client& client) {
  pjrt::CompileOptions options;
  options.set_for_platform(client.platform_name());
  // Where devices meet by themselves, a program is one for those of all processes.
  if (mesh.ranks_elsewhere > 0 && client.traits().concurrent_collectives) {
    options.num_replicas = mesh.ranks();
    for (const pjrt::DeviceInfo& device : client.devices_everywhere())
      options.device_ids.push_back(device.id);
    return options;
  }
  options.num_replicas = mesh.size();
  for (int device : mesh.devices) {
    options.device_ids.push_back(client.devices()[static_cast<std::size_t>(device)].id);
  }
  return options;
}

}  // namespace

std::string Compiler::write(const graph::Program& program, const std::vector<int>& aliases) const {
  try {
    return graph::write_text(program, lowerings_, aliases);
  } catch (const Error&) {
    for (const NodePtr& step : program.steps) {
      try {
        graph::write_text(alone(program, step), lowerings_);
      } catch (const Error& error) {
        throw located(error, *step);
      }
    }
    throw;
  }
}

std::shared_ptr<pjrt::Executable> Compiler::compile(const graph::Program& program, const pjrt::Client& client,
                                                    const std::string& text,
                                                    const pjrt::CompileOptions& options) {
  try {
    return client.compile(text, options);
  } catch (const Error& error) {
    if (program.steps.size() == 1) throw located(error, *program.steps[0]);
    for (const NodePtr& step : program.steps) {
      try {
        client.compile(write(alone(program, step), {}), options);
      } catch (const Error& of_step) {
        throw located(of_step, *step);
      }
    }
    throw;
  }
}

const std::string& Compiler::environment_of(const pjrt::Client& client) {
  std::lock_guard lock(mutex_);
  std::string& environment = environments_[&client];
  if (environment.empty()) environment = environment_key(client);
  return environment;
}

std::shared_ptr<pjrt::Executable> Compiler::load(const std::string& key, const pjrt::Client& client,
                                                 const pjrt::CompileOptions& options) {
  std::optional<std::string> bytes = disk_->load(key);
  if (!bytes) return nullptr;
  try {
    std::shared_ptr<pjrt::Executable> executable = client.deserialize(*bytes, options);
    ++disk_hits_;
    return executable;
  } catch (const Error& error) {
    disk_->forget(key, error.what());
    return nullptr;
  }
}

void Compiler::store(const std::string& key, const pjrt::Executable& executable) {
  try {
    disk_->store(key, executable.serialize());
  } catch (const Error& error) {
    // A plugin that cannot serialise its programs compiles them in each process.
    log(LogLevel::kInfo, "a program is not kept on disk: {}", error.what());
  }
}

std::unique_ptr<CompiledProgram> Compiler::make(const graph::Program& program, const pjrt::Client& client,
                                                std::vector<int> aliases) {
  auto start = std::chrono::steady_clock::now();
  std::string text = write(program, aliases);
  pjrt::CompileOptions options = options_for(*program.mesh, client);
  auto made = std::make_unique<CompiledProgram>();
  std::string key;
  if (disk_) {
    key = program_key(environment_of(client), text, options.serialize());
    made->executable = load(key, client, options);
  }
  if (!made->executable) {
    made->executable = compile(program, client, text, options);
    ++compiles_;
    compile_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (disk_) store(key, *made->executable);
  }
  made->scratch_bytes = made->executable->memory_stats().temp;
  made->aliases = std::move(aliases);
  made->has_collectives = std::ranges::any_of(
      program.steps, [](const NodePtr& step) { return step->op()->name == graph::kAllReduce.name; });
  for (const NodePtr& output : program.outputs) {
    made->output_bytes.push_back(dtype_bytes(output->type().dtype, output->type().shape.elements()));
  }
  return made;
}

CompiledProgram& Compiler::compiled(const graph::Program& program, const pjrt::Client& client,
                                    const std::vector<int>& aliases) {
  ProgramCache::Entry& entry = cache_.entry(program.fingerprint, *program.mesh);
  if (CompiledProgram* ready = entry.ready.load(std::memory_order_acquire)) {
    ++memory_hits_;
    return *ready;
  }
  std::lock_guard lock(entry.mutex);
  if (!entry.owned) {
    entry.owned = make(program, client, aliases);
    entry.ready.store(entry.owned.get(), std::memory_order_release);
  } else {
    ++memory_hits_;
  }
  return *entry.owned;
}

}  // namespace tessera
