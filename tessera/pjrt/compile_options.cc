#include <cstdint>
#include <string>

#include "tessera/base/error.h"
#include "tessera/pjrt/pjrt.h"

// CompileOptionsProto in protobuf's wire format, by hand: the few fields that are wanted do not justify the
// library. Field numbers are those of xla/pjrt/proto/compile_options.proto and xla/xla_data.proto.
namespace tessera::pjrt {
namespace {

constexpr int kExecutableBuildOptions = 3;  // in CompileOptionsProto
constexpr int kEnvOptionOverrides = 7;      // there too: a map
constexpr int kMapKey = 1, kMapValue = 2;
constexpr int kIntField = 3;                                                // in OptionOverrideProto
constexpr int kNumReplicas = 4, kNumPartitions = 5, kDeviceAssignment = 9;  // in ExecutableBuildOptionsProto
constexpr int kOptimizationLevel = 24;                                      // there too
constexpr std::uint64_t kO1 = 19;                                           // of ExecutionOptions.EffortLevel
constexpr int kReplicaCount = 1, kComputationCount = 2, kComputationDevices = 3;  // in DeviceAssignmentProto
constexpr int kReplicaDeviceIds = 1;  // in DeviceAssignmentProto.ComputationDevice

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_int(std::string& out, int field, std::uint64_t value) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3);
  append_varint(out, value);
}

void append_message(std::string& out, int field, const std::string& message) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | 2);
  append_varint(out, message.size());
  out += message;
}

}  // namespace

void CompileOptions::set_for_platform(std::string_view platform) {
  // libtpu keeps a program's largest weight in vector memory and loads it at the end of one call for the
  // next, which will ask for another block's; what it would hold is worth more to activations.
  if (platform == "tpu") settings["xla_msa_max_cross_program_prefetches"] = 0;
}

std::string CompileOptions::serialize() const {
  // XLA ends the process for less than one replica.
  if (num_replicas < 1) invalid_argument("compile: {} replicas; at least 1 is needed", num_replicas);
  std::string build;
  append_int(build, kNumReplicas, static_cast<std::uint64_t>(num_replicas));
  append_int(build, kNumPartitions, 1);
  if (!device_ids.empty()) {
    if (static_cast<int>(device_ids.size()) != num_replicas) {
      invalid_argument("compile: {} devices for {} replicas", device_ids.size(), num_replicas);
    }
    std::string ids, computation, assignment;
    for (int id : device_ids) {
      if (id < 0) invalid_argument("compile: there is no device with id {}", id);
      append_varint(ids, static_cast<std::uint64_t>(id));
    }
    append_message(computation, kReplicaDeviceIds, ids);
    append_int(assignment, kReplicaCount, static_cast<std::uint64_t>(num_replicas));
    append_int(assignment, kComputationCount, 1);
    append_message(assignment, kComputationDevices, computation);
    append_message(build, kDeviceAssignment, assignment);
  }
  if (quick) append_int(build, kOptimizationLevel, kO1);
  std::string out;
  append_message(out, kExecutableBuildOptions, build);
  for (const auto& [name, number] : settings) {
    std::string value, entry;
    append_int(value, kIntField, static_cast<std::uint64_t>(number));
    append_message(entry, kMapKey, name);
    append_message(entry, kMapValue, value);
    append_message(out, kEnvOptionOverrides, entry);
  }
  return out;
}

}  // namespace tessera::pjrt
