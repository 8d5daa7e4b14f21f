#include "ridge/passes/projections.h"

#include <fmt/format.h>

#include <string>

namespace ridge {

std::optional<Projection> projection_of(const Rewriter& rewrite, ValueId y) {
  Projection p{.nodes = {}, .x = y, .y = y, .weight = y};
  NodeId product = rewrite.producer<MatMul>(y);
  if (const NodeId shaped = rewrite.producer<Reshape>(y); shaped != no_node) {
    const ValueId rows = rewrite.node(shaped).inputs[0];
    product = rewrite.producer<MatMul>(rows);
    if (rewrite.only_use<Reshape>(rows) == no_node) return std::nullopt;
    p.nodes.push_back(shaped);
  }
  if (product == no_node || *rewrite.op<MatMul>(product) != MatMul{.trans_b = true})
    return std::nullopt;
  p.x = rewrite.node(product).inputs[0];
  p.weight = rewrite.node(product).inputs[1];
  if (const NodeId flat = rewrite.producer<Reshape>(p.x);
      flat != no_node && rewrite.only_use<MatMul>(p.x) != no_node) {
    p.nodes.push_back(flat);
    p.x = rewrite.node(flat).inputs[0];
  }
  if (const NodeId cast = rewrite.producer<Cast>(p.weight); cast != no_node) {
    if (rewrite.only_use<MatMul>(p.weight) == no_node) return std::nullopt;
    p.nodes.push_back(cast);
    p.weight = rewrite.node(cast).inputs[0];
  }
  const bool parameter = rewrite.info(p.weight).role == Role::parameter;
  if (!parameter || rewrite.uses(p.weight).size() != 1) return std::nullopt;
  p.nodes.push_back(product);
  return p;
}

Value apply_packed(Rewriter& rewrite, std::span<const Projection> parts, std::string_view name) {
  Graph& graph = rewrite.graph();
  // "layers.0.attention.q_proj" stands beside "layers.0.attention.<name>".
  const std::string& first = graph.scope_name(rewrite.node(parts[0].nodes.back()).scope);
  const std::string parent = first.substr(0, first.find_last_of('.') + 1);
  const Scope root(graph, ScopeId{0});
  const Scope scope(graph, parent + std::string(name));
  std::vector<Value> weights;
  for (const Projection& part : parts) weights.push_back(rewrite.value(part.weight));
  const Value packed = graph.pack(weights, fmt::format("{}{}.weight", parent, name));
  const Value x = rewrite.value(parts[0].x);
  return project(x, cast(packed, x.dtype()));
}

}  // namespace ridge
