#include "ridge/profile/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

namespace ridge {
namespace {

using Kind = TimelineItem::Kind;

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

// The class name of a module: "Layer" for a numbered member of "layers".
std::string class_name(const ModuleTree& tree, const Module& module) {
  if (!is_number(module.name)) return camel_case(module.name);
  std::string_view name = tree.modules[module.parent].name;
  if (name.ends_with('s')) name.remove_suffix(1);
  return camel_case(name);
}

std::vector<std::string> name_instances(const ModuleTree& tree) {
  std::map<std::string, int> count;
  std::vector<std::string> names;
  for (const Module& module : tree.modules) {
    const std::string name = class_name(tree, module);
    names.push_back(fmt::format("{}_{}", name, count[name]++));
  }
  return names;
}

}  // namespace

std::string camel_case(std::string_view name) {
  std::string result;
  bool upper = true;
  for (const char c : name) {
    if (c != '_')
      result += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = c == '_';
  }
  return result.empty() ? "Module" : result;
}

Timeline::Timeline(const Recording& recording)
    : recording_(recording), tree_(module_tree(*recording.graph)) {
  const Graph& graph = *recording.graph;
  instance_names_ = name_instances(tree_);
  for (const std::size_t of_scope : tree_.of_scope) {
    std::vector<std::size_t> path;
    for (std::size_t m = of_scope; m != 0; m = tree_.modules[m].parent) path.push_back(m);
    std::ranges::reverse(path);
    deepest_ = std::max(deepest_, path.size());
    module_path_.push_back(std::move(path));
  }
  has_gradient_.resize(graph.nodes().size());
  for (const Node& node : graph.nodes())
    if (node.forward != no_node) has_gradient_[node.forward] = true;
}

// Merges the sources, each of which is in the order of time already, and opens the modules and
// gradients that the nodes imply.
class Timeline::Walk {
 public:
  Walk(const Timeline& timeline, const std::function<void(const TimelineItem&)>& visit)
      : timeline_(timeline),
        recording_(timeline.recording_),
        graph_(*recording_.graph),
        visit_(visit),
        last_run_(graph_.nodes().size(), TimelineItem::no_run) {}

  void run() {
    std::size_t step = 0, phase = 0, change = 0, node = 0;
    for (;;) {
      const std::int64_t times[] = {
          begin_of(recording_.steps, step), begin_of(recording_.phases, phase),
          change < recording_.memory.size() ? recording_.memory[change].time_ns : never,
          begin_of(recording_.nodes, node)};
      const auto first = std::ranges::min_element(times);  // of equals, the outer
      if (*first == never) return;
      switch (first - times) {
        case 0:
          open_step(step++);
          break;
        case 1:
          open_phase(phase++);
          break;
        case 2:
          add_change(change++);
          break;
        default:
          add_node(node++);
          break;
      }
    }
  }

 private:
  template <class T>
  static std::int64_t begin_of(const std::vector<T>& records, std::size_t i) {
    return i < records.size() ? records[i].begin_ns : never;
  }

  void open_step(std::size_t i) {
    const Recording::Step& step = recording_.steps[i];
    path_.clear();
    phase_end_ = never;
    open({.kind = Kind::step, .index = i, .begin_ns = step.begin_ns, .end_ns = step.end_ns});
  }

  void open_phase(std::size_t i) {
    const Recording::PhaseRun& phase = recording_.phases[i];
    path_.clear();
    phase_end_ = phase.end_ns;
    open({.kind = Kind::phase,
          .index = i,
          .begin_ns = phase.begin_ns,
          .end_ns = phase.end_ns,
          .phase = phase.phase});
  }

  void add_change(std::size_t i) {
    const Recording::MemoryChange& change = recording_.memory[i];
    visit_({.kind = Kind::memory,
            .index = i,
            .begin_ns = change.time_ns,
            .end_ns = change.time_ns,
            .phase = change.phase});
  }

