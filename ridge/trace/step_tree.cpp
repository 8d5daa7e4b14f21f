#include "ridge/trace/step_tree.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "ridge/trace/busy_parts.h"
#include "ridge/trace/report.h"
#include "ridge/trace/times.h"
#include "ridge/trace/work_tables.h"

namespace ridge::trace {
namespace {

constexpr std::uint32_t no_step = no_node;

// A number that the children of one slice have in common, and those of the root in one step.
std::uint64_t instance_of(Row outer, std::uint32_t step) {
  return outer == no_row ? (std::uint64_t{1} << 32) + step : outer;
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '.';
}

// The name with '#' for each word that tells one run or step from another: a number, or sixteen and
// more letters with a digit among them, such as a hash. "layer.3" keeps its number.
std::string without_numbers(std::string_view name) {
  constexpr std::size_t shortest_hash = 16;
  std::string text;
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && is_word(name[end])) ++end;
    const std::string_view word = name.substr(at, end - at);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == word.npos;
    const bool hash = word.size() >= shortest_hash && word.find_first_of("_.") == word.npos &&
                      word.find_first_of("0123456789") != word.npos;
    text += number || hash ? "#" : std::string(word);
    if (end < name.size()) text += name[end];
    at = end + 1;
  }
  return text;
}

// Finds the children of nodes, and makes those that are not there yet.
class Nodes {
 public:
  explicit Nodes(std::vector<TreeNode>& nodes) : nodes_(nodes) { nodes_.assign(1, {}); }

  // The child for the next slice of this kind, name and shape within `instance`, one of the slices
  // that `parent` stands for. Those of one instance come one after the other.
  NodeId child(std::uint64_t instance, TreeNode like) {
    Family& family = families_[{like.parent, like.kind, like.name, like.shape}];
    NodeId* next = &family.first;
    if (family.instance == instance) next = &nodes_[family.last].again;
    if (*next == no_node) {
      const auto added = static_cast<NodeId>(nodes_.size());
      *next = added;  // before the nodes move
      append(added, like);
      family.last = added;
    } else {
      family.last = *next;
    }
    family.instance = instance;
    return family.last;
  }

 private:
  struct Key {
    NodeId parent;
    NodeKind kind;
    TextPool::Id name, shape;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = (std::uint64_t{key.parent} << 32 | key.name) * 0x9e3779b97f4a7c15;
      hash ^= (std::uint64_t{key.shape} << 8 | static_cast<std::uint64_t>(key.kind)) + (hash >> 29);
      hash *= 0xbf58476d1ce4e5b9;
      return hash ^ (hash >> 32);
    }
  };
  struct Family {
    NodeId first = no_node, last = no_node;
    std::uint64_t instance = ~std::uint64_t{0};  // that `last` was found for
  };

  void append(NodeId added, const TreeNode& like) {
    nodes_.push_back(like);
    TreeNode& parent = nodes_[like.parent];
    (parent.last_child == no_node ? parent.first_child : nodes_[parent.last_child].next_sibling) =
        added;
    parent.last_child = added;
  }

  std::vector<TreeNode>& nodes_;
  std::unordered_map<Key, Family, Hash> families_;
};

class Builder {
 public:
  explicit Builder(Trace&& trace)
      : trace_(std::move(trace)),
        nesting_(trace_),
        work_(work_of(trace_, nesting_)),
        nodes_(tree_.nodes),
        node_(trace_.events.size(), no_node) {}

  StepTree build();

 private:
  void find_steps();
  void find_outer_annotations();
  void add_host_nodes();
  void add_work_nodes();
  void add_busy();
  void add_busy_of_host(const std::vector<BusyPart>& parts);
  void add_idle();

  bool has_node(Row row) const;
  Row around(Row row) const;
  std::uint32_t step_of_host(Row row) const;
  std::uint32_t place_of_step(std::int64_t number) const;
  std::uint32_t step_at_time(std::int64_t time_ns) const;
  TextPool::Id plain_name(Row row);
  NodeId node_around(Row row) const;
  NodeId node_of_idle(const IdleStretch& stretch, const DeviceWork& next) const;
  Row busiest_slice(const Interval& wait, Row call) const;

