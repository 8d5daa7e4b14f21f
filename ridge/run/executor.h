#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/device/kernel.h"
#include "ridge/device/packing.h"
#include "ridge/graph/graph.h"
#include "ridge/plan/arena.h"
#include "ridge/plan/hazards.h"
#include "ridge/plan/launch_order.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/plan/memory.h"
#include "ridge/run/allocator.h"
#include "ridge/run/arena.h"
#include "ridge/run/execution.h"
#include "ridge/run/observer.h"

namespace ridge {

// Runs a graph on a device, node by node in the graph's order. Kernels are prepared once, here. The
// graph must not change afterwards. Not thread-safe.
class Executor {
 public:
  // OutOfMemoryError, before anything is allocated, if the device has less left than peak_bytes(),
  // or than the arena needs, or too little for tensors that come and go; even before kernels are
  // prepared, which may mean to time them, if that is so without workspaces. Errors of the device,
  // here and below, name the node. UsageError for a planned graph whose nodes are not in the order
  // of their phases.
  Executor(Graph& graph, Device& device, Execution execution = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Sets every persistent value to its Init, which is a function of the seed and the value's name.
  void initialize(std::uint64_t seed);

  // Copies host data to an input or persistent value, or a readable value to the host. The sizes
  // must be equal to the value's. What is written to a value is written to its rounded copies too;
  // of a value that is shared out among ranks, each keeps its part, and all have to read together;
  // what is stored in halves (Graph::split) is given and taken as f32. read() waits for the device.
  void write(Value value, std::span<const std::byte> data);
  void read(Value value, std::span<std::byte> data);
  // Several values at once: what lies side by side, as inputs do, in one transfer.
  struct Feed {
    Value value;
    std::span<const std::byte> data;
  };
  void write(std::span<const Feed> feeds);
  template <class T>
  void write(Value value, std::span<const T> data) {
    write(value, std::as_bytes(data));
  }
  template <class T>
  void read(Value value, std::span<T> data) {
    read(value, std::as_writable_bytes(data));
  }
  // What this rank has of a value that is shared out: so many bytes, after so many of the whole;
  // nothing for other values. And the copy of these to the host, in which no other rank takes part.
  struct OwnBytes {
    std::size_t begin = 0, bytes = 0;
  };
  std::optional<OwnBytes> own_bytes(Value value) const;
  void read_own(Value value, std::span<std::byte> data);
  float read_scalar(Value value);
  std::vector<float> read_floats(Value value);  // of any floating dtype
  void fill_zero(Value value);
  // Enqueues the copy of a value to memory of Device::allocate_host().
  void read_later(Value value, void* host);

  // Runs the nodes of one phase, and with the backward phase the updates among its nodes. The
  // forward phase starts a new run: whatever an unfinished run left behind is released.
  void run(Phase phase);
  // All phases, with marks on the device (Device::mark) numbered from `first_mark` before the first
  // and after each: phase_marks in all. A planned graph is one captured launch where the device can
  // capture; for each first_mark another.
  static constexpr std::size_t phase_marks = 4;
  void run(std::size_t first_mark = 0);
  // Captures that launch now, so that no later run takes the time for it. Comes after a run, which
  // has loaded the code of all kernels: that cannot be captured.
  void capture(std::size_t first_mark);

  // The observer is told of everything from now on, until it is forgotten.
  void observe(Observer& observer);
  void forget(Observer& observer) { std::erase(observers_, &observer); }
  // Captures again what was captured before the device began, or ended, to be traced: a tracer
  // learns from the capture whose the launches are, and a graph that was traced stays slower. Else
  // the next run does so.
  void renew_captures();
  // Kernels of a run, phase after phase: nodes, but those with nothing to do.
  std::size_t launches() const;
  std::size_t launches(Phase phase) const;
  // Whether nodes of the optimizer come before the end of the backward phase, with which they run.
  bool updates_in_backward() const;
  // The most bytes of tensors a run will have alive at once.
  std::size_t peak_bytes() const { return plan_.peak_bytes; }
  // By use, and when: all that a run will have alive.
  const MemoryPlan& memory_plan() const { return plan_; }
  // What is in use, and what is reserved of the device for it: the whole arena, if planned.
  const MemoryStats& memory() const { return arena_ ? arena_->stats() : allocator_.stats(); }
  void reset_peak_memory() { arena_ ? arena_->reset_peak() : allocator_.reset_peak(); }
  Device& device() { return device_; }
  Graph& graph() { return graph_; }

 private:
  struct Step {
    KernelPtr kernel;  // null if there is nothing to run
    std::size_t workspace = 0;
    // The kernel's operands; fixed if planned, else until the next launch.
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* scratch = nullptr;

    Launch call() const { return {inputs, outputs, scratch}; }
  };
  // A planned phase: its launches, and what they make of the memory.
  struct Replay {
    std::vector<NodeId> launches;     // of the nodes that have a kernel
    std::vector<ValueId> born, dead;  // storages alive only after it, or only before it
    Arena::Usage usage;
  };

  // A node whose kernel keeps an input that never changes in an order of its own.
  struct PackedInput {
    NodeId node = no_node;
    PackingKernel* kernel = nullptr;
    ValueId value = no_value;
    std::size_t bytes = 0;
    void* memory = nullptr;
  };

  void prepare(const KernelChoice& kernels);
  void choose_packed_inputs();
  void place_packed_inputs();
  void pack_inputs();  // where they have been written to since
  void check_memory(std::size_t needed, const TensorBytes& parts) const;
  void check_pieces(std::span<const std::size_t> workspace) const;  // unless planned
  void plan(std::span<const std::size_t> workspace, const TensorBytes& parts);
  Replay replay_of(Phase phase) const;
  void replay(Phase phase);
  void count(const Replay& replay);
  // The launches of some phases, marked if asked for, as one launch.
  void launch_at_once(std::span<const Phase> phases, std::optional<std::size_t> first_mark);
  const Kernel* captured(std::span<const Phase> of, std::optional<std::size_t> first_mark);
  // A node's launch in a captured run, or one part of it.
  struct PlannedLaunch {
    enum class Part : std::uint8_t { whole, first, rest };
    NodeId node = no_node;
    Part part = Part::whole;
    std::uint32_t place = 0;  // of the node among those that tell_replay() will name
  };
  void launch_for_capture(const PlannedLaunch& launch) const;
  void launch_captured(const Kernel& kernel);
  void tell_replay(Phase phase);
  bool wants_nodes() const;  // an observer does
  std::vector<DeviceWork> works_of(std::span<const Phase> phases,
                                   std::optional<std::size_t> first_mark) const;
  // The launches of a phase, whose first node has this place.
  std::vector<PlannedLaunch> launches_of(Phase phase, std::size_t first_place) const;
  std::vector<Access> accesses_of(const PlannedLaunch& launch) const;
  Footprint footprint_of(const PlannedLaunch& launch) const;

  void write_values(Value value, std::span<const float> values);
  void write_copies(ValueId written, std::span<const std::byte> data);
  // The memory of a value stored in halves, or of a part of one: where its elements begin.
  struct Halves {
    std::uint16_t *upper, *lower;
  };
  std::optional<Halves> halves_of(ValueId value) const;
  void write_halves(const Halves& halves, std::span<const std::byte> floats);
  // Of a value that is shared out: the elements of it that this rank has, where they lie, and after
  // how many bytes of it they begin.
  struct OwnPart {
    std::byte* memory;
    std::size_t begin, bytes;
  };
  OwnPart own_part(ValueId value, ValueId whole) const;
  void read_shared(ValueId value, ValueId whole, std::span<std::byte> data);
  NodeId first_reader(std::span<const Feed> feeds) const;  // no_node if there is none
  void run_nodes(Phase phase);
  void run_node(NodeId node);
  void launch(NodeId node);
  void bind(NodeId node);              // fills in its step's operands
  void* address(ValueId value) const;  // null while it has no memory
  TensorBytes held() const;            // by tensors now, without workspaces
  void* allocate(std::size_t bytes, std::size_t offset);
  void release(void* memory, std::size_t bytes);
  void take(ValueId storage);
  void give_back(ValueId storage);
  void* take_workspace(NodeId node);
  void give_back_workspace(NodeId node, void* workspace);
  void release_transients();

  Graph& graph_;
  Device& device_;
  bool concurrent_, capture_;
  Lifetimes lifetimes_;
  std::vector<Phase> runs_in_;     // by node: the phase with which it runs
  CachingAllocator allocator_;     // unless planned
  std::optional<Arena> arena_;     // if planned
  ArenaPlan places_;               // in the arena
  std::array<Replay, 3> replays_;  // by phase, if planned
  // What was captured, by its first phase, the number of phases and the first mark; null until it
  // ran once without, because first launches may load code, which cannot be captured.
  using CaptureKey = std::tuple<Phase, std::size_t, std::optional<std::size_t>>;
  std::map<CaptureKey, KernelPtr> captured_;
  bool traced_capture_ = false;  // what was captured is known to the device's tracer
  std::vector<Step> steps_;      // by node
  std::vector<PackedInput> packed_inputs_;
  std::size_t packed_bytes_ = 0;
  bool wants_packing_ = false;
  std::vector<ValueId> copies_;  // of persistent values, rounded
  std::vector<void*> memory_;    // by storage; null while it has none
  MemoryPlan plan_;
  std::vector<Observer*> observers_;
};

}  // namespace ridge
