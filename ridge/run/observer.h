#pragma once

#include <chrono>
#include <cstddef>

#include "ridge/graph/graph.h"

namespace ridge {

using Clock = std::chrono::steady_clock;

// Hears what an executor does, while it does it, on the executor's thread. The engine knows nothing
// of what observers make of it; without observers it does not even look at the clock.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_node(const Graph&, NodeId, Clock::time_point /*begin*/,
                       Clock::time_point /*end*/) {}
  // A storage was allocated or released; `live` is what the allocator has handed out after it.
  // Workspace has no value: it is reported under the node that asked for it.
  virtual void on_allocate(const Graph&, ValueId, std::size_t /*bytes*/, std::size_t /*live*/) {}
  virtual void on_release(const Graph&, ValueId, std::size_t /*bytes*/, std::size_t /*live*/) {}
  virtual void on_workspace(const Graph&, NodeId, std::size_t /*bytes*/, std::size_t /*live*/) {}
  virtual void on_phase(Phase, Clock::time_point /*begin*/, Clock::time_point /*end*/) {}
};

}  // namespace ridge
