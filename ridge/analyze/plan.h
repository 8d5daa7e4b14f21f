#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/ceilings.h"
#include "ridge/device/device.h"
#include "ridge/plan/memory.h"
#include "ridge/session/options.h"
#include "ridge/session/session.h"

namespace ridge {

// What kernels will ask for, without keeping any.
struct KernelNeeds {
  std::vector<std::size_t> workspace;  // by node
  std::vector<bool> has_kernel;        // by node: false where there is nothing to run
  std::size_t packed_bytes = 0;        // of inputs that kernels keep packed (device/packing.h)
};

// Prepares each distinct operator once, on its exact types, and drops it again; nothing is
// allocated on the device.
KernelNeeds kernel_needs(const Graph& graph, Device& device, const KernelChoice& choice = {});

// A moment of a step, in the words of its graph.
struct Place {
  std::string phase, module, op;
};

// The least time of one or many nodes, in seconds, by what it goes to.
struct LeastTime {
  double computing = 0;  // of nodes whose FLOPs take longer than their bytes
  double moving = 0;     // of all others
  double starting = 0;   // what launches add
  double sending = 0;    // to other ranks, as far as nothing else is done meanwhile

  double total() const { return computing + moving + starting + sending; }
  LeastTime operator+(const LeastTime& other) const;
  LeastTime operator*(double times) const;
};

// What the layers of one kind take of a step.
struct LayerUse {
  std::int64_t flops = 0;
  // Of the peak: values that they computed and that are alive then, and their workspace.
  std::size_t bytes_at_peak = 0;
};

// What one step of a workload will need, read off its graph alone: nothing runs and no tensor is
// allocated, so that it takes no time and no memory to plan what would never fit.
struct StepPlan {
  std::int64_t parameter_count = 0;
  MemoryPlan memory;           // its peak is what the run will measure, to the byte
  std::optional<Place> where;  // of the peak; none if nothing but what persists is alive then
  // What the run takes of the device for this: the peak or, where memory is planned, the arena.
  std::size_t device_bytes = 0;
  StepCost cost;                // bytes: each operand of each kernel once
  std::int64_t launches = 0;    // of kernels in a step
  std::int64_t sent_bytes = 0;  // by each rank to others in a step, and as many received
  // What that takes over links as fast as was measured; unknown without such a measurement.
  std::optional<double> sending_seconds;
  std::int64_t nodes_in_place = 0;   // operators that write their result over an operand
  LayerUse attention, feed_forward;  // of a network that has such layers
  // What the step takes if every kernel reaches the ceilings of its device, one after the other,
  // and every collective those of the links: after them too, or in a captured step of a GPU beside
  // them. Unknown without ceilings; of links without sending.
  std::optional<LeastTime> at_best;
  // What its FLOPs alone take at the peak rate of their precision, in seconds: over the time of a
  // step it is the utilization of those FLOPs. 0 without ceilings.
  double seconds_at_peak_rate = 0;
};

// `options` are resolved. UsageError if the work of a step is beyond what 63 bits count.
StepPlan plan_step(const RunOptions& options, Device& device, const Roof* roof = nullptr);

// The ceilings as a schedule's products are held against them.
Roof roof_for(Roof roof, const Schedule& schedule);

// The least time for one run of a node: the larger of its necessary FLOPs over the peak rate of its
// precision and its bytes over the bandwidth of the nearest memory level that holds them; and from
// that kernel to the next. Where launches are not captured, no less than a launch takes.
LeastTime least_time(const Graph& graph, const Node& node, const Roof& roof, bool captured);
// The same of all nodes of a step that runs so many batches, one after the other.
LeastTime least_time_of_step(const Graph& graph, const Roof& roof, const Schedule& schedule,
                             std::int64_t batches);

// The largest size of something whose peak is within a budget, and what one more would need; that
// is unknown only if nothing larger is accepted at all.
struct SizeLimit {
  std::int64_t size = 0;
  std::size_t peak_bytes = 0;
  std::optional<std::size_t> next_peak_bytes;
  std::int64_t least = 1;  // that is accepted: 2 where batch norm refuses a single image
  std::int64_t unit = 1;   // sizes that were asked about are multiples of it
};

// What something of a size takes of memory, no less than what is smaller; nothing if it is refused
// as absurd.
using BytesNeeded = std::function<std::optional<std::size_t>(std::int64_t size)>;

// By asking what some multiples of a unit need. OutOfMemoryError if not even the least that is
// accepted fits, UsageError if that is beyond two units; `what` it is ("a batch") and a `remedy`
// are told then.
SizeLimit largest_size(const BytesNeeded& needed, std::size_t budget, std::string_view what,
                       std::string_view remedy, std::int64_t unit = 1);

// Returns what a batch size has to be a multiple of, because ranks and given micro-batches share
// it.
std::int64_t batch_unit(const RunOptions& options);

// The largest batch; OutOfMemoryError if not even the least fits; of what the run takes of the
// device.
SizeLimit largest_batch(const RunOptions& options, Device& device, std::size_t budget);

// What a run takes of the device; nothing for options that are refused.
std::optional<std::size_t> bytes_needed(RunOptions options, Device& device);

// The memory of a device that a run may fill: a part is left to what no plan knows, and on a CPU to
// other programs, which would suffer.
std::size_t usable_memory(Device& device, const RunOptions& options);

// The peak of a step as a law of one of its sizes, from plans at several sizes: exact at those, and
// near it between them. Beyond, the peak may move to another node and grow by another law. Where
// the peak does not grow yet at the size now, the law begins at the first double of it where it
// does.
struct GrowthLaw {
  std::string of;                               // "batch-size", "seq-len"
  std::int64_t at = 0, to = 0;                  // the sizes that it was made from: least, largest
  double fixed = 0, linear = 0, quadratic = 0;  // bytes; per unit; per unit squared
};
// By the batch, and by each size of a sample that an option gives (WorkloadInfo::sample_options).
std::vector<GrowthLaw> growth_laws(const RunOptions& options, Device& device);

// The least to compute again in the backward pass so that the peak is within a budget.
struct LeastRecompute {
  std::string recompute;  // as --recompute takes it
  std::size_t peak_bytes = 0;
};

// Nothing, or attention in as few blocks as will do, or as few whole blocks: that is by the work it
// adds. OutOfMemoryError if all blocks are not enough. Peaks as of largest_batch().
LeastRecompute least_recompute(const RunOptions& options, Device& device, std::size_t budget);

// Appends advice to the message of a run that did not fit and has freed its memory:
// "; --batch-size 12 would fit in the 79.10 GiB that are left" or that no batch would. It is not
// the largest that may fit: a part is left to what no plan knows. If none can be found out, the
// reason.
std::string with_batch_advice(std::string_view message, const RunOptions& options, Device& device);

// "16GB" (10^9 bytes), "1.5 GiB" (2^30), "4096"; UsageError for anything else.
std::size_t parse_bytes(std::string_view text);

}  // namespace ridge
