#include "ridge/trace/tree_match.h"

#include <algorithm>

#include "ridge/trace/align.h"

namespace ridge::trace {
namespace {

constexpr std::uint32_t unknown = ~std::uint32_t{0};

std::vector<NodeId> children_of(const StepTree& tree, NodeId parent) {
  std::vector<NodeId> children;
  for (NodeId at = tree.nodes[parent].first_child; at != no_node; at = tree.nodes[at].next_sibling)
    children.push_back(at);
  return children;
}

bool has_shapes(const StepTree& tree) {
  return std::ranges::any_of(tree.nodes, [&](const TreeNode& node) {
    return tree.texts[node.shape].find_first_of("0123456789") != std::string::npos;
  });
}

class Matcher {
 public:
  Matcher(const StepTree& a, const StepTree& b, const SharedNames& names)
      : a_(a), b_(b), names_(names) {
    match_.with_shapes = has_shapes(a) && has_shapes(b);
    match_.to_b.assign(a.nodes.size(), no_node);
    match_.to_a.assign(b.nodes.size(), no_node);
  }

  TreeMatch run();

 private:
  using Nodes = std::vector<NodeId>;
  enum class By { shape, name };

  void pair(NodeId a, NodeId b);
  void match_lists(Nodes a, Nodes b);
  void match_children(NodeId a, NodeId b);
  void match_in_order(const Nodes& a, const Nodes& b);
  void match_in_any_order(const Nodes& a, const Nodes& b, By by);
  void pair_changed_work(const Nodes& a, const Nodes& b, bool between_neighbours);
  void drop_matched(Nodes& a, Nodes& b) const;
  bool dissolve(Nodes& nodes, const StepTree& tree, NodeKind kind) const;
  bool dissolve_both(Nodes& a, Nodes& b, NodeKind kind) const;
  std::uint64_t key(const TreeNode& node, bool of_a, By by) const;
  std::uint32_t symbol(const TreeNode& node, bool of_a);

