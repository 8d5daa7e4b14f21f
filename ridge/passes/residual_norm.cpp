#include <array>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// A norm and what surrounds it.
struct Norm {
  NodeId norm = no_node;
  NodeId cast = no_node;      // of its result, if that is all it is used for
  NodeId add = no_node;       // what it normalizes, if that is the sum of a residual stream
  NodeId add_cast = no_node;  // of what is added to the stream

  std::vector<NodeId> nodes() const {
    std::vector<NodeId> all;
    for (const NodeId n : {add_cast, add, norm, cast})
      if (n != no_node) all.push_back(n);
    return all;
  }
};

Norm norm_at(const Rewriter& rw, NodeId n) {
  Norm found{.norm = n};
  found.cast = rw.only_use<Cast>(rw.node(n).outputs[0]);
  const ValueId x = rw.node(n).inputs[0];
  const NodeId add = rw.producer<Add>(x);
  // The sum moves to the norm's place, so nothing before may use it.
  if (add == no_node || rw.uses(x).front() != n || rw.is_readable(x)) return found;
  const auto& terms = rw.node(add).inputs;
  if (rw.type(terms[0]) != rw.type(x) || rw.type(terms[1]) != rw.type(x) || terms[0] == terms[1])
    return found;
  if (rw.type(x).dtype != DType::f32) return found;
  found.add = add;
  if (const NodeId cast = rw.producer<Cast>(terms[1]);
      cast != no_node && rw.only_use<Add>(terms[1]) == add)
    found.add_cast = cast;
  return found;
}

}  // namespace

std::size_t residual_norm(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const RmsNorm* op = rw.op<RmsNorm>(n);
    if (!op) continue;
    const Norm norm = norm_at(rw, n);
    if (norm.add == no_node && norm.cast == no_node) continue;
    rw.replace(norm.nodes(), n, [&rw, &graph, norm, eps = op->eps] {
      const auto& old = rw.node(norm.norm);
      const ValueId y = norm.cast == no_node ? old.outputs[0] : rw.node(norm.cast).outputs[0];
      const DType dtype = rw.type(y).dtype;
      const Value weight = rw.value(old.inputs[1]);
      if (norm.add == no_node) {
        const auto out = graph.apply(RmsNorm{.eps = eps, .out = dtype},
                                     std::array{rw.value(old.inputs[0]), weight});
        return Rewriter::Substitutes{{y, out[0]}, {old.outputs[1], out[1]}};
      }
      const auto& terms = rw.node(norm.add).inputs;
      const ValueId delta = norm.add_cast == no_node ? terms[1] : rw.node(norm.add_cast).inputs[0];
      const auto out = graph.apply(AddRmsNorm{.eps = eps, .out = dtype},
                                   std::array{rw.value(terms[0]), rw.value(delta), weight});
      return Rewriter::Substitutes{{old.inputs[0], out[0]}, {y, out[1]}, {old.outputs[1], out[2]}};
    });
  }
  return rw.commit();
}

}  // namespace ridge
