#pragma once

// The call tree that TraceLens makes of a trace and hangs kernels into. Source, of commit 171dd747:
// TraceLens/Trace2Tree/trace_to_tree.py and TraceLens/TreePerf/tree_perf.py.

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ridge/profile/trace_event.h"

namespace ridge {

class TraceLensTree {
 public:
  void add(const TraceEvent& event);
  void finish();  // after the last event, before any question

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
  const nlohmann::json* launch_without_args() const { return launch_without_args_; }

 private:
  struct Ids {
    std::optional<std::uint64_t> correlation, external;
  };
  struct Node {  // an operator or a launch
    const nlohmann::json* source;
    std::string_view name;
    double begin, end;  // us
    std::uint64_t track;
    std::size_t parent;
    Ids ids;
    bool timed, launch, complete;  // complete: it has args, a process and a thread
  };
  struct Device {  // a kernel, copy or fill, or a wait for one
    const nlohmann::json* source;
    std::string_view name;
    Ids ids;
    std::optional<std::uint64_t> track;  // none without a process or a thread
    bool kernel = true, named = true, linked = false;
  };

  std::optional<std::uint64_t> link_of(const Ids& ids) const;
  void build();
  void link();
  void link_graph(std::size_t launch);
  void link_flow(std::size_t launch);
  void hang(Device& device, std::size_t launch);
  void check_launcher(std::size_t launch);

  std::vector<Node> nodes_;
  std::vector<Device> devices_;
  std::unordered_set<std::uint64_t> flow_begins_;
  std::unordered_map<std::uint64_t, std::uint64_t> flow_ends_;  // the track, by the flow's id
  std::unordered_multimap<std::uint64_t, std::size_t> devices_by_link_;
  bool saw_launch_ = false, by_correlation_ = false, has_operators_ = false;
  const nlohmann::json* launch_without_args_ = nullptr;
  std::uint64_t kernels_ = 0, linked_ = 0;
  TraceTally unlinked_, left_out_, waits_, nameless_, bad_launchers_, unwritable_names_;
};

}  // namespace ridge
