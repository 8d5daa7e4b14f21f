#include <optional>
#include <vector>

#include "ridge/passes/epilogues.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// A product by a weight, and what of a linear layer follows it.
struct LinearLayer {
  std::vector<NodeId> nodes;  // from the product to the last
  ValueId x, weight;          // [m, k], [n, k]
  std::optional<ValueId> bias, residual;
  Epilogue epilogue = Epilogue::none;
  ValueId y;  // of the last of the nodes

  Linear op() const { return {bias.has_value(), residual.has_value(), epilogue}; }
};

// Goes on from the layer's y to the node that alone uses it, if that is part of a linear layer too.
class Growth {
 public:
  Growth(const Rewriter& rw, LinearLayer& layer) : rw_(rw), layer_(layer) {}

  bool advance() {
    if (rw_.uses(layer_.y).size() != 1 || rw_.is_readable(layer_.y)) return false;
    const NodeId next = rw_.uses(layer_.y).front();
    if (rw_.node(next).phase != rw_.node(layer_.nodes.front()).phase) return false;
    if (!rw_.op<Reshape>(next) && !take_term(next) && !take_activation(next)) return false;
    layer_.nodes.push_back(next);
    layer_.y = rw_.node(next).outputs[0];
    return true;
  }

 private:
  // What an addition adds, unless it widens y.
  bool take_term(NodeId n) {
    if (!rw_.op<Add>(n) || layer_.epilogue != Epilogue::none) return false;
    const auto& in = rw_.node(n).inputs;
    const ValueId other = in[in[0] == layer_.y ? 1 : 0];
    const TensorType &y = rw_.type(layer_.y), &added = rw_.type(other);
    if (other == layer_.y || rw_.type(rw_.node(n).outputs[0]) != y) return false;
    std::optional<ValueId>& term =
        added.shape == Shape{rw_.type(layer_.weight).shape[0]} && y.shape.rank() > 1
            ? layer_.bias
            : layer_.residual;
    if (term || (&term == &layer_.residual && added != y)) return false;
    // A bias is added to rows of the product's length.
    if (&term == &layer_.bias && y.shape[-1] != added.shape[0]) return false;
    term = other;
    return true;
  }

  bool take_activation(NodeId n) {
    if (layer_.epilogue != Epilogue::none) return false;
    layer_.epilogue = epilogue_of(rw_, n);
    return layer_.epilogue != Epilogue::none;
  }

  const Rewriter& rw_;
  LinearLayer& layer_;
};

std::optional<LinearLayer> linear_layer_at(const Rewriter& rw, NodeId n) {
  const MatMul* product = rw.op<MatMul>(n);
  const Node& node = rw.node(n);
  if (!product || node.inputs.size() != 2 || !product->trans_b || product->trans_a ||
      product->causal != CausalPart::none || rw.type(node.inputs[0]).shape.rank() != 2 ||
      rw.type(node.outputs[0]).dtype != rw.type(node.inputs[0]).dtype)
    return std::nullopt;
  LinearLayer layer{.nodes = {n},
                    .x = node.inputs[0],
                    .weight = node.inputs[1],
                    .bias = {},
                    .residual = {},
                    .y = node.outputs[0]};
  LinearLayer whole = layer;
  Growth growth(rw, layer);
  while (growth.advance())
    if (!rw.op<Reshape>(layer.nodes.back())) whole = layer;  // not one that something else follows
  return whole.op() == Linear{} ? std::nullopt : std::optional(whole);
}

}  // namespace

// A linear layer with the bias, the residual and the activation after its product, where nobody
// else reads what lies between.
std::size_t linear_epilogues(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto found = linear_layer_at(rw, n))
      rw.replace(found->nodes, found->nodes.back(), [&rw, &graph, layer = *found] {
        std::vector<Value> in{rw.value(layer.x), rw.value(layer.weight)};
        const std::int64_t m = in[0].shape()[0], width = in[1].shape()[0];
        if (layer.bias) in.push_back(rw.value(*layer.bias));
        if (layer.residual) in.push_back(reshape(rw.value(*layer.residual), {m, width}));
        const Value y = graph.apply(layer.op(), in)[0];
        return Rewriter::Substitutes{{layer.y, reshape(y, rw.type(layer.y).shape)}};
      });
  return rw.commit();
}

}  // namespace ridge
