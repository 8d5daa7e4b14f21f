#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// Which forward values belong to which unit: a block or the attention of one, which is recomputed
// as a whole, if it is among the first blocks that were asked for.
class Units {
 public:
  Units(const Rewriter& rw, const Graph& graph, Recompute recompute)
      : rw_(rw), by_node_(rw.nodes().size()) {
    std::vector<ScopeId> blocks = graph.blocks();
    if (std::ssize(blocks) > recompute.blocks)
      blocks.resize(static_cast<std::size_t>(recompute.blocks));
    for (NodeId n = 0; n < by_node_.size(); ++n) {
      if (rw.node(n).phase != Phase::forward) continue;
      const auto block = graph.enclosing(rw.node(n).scope, ScopeKind::block);
      if (!block || std::ranges::find(blocks, *block) == blocks.end()) continue;
      by_node_[n] = recompute.part == Recompute::block
                        ? block
                        : graph.enclosing(rw.node(n).scope, ScopeKind::attention);
    }
  }

  // The unit that computes v, if v is to be computed again: not what another part of the forward
  // pass reads too, for that is kept anyway.
  std::optional<ScopeId> of(ValueId v) const {
    const NodeId producer = rw_.producer(v);
    if (producer == no_node || !by_node_[producer] || rw_.is_readable(v)) return std::nullopt;
    for (const NodeId use : rw_.uses(v))
      if (rw_.node(use).phase == Phase::forward && by_node_[use] != by_node_[producer])
        return std::nullopt;
    return by_node_[producer];
  }

  // Adds the unit's nodes that v depends on.
  void collect(ValueId v, ScopeId unit, std::set<NodeId>& nodes) const {
    if (of(v) != unit || !nodes.insert(rw_.producer(v)).second) return;
    for (const ValueId in : rw_.node(rw_.producer(v)).inputs) collect(in, unit, nodes);
  }

 private:
  const Rewriter& rw_;
  std::vector<std::optional<ScopeId>> by_node_;
};

}  // namespace

// Before the first backward node that reads what a unit computed, the unit's nodes are repeated in
// the backward phase, and backward nodes read the repetition.
std::size_t recompute_units(Graph& graph, Recompute recompute) {
  if (recompute == Recompute::none) return 0;
  Rewriter rw(graph);
  const Units units(rw, graph, recompute);
  std::map<ScopeId, std::set<NodeId>> wanted;  // by unit: nodes to repeat
  std::map<ScopeId, NodeId> where;             // and before which node
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (rw.node(n).phase != Phase::backward) continue;
    for (const ValueId in : rw.node(n).inputs) {
      const auto unit = units.of(in);
      if (!unit) continue;
      where.try_emplace(*unit, n);
      units.collect(in, *unit, wanted[*unit]);
    }
  }
  for (const auto& [unit, nodes] : wanted)
    for (const NodeId n : nodes) rw.repeat(n, where[unit]);
  return rw.commit();
}

namespace {

// Repeats light nodes, and reshapes of what they give.
class LightNodes {
 public:
  explicit LightNodes(Rewriter& rw) : rw_(rw), repeated_(rw.nodes().size(), false) {}

  // Repeats before node `at` what it reads of them, and what that reads.
  void repeat_operands(NodeId n, NodeId at) {
    for (const ValueId v : rw_.node(n).inputs) {
      const NodeId producer = rw_.producer(v);
      if (!is_light(producer, v) || repeated_[producer]) continue;
      repeated_[producer] = true;
      repeat_operands(producer, at);
      rw_.repeat(producer, at);
    }
  }

 private:
  bool is_light(NodeId n, ValueId v) const {
    if (n == no_node || rw_.node(n).phase != Phase::forward || rw_.is_readable(v)) return false;
    if (rw_.op<Reshape>(n)) {
      const ValueId operand = rw_.node(n).inputs[0];
      return is_light(rw_.producer(operand), operand);
    }
    return ridge::is_light(*rw_.node(n).op) && v == rw_.node(n).outputs[0];
  }

  Rewriter& rw_;
  std::vector<bool> repeated_;  // by node
};

}  // namespace

// Each just before the backward node that reads it first.
std::size_t recompute_light(Graph& graph) {
  Rewriter rw(graph);
  LightNodes light(rw);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (rw.node(n).phase == Phase::backward) light.repeat_operands(n, n);
  return rw.commit();
}

}  // namespace ridge
