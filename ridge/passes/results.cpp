#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// The result of a norm, where the gradient in question reads what was normalized instead.
struct NormResult {
  NodeId norm = no_node;
  std::size_t operand = 0;  // of the gradient
  ValueId y = no_value;
};

std::optional<NormResult> result_of(const Rewriter& rw, NodeId n) {
  const RmsNormGrad* one = rw.op<RmsNormGrad>(n);
  const AddRmsNormGrad* added = rw.op<AddRmsNormGrad>(n);
  if (!(one && !one->from_result) && !(added && !added->from_result)) return std::nullopt;
  const std::vector<ValueId>& in = rw.node(n).inputs;
  // RmsNormGrad's operands are those of AddRmsNormGrad without dsum.
  const AddRmsNormGrad::Operands at = AddRmsNormGrad::operands(in.size());
  const ValueId x = in[at.sum], weight = in[at.weight], rstd = in[at.rstd];
  const NodeId norm = rw.producer(rstd);
  if (norm == no_node || rw.type(x).dtype != DType::f32) return std::nullopt;
  const Node& forward = rw.node(norm);
  std::optional<NormResult> found;
  const OpVariant& op = forward.op->variant();
  if (std::holds_alternative<AddRmsNorm>(op) && forward.outputs[0] == x &&
      forward.inputs[2] == weight)
    found = NormResult{norm, at.sum, forward.outputs[1]};
  if (std::holds_alternative<RmsNorm>(op) && forward.inputs[0] == x && forward.inputs[1] == weight)
    found = NormResult{norm, at.sum, forward.outputs[0]};
  // In f16, where y is small because the weight is, it does not say what xhat was.
  if (found && rw.type(found->y).dtype == DType::f16) return std::nullopt;
  return found;
}

// Node n as another operator, with one operand, if given, replaced by y.
Rewriter::Substitutes applied(Rewriter& rw, NodeId n, const Op& op,
                              std::optional<NormResult> result = {}) {
  const Node& node = rw.node(n);
  std::vector<Value> inputs = rw.values(node.inputs);
  if (result) inputs[result->operand] = rw.value(result->y);
  return Rewriter::each(node.outputs, rw.graph().apply(op, inputs));
}

}  // namespace

// The norm's output is kept anyway, for its reader's weight gradient, and is mostly narrower.
std::size_t norm_results(Graph& graph) {
  Rewriter rw(graph);
  std::set<NodeId> norms;
  std::size_t gradients = 0;
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const auto found = result_of(rw, n);
    if (!found) continue;
    ++gradients;
    rw.replace({n}, n, [&rw, n, result = *found] {
      Op op = *rw.node(n).op;
      if (auto* one = std::get_if<RmsNormGrad>(&op)) one->from_result = true;
      if (auto* added = std::get_if<AddRmsNormGrad>(&op)) added->from_result = true;
      return applied(rw, n, op, result);
    });
    if (!norms.insert(found->norm).second) continue;
    rw.replace({found->norm}, found->norm, [&rw, norm = found->norm] {
      Op op = *rw.node(norm).op;
      if (auto* one = std::get_if<RmsNorm>(&op)) one->invertible = true;
      if (auto* added = std::get_if<AddRmsNorm>(&op)) added->invertible = true;
      return applied(rw, norm, op);
    });
  }
  rw.commit();
  return gradients;
}

namespace {

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

}  // namespace

// SwiGLU's gradient reads gate and up anyway, so it recomputes SwiGLU's output as well.
std::size_t gate_results(Graph& graph) {
  Rewriter rw(graph);
  const Lifetimes life = lifetimes_of(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto found = gate_result_at(rw, life, n))
      rw.replace({found->reader, n}, n, [&rw, &graph, at = *found] {
        const Node &gradient = rw.node(at.gradient), &reader = rw.node(at.reader);
        SwiGluGrad op = std::get<SwiGluGrad>(gradient.op->variant());
        op.result = true;
        const std::vector<Value> out = graph.apply(op, rw.values(gradient.inputs));
        Rewriter::Substitutes substitutes = Rewriter::each(gradient.outputs, out);
        const Scope scope(graph, reader.scope);
        const PhaseScope phase(graph, Phase::backward,
                               reader.forward == no_node ? no_node : rw.now(reader.forward));
        std::vector<Value> inputs;
        for (const ValueId in : reader.inputs)
          inputs.push_back(in == at.read ? reshape(out.back(), rw.type(in).shape) : rw.value(in));
        substitutes.emplace_back(reader.outputs[0], graph.apply(*reader.op, inputs)[0]);
        return substitutes;
      });
  return rw.commit();
}

}  // namespace ridge
