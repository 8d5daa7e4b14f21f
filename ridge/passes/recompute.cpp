#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// The part of a scope's path that names what is recomputed as a whole: "layers.3" of
// "layers.3.attention.q_proj", and with it "layers.3.attention"; empty if the scope is in none.
std::string_view unit_of(std::string_view scope, Recompute recompute) {
  constexpr std::string_view blocks = "layers.";
  if (!scope.starts_with(blocks)) return "";
  const auto block_end = std::min(scope.find('.', blocks.size()), scope.size());
  if (recompute == Recompute::block) return scope.substr(0, block_end);
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
      if (rw_.op<AddRmsNorm>(producer)) {
        repeat_norm(producer, at);
      } else {
        repeat_operands(producer, at);
        rw_.repeat(producer, at);
      }
    }
  }

 private:
  bool is_light(NodeId n, ValueId v) const {
    if (n == no_node || rw_.node(n).phase != Phase::forward || rw_.is_readable(v)) return false;
    if (rw_.op<AddRmsNorm>(n)) return v == rw_.node(n).outputs[1];  // the sum is kept
    if (rw_.op<Reshape>(n)) {
      const ValueId operand = rw_.node(n).inputs[0];
      return is_light(rw_.producer(operand), operand);
    }
    return rw_.op<RmsNorm>(n) || rw_.op<Silu>(n) || rw_.op<Mul>(n) || rw_.op<SwiGlu>(n) ||
           (rw_.op<Attention>(n) && v == rw_.node(n).outputs[0]);
  }

  // The norm alone, from the sum: its terms are not kept.
  void repeat_norm(NodeId n, NodeId at) {
    const Node& node = rw_.node(n);
    const AddRmsNorm& op = *rw_.op<AddRmsNorm>(n);
    rw_.replace({}, at, [this, &node, n, norm = RmsNorm{.eps = op.eps, .out = op.out}] {
      const Scope scope(rw_.graph(), node.scope);
      const PhaseScope phase(rw_.graph(), Phase::backward, rw_.now(n));
      const auto out = rw_.graph().apply(
          norm, std::array{rw_.value(node.outputs[0]), rw_.value(node.inputs[2])});
      return Rewriter::Substitutes{{node.outputs[1], out[0]}};
    });
  }

  Rewriter& rw_;
  std::vector<bool> repeated_;  // by node
};

// A gradient of SwiGLU, and the one backward node that reads the result itself.
struct GateResult {
  NodeId gradient = no_node, reader = no_node;
  ValueId read = no_value;  // the result, or a reshape of it
};

// The backward nodes that read v itself or reshaped, as pairs of node and what it reads.
std::vector<std::pair<NodeId, ValueId>> backward_readers(const Rewriter& rw, ValueId v) {
  std::vector<std::pair<NodeId, ValueId>> readers;
  for (const NodeId use : rw.uses(v)) {
    if (rw.node(use).phase == Phase::backward) {
      readers.emplace_back(use, v);
    } else if (rw.op<Reshape>(use)) {
      const auto more = backward_readers(rw, rw.node(use).outputs[0]);
      readers.insert(readers.end(), more.begin(), more.end());
    }
  }
  return readers;
}

// Whether gradient n can give the result in the memory of its operand dy, and the reader wait for
// it: the gradient of the weight behind the result, which nobody reads before the optimizer.
std::optional<GateResult> gate_result_at(const Rewriter& rw, const Lifetimes& life, NodeId n) {
  const SwiGluGrad* op = rw.op<SwiGluGrad>(n);
  if (!op || op->result || rw.node(n).forward == no_node) return std::nullopt;
  const NodeId forward = rw.node(n).forward;
  const std::vector<ValueId>& in = rw.node(n).inputs;
  if (!rw.op<SwiGlu>(forward) ||
      !std::ranges::equal(rw.node(forward).inputs, std::span(in).subspan(1)))
    return std::nullopt;
  const ValueId y = rw.node(forward).outputs[0];
  const auto readers = backward_readers(rw, y);
  if (rw.is_readable(y) || readers.size() != 1) return std::nullopt;
  const auto [reader, read] = readers.front();
  if (reader > n || !rw.op<MatMul>(reader) || rw.is_readable(read)) return std::nullopt;
  for (const NodeId use : rw.uses(rw.node(reader).outputs[0]))
    if (use < n) return std::nullopt;
  // Nor may anything else still read dy.
  if (std::ranges::count(life.dead[n], life.storage[in[0]]) == 0) return std::nullopt;
  return GateResult{n, reader, read};
}

// Where the gradient of SwiGLU has all at hand that its result is made of, it gives that as well.
std::size_t results_of_gate_gradients(Graph& graph) {
  Rewriter rw(graph);
  const Lifetimes life = lifetimes_of(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const auto found = gate_result_at(rw, life, n);
    if (!found) continue;
    rw.replace({found->reader, n}, n, [&rw, &graph, at = *found] {
      const Node &gradient = rw.node(at.gradient), &reader = rw.node(at.reader);
      SwiGluGrad op = std::get<SwiGluGrad>(gradient.op->variant());
      op.result = true;
      std::vector<Value> inputs;
      for (const ValueId in : gradient.inputs) inputs.push_back(rw.value(in));
      const std::vector<Value> out = graph.apply(op, inputs);
      Rewriter::Substitutes substitutes;
      for (std::size_t i = 0; i < gradient.outputs.size(); ++i)
        substitutes.emplace_back(gradient.outputs[i], out[i]);
      const Scope scope(graph, reader.scope);
      const PhaseScope phase(graph, Phase::backward,
                             reader.forward == no_node ? no_node : rw.now(reader.forward));
      inputs.clear();
      for (const ValueId in : reader.inputs)
        inputs.push_back(in == at.read ? reshape(out.back(), rw.type(in).shape) : rw.value(in));
      substitutes.emplace_back(reader.outputs[0], graph.apply(*reader.op, inputs)[0]);
      return substitutes;
    });
  }
  return rw.commit();
}

}  // namespace

// Each just before the backward node that reads it first, but for what its gradient gives anyway.
std::size_t recompute_light(Graph& graph) {
  const std::size_t given = results_of_gate_gradients(graph);
  Rewriter rw(graph);
  LightNodes light(rw);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (rw.node(n).phase == Phase::backward) light.repeat_operands(n, n);
  return given + rw.commit();
}

}  // namespace ridge