  Trace trace_;
  HostNesting nesting_;
  Work work_;
  StepTree tree_;
  Nodes nodes_;
  std::vector<NodeId> node_;        // of each row; of work the leaf
  std::vector<bool> holds_a_step_;  // of each row: a step's annotation, or one around it
  std::unordered_map<std::int64_t, std::uint32_t> places_;  // of the steps, by number
  std::unordered_map<TextPool::Id, TextPool::Id> plain_;
};

// Steps begin with their first work. Those without work are none.
void Builder::find_steps() {
  if (work_.device.empty()) return;
  std::unordered_map<std::int64_t, std::int64_t> first;
  std::int64_t last_end = std::numeric_limits<std::int64_t>::min();
  for (const DeviceWork& one : work_.device) {
    first.try_emplace(one.step, trace_.events.begin_ns[one.row]);
    last_end = std::max(last_end, trace_.events.end_ns(one.row));
  }
  std::vector<TreeStep>& steps = tree_.steps;
  for (const Step& step : work_.steps) {
    const auto found = first.find(step.number);
    if (found == first.end()) continue;
    if (!steps.empty() && found->second <= steps.back().time.begin_ns) continue;
    if (!steps.empty()) steps.back().time.end_ns = found->second;
    places_.emplace(step.number, static_cast<std::uint32_t>(steps.size()));
    steps.push_back({.number = step.number, .time = {found->second, last_end}});
  }
  if (steps.empty())
    steps.push_back({.time = {trace_.events.begin_ns[work_.device.front().row], last_end}});
  if (steps.size() > 1) steps.back().full = false;
}

// Annotations around steps, such as one of a whole epoch, would make each step another one's part.
void Builder::find_outer_annotations() {
  holds_a_step_.resize(trace_.events.size());
  for (Row row = 0; row < trace_.events.size(); ++row) {
    if (trace_.events.kind[row] != EventKind::annotation || step_number(trace_.name(row)) < 0)
      continue;
    for (Row outer = row; outer != no_row && !holds_a_step_[outer];
         outer = nesting_.parent_of(outer))
      holds_a_step_[outer] = true;
  }
}

bool Builder::has_node(Row row) const {
  const EventKind kind = trace_.events.kind[row];
  return (kind == EventKind::operation || kind == EventKind::annotation) && !holds_a_step_[row];
}

// The innermost slice around a row that has a node.
Row Builder::around(Row row) const {
  do row = nesting_.parent_of(row);
  while (row != no_row && !has_node(row));
  return row;
}

std::uint32_t Builder::place_of_step(std::int64_t number) const {
  if (tree_.steps.empty()) return no_step;
  if (tree_.steps.front().number < 0) return 0;
  const auto found = places_.find(number);
  return found == places_.end() ? no_step : found->second;
}

std::uint32_t Builder::step_at_time(std::int64_t time_ns) const {
  return place_of_step(step_at(work_.steps, time_ns));
}

// The step in which the outermost slice around a row began.
std::uint32_t Builder::step_of_host(Row row) const {
  for (Row outer = row; outer != no_row; outer = around(outer)) row = outer;
  return step_at_time(trace_.events.begin_ns[row]);
}

TextPool::Id Builder::plain_name(Row row) {
  const auto [found, added] = plain_.try_emplace(trace_.events.name[row]);
  if (added) found->second = trace_.texts.add(without_numbers(trace_.name(row)));
  return found->second;
}