  void add_node(std::size_t i) {
    const Recording::NodeRun& run = recording_.nodes[i];
    const Node& node = graph_.nodes()[run.node];
    if (i > 0 && !continues(i)) path_.clear();
    open_modules(i, node);
    open_gradient(i, node);
    if (node.forward == no_node && timeline_.has_gradient_[run.node]) last_run_[run.node] = i;
    open({.kind = Kind::node,
          .index = i,
          .begin_ns = run.begin_ns,
          .end_ns = run.end_ns,
          .phase = node.phase,
          .forward_run = last_run_[run.node]});
  }

  // Whether node run i belongs to the same pass over the graph as the one before it.
  bool continues(std::size_t i) const {
    const Recording::NodeRun &before = recording_.nodes[i - 1], &run = recording_.nodes[i];
    return run.step == before.step && run.node > before.node && phase_of(run) == phase_of(before);
  }

  Phase phase_of(const Recording::NodeRun& run) const { return graph_.nodes()[run.node].phase; }

  // Where a slice ends that holds the node runs which follow each other from i on and satisfy
  // `belongs`. Readers add begin and duration as doubles, which may put the end of the last node
  // after that of a slice that ends with it: so slices end a little later than what they hold, by
  // `margin_ns` if there is so much time.
  template <class Belongs>
  std::int64_t end_of_stretch(std::size_t i, std::int64_t margin_ns, const Belongs& belongs) const {
    std::size_t next = i + 1;
    while (next < recording_.nodes.size() && continues(next) &&
           belongs(graph_.nodes()[recording_.nodes[next].node]))
      ++next;
    const std::int64_t end = recording_.nodes[next - 1].end_ns;
    const std::int64_t room = std::min(begin_of(recording_.nodes, next), phase_end_) - end;
    return end + std::clamp<std::int64_t>(room, 0, margin_ns);
  }

  void open_modules(std::size_t i, const Node& node) {
    const std::vector<std::size_t>& path = timeline_.module_path_[node.scope];
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(path_, path).in1 - path_.begin());
    for (std::size_t level = common; level < path.size(); ++level) {
      const auto inside = [&](const Node& other) {
        const std::vector<std::size_t>& theirs = timeline_.module_path_[other.scope];
        return theirs.size() > level && theirs[level] == path[level];
      };
      open({.kind = Kind::module,
            .index = path[level],
            .begin_ns = recording_.nodes[i].begin_ns,
            .end_ns = end_of_stretch(i, 1 + static_cast<std::int64_t>(timeline_.deepest_ - level),
                                     inside),
            .phase = node.phase});
    }
    if (common < path_.size() || common < path.size()) gradient_of_ = no_node;
    path_ = path;
  }

  void open_gradient(std::size_t i, const Node& node) {
    const bool goes_on = i > 0 && continues(i) && gradient_of_ == node.forward;
    gradient_of_ = node.forward;
    if (node.forward == no_node || goes_on) return;
    const auto inside = [&](const Node& other) {
      return other.forward == node.forward && other.scope == node.scope;
    };
    open({.kind = Kind::gradient,
          .index = node.forward,
          .begin_ns = recording_.nodes[i].begin_ns,
          .end_ns = end_of_stretch(i, 1, inside),
          .phase = node.phase,
          .forward_run = last_run_[node.forward]});
  }

  void open(TimelineItem item) {
    while (!open_ends_.empty() && item.end_ns > open_ends_.back()) open_ends_.pop_back();
    item.depth = open_ends_.size();
    open_ends_.push_back(item.end_ns);
    visit_(item);
  }

  const Timeline& timeline_;
  const Recording& recording_;
  const Graph& graph_;
  const std::function<void(const TimelineItem&)>& visit_;
  std::vector<std::size_t> last_run_;  // by NodeId, of a node with a gradient
  std::vector<std::size_t> path_;      // the modules that are open
  std::int64_t phase_end_ = never;
  NodeId gradient_of_ = no_node;         // of the gradient that is open
  std::vector<std::int64_t> open_ends_;  // of all slices that are open
};

void Timeline::walk(const std::function<void(const TimelineItem&)>& visit) const {
  Walk(*this, visit).run();
}

}  // namespace ridge
