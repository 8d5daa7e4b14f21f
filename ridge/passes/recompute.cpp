#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// The part of a scope's path that names what is recomputed as a whole: "layers.3" of
// "layers.3.attention.q_proj", and with it "layers.3.attention"; empty if the scope is in none, or
// in a block that is not among the first ones asked for.
std::string_view unit_of(std::string_view scope, Recompute recompute) {
  constexpr std::string_view blocks = "layers.";
  if (!scope.starts_with(blocks)) return "";
  const auto block_end = std::min(scope.find('.', blocks.size()), scope.size());
  std::int64_t number = 0;
  std::from_chars(scope.data() + blocks.size(), scope.data() + block_end, number);
  if (number >= recompute.blocks) return "";
  if (recompute.part == Recompute::block) return scope.substr(0, block_end);
  const auto part_end = std::min(scope.find('.', block_end + 1), scope.size());
  const std::string_view part = scope.substr(0, part_end);
  return part.ends_with(".attention") ? part : "";
}

// Which forward values belong to which unit.
class Units {
 public:
  Units(const Rewriter& rw, const Graph& graph, Recompute recompute)
      : rw_(rw), by_node_(rw.nodes().size()) {
    for (NodeId n = 0; n < by_node_.size(); ++n)
      if (rw.node(n).phase == Phase::forward)
        by_node_[n] = unit_of(graph.scope_name(rw.node(n).scope), recompute);
  }

  // The unit that computes v, if v is to be computed again: not what another part of the forward
  // pass reads too, for that is kept anyway.
  std::string_view of(ValueId v) const {
    const NodeId producer = rw_.producer(v);
    if (producer == no_node || by_node_[producer].empty() || rw_.is_readable(v)) return "";
    for (const NodeId use : rw_.uses(v))
      if (rw_.node(use).phase == Phase::forward && by_node_[use] != by_node_[producer]) return "";
    return by_node_[producer];
  }

  // Adds the unit's nodes that v depends on.
  void collect(ValueId v, std::string_view unit, std::set<NodeId>& nodes) const {
    if (of(v) != unit || !nodes.insert(rw_.producer(v)).second) return;
    for (const ValueId in : rw_.node(rw_.producer(v)).inputs) collect(in, unit, nodes);
  }

 private:
  const Rewriter& rw_;
  std::vector<std::string_view> by_node_;
};

}  // namespace

// Before the first backward node that reads what a unit computed, the unit's nodes are repeated in
// the backward phase, and backward nodes read the repetition.
std::size_t recompute_units(Graph& graph, Recompute recompute) {
  if (recompute == Recompute::none) return 0;
  Rewriter rw(graph);
  const Units units(rw, graph, recompute);
  std::map<std::string_view, std::set<NodeId>> wanted;  // by unit: nodes to repeat
  std::map<std::string_view, NodeId> where;             // and before which node
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (rw.node(n).phase != Phase::backward) continue;
    for (const ValueId in : rw.node(n).inputs) {
      const std::string_view unit = units.of(in);
      if (unit.empty()) continue;
      where.try_emplace(unit, n);
      units.collect(in, unit, wanted[unit]);
    }
  }
  for (const auto& [unit, nodes] : wanted)
    for (const NodeId n : nodes) rw.repeat(n, where[unit]);
  return rw.commit();
}

namespace {

// What costs little beside the products around it, and needs only what is kept anyway.
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
    return rw_.op<Silu>(n) || rw_.op<Mul>(n) || rw_.op<SwiGlu>(n) ||
           (rw_.op<Attention>(n) && v == rw_.node(n).outputs[0]);
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