  const StepTree& a_;
  const StepTree& b_;
  const SharedNames& names_;
  std::unordered_map<std::uint64_t, std::uint32_t> symbols_;
  std::vector<std::pair<NodeId, NodeId>> open_;  // matched; their children are not yet
  TreeMatch match_;
};

// Kind and name in one word with the shape, whose numbers are below 2^31 each.
std::uint64_t Matcher::key(const TreeNode& node, bool of_a, By by) const {
  const std::uint64_t name = of_a ? names_.of_a(node.name) : names_.of_b(node.name);
  const std::uint64_t shape = of_a ? names_.of_a(node.shape) : names_.of_b(node.shape);
  const auto kind = static_cast<std::uint64_t>(node.kind);
  return name << 34 | kind << 32 | (by == By::shape && match_.with_shapes ? shape : 0);
}

std::uint32_t Matcher::symbol(const TreeNode& node, bool of_a) {
  const auto next = static_cast<std::uint32_t>(symbols_.size());
  return symbols_.try_emplace(key(node, of_a, By::shape), next).first->second;
}

void Matcher::pair(NodeId a, NodeId b) {
  match_.to_b[a] = b;
  match_.to_a[b] = a;
  open_.emplace_back(a, b);
}

void Matcher::match_in_order(const Nodes& a, const Nodes& b) {
  std::vector<std::uint32_t> symbols_a, symbols_b;
  for (const NodeId node : a) symbols_a.push_back(symbol(a_.nodes[node], true));
  for (const NodeId node : b) symbols_b.push_back(symbol(b_.nodes[node], false));
  for (const auto& [at_a, at_b] : aligned(symbols_a, symbols_b)) pair(a[at_a], b[at_b]);
}

void Matcher::match_in_any_order(const Nodes& a, const Nodes& b, By by) {
  if (a.empty() || b.empty()) return;
  std::unordered_map<std::uint64_t, std::vector<NodeId>> of_key;
  for (auto node = b.rbegin(); node != b.rend(); ++node)
    of_key[key(b_.nodes[*node], false, by)].push_back(*node);
  for (const NodeId node : a) {
    const auto found = of_key.find(key(a_.nodes[node], true, by));
    if (found == of_key.end() || found->second.empty()) continue;
    pair(node, found->second.back());
    found->second.pop_back();
  }
}

void Matcher::drop_matched(Nodes& a, Nodes& b) const {
  std::erase_if(a, [&](NodeId node) { return match_.to_b[node] != no_node; });
  std::erase_if(b, [&](NodeId node) { return match_.to_a[node] != no_node; });
}

// Puts the children of the nodes of this kind in their place; false if there is no such node. The
// work of an operator stays with it: many launch the same kernels.
bool Matcher::dissolve(Nodes& nodes, const StepTree& tree, NodeKind kind) const {
  Nodes rest;
  bool any = false;
  for (const NodeId node : nodes) {
    if (tree.nodes[node].kind != kind) {
      rest.push_back(node);
      continue;
    }
    any = true;
    for (const NodeId child : children_of(tree, node))
      if (kind == NodeKind::annotation || tree.nodes[child].kind != NodeKind::work)
        rest.push_back(child);
  }
  nodes = std::move(rest);
  return any;
}

bool Matcher::dissolve_both(Nodes& a, Nodes& b, NodeKind kind) const {
  const bool of_a = dissolve(a, a_, kind), of_b = dissolve(b, b_, kind);
  return of_a || of_b;
}

void Matcher::match_lists(Nodes a, Nodes b) {
  match_in_order(a, b);
  drop_matched(a, b);
  // An operator within one that is not the same is the same only if its shape is.
  bool by_name = true;
  for (bool more = true; more && !a.empty() && !b.empty();) {
    match_in_any_order(a, b, By::shape);
    drop_matched(a, b);
    if (by_name) match_in_any_order(a, b, By::name);
    drop_matched(a, b);
    more = dissolve_both(a, b, NodeKind::annotation);
    if (more) continue;
    by_name = false;
    more = dissolve_both(a, b, NodeKind::operation);
  }
}

// Pairs what is left of work, in order, with such of the same class.
void Matcher::pair_changed_work(const Nodes& a, const Nodes& b, bool between_neighbours) {
  struct Gap {
    Nodes a, b;
  };
  // By the neighbour before it, where that counts, and by class.
  std::unordered_map<std::uint64_t, Gap> gaps;
  const auto key = [&](NodeId neighbour, WorkClass work) {
    return (between_neighbours ? std::uint64_t{neighbour} << 8 : 0) |
           static_cast<std::uint64_t>(work);
  };
  NodeId neighbour = no_node;
  for (const NodeId node : a) {
    if (match_.to_b[node] != no_node)
      neighbour = node;
    else if (a_.nodes[node].kind == NodeKind::work)
      gaps[key(neighbour, a_.nodes[node].work)].a.push_back(node);
  }
  neighbour = no_node;
  for (const NodeId node : b) {
    if (match_.to_a[node] != no_node)
      neighbour = match_.to_a[node];
    else if (b_.nodes[node].kind == NodeKind::work)
      gaps[key(neighbour, b_.nodes[node].work)].b.push_back(node);
  }
  for (const auto& [_, gap] : gaps) {
    if (between_neighbours && gap.a.size() != gap.b.size()) continue;
    for (std::size_t i = 0; i < std::min(gap.a.size(), gap.b.size()); ++i) pair(gap.a[i], gap.b[i]);
  }
}

void Matcher::match_children(NodeId a, NodeId b) {
  const Nodes of_a = children_of(a_, a), of_b = children_of(b_, b);
  if (of_a.empty() || of_b.empty()) return;
  match_lists(of_a, of_b);
  pair_changed_work(of_a, of_b, a_.nodes[a].kind != NodeKind::operation);
}

TreeMatch Matcher::run() {
  pair(StepTree::root, StepTree::root);
  while (!open_.empty()) {
    const auto [a, b] = open_.back();
    open_.pop_back();
    match_children(a, b);
  }
  return std::move(match_);
}

}  // namespace

SharedNames::SharedNames(const StepTree& a, const StepTree& b)
    : a_(a.texts.size(), unknown), b_(b.texts.size(), unknown) {
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  const auto take = [&](const StepTree& tree, std::vector<std::uint32_t>& to) {
    const auto number = [&](TextPool::Id id) {
      if (to[id] != unknown) return;
      const auto next = static_cast<std::uint32_t>(numbers.size());
      to[id] = numbers.try_emplace(tree.texts[id], next).first->second;
    };
    number(0);
    for (const TreeNode& node : tree.nodes) {
      number(node.name);
      number(node.shape);
    }
  };
  take(a, a_);
  take(b, b_);
}

TreeMatch match(const StepTree& a, const StepTree& b, const SharedNames& names) {
  return Matcher(a, b, names).run();
}

}  // namespace ridge::trace
