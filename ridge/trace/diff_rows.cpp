#include "ridge/trace/diff_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

namespace ridge::trace {
namespace {

constexpr double least_us = 1e-6;  // that differs by more than rounding

// The sums of one node, as means of the steps.
struct NodeSum {
  double calls = 0, ran = 0, busy = 0;
};

// One of the two traces, summed up by node.
struct Side {
  double count;  // of steps
  std::vector<NodeSum> sums;

  Side(const StepTree& of, const std::vector<bool>& steps)
      : count(static_cast<double>(std::ranges::count(steps, true))), sums(of.nodes.size()) {
    for (const StepTree::Part& part : of.parts)
      if (steps[part.step] && !part.idle) sums[part.node].busy += part.us / count;
    for (const StepTree::Run& run : of.runs) {
      if (!steps[run.step]) continue;
      sums[run.node].calls += 1 / count;
      sums[run.node].ran += run.us / count;
    }
  }
};

// Paths as numbers: the same annotations and operators, whichever tree they stand in.
class Paths {
 public:
  explicit Paths(const DiffInput& in) : in_(in) {
    number(in.before, before_, true);
    number(in.after, after_, false);
    in_before_.resize(numbers_.size() + 1);
    in_after_.resize(numbers_.size() + 1);
    for (const std::uint32_t path : before_) in_before_[path] = true;
    for (const std::uint32_t path : after_) in_after_[path] = true;
  }

  std::uint32_t of_before(NodeId node) const { return before_[node]; }
  std::uint32_t of_after(NodeId node) const { return after_[node]; }
  bool are_in_both(std::uint32_t path) const { return in_before_[path] && in_after_[path]; }

 private:
  // Parents stand before their children.
  void number(const StepTree& tree, std::vector<std::uint32_t>& paths, bool before) {
    paths.resize(tree.nodes.size());
    for (NodeId node = 1; node < tree.nodes.size(); ++node) {
      const TreeNode& one = tree.nodes[node];
      paths[node] = paths[one.parent];
      if (one.kind == NodeKind::work) continue;
      const std::uint64_t name = before ? in_.names.of_a(one.name) : in_.names.of_b(one.name);
      const auto next = static_cast<std::uint32_t>(numbers_.size() + 1);
      paths[node] =
          numbers_.try_emplace(std::uint64_t{paths[one.parent]} << 32 | name, next).first->second;
    }
  }

  const DiffInput& in_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
  std::vector<std::uint32_t> before_, after_;
  std::vector<bool> in_before_, in_after_;  // by path
};

std::string path_text(const StepTree& tree, NodeId node) {
  if (tree.nodes[node].kind == NodeKind::work) node = tree.nodes[node].parent;
  std::string text;
  for (; node != StepTree::root; node = tree.nodes[node].parent) {
    const std::string& name = tree.texts[tree.nodes[node].name];
    text = text.empty() ? name : name + " > " + text;
  }
  return text;
}

// All nodes of one row have this in common. Names and shapes are SharedNames' numbers.
struct RowKey {
  std::uint32_t path = 0;
  std::uint32_t shape_before = 0, shape_after = 0;
  std::uint32_t kernel_before = 0, kernel_after = 0;
  int idle = -1;  // the cause
  auto operator<=>(const RowKey&) const = default;
};

class Rows {
 public:
  explicit Rows(const DiffInput& in)
      : in_(in),
        before_(in.before, in.steps_before),
        after_(in.after, in.steps_after),
        paths_(in) {}

  std::vector<DiffRow> take();

 private:
  struct Row {
    NodeSum before, after;
    NodeId node_before = no_node, node_after = no_node;  // one of each
  };

  void add_nodes();
  void add_idle();
  RowKey key_of(NodeId a, NodeId b) const;
  DiffRow finished(const RowKey& key, const Row& row) const;
  std::vector<DiffRow> summed_up(std::vector<std::pair<RowKey, DiffRow>> rows) const;
  static NodeId with_shape(const StepTree& tree, NodeId node) {
    return tree.nodes[node].kind == NodeKind::work ? tree.nodes[node].parent : node;
  }