void Builder::add_host_nodes() {
  const EventColumns& events = trace_.events;
  std::vector<std::pair<std::uint32_t, Row>> rows;  // with their steps
  for (Row row = 0; row < events.size(); ++row)
    if (has_node(row)) rows.emplace_back(step_of_host(row), row);
  // Outer slices stand before those within them.
  std::ranges::sort(rows, {}, [&](const auto& at) {
    const Row row = at.second;
    return std::tuple(at.first, events.track[row], events.begin_ns[row], -events.duration_ns[row],
                      row);
  });
  for (const auto& [step, row] : rows) {
    const Row outer = around(row);
    const bool operation = events.kind[row] == EventKind::operation;
    node_[row] = nodes_.child(
        instance_of(outer, step),
        {.kind = operation ? NodeKind::operation : NodeKind::annotation,
         .name = operation ? events.name[row] : plain_name(row),
         .shape = operation ? events.shape[row] : 0,
         .parent = outer == no_row || node_[outer] == no_node ? StepTree::root : node_[outer]});
    if (operation && step != no_step)
      tree_.runs.push_back({node_[row], step, us(events.duration_ns[row])});
  }
}

void Builder::add_work_nodes() {
  const EventColumns& events = trace_.events;
  const std::vector<Row> operators = operators_of_work(trace_, work_, nesting_);
  struct Leaf {
    std::uint32_t step, work;
    Row outer;
  };
  std::vector<Leaf> leaves;
  leaves.reserve(work_.device.size());
  for (std::uint32_t i = 0; i < work_.device.size(); ++i) {
    const DeviceWork& one = work_.device[i];
    Row outer = operators[i];
    if (one.call != no_row && outer == no_row) outer = around(one.call);
    const std::uint32_t step = place_of_step(one.step);
    leaves.push_back({step, i, outer});
  }
  std::ranges::stable_sort(leaves, {},
                           [](const Leaf& leaf) { return std::pair(leaf.step, leaf.outer); });
  for (const Leaf& leaf : leaves) {
    const Row row = work_.device[leaf.work].row, outer = leaf.outer;
    node_[row] = nodes_.child(
        instance_of(outer, leaf.step),
        {.kind = NodeKind::work,
         .work = work_.device[leaf.work].work,
         .name = events.name[row],
         .parent = outer == no_row || node_[outer] == no_node ? StepTree::root : node_[outer]});
    if (leaf.step != no_step)
      tree_.runs.push_back({node_[row], leaf.step, us(events.duration_ns[row])});
  }
}

// The time of an outermost operator belongs to it and those within it, each its own.
void Builder::add_busy_of_host(const std::vector<BusyPart>& parts) {
  const EventColumns& events = trace_.events;
  std::vector<std::vector<BusyPart>> of_work(work_.device.size());
  for (const BusyPart& part : parts) of_work[part.work].push_back(part);
  std::vector<std::uint32_t> outermost(events.size(), no_node);
  for (std::uint32_t i = 0; i < work_.device.size(); ++i) outermost[work_.device[i].row] = i;
  const auto counts = [&](Row row) {
    return events.kind[row] == EventKind::operation || events.kind[row] == EventKind::call;
  };
  std::vector<std::int64_t> own = events.duration_ns;
  for (Row row = 0; row < events.size(); ++row) {
    Row outer = counts(row) ? nesting_.parent_of(row) : no_row;
    while (outer != no_row && !counts(outer)) outer = nesting_.parent_of(outer);
    if (outer != no_row) own[outer] -= events.duration_ns[row];
  }
  for (Row row = 0; row < events.size(); ++row) {
    if (!counts(row)) continue;
    Row outer = row;
    while (outer != no_row && outermost[outer] == no_node) outer = nesting_.parent_of(outer);
    if (outer == no_row || events.duration_ns[outer] <= 0) continue;
    const double part_of_outer =
        static_cast<double>(own[row]) / static_cast<double>(events.duration_ns[outer]);
    for (const BusyPart& part : of_work[outermost[outer]])
      tree_.parts.push_back({node_around(row), part.step, std::nullopt, part.us * part_of_outer});
  }
}

