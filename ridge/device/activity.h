#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// Something a device did by itself, or that its driver was asked to do, as the device's own tracing
// library saw it.
struct Activity {
  enum class Kind : std::uint8_t {
    kernel,
    copy,
    fill,     // of memory with a byte or word
    call,     // on the host, of the driver's interface: a launch, a copy, a wait
    overhead  // of tracing, on the host: time that the program would not take without it
  };
  static constexpr std::uint32_t no_run = ~std::uint32_t{0};

  Kind kind = Kind::kernel;
  std::uint32_t name = 0;  // index into DeviceTrace::names
  // On whose behalf: what Tracer::enter() was told last on the thread that launched it. For a part
  // of a captured graph `node` and `captured_run` are from when it was captured, and `run` from
  // when the graph was launched.
  NodeId node = no_node;
  std::uint32_t run = no_run, captured_run = no_run;
  // The same for what ran on the device and for the call that asked for it; a launched graph shares
  // one among all its parts. 0 if there is none.
  std::uint32_t correlation = 0;
  std::uint32_t stream = 0;  // of a call or overhead: the thread, as the system numbers it
  std::int64_t begin_ns = 0, end_ns = 0;  // of Clock
  std::uint64_t bytes = 0;                // copied or filled

  // A kernel's launch: grid, thread block and resources.
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t registers = 0;                                            // per thread
  std::uint32_t static_shared = 0, dynamic_shared = 0, local_memory = 0;  // bytes; local per thread

  bool in_graph = false;  // ran as a part of a captured graph

  bool on_device() const {
    return kind == Kind::kernel || kind == Kind::copy || kind == Kind::fill;
  }
};

// What a tracer saw between start() and stop().
struct DeviceTrace {
  std::vector<Activity> activities;  // by begin
  std::vector<std::string> names;    // as the device has them: kernels' are mangled
  std::uint64_t dropped = 0;         // activities that found no room in a buffer
  // Activities that, by the clocks, began on the device before the call that launched them: a sign
  // that the device's clock was not converted well.
  std::uint64_t out_of_order = 0;
};

// What one multiprocessor of a device holds at most, and how it is handed out.
struct ProcessorLimits {
  int count = 0;  // of multiprocessors; 0 if the rest is unknown
  int warp_size = 32;
  int warps = 0, blocks = 0;
  int registers = 0;
  int shared_memory = 0;           // bytes
  int shared_memory_reserved = 0;  // bytes of each block that the system takes for itself
};

// "void ridge::gpu::add<float>(float*, int)" for what the compiler called
// _ZN5ridge3gpu3addIfEEvPfi. What is not mangled is returned as it is.
std::string demangled(const std::string& name);

// The warps that a multiprocessor can hold of such a kernel at a time, over the most it holds of
// any: 0 if it does not fit, or the limits are unknown. Registers are handed out to warps in units
// of 256, from 4 files; shared memory in units of 128 bytes (CUDA C++ programming guide, compute
// capabilities 7.0 and up).
double theoretical_occupancy(const ProcessorLimits& limits, const Activity& kernel);

// The state of a card at a moment.
struct CardState {
  std::int64_t time_ns = 0;  // of Clock
  int sm_mhz = 0, memory_mhz = 0;
  double power_w = 0;
  int temperature_c = 0;
  int busy_percent = 0, memory_busy_percent = 0;  // of the last interval that the driver averages
  std::uint64_t throttle = 0;                     // of CardState::Throttle
  enum Throttle : std::uint64_t {  // why clocks are not at their maximum (NVML's bits)
    idle = 0x1,
    application_setting = 0x2,
    power_cap = 0x4,
    hardware_slowdown = 0x8,
    sync_boost = 0x10,
    thermal = 0x20,
    hardware_thermal = 0x40,
    power_brake = 0x80,
    display_setting = 0x100
  };
};

// Hears from a device what it does, and when, on its own clock. One at a time in a process.
class Tracer {
 public:
  virtual ~Tracer() = default;

  // From now on. A graph that was captured or instantiated before is seen, but nobody knows whose
  // its parts are: capture it again. DeviceError if there is no tracing library, or it refuses.
  virtual void start() = 0;
  // Everything since start() that the device has done by now: synchronize it first.
  virtual DeviceTrace stop() = 0;
  virtual bool active() const = 0;

  // What this thread launches until leave() is on behalf of run number `run` of `node`; or of
  // whatever a graph holds, if `node` is no_node. Does nothing unless active.
  virtual void enter(NodeId node, std::uint32_t run) = 0;
  virtual void leave() = 0;
};

// Something that a device counts.
struct DeviceMetric {
  std::string name;    // "DRAM read"
  std::string unit;    // "B" or "%"
  std::string metric;  // as the device's tools name it: CUPTI, `ncu --query-metrics`
};

// Counts in hardware what ranges of a device's work do. The counters are few: to read all metrics
// the same work is done passes() times, each pass within start() and stop(). Ranges are serialized,
// so their times are not those of a free run.
class RangeCounters {
 public:
  virtual ~RangeCounters() = default;

  virtual std::span<const DeviceMetric> metrics() const = 0;
  virtual std::size_t passes() const = 0;
  virtual void start() = 0;
  virtual bool stop() = 0;  // whether that was the last pass

  // What is launched in between is one range, known by `id`. The same ids in every pass, each once;
  // ranges do not nest.
  virtual void enter(std::uint64_t id) = 0;
  virtual void leave() = 0;

  struct Range {
    std::uint64_t id = 0;
    std::vector<double> values;  // in the order of the metrics
  };
  virtual std::vector<Range> ranges() const = 0;  // after the last pass
};

}  // namespace ridge
