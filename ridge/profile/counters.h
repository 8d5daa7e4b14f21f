#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/run/executor.h"
#include "ridge/run/observer.h"

namespace ridge {

// Something that the processor or the kernel counts, as perf_event_open(2) names it.
struct CounterEvent {
  std::string name;
  std::uint32_t type = 0;
  std::uint64_t config = 0;
  double scale = 1;  // what one count stands for, such as 16 operations of a wide instruction
  int group = 0;     // events of one group are counted over exactly the same time; at most 8
};

// A processor, as /proc/cpuinfo names it.
struct CpuModel {
  std::string vendor;  // "AuthenticAMD"
  int family = 0, model = 0;
};
CpuModel this_cpu();

// Cycles, instructions, references to the last cache and its misses; and, on processors known to
// count them, floating-point operations, several events of which may have the name "flops": their
// scaled counts are summed. Sources: tools/perf/pmu-events of the Linux kernel (AMD family 23 and
// on, fp_ret_sse_avx_ops: bf16 products included from Zen 4 on), and Intel's FP_ARITH_INST_RETIRED
// (from Broadwell on; single precision; no AMX and no bf16).
std::vector<CounterEvent> hardware_events(const CpuModel& cpu);

// Why counting was refused and what to set, in one line. `error` is an errno of perf_event_open,
// `paranoid` the value of kernel.perf_event_paranoid, -2 if there is none.
std::string explain_refusal(int error, int paranoid);

// Counts events around each node of an executor, on all threads of this process: those of a thread
// pool share every kernel, and any counter covers one thread alone. What idle threads do while they
// spin for work is counted too: it adds cycles and instructions, but hardly a miss or a FLOP.
//
// Reading costs some microseconds per node, outside of the node's own time.
class HardwareCounters final : public Observer {
 public:
  // Events that this machine does not have are left out; DeviceError with the reason, and what to
  // set, if none can be counted. Threads that start later are not counted.
  explicit HardwareCounters(const std::vector<CounterEvent>& events = hardware_events(this_cpu()));
  ~HardwareCounters() override;

  void attach(Executor& executor);
  void detach(Executor& executor);

  // The names of what is counted, each once.
  const std::vector<std::string>& names() const { return names_; }
  // By node that ran: how often, and the counts of all its runs, in the order of names().
  struct NodeCounts {
    NodeId node = 0;
    std::int64_t calls = 0;
    std::vector<double> counts;
  };
  std::vector<NodeCounts> node_counts() const;
  // The smallest part of the nodes' time for which any event was really counted: less than 1 if the
  // processor has too few counters, so that the events took turns and the rest is extrapolated.
  double counted_fraction() const;

  void on_node_begin(const Graph&, NodeId) override;
  void on_node(const Graph&, NodeId, Clock::time_point begin, Clock::time_point end) override;

 private:
  class Group;  // the events of one group, on one thread

  // Sums over all threads, by event in the order of events_, then by group the nanoseconds for
  // which it was enabled and, of these, those for which it was really counted.
  using Sums = std::vector<std::uint64_t>;

  Sums read() const;
  std::vector<double> counts_of(const Sums& sums) const;  // in the order of names_

  struct NodeSums {
    std::int64_t calls = 0;
    Sums sums;
  };

  std::vector<CounterEvent> events_;  // ordered by group, which are numbered from 0
  std::size_t group_count_ = 0;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Group>> groups_;
  Sums before_;
  std::vector<NodeSums> by_node_;
};

// What an event that took turns with others would have counted in the whole time: nothing if its
// turn never came.
double extrapolate(std::uint64_t count, std::uint64_t enabled_ns, std::uint64_t running_ns);

// The counts of all nodes of one operator, phase by phase, most cycles first (or most of the first
// event).
struct OperatorCounts {
  std::string op;
  Phase phase = Phase::forward;
  std::int64_t calls = 0;
  std::vector<double> counts;  // in the order of `names`
};
struct CounterReport {
  std::vector<std::string> names;
  double counted_fraction = 1;
  std::vector<OperatorCounts> rows;
};
CounterReport report_counters(const Graph& graph, const HardwareCounters& counters);
CounterReport report_counters(const Graph& graph, std::vector<std::string> names,
                              std::span<const HardwareCounters::NodeCounts> nodes,
                              double counted_fraction);

// Columns: operator, phase, calls, each event, instructions per cycle and the share of references
// to the last cache that missed it, where these were counted.
std::string counters_text(const CounterReport& report);
std::string counters_json(const CounterReport& report);

}  // namespace ridge
