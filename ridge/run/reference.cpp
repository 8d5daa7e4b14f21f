#include "ridge/run/reference.h"

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

// Where the elements of a part begin among those of its packed value.
std::ptrdiff_t begin_in_whole(const ValueInfo& part) {
  return static_cast<std::ptrdiff_t>(part.offset / size_of(part.type.dtype));
}

// Brings what shares memory with a persistent value to its new content.
void spread(const Graph& graph, ValueId changed, ReferenceValues& values) {
  const ValueInfo& info = graph.info(changed);
  if (info.whole != no_value)
    std::ranges::copy(values[changed], values[info.whole].begin() + begin_in_whole(info));
  for (ValueId id = 0; id < graph.value_count(); ++id)  // its upper half
    if (graph.info(id).whole == changed && graph.info(id).copy_of == changed)
      values[id] = values[changed];
  for (const ValueId part : info.parts)
    std::copy_n(values[changed].begin() + begin_in_whole(graph.info(part)), values[part].size(),
                values[part].begin());
}

// Feeds packed values with what their parts were fed.
void assemble(const Graph& graph, ReferenceValues& values) {
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    std::vector<double> whole;
    for (const ValueId part : graph.info(id).parts)
      if (const auto it = values.find(part); it != values.end())
        whole.insert(whole.end(), it->second.begin(), it->second.end());
    if (static_cast<std::int64_t>(whole.size()) == graph.info(id).type.numel())
      values[id] = std::move(whole);
  }
}

}  // namespace

ReferenceValues evaluate_reference(const Graph& graph, ReferenceValues fed) {
  ReferenceValues values = std::move(fed);
  assemble(graph, values);
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (const auto it = values.find(graph.info(id).copy_of); it != values.end())
      values[id] = it->second;
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
      if (const auto alias = aliased_input(*node.op, o, graph.types_of(node.inputs))) {
        const ValueId in = node.inputs[alias->input];
        std::ranges::copy(values[node.outputs[o]], values[in].begin() + alias->offset_elements);
        spread(graph, in, values);
      }
  }
  return values;
}

}  // namespace ridge
