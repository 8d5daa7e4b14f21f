#include "ridge/trace/check/tracelens.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>

namespace ridge::trace {
namespace {

using Is = TraceValue::Is;
using Category = TraceEvent::Category;

bool speaks_of_a_launch(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find("launch") != lower.npos;
}

// The characters that the format of spreadsheets has no way to write (ECMA-376, ST_Xstring).
bool writable(std::string_view name) {
  return std::ranges::none_of(name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r';
  });
}

}  // namespace

bool TraceLensTree::add(const TraceEvent& event, TraceRow& row) {
  has_operators_ |= event.category == Category::cpu_op;
  if (event.category == Category::flow_to_gpu) {
    const auto id = identity_of(event.id);
    if (id && event.phase == 's') flow_begins_.push_back(*id);
    if (id && event.phase == 'f' && row.placed) flow_ends_.push_back({*id, row.track});
    return false;
  }
  const bool launch = event.category == Category::runtime;
  const bool wait = event.category == Category::synchronization;
  if (!event.on_device() && !wait && !launch && event.category != Category::cpu_op) return false;
  const std::string_view name = event.name.text;
  row.graph_launch = launch && (name == "cudaGraphLaunch" || name == "hipGraphLaunch");
  row.execute = name == "execute";
  row.writable = writable(name);
  if (const auto number = identity_of(event.external)) {
    row.external = *number;
    row.has_external = true;
  }
  kernels_ += event.on_device();
  if (launch && !first_launch_ && speaks_of_a_launch(name))
    first_launch_ = {.event = event.index,
                     .has_correlation = event.correlation.is != Is::missing,
                     .has_args = event.args_is != Is::missing};
  return true;
}

void TraceLensTree::append(TraceLensTree&& following, std::uint32_t before) {
  flow_begins_.insert(flow_begins_.end(), following.flow_begins_.begin(),
                      following.flow_begins_.end());
  flow_ends_.insert(flow_ends_.end(), following.flow_ends_.begin(), following.flow_ends_.end());
  if (!first_launch_ && following.first_launch_) {
    first_launch_ = following.first_launch_;
    first_launch_->event += before;
  }
  has_operators_ |= following.has_operators_;
  kernels_ += following.kernels_;
}

void TraceLensTree::finish(const TraceRows& rows) {
  if (first_launch_ && !first_launch_->has_args) launch_without_args_.note(first_launch_->event);
  link(rows, build(rows));
}

// The number that ties a launch to its kernels.
std::optional<std::uint64_t> TraceLensTree::link_of(const TraceRow& row) const {
  if (first_launch_ && first_launch_->has_correlation)
    return row.has_correlation ? std::optional(row.correlation) : std::nullopt;
  return row.has_external ? std::optional(row.external) : std::nullopt;
}

// Gives every operator and launch the innermost one of its track around it.
std::vector<TraceLensTree::Node> TraceLensTree::build(const TraceRows& rows) {
  struct Place {
    std::uint64_t track;
    double begin;
    const TraceRow* row;
  };
  std::vector<Place> places;
  std::vector<Node> nodes;
  for (const TraceRow& row : rows) {
    if (row.category != Category::cpu_op && row.category != Category::runtime) continue;
    if (row.timed)
      places.push_back({row.track, row.begin, &row});
    else
      nodes.push_back({.row = &row, .around = nullptr});
  }
  std::ranges::sort(places, [](const Place& a, const Place& b) {
    if (a.track != b.track) return a.track < b.track;
    return a.begin != b.begin ? a.begin < b.begin : a.row->event < b.row->event;
  });
  std::vector<Node> open;
  for (const Place& place : places) {
    const TraceRow& row = *place.row;
    if (!open.empty() && open.back().row->track != place.track) open.clear();
    while (!open.empty() && row.begin >= open.back().row->end) open.pop_back();
    const TraceRow* around = nullptr;
    if (!open.empty() && row.end > open.back().row->end) {
      // Less than a microsecond within a sibling is taken for an error of the clock.
      if (open.back().row->end - row.begin >= 1 || open.size() < 2) {
        left_out_.note(row.event);
        nodes.push_back({.row = &row, .around = nullptr});
        continue;
      }
      open.pop_back();
    }
    if (!open.empty()) {
      const Node& parent = open.back();
      const bool skipped = parent.row->category == Category::cpu_op && parent.row->execute;
      around = skipped ? parent.around : parent.row;
    }
    nodes.push_back({.row = &row, .around = around});
    open.push_back(nodes.back());
  }
  return nodes;
}

