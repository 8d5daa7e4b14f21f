#include "ridge/plan/lifetimes.h"

#include "ridge/graph/op_rules.h"

namespace ridge {

std::size_t allocated_bytes(const TensorType& type) {
  return (type.bytes() + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
}

Lifetimes lifetimes_of(const Graph& graph) {
  const std::size_t values = graph.value_count(), nodes = graph.nodes().size();
  Lifetimes life;
  life.storage.resize(values);
  life.offset.resize(values, 0);
  life.permanent.resize(values, false);
  life.bytes.resize(values, 0);
  life.born.resize(nodes);
  life.dead.resize(nodes);

  for (ValueId id = 0; id < values; ++id) {
    const ValueInfo& info = graph.info(id);
    life.storage[id] = info.whole == no_value ? id : info.whole;
    life.offset[id] = info.offset;
  }
  const auto is_input = [&](ValueId id) {
    return graph.info(id).persistent && graph.info(id).role == Role::input;
  };
  ValueId inputs = no_value;  // whose storage they share
  for (ValueId id = 0; id < values; ++id) {
    if (!is_input(id)) continue;
    if (inputs == no_value) inputs = id;
    life.storage[id] = inputs;
    life.offset[id] = life.bytes[inputs];
    life.bytes[inputs] += allocated_bytes(graph.info(id).type);
  }
  std::vector<NodeId> last_use(values, no_node);
  for (NodeId n = 0; n < nodes; ++n) {
    const Node& node = graph.nodes()[n];
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId out = node.outputs[o];
      if (const auto alias = aliased_input(*node.op, o, graph.types_of(node.inputs))) {
        const ValueId in = node.inputs[alias->input];
        life.storage[out] = life.storage[in];
        life.offset[out] = life.offset[in] + static_cast<std::size_t>(alias->offset_elements) *
                                                 size_of(graph.info(in).type.dtype);
      } else {
        life.born[n].push_back(out);
      }
      last_use[life.storage[out]] = n;
    }
    for (const ValueId in : node.inputs) last_use[life.storage[in]] = n;
  }
  for (ValueId id = 0; id < values; ++id) {
    const ValueInfo& info = graph.info(id);
    if (info.persistent || info.kept) life.permanent[life.storage[id]] = true;
    if (life.storage[id] == id && id != inputs) life.bytes[id] = allocated_bytes(info.type);
  }
  for (ValueId id = 0; id < values; ++id)
    if (life.storage[id] == id && !life.permanent[id] && last_use[id] != no_node)
      life.dead[last_use[id]].push_back(id);
  return life;
}

std::vector<bool> updated_storages(const Graph& graph, const Lifetimes& lifetimes) {
  std::vector<bool> updated(graph.value_count(), false);
  for (const Node& node : graph.nodes()) {
    const Op& op = *node.op;
    if (only_renames(op)) continue;
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o)
      if (aliased_input(op, o, graph.types_of(node.inputs)))
        updated[lifetimes.storage[node.outputs[o]]] = true;
  }
  return updated;
}

std::vector<bool> seldom_written(const Graph& graph, const Lifetimes& lifetimes) {
  const std::vector<bool> updated = updated_storages(graph, lifetimes);
  std::vector<bool> seldom(graph.value_count());
  for (ValueId id = 0; id < seldom.size(); ++id) {
    const ValueId storage = lifetimes.storage[id];
    const ValueInfo& owner = graph.info(storage);
    seldom[id] = owner.persistent && owner.role != Role::input && !updated[storage];
  }
  return seldom;
}

}  // namespace ridge
