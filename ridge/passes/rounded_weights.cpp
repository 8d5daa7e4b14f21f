#include <fmt/format.h>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// Where a parameter is rounded to 16 bits for others to use: all to one dtype.
std::vector<NodeId> conversions_of(const Rewriter& rw, ValueId parameter) {
  std::vector<NodeId> found;
  for (const NodeId n : rw.uses(parameter)) {
    const Cast* cast = rw.op<Cast>(n);
    if (!cast || !is_16_bit(cast->to) || rw.is_readable(rw.node(n).outputs[0])) continue;
    if (found.empty() || cast->to == rw.op<Cast>(found.front())->to) found.push_back(n);
  }
  return found;
}

// Kept from step to step; made when it is first asked for.
Value copy_of(Graph& graph, Value parameter, DType dtype) {
  const std::string name = fmt::format("{}.{}", graph.info(parameter.id).name, name_of(dtype));
  const Value found = graph.find(name);
  return found ? found : graph.rounded_copy(parameter, dtype, name);
}

// A weight that products read in 16 bits is kept so beside itself, by the kernel that updates it,
// instead of being converted in every forward pass.
template <class Each>
std::size_t round_where_updated(Graph& graph) {
  using All = UpdateAll<Each>;
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const All* op = rw.op<All>(n);
    if (!op || op->copies() > 0) continue;
    const Node& node = rw.node(n);
    All with_copies = *op;
    std::vector<std::pair<ValueId, DType>> copied;
    for (std::size_t p = 0; p < op->parameters(node.inputs.size()); ++p) {
      const ValueId parameter = node.inputs[op->shared_operands() + All::operands_each * p];
      const std::vector<NodeId> casts = conversions_of(rw, parameter);
      with_copies.copied.push_back(!casts.empty());
      if (casts.empty()) continue;
      const DType dtype = rw.op<Cast>(casts.front())->to;
      copied.emplace_back(parameter, dtype);
      for (const NodeId cast : casts)
        rw.replace({cast}, cast, [&rw, &graph, cast, parameter, dtype] {
          const Value copy = copy_of(graph, rw.value(parameter), dtype);
          return Rewriter::Substitutes{{rw.node(cast).outputs[0], copy}};
        });
    }
    if (copied.empty()) continue;
    rw.replace({n}, n, [&rw, &graph, &node, with_copies, copied] {
      std::vector<Value> inputs = rw.values(node.inputs);
      for (const auto& [parameter, dtype] : copied)
        inputs.push_back(copy_of(graph, rw.value(parameter), dtype));
      return Rewriter::each(node.outputs, graph.apply(with_copies, inputs));
    });
  }
  return rw.commit();
}

}  // namespace

std::size_t rounded_weights(Graph& graph) {
  return round_where_updated<AdamW>(graph) + round_where_updated<Sgd>(graph);
}

}  // namespace ridge