void TraceLensTree::link(const TraceRows& rows, const std::vector<Node>& nodes) {
  for (const TraceRow& row : rows) {
    if (!row.on_device() && row.category != Category::synchronization) continue;
    if (const auto link = link_of(row))
      devices_.push_back({.link = *link, .row = &row});
    else if (row.on_device())
      unlinked_.note(row.event);
  }
  std::ranges::sort(devices_, {}, [](const Device& device) {
    const TraceRow& row = *device.row;
    return std::tuple(device.link, bool{row.placed}, row.track, row.event);
  });
  begun_ = {flow_begins_.begin(), flow_begins_.end()};
  for (const FlowEnd& end : flow_ends_) ended_[end.id] = end.track;
  for (const Node& node : nodes) {
    if (node.row->category != Category::runtime) continue;
    const auto link = link_of(*node.row);
    if (!link) continue;
    if (node.row->graph_launch)
      link_graph(node, *link);
    else
      link_flow(node, *link);
  }
  for (const Device& device : devices_) {
    linked_ += device.linked;
    if (device.row->on_device() && !device.linked) unlinked_.note(device.row->event);
  }
}

// A graph's launch leads to every kernel of its correlation, without flows.
void TraceLensTree::link_graph(const Node& launch, std::uint64_t link) {
  const auto [at, added] = graphs_.try_emplace(link);
  Graph& graph = at->second;
  if (added) {
    auto device_at = std::ranges::lower_bound(devices_, link, {}, &Device::link);
    for (; device_at != devices_.end() && device_at->link == link; ++device_at) {
      Device& device = *device_at;
      if (!device.row->on_device()) continue;
      device.linked = true;
      ++graph.kernels;
      if (!device.row->named) graph.nameless.note(device.row->event);
      if (!device.row->writable) graph.unwritable.note(device.row->event);
    }
  }
  nameless_.add(graph.nameless);
  unwritable_names_.add(graph.unwritable);
  check_launcher(launch, graph.kernels);
}

// Another launch leads to the kernel, if any, at the end of the ac2g flow that has its number.
void TraceLensTree::link_flow(const Node& launch, std::uint64_t link) {
  if (!begun_.contains(link)) return;
  const auto flow = ended_.find(link);
  if (flow == ended_.end()) return;
  // The last event of the number on the flow's track counts, be it a kernel or a wait.
  const auto key = [](const Device& device) {
    return std::tuple(device.link, bool{device.row->placed}, device.row->track);
  };
  const std::tuple wanted(link, true, flow->second);
  const auto behind = std::ranges::upper_bound(devices_, wanted, {}, key);
  if (behind == devices_.begin() || key(*std::prev(behind)) != wanted) return;
  Device& last = *std::prev(behind);
  if (!last.row->on_device()) return waits_.note(launch.row->event);
  last.linked = true;
  if (!last.row->named) nameless_.note(last.row->event);
  if (!last.row->writable) unwritable_names_.note(last.row->event);
  check_launcher(launch, 1);
}

// What kernels count for is the operator around their launch, or the launch if there is none.
void TraceLensTree::check_launcher(const Node& launch, std::uint64_t kernels) {
  const bool within_operator =
      launch.around != nullptr && launch.around->category == Category::cpu_op;
  const TraceRow& launcher = within_operator ? *launch.around : *launch.row;
  if (!launcher.placed || !launcher.has_args) bad_launchers_.note(launcher.event, kernels);
  if (!launcher.writable) unwritable_names_.note(launcher.event, kernels);
}

}  // namespace ridge::trace
