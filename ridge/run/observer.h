#pragma once

#include <chrono>
#include <cstddef>

#include "ridge/graph/graph.h"
#include "ridge/run/allocator.h"

namespace ridge {

using Clock = std::chrono::steady_clock;

// Hears what an executor does, while it does it, on the executor's thread. The engine knows nothing
// of what observers make of it; without observers it does not even look at the clock.
class Observer {
 public:
  virtual ~Observer() = default;
  // Immediately before a node's clock starts; on_node() follows when its kernel has returned.
  virtual void on_node_begin(const Graph&, NodeId) {}
  virtual void on_node(const Graph&, NodeId, Clock::time_point /*begin*/,
                       Clock::time_point /*end*/) {}
  // The same of a captured graph of kernels that the device runs at one call. Then follow, phase by
  // phase, the nodes that it holds and what became of memory, in the order in which the device gets
  // there; on_phase() has no meaningful times.
  virtual void on_replay_begin(const Graph&) {}
  virtual void on_replay(const Graph&, Clock::time_point /*begin*/, Clock::time_point /*end*/) {}
  virtual void on_replayed(const Graph&, NodeId) {}
  // Whether nodes must be launched one by one even where they could be replayed.
  virtual bool wants_nodes() const { return true; }
  // A storage was allocated or released. An observer that joins late first hears of all that is
  // alive already.
  virtual void on_allocate(const Graph&, ValueId, const void* /*address*/, std::size_t /*bytes*/,
                           const MemoryStats&) {}
  virtual void on_release(const Graph&, ValueId, const void* /*address*/, std::size_t /*bytes*/,
                          const MemoryStats&) {}
  // The same of a node's workspace, which belongs to no value.
  virtual void on_workspace(const Graph&, NodeId, const void* /*address*/, std::size_t /*bytes*/,
                            const MemoryStats&) {}
  virtual void on_workspace_release(const Graph&, NodeId, const void* /*address*/,
                                    std::size_t /*bytes*/, const MemoryStats&) {}
  virtual void on_phase_begin(Phase) {}
  virtual void on_phase(Phase, Clock::time_point /*begin*/, Clock::time_point /*end*/) {}
};

}  // namespace ridge
