#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/analyze/ceilings.h"
#include "ridge/analyze/option_changes.h"
#include "ridge/analyze/pass_effects.h"
#include "ridge/graph/op_rules.h"
#include "ridge/profile/recording.h"

namespace ridge {

// The resource that limits an operator.
enum class Bound : std::uint8_t {
  compute,   // its FLOPs, at the peak rate, take longer than its bytes
  memory,    // the other way round
  overhead,  // a call takes less than what a launch alone costs
};
std::string_view name_of(Bound bound);

// The least time that nodes can take, and the time that they took, in seconds per training step.
// The floor of a node is the larger of two: its FLOPs over the peak rate of its dtype, and its
// bytes over the bandwidth of the nearest memory level that holds them all. FLOPs are those that a
// causal mask leaves necessary; bytes are each operand read and each result written once.
struct Timed {
  double calls = 0;  // per step
  double seconds = 0;
  double compute_floor = 0, memory_floor = 0;  // sums over nodes
  double floor = 0;                            // sum of each node's larger one
  std::array<double, 3> seconds_by_bound{};
  Cost cost;  // of one step

  Timed& operator+=(const Timed& other);
  double above_floor() const { return seconds > floor ? seconds - floor : 0; }
  double ratio() const { return floor > 0 ? seconds / floor : 0; }  // 0: there is no floor
  double intensity() const;  // FLOPs per byte; 0 if it moves none
  Bound bound() const;       // of most of its time
};

struct NodeBottleneck {
  NodeId node = 0;
  std::string name;   // "layers.0.attention: softmax"
  std::string level;  // that holds its working set
  Timed timed;
};

struct NamedTime {
  std::string name;
  Timed timed;
};

// Something to do, or to know, about the time of a step.
struct Finding {
  enum class Kind : std::uint8_t { rewrite, kernel, dispatch, feeding, option };
  Kind kind = Kind::rewrite;
  std::string name;                   // "flash-attention"
  double share = 0;                   // of the step, of the nodes it is about
  double seconds = 0;                 // of them
  double ratio = 0;                   // of their time to their floor; 0: none
  double seconds_saved = 0;           // estimated, per step
  double bytes_saved = 0;             // not moved any more, per step
  double floor_saved = 0;             // by which the nodes' floor falls, in seconds
  double kernels_saved = 0;           // calls per step
  std::int64_t activation_bytes = 0;  // memory not held any more for the backward pass
  std::string text;                   // all of it in words
};

// Who holds the memory of a step, read off the graph, and where it peaked.
struct MemoryUse {
  std::uint64_t peak_bytes = 0;  // 0 if memory was not recorded
  Phase peak_phase = Phase::forward;
  std::string peak_owner;  // what was allocated when the peak was reached
  std::int64_t parameters = 0, gradients = 0, optimizer_state = 0;
  std::int64_t activations = 0;  // kept from the forward for the backward pass
  // The activation bytes that recomputing blocks, bf16 or each pass not in the schedule would
  // save, as far as it is known.
  std::int64_t saved_by_checkpointing = 0, saved_by_bf16 = 0;
  std::vector<std::pair<std::string, std::int64_t>> saved_by_pass;
  std::vector<GrowthLaw> growth;  // of the peak; empty if it is not known
};

// Passes a run could add, tried on its graph, and its growth: see analyze/pass_effects.h and
// growth_laws(). Without it there are no findings about passes.
struct Alternatives {
  std::vector<PassEffect> effects;
  std::vector<GrowthLaw> growth;
  // What other options would make of the run (changes_of()), once it is known where its time goes.
  // Null: not looked for, as in training, whose bf16 is judged by what it saves of activations too.
  std::function<std::vector<OptionChange>(const BottleneckReport&)> changes = {};
};
// Returns the alternatives to a run with these options, whose graph is given.
Alternatives alternatives_of(const RunOptions& options, Device& device, const Graph& graph);

struct BottleneckReport {
  std::int64_t steps = 0;
  double step_seconds = 0;  // mean; equal to `all` and the two gaps below together
  double between_nodes = 0, outside_phases = 0;
  Timed all;
  Roof roof;                          // raised where an operator was faster
  std::vector<std::string> notes;     // such as that it was raised
  std::vector<NodeBottleneck> nodes;  // in the graph's order
  std::vector<NamedTime> operators;   // most time above the floor first
  std::vector<NamedTime> parts;       // as part_of() names them, most time first
  std::vector<Finding> findings;      // most worth first
  MemoryUse memory;

  double share(double seconds) const { return step_seconds > 0 ? seconds / step_seconds : 0; }
  double flops_per_second() const;  // necessary FLOPs over the step's time
  // Model FLOPs utilization: the time that the necessary FLOPs would take, each at the measured
  // peak of its dtype, over the step's time. At most 1, because `roof` is no lower than what was
  // seen.
  double mfu() const;
  double vendor_mfu() const;  // of the vendor's peak; 0 if that is not given
  // What the necessary FLOPs take at the rates of the hardware's data sheet, each in its precision;
  // 0 if none is known.
  double data_sheet_seconds = 0;
};

// The recording has at least one step; UsageError if it has none.
BottleneckReport analyze_bottlenecks(const Recording& recording, const Roof& roof,
                                     const Alternatives& alternatives = {});

// The `top` nodes and operators of the most time above their floors.
std::string bottleneck_text(const BottleneckReport& report, std::size_t top = 8);
// What its time goes to, the most first: "compute 61.2 %, memory bandwidth 30.1 %, ..".
std::string primary_bottleneck(const BottleneckReport& report);
// Its findings alone, the first `top`, numbered, one a line.
std::string findings_text(const BottleneckReport& report, std::size_t top);
std::string bottleneck_json(const BottleneckReport& report);  // bottlenecks.json

// The precision whose peak a node's FLOPs are held against under a roof, by the operator's
// WorkKind: products in their operands', those of f32 as Roof::f32_products() says; attention, on a
// GPU, too. Everything else in f32, whatever the dtype it loads and stores.
ProductKind compute_precision(const Graph& graph, const Node& node, const Roof& roof);

// Returns the part of a network that a node is in. By the scope that a model marked: "attention",
// "feed-forward", "embedding", "head". Elsewhere by the kind of its work: "norm", "convolutions",
// "linear layers", "pooling and resizing", "elementwise", "data movement"; and "optimizer", or
// "other".
std::string_view part_of(const Graph& graph, const Node& node);

// Findings about a report whose other members are filled in.
std::vector<Finding> find_improvements(const Recording& recording, const BottleneckReport& report,
                                       const Alternatives& alternatives);
MemoryUse memory_use(const Recording& recording, const Alternatives& alternatives);

}  // namespace ridge
