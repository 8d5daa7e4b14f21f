#include <array>

#include "ridge/passes/passes.h"
#include "ridge/passes/projections.h"

namespace ridge {

std::size_t swiglu(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!rw.op<Mul>(n)) continue;
    const auto& factors = rw.node(n).inputs;
    for (const int i : {0, 1}) {
      const ValueId gate = factors[static_cast<std::size_t>(i)];
      const ValueId up = factors[static_cast<std::size_t>(1 - i)];
      const NodeId silu = rw.producer<Silu>(gate);
      if (silu == no_node || gate == up || rw.only_use<Mul>(gate) != n) continue;
      if (rw.type(gate) != rw.type(up)) continue;
      rw.replace({silu, n}, n, [&rw, &graph, n, up, x = rw.node(silu).inputs[0]] {
        const Value y = graph.apply1(SwiGlu{}, {rw.value(x), rw.value(up)});
        return Rewriter::Substitutes{{rw.node(n).outputs[0], y}};
      });
      break;
    }
  }
  return rw.commit();
}

// y = silu(x G^T) * (x U^T): gate and up side by side are the product of x and [G; U].
std::size_t fuse_gate_up(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!rw.op<SwiGlu>(n) || rw.node(n).inputs.size() != 2) continue;
    const ValueId g = rw.node(n).inputs[0], u = rw.node(n).inputs[1];
    if (rw.only_use<SwiGlu>(g) == no_node || rw.only_use<SwiGlu>(u) == no_node) continue;
    const auto gate = projection_of(rw, g), up = projection_of(rw, u);
    if (!gate || !up || gate->x != up->x) continue;
    std::vector<NodeId> nodes = gate->nodes;
    nodes.insert(nodes.end(), up->nodes.begin(), up->nodes.end());
    nodes.push_back(n);
    rw.replace(nodes, n, [&rw, &graph, n, gate = *gate, up = *up] {
      const Value packed = apply_packed(rw, std::array{gate, up}, "gate_up_proj");
      return Rewriter::Substitutes{{rw.node(n).outputs[0], graph.apply1(SwiGlu{}, {packed})}};
    });
  }
  return rw.commit();
}

}  // namespace ridge
