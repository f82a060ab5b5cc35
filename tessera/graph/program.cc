#include "tessera/graph/program.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tessera/base/error.h"

namespace tessera::graph {
namespace {

// Collects the bytes that a fingerprint hashes.
class Hasher {
 public:
  Hasher() { bytes_.reserve(512); }
  void add(std::int64_t v) { bytes_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void add(std::string_view s) {
    add(static_cast<std::int64_t>(s.size()));
    bytes_.append(s);
  }
  void add(const TensorType& type) {
    add(static_cast<std::int64_t>(type.dtype));
    add(static_cast<std::int64_t>(type.shape.rank()));
    for (std::int64_t d : type.shape) add(d);
  }
  void add(const Attribute& attribute) {
    add(static_cast<std::int64_t>(attribute.index()));
    std::visit(
        [this](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
            add(static_cast<std::int64_t>(v.size()));
            for (std::int64_t x : v) add(x);
          } else if constexpr (std::is_same_v<T, std::string>) {
            add(std::string_view(v));
          } else if constexpr (std::is_same_v<T, double>) {
            bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
          } else {
            add(static_cast<std::int64_t>(v));
          }
        },
        attribute);
  }
  Fingerprint finish() const {
    XXH128_hash_t h = XXH3_128bits(bytes_.data(), bytes_.size());
    return {h.low64, h.high64};
  }

 private:
  std::string bytes_;
};

// Visits the graph below the outputs without recursion (a pending graph can be deep) and numbers what it
// meets.
class Cutter {
 public:
  explicit Cutter(Program& program) : program_(program) {}

  void visit(const NodePtr& root) {
    if (numbers_.contains(root.get())) return;
    stack_.push_back({root, 0});
    while (!stack_.empty()) {
      // By value: push_back below may move the stack.
      auto [node, next] = stack_.back();
      if (numbers_.contains(node.get())) {
        stack_.pop_back();
      } else if (node->state() != Node::State::kPending) {
        node->buffers();  // throws what made it fail
        numbers_[node.get()] = ~static_cast<std::int64_t>(program_.arguments.size());
        program_.arguments.push_back(node);
        stack_.pop_back();
      } else if (next < node->operands().size()) {
        ++stack_.back().second;
        stack_.push_back({node->operands()[next], 0});
      } else {
        numbers_[node.get()] = static_cast<std::int64_t>(program_.steps.size());
        program_.steps.push_back(node);
        stack_.pop_back();
      }
    }
  }
  std::int64_t number(const Node* node) const { return numbers_.at(node); }

 private:
  Program& program_;
  std::vector<std::pair<NodePtr, std::size_t>> stack_;
  std::unordered_map<const Node*, std::int64_t> numbers_;
};

// Collects what the outputs need into `program` and gives each node's number: steps count up from 0,
// arguments down from -1.
class Numbers {
 public:
  Numbers(Program& program, std::span<const NodePtr> outputs) : program_(program) {
    if (outputs.size() == 1 && all_there(*outputs.front())) {
      cut_one(outputs.front());
      return;
    }
    cutter_.emplace(program);
    for (const NodePtr& output : outputs) cutter_->visit(output);
  }
  std::int64_t operator()(const NodePtr& node) const {
    if (cutter_) return cutter_->number(node.get());
    if (node == program_.steps.front()) return 0;
    return ~(std::ranges::find(program_.arguments, node) - program_.arguments.begin());
  }

 private:
  static bool all_there(const Node& node) {
    return std::ranges::none_of(
        node.operands(), [](const NodePtr& operand) { return operand->state() == Node::State::kPending; });
  }
  // A single operation, as strict eager has them, needs no search.
  void cut_one(const NodePtr& node) {
    for (const NodePtr& operand : node->operands()) {
      operand->buffers();  // throws what made it fail
      if (std::ranges::find(program_.arguments, operand) == program_.arguments.end())
        program_.arguments.push_back(operand);
    }
    program_.steps.push_back(node);
  }

  Program& program_;
  std::optional<Cutter> cutter_;
};

}  // namespace

Program cut(std::span<const NodePtr> outputs) {
  Program program;
  program.outputs.assign(outputs.begin(), outputs.end());
  program.mesh = outputs.front()->mesh();
  Numbers numbers(program, outputs);

  Hasher hasher;
  hasher.add(std::string_view(program.mesh->platform));
  hasher.add(static_cast<std::int64_t>(program.mesh->size()));
  hasher.add(static_cast<std::int64_t>(program.arguments.size()));
  for (const NodePtr& argument : program.arguments) hasher.add(argument->type());
  hasher.add(static_cast<std::int64_t>(program.steps.size()));
  for (const NodePtr& step : program.steps) {
    hasher.add(step->op()->name);
    hasher.add(static_cast<std::int64_t>(step->attributes().items().size()));
    for (const auto& [name, value] : step->attributes().items()) {
      hasher.add(name);
      hasher.add(value);
    }
    hasher.add(static_cast<std::int64_t>(step->operands().size()));
    for (const NodePtr& operand : step->operands()) hasher.add(numbers(operand));
    hasher.add(step->type());
  }
  for (const NodePtr& output : outputs) hasher.add(numbers(output));
  program.fingerprint = hasher.finish();
  return program;
}

std::string write_text(const Program& program, const LoweringTable& lowerings, std::span<const int> aliases) {
  Writer writer;
  std::unordered_map<const Node*, Value> values;
  for (std::size_t i = 0; i < program.arguments.size(); ++i) {
    const NodePtr& argument = program.arguments[i];
    values[argument.get()] = writer.argument(argument->type(), aliases.empty() ? -1 : aliases[i]);
  }
  for (const NodePtr& step : program.steps) {
    std::vector<Value> operands;
    for (const NodePtr& operand : step->operands()) operands.push_back(values.at(operand.get()));
    Lowering lowering = lowerings.find(step->op()->name, program.mesh->platform);
    Value value = lowering(writer, {*step->op(), step->attributes(), step->type()}, operands);
    check_internal(value.type == step->type(), std::string(step->op()->name) + ": the lowering's type " +
                                                   to_string(value.type) + " is not the shape rule's " +
                                                   to_string(step->type()));
    values[step.get()] = std::move(value);
  }
  std::vector<Value> results;
  for (const NodePtr& output : program.outputs) results.push_back(values.at(output.get()));
  return writer.module(results);
}

}  // namespace tessera::graph