  const DiffInput& in_;
  Side before_, after_;
  Paths paths_;
  std::map<RowKey, Row> rows_;
};

// The key for a node of the first trace and one of the second that are the same; either may be
// no_node, if there is none.
RowKey Rows::key_of(NodeId a, NodeId b) const {
  const auto of_a = [&](NodeId node) {
    const TreeNode& outer = in_.before.nodes[with_shape(in_.before, node)];
    return RowKey{.path = paths_.of_before(node),
                  .shape_before = in_.match.with_shapes ? in_.names.of_a(outer.shape) : 0};
  };
  RowKey key{};
  const bool work = a != no_node ? in_.before.nodes[a].kind == NodeKind::work
                                 : in_.after.nodes[b].kind == NodeKind::work;
  if (a != no_node) {
    key = of_a(a);
    key.shape_after = key.shape_before;
    if (work) key.kernel_before = key.kernel_after = in_.names.of_a(in_.before.nodes[a].name);
  }
  if (b == no_node) return key;
  const NodeId outer_b = with_shape(in_.after, b);
  const std::uint32_t shape_b =
      in_.match.with_shapes ? in_.names.of_b(in_.after.nodes[outer_b].shape) : 0;
  const std::uint32_t kernel_b = work ? in_.names.of_b(in_.after.nodes[b].name) : 0;
  if (a == no_node) return {paths_.of_after(b), shape_b, shape_b, kernel_b, kernel_b, -1};
  // Work that stands in another operator than before has that one's shape, which says nothing.
  if (in_.match.to_b[with_shape(in_.before, a)] == outer_b) key.shape_after = shape_b;
  key.kernel_after = kernel_b;
  return key;
}

void Rows::add_nodes() {
  const auto add = [&](NodeId a, NodeId b) {
    const NodeSum of_a = a == no_node ? NodeSum() : before_.sums[a];
    const NodeSum of_b = b == no_node ? NodeSum() : after_.sums[b];
    const bool work = a != no_node ? in_.before.nodes[a].kind == NodeKind::work
                                   : in_.after.nodes[b].kind == NodeKind::work;
    if (!work && !in_.before.of_host) return;
    Row& row = rows_[key_of(a, b)];
    const auto sum = [](NodeSum& to, const NodeSum& more) {
      to.calls += more.calls;
      to.ran += more.ran;
      to.busy += more.busy;
    };
    sum(row.before, of_a);
    sum(row.after, of_b);
    if (a != no_node) row.node_before = a;
    if (b != no_node) row.node_after = b;
  };
  for (NodeId a = 0; a < in_.before.nodes.size(); ++a) add(a, in_.match.to_b[a]);
  for (NodeId b = 0; b < in_.after.nodes.size(); ++b)
    if (in_.match.to_a[b] == no_node) add(no_node, b);
}

void Rows::add_idle() {
  const auto add = [&](NodeId a, NodeId b, IdleCause cause, double before_us, double after_us) {
    Row& row = rows_[{.path = a != no_node ? paths_.of_before(a) : paths_.of_after(b),
                      .idle = static_cast<int>(cause)}];
    if (a != no_node) row.node_before = a;
    if (b != no_node) row.node_after = b;
    row.before.busy += before_us;
    row.after.busy += after_us;
  };
  for (const StepTree::Part& part : in_.before.parts)
    if (part.idle && in_.steps_before[part.step])
      add(part.node, no_node, *part.idle, part.us / before_.count, 0);
  for (const StepTree::Part& part : in_.after.parts)
    if (part.idle && in_.steps_after[part.step])
      add(in_.match.to_a[part.node], part.node, *part.idle, 0, part.us / after_.count);
}

DiffKind kind_of(const RowKey& key, const DiffRow& row) {
  const bool more = row.difference_us() > 0;
  if (key.idle >= 0) return more ? DiffKind::more_idle : DiffKind::less_idle;
  if (row.calls_before <= 0 && row.before_us <= 0) return DiffKind::appeared;
  if (row.calls_after <= 0 && row.after_us <= 0) return DiffKind::vanished;
  if (key.shape_before != key.shape_after) return DiffKind::changed_shape;
  if (key.kernel_before != key.kernel_after) return DiffKind::changed_kernel;
  if (std::abs(row.calls_after - row.calls_before) > 1e-6)
    return row.calls_after > row.calls_before ? DiffKind::more_calls : DiffKind::fewer_calls;
  return more ? DiffKind::slower : DiffKind::faster;
}

DiffRow Rows::finished(const RowKey& key, const Row& row) const {
  DiffRow done{.calls_before = row.before.calls,
               .calls_after = row.after.calls,
               .before_us = row.before.busy,
               .after_us = row.after.busy,
               .ran_before_us = row.before.ran,
               .ran_after_us = row.after.ran};
  const auto describe = [&](const StepTree& tree, NodeId node, std::string& shape,
                            std::string& kernel) {
    if (node == no_node) return;
    if (done.path.empty()) done.path = path_text(tree, node);
    if (key.idle >= 0) return;
    shape = tree.texts[tree.nodes[with_shape(tree, node)].shape];
    if (tree.nodes[node].kind == NodeKind::work) kernel = tree.texts[tree.nodes[node].name];
  };
  describe(in_.before, row.node_before, done.shape_before, done.kernel_before);
  describe(in_.after, row.node_after, done.shape_after, done.kernel_after);
  if (key.shape_before == key.shape_after && row.node_before != no_node)
    done.shape_after = done.shape_before;
  if (key.idle >= 0) done.idle = static_cast<IdleCause>(key.idle);
  done.kind = kind_of(key, done);
  return done;
}

// One row for all kernels of an operator that only one run has. The rows come
// largest first.
std::vector<DiffRow> Rows::summed_up(std::vector<std::pair<RowKey, DiffRow>> rows) const {
  std::map<RowKey, std::size_t> at;
  std::vector<DiffRow> sums;
  for (auto& [key, row] : rows) {
    const RowKey operation{
        .path = key.path, .shape_before = key.shape_before, .shape_after = key.shape_after};
    const bool one_run = (row.kind == DiffKind::appeared || row.kind == DiffKind::vanished) &&
                         !paths_.are_in_both(key.path);
    const auto [found, added] =
        one_run ? at.try_emplace(operation, sums.size()) : std::pair(at.end(), true);
    if (added) {
      sums.push_back(std::move(row));
      continue;
    }
    DiffRow& sum = sums[found->second];
    ++sum.kernels;
    sum.calls_before += row.calls_before;
    sum.calls_after += row.calls_after;
    sum.before_us += row.before_us;
    sum.after_us += row.after_us;
    sum.ran_before_us += row.ran_before_us;
    sum.ran_after_us += row.ran_after_us;
  }
  return sums;
}

std::vector<DiffRow> Rows::take() {
  add_nodes();
  add_idle();
  std::vector<std::pair<RowKey, DiffRow>> rows;
  for (const auto& [key, row] : rows_) {
    const bool same = key.shape_before == key.shape_after &&
                      key.kernel_before == key.kernel_after &&
                      std::abs(row.before.calls - row.after.calls) <= 1e-6;
    if (same && std::abs(row.after.busy - row.before.busy) < least_us) continue;
    rows.emplace_back(key, finished(key, row));
  }
  const auto size = [](const DiffRow& row) { return std::abs(row.difference_us()); };
  std::ranges::stable_sort(rows, std::greater(), [&](const auto& row) { return size(row.second); });
  std::vector<DiffRow> sums = summed_up(std::move(rows));
  std::ranges::stable_sort(sums, std::greater(), size);
  return sums;
}

}  // namespace

std::vector<DiffRow> diff_rows(const DiffInput& in) { return Rows(in).take(); }

std::vector<OperatorDiff> diff_operators(const DiffInput& in) {
  std::unordered_map<std::uint32_t, OperatorDiff> of_name;
  const auto add = [&](const StepTree& tree, const std::vector<bool>& steps, bool before) {
    const Side side(tree, steps);
    for (NodeId node = 1; node < tree.nodes.size(); ++node) {
      const bool work = tree.nodes[node].kind == NodeKind::work;
      const TreeNode& one = tree.nodes[work ? tree.nodes[node].parent : node];
      const NodeSum& sum = side.sums[node];
      if (one.kind != NodeKind::operation || sum.calls <= 0) continue;
      OperatorDiff& diff = of_name[before ? in.names.of_a(one.name) : in.names.of_b(one.name)];
      diff.name = tree.texts[one.name];
      if (work) {
        (before ? diff.device_before_us : diff.device_after_us) += sum.ran;
        continue;
      }
      (before ? diff.calls_before : diff.calls_after) += sum.calls;
      (before ? diff.host_before_us : diff.host_after_us) += sum.ran;
    }
  };
  add(in.before, in.steps_before, true);
  add(in.after, in.steps_after, false);
  std::vector<OperatorDiff> operators;
  for (auto& [_, one] : of_name) operators.push_back(std::move(one));
  std::ranges::sort(operators, {}, [](const OperatorDiff& one) {
    return std::tuple(-one.host_after_us, -one.host_before_us, one.name);
  });
  return operators;
}

}  // namespace ridge::trace
