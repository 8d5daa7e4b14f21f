#pragma once

// The call tree that TraceLens makes of a trace and hangs kernels into. Source, of commit 171dd747:
// TraceLens/Trace2Tree/trace_to_tree.py and TraceLens/TreePerf/tree_perf.py.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ridge/trace/check/event.h"
#include "ridge/trace/check/row.h"

namespace ridge::trace {

class TraceLensTree {
 public:
  // Notes the next event. True if it is one of those that the tree and its kernels are made of,
  // which are rows.
  bool add(const TraceEvent& event, TraceRow& row);
  // What was noted of the events that follow; so many events came before.
  void append(TraceLensTree&& following, std::uint32_t before);
  void finish(const TraceRows& rows);  // after the last event, before any question

  std::uint64_t kernels() const { return kernels_; }  // copies and fills too
  std::uint64_t linked() const { return linked_; }
  bool has_operators() const { return has_operators_; }

  const TraceTally& unlinked() const { return unlinked_; }  // kernels that no launch leads to
  // An operator or a launch that ends a microsecond or more after the one around it; it is left
  // out.
  const TraceTally& left_out() const { return left_out_; }
  // Launches that lead to a wait (cuda_sync) instead of a kernel.
  const TraceTally& waits() const { return waits_; }
  // What launches kernels, without args, process or thread, or with a name that no worksheet holds.
  const TraceTally& bad_launchers() const { return bad_launchers_; }
  const TraceTally& unwritable_names() const { return unwritable_names_; }
  // Kernels that a launch leads to and that have no name.
  const TraceTally& nameless() const { return nameless_; }
  // The first launch, without args to find the correlation in.
  const TraceTally& launch_without_args() const { return launch_without_args_; }

 private:
  struct FlowEnd {
    std::uint64_t id, track;
  };
  // The first launch says what ties all launches to kernels: the correlation, if it has one.
  struct FirstLaunch {
    std::uint32_t event;
    bool has_correlation, has_args;
  };
  struct Node {  // an operator or a launch
    const TraceRow* row;
    const TraceRow* around;  // the innermost operator or launch around it but "execute"; or none
  };
  struct Device {  // a kernel, copy or fill, or a wait for one
    std::uint64_t link;
    const TraceRow* row;
    bool linked = false;
  };
  // The kernels of a graph, whose launches lead to all of them.
  struct Graph {
    std::uint64_t kernels = 0;
    TraceTally nameless, unwritable;
  };

  std::optional<std::uint64_t> link_of(const TraceRow& row) const;
  std::vector<Node> build(const TraceRows& rows);
  void link(const TraceRows& rows, const std::vector<Node>& nodes);
  void link_graph(const Node& launch, std::uint64_t link);
  void link_flow(const Node& launch, std::uint64_t link);
  void check_launcher(const Node& launch, std::uint64_t kernels);

  std::vector<std::uint64_t> flow_begins_;
  std::vector<FlowEnd> flow_ends_;
  std::optional<FirstLaunch> first_launch_;
  bool has_operators_ = false;
  std::uint64_t kernels_ = 0, linked_ = 0;
  TraceTally unlinked_, left_out_, waits_, nameless_, bad_launchers_, unwritable_names_,
      launch_without_args_;
  // While the tree is built: devices by link and track, in the file's order.
  std::vector<Device> devices_;
  std::unordered_set<std::uint64_t> begun_;
  std::unordered_map<std::uint64_t, std::uint64_t> ended_;  // the track, by the flow's id
  std::unordered_map<std::uint64_t, Graph> graphs_;
};

}  // namespace ridge::trace
