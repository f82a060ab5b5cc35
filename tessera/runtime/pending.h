#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/graph/node.h"

namespace tessera {

// The operations that one thread has recorded and not yet turned into programs. Cutting makes one program a
// mesh of everything pending: its results are the nodes that somebody outside the graph still holds, so what
// only the graph itself needs never leaves the program.
class PendingGraph {
 public:
  // A graph that grew to this is cut without being asked.
  static constexpr std::size_t kMaxNodes = 2048;
  static constexpr std::int64_t kMaxBytes = std::int64_t{4} << 30;  // of results

  static PendingGraph& of_this_thread();

  bool empty() const { return nodes_.empty(); }
  void add(const graph::NodePtr& node);
  bool over_limit() const { return nodes_.size() >= kMaxNodes || bytes_ >= kMaxBytes; }
  // Evaluates everything that is pending and still wanted. Throws the first error after all was tried.
  void cut();

 private:
  // Those that are still wanted, in the order of recording; the list is empty afterwards.
  std::vector<graph::NodePtr> take();

  std::vector<std::weak_ptr<graph::Node>> nodes_;
  std::int64_t bytes_ = 0;
};

// While one lives, this thread's operations stay pending whatever the mode, without limits: the body of a
// compiled module is recorded. The innermost one counts.
class Recording {
 public:
  // With `fullgraph`, reading a value on the host is an error that names `what`; without it the graph is cut
  // there and recording goes on.
  Recording(std::string what, bool fullgraph);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  static const Recording* current();
  // Throws kInvalidArgument if a value may not be read now.
  void check_read() const;

 private:
  std::string what_;
  bool fullgraph_;
  const Recording* outer_;
};

}  // namespace tessera
