#include "ridge/run/reference.h"

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge {

ReferenceValues evaluate_reference(const Graph& graph, ReferenceValues fed) {
  ReferenceValues values = std::move(fed);
  auto tensor = [&](ValueId id) {
    const auto it = values.find(id);
    if (it == values.end())
      throw UsageError("the reference run was not fed {}", graph.info(id).name);
    return ReferenceTensor{graph.info(id).type.shape, it->second};
  };
  for (const Node& node : graph.nodes()) {
    for (const ValueId out : node.outputs)
      values[out].assign(static_cast<std::size_t>(graph.info(out).type.numel()), 0.0);
    std::vector<ReferenceTensor> inputs, outputs;
    for (const ValueId in : node.inputs) inputs.push_back(tensor(in));
    for (const ValueId out : node.outputs) outputs.push_back(tensor(out));
    ReferenceCall call{inputs, outputs};
    std::visit([&](const auto& op) { op.reference(call); }, node.op->variant());
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o)
      if (const auto in = aliased_input(*node.op, o))
        values[node.inputs[*in]] = values[node.outputs[o]];
  }
  return values;
}

}  // namespace ridge
