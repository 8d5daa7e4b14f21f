#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/ops/kernel.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/run/allocator.h"
#include "ridge/run/device.h"
#include "ridge/run/observer.h"

namespace ridge {

// Runs a graph on a device, node by node in the graph's order. Kernels are prepared once, here;
// memory of values is taken from a caching allocator as they are born and returned as they die.
// The graph must not change afterwards. Not thread-safe.
class Executor {
 public:
  // OutOfMemoryError, before anything is allocated, if the device has less than peak_bytes() left.
  Executor(Graph& graph, Device& device);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Sets every persistent value to its Init, which is a function of the seed and the value's name.
  void initialize(std::uint64_t seed);

  // Copies host data to an input or persistent value, or a readable value to the host. The sizes
  // must be equal to the value's. read() waits for the device.
  void write(Value value, std::span<const std::byte> data);
  void read(Value value, std::span<std::byte> data);
  template <class T>
  void write(Value value, std::span<const T> data) {
    write(value, std::as_bytes(data));
  }
  template <class T>
  void read(Value value, std::span<T> data) {
    read(value, std::as_writable_bytes(data));
  }
  float read_scalar(Value value);
  void fill_zero(Value value);

  // Runs the nodes of one phase. The forward phase starts a new run: whatever an unfinished run
  // left behind is released.
  void run(Phase phase);
  void run();  // all phases

  // The observer is told of everything from now on, until it is forgotten.
  void observe(Observer& observer);
  void forget(Observer& observer) { std::erase(observers_, &observer); }
  // The most bytes of tensors a run will have alive at once.
  std::size_t peak_bytes() const { return peak_bytes_; }
  const MemoryStats& memory() const { return allocator_.stats(); }
  void reset_peak_memory() { allocator_.reset_peak(); }
  Device& device() { return device_; }
  Graph& graph() { return graph_; }

 private:
  struct Step {
    KernelPtr kernel;  // null if there is nothing to run
    std::size_t workspace = 0;
  };

  void run_node(NodeId node);
  void* address(ValueId value) const;  // null while it has no memory
  void take(ValueId storage);
  void give_back(ValueId storage);
  void release_transients();

  Graph& graph_;
  Device& device_;
  Lifetimes lifetimes_;
  CachingAllocator allocator_;
  std::vector<Step> steps_;    // by node
  std::vector<void*> memory_;  // by storage; null while it has none
  std::size_t peak_bytes_ = 0;
  std::vector<Observer*> observers_;
};

}  // namespace ridge
