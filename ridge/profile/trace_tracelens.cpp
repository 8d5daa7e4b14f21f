#include "ridge/profile/trace_tracelens.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace ridge {
namespace {

using Is = TraceEvent::Is;
using Category = TraceEvent::Category;

constexpr std::size_t no_parent = static_cast<std::size_t>(-1);

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

void TraceLensTree::add(const TraceEvent& event) {
  has_operators_ |= event.category == Category::cpu_op;
  const bool placed = event.process_is != Is::missing && event.thread_is != Is::missing;
  if (event.category == Category::flow_to_gpu) {
    const auto id = identity_of(event.member("id"));
    if (id && event.phase == 's') flow_begins_.insert(*id);
    if (id && event.phase == 'f' && placed) flow_ends_[*id] = track_of(event);
    return;
  }
  const bool launch = event.category == Category::runtime;
  const bool wait = event.category_name == "cuda_sync";
  if (!event.on_device() && !wait && !launch && event.category != Category::cpu_op) return;
  const Ids ids{identity_of(event.correlation), identity_of(event.argument("External id"))};
  if (event.on_device() || wait) {
    kernels_ += !wait;
    devices_.push_back({.source = event.source,
                        .name = event.name,
                        .ids = ids,
                        .track = placed ? std::optional(track_of(event)) : std::nullopt,
                        .kernel = !wait,
                        .named = event.name_is != Is::missing});
    return;
  }
  nodes_.push_back({.source = event.source,
                    .name = event.name,
                    .begin = event.begin,
                    .end = event.begin + event.duration,
                    .track = track_of(event),
                    .parent = no_parent,
                    .ids = ids,
                    .timed = event.timed(),
                    .launch = launch,
                    .complete = placed && event.args_is != Is::missing});
  if (!launch || saw_launch_ || !speaks_of_a_launch(event.name)) return;
  saw_launch_ = true;
  by_correlation_ = event.correlation != nullptr;
  if (event.args_is == Is::missing) launch_without_args_ = event.source;
}

void TraceLensTree::finish() {
  build();
  link();
}

// The number that ties a launch to its kernels: its correlation, if the first launch has one.
std::optional<std::uint64_t> TraceLensTree::link_of(const Ids& ids) const {
  return by_correlation_ ? ids.correlation : ids.external;
}

// Gives every node the innermost one of its track around it.
void TraceLensTree::build() {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].timed) order.push_back(i);
  std::ranges::stable_sort(order, {}, [this](std::size_t i) { return nodes_[i].begin; });
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> open;
  for (const std::size_t i : order) {
    Node& node = nodes_[i];
    std::vector<std::size_t>& stack = open[node.track];
    while (!stack.empty() && node.begin >= nodes_[stack.back()].end) stack.pop_back();
    if (!stack.empty() && node.end > nodes_[stack.back()].end) {
      // Less than a microsecond within a sibling is taken for an error of the clock.
      if (nodes_[stack.back()].end - node.begin >= 1 || stack.size() < 2) {
        left_out_.note(node.source);
        continue;
      }
      stack.pop_back();
    }
    if (!stack.empty()) node.parent = stack.back();
    stack.push_back(i);
  }
}

void TraceLensTree::link() {
  for (std::size_t i = 0; i < devices_.size(); ++i)
    if (const auto link = link_of(devices_[i].ids)) devices_by_link_.emplace(*link, i);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].launch) continue;
    if (nodes_[i].name == "cudaGraphLaunch" || nodes_[i].name == "hipGraphLaunch")
      link_graph(i);
    else
      link_flow(i);
  }
  for (const Device& device : devices_) {
    linked_ += device.linked;
    if (device.kernel && !device.linked) unlinked_.note(device.source);
  }
}

// A graph's launch leads to every kernel of its correlation, without flows.
void TraceLensTree::link_graph(std::size_t launch) {
  const auto link = link_of(nodes_[launch].ids);
  if (!link) return;
  const auto [begin, end] = devices_by_link_.equal_range(*link);
  for (auto it = begin; it != end; ++it)
    if (devices_[it->second].kernel) hang(devices_[it->second], launch);
}

// Another launch leads to the kernel, if any, at the end of the ac2g flow that has its number.
void TraceLensTree::link_flow(std::size_t launch) {
  const auto link = link_of(nodes_[launch].ids);
  if (!link || !flow_begins_.contains(*link)) return;
  const auto flow = flow_ends_.find(*link);
  if (flow == flow_ends_.end()) return;
  // The last event of the number on the flow's track counts, be it a kernel or a wait.
  std::optional<std::size_t> last;
  const auto [begin, end] = devices_by_link_.equal_range(*link);
  for (auto it = begin; it != end; ++it)
    if (devices_[it->second].track == flow->second)
      last = std::max(last, std::optional(it->second));
  if (!last) return;
  if (devices_[*last].kernel)
    hang(devices_[*last], launch);
  else
    waits_.note(nodes_[launch].source);
}

void TraceLensTree::hang(Device& device, std::size_t launch) {
  device.linked = true;
  if (!device.named) nameless_.note(device.source);
  if (!writable(device.name)) unwritable_names_.note(device.source);
  check_launcher(launch);
}

// What a kernel counts for is the operator around its launch, or the launch if there is none.
void TraceLensTree::check_launcher(std::size_t launch) {
  std::size_t at = nodes_[launch].parent;
  while (at != no_parent && !nodes_[at].launch && nodes_[at].name == "execute")
    at = nodes_[at].parent;
  const Node& launcher = nodes_[at != no_parent && !nodes_[at].launch ? at : launch];
  if (!launcher.complete) bad_launchers_.note(launcher.source);
  if (!writable(launcher.name)) unwritable_names_.note(launcher.source);
}

}  // namespace ridge