void Builder::add_busy() {
  std::vector<std::int64_t> bounds;
  for (const TreeStep& step : tree_.steps) bounds.push_back(step.time.begin_ns);
  if (!bounds.empty()) bounds.push_back(tree_.steps.back().time.end_ns);
  const std::vector<BusyPart> parts = busy_parts(trace_, work_, bounds);
  if (work_.of_host) return add_busy_of_host(parts);
  tree_.parts.reserve(parts.size());
  for (const BusyPart& part : parts)
    tree_.parts.push_back({node_[work_.device[part.work].row], part.step, std::nullopt, part.us});
}

NodeId Builder::node_around(Row row) const {
  if (!has_node(row)) row = around(row);
  return row == no_row || node_[row] == no_node ? StepTree::root : node_[row];
}

// The operator, or else annotation, that took half of the time before a call on its thread, unless
// it is one that the call stands in; no_row if there is none.
Row Builder::busiest_slice(const Interval& wait, Row call) const {
  const auto holds_call = [&](Row slice) {
    Row outer = call;
    while (outer != no_row && outer != slice) outer = nesting_.parent_of(outer);
    return outer != no_row;
  };
  const auto& stretches = nesting_.stretches(trace_.events.track[call]);
  auto at = std::ranges::upper_bound(stretches, wait.begin_ns, {}, &HostStretch::end_ns);
  std::map<Row, std::int64_t> shares;
  for (; at != stretches.end() && at->begin_ns < wait.end_ns; ++at) {
    const bool outside =
        at->annotation != no_row && has_node(at->annotation) && !holds_call(at->annotation);
    const Row slice = outside ? at->annotation : at->operation;
    if (slice != no_row && has_node(slice) && !holds_call(slice))
      shares[slice] += std::min(at->end_ns, wait.end_ns) - std::max(at->begin_ns, wait.begin_ns);
  }
  for (const auto& [slice, ns] : shares)
    if (2 * ns >= wait.length()) return slice;
  return no_row;
}

NodeId Builder::node_of_idle(const IdleStretch& stretch, const DeviceWork& next) const {
  if (stretch.blocking != no_row) return node_around(stretch.blocking);
  const bool late = stretch.cause == IdleCause::host_late || stretch.cause == IdleCause::step_end;
  if (late && next.call != no_row) {
    const std::int64_t begin = stretch.time.begin_ns;
    const Interval wait{begin,
                        std::clamp(trace_.events.begin_ns[next.call], begin, stretch.time.end_ns)};
    const Row busiest = wait.length() > 0 ? busiest_slice(wait, next.call) : no_row;
    if (busiest != no_row && node_[busiest] != no_node) return node_[busiest];
  }
  return work_.of_host ? node_[next.row] : tree_.nodes[node_[next.row]].parent;
}

// Parts of idle time, cut where steps begin.
void Builder::add_idle() {
  const IdleTime idle = idle_time(trace_, work_, nesting_);
  auto next = work_.device.begin();
  for (const IdleStretch& stretch : idle.stretches) {
    while (next->row != stretch.next) ++next;
    const NodeId node = node_of_idle(stretch, *next);
    auto step = std::ranges::upper_bound(tree_.steps, stretch.time.begin_ns, {},
                                         [](const TreeStep& one) { return one.time.end_ns; });
    for (; step != tree_.steps.end() && step->time.begin_ns < stretch.time.end_ns; ++step)
      tree_.parts.push_back({node, static_cast<std::uint32_t>(step - tree_.steps.begin()),
                             stretch.cause,
                             us(std::min(step->time.end_ns, stretch.time.end_ns) -
                                std::max(step->time.begin_ns, stretch.time.begin_ns))});
  }
}

StepTree Builder::build() {
  tree_.file = trace_.file;
  tree_.rank = rank_of(trace_);
  tree_.device = device_of(trace_);
  tree_.of_host = work_.of_host;
  tree_.damage = trace_.damage;
  find_steps();
  find_outer_annotations();
  add_host_nodes();
  if (!work_.of_host) add_work_nodes();
  add_busy();
  add_idle();
  tree_.texts = std::move(trace_.texts);
  return std::move(tree_);
}

}  // namespace

StepTree step_tree(Trace trace) { return Builder(std::move(trace)).build(); }

}  // namespace ridge::trace
