#include <optional>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// From the last node back: a sigmoid of a convolution of a convolution, each of single pixels.
struct Squeeze {
  NodeId gate = no_node, excite = no_node, squeeze = no_node;
  SqueezeExcitation op;
};

bool is_one_pixel(const Shape& shape, ImageLayout layout) {
  return ImageShape(shape, layout).pixels() == 1;
}

// Whether node n is a product of one pixel's channels, with a bias.
bool is_product(const Rewriter& rw, NodeId n, Epilogue epilogue) {
  const Conv2d* op = rw.op<Conv2d>(n);
  if (!op || !op->bias || op->residual || op->epilogue != epilogue || op->groups != 1) return false;
  const std::vector<ValueId>& in = rw.node(n).inputs;
  const Conv2d::Operands at = op->operands();
  return is_one_pixel(rw.type(in[at.x]).shape, op->layout) &&
         is_one_pixel(rw.type(in[at.weight]).shape, op->layout) && op->padding == Pair{0, 0};
}

NodeId only_producer(const Rewriter& rw, ValueId v, NodeId user) {
  const NodeId n = rw.producer<Conv2d>(v);
  return n != no_node && rw.uses(v).size() == 1 && rw.uses(v)[0] == user && !rw.is_readable(v)
             ? n
             : no_node;
}

std::optional<Squeeze> squeeze_at(const Rewriter& rw, NodeId n, std::int64_t most_weights) {
  const Activation* gate = rw.op<Activation>(n);
  if (!gate ||
      (gate->kind != ActivationKind::sigmoid && gate->kind != ActivationKind::hard_sigmoid))
    return std::nullopt;
  Squeeze found{.gate = n, .op = {.gate = gate->kind}};
  found.excite = only_producer(rw, rw.node(n).inputs[0], n);
  if (!is_product(rw, found.excite, Epilogue::none)) return std::nullopt;
  found.squeeze = only_producer(rw, rw.node(found.excite).inputs[0], found.excite);
  for (const Epilogue inner : {Epilogue::relu, Epilogue::silu})
    if (is_product(rw, found.squeeze, inner)) {
      found.op.inner = inner;
      const Conv2d::Operands at = rw.op<Conv2d>(found.squeeze)->operands();
      const Shape& weight = rw.type(rw.node(found.squeeze).inputs[at.weight]).shape;
      const Shape& image = rw.type(rw.node(found.squeeze).inputs[at.x]).shape;
      if (rw.type(rw.node(n).outputs[0]).shape == image && weight.numel() <= most_weights &&
          image.numel() / image[0] <= SqueezeExcitation::most_channels)
        return found;
    }
  return std::nullopt;
}

}  // namespace

std::size_t squeeze_excitation(Graph& graph, std::int64_t most_weights) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto found = squeeze_at(rw, n, most_weights))
      rw.replace({found->squeeze, found->excite, n}, n, [&rw, &graph, found = *found] {
        const auto matrix = [&](ValueId v) {
          const Shape& shape = rw.type(v).shape;
          return reshape(rw.value(v), {shape[0], shape.numel() / shape[0]});
        };
        const std::vector<ValueId>&squeeze = rw.node(found.squeeze).inputs,
              &excite = rw.node(found.excite).inputs;
        const ValueId y = rw.node(found.gate).outputs[0];
        const Conv2d::Operands at = Conv2d{{}, true}.operands();  // both have a bias
        const Value weights = graph.apply1(
            found.op,
            {matrix(squeeze[at.x]), matrix(squeeze[at.weight]), rw.value(squeeze[at.bias]),
             permute(matrix(excite[at.weight]), {1, 0}), rw.value(excite[at.bias])});
        return Rewriter::Substitutes{{y, reshape(weights, rw.type(y).shape)}};
      });
  return rw.commit();
}

}  // namespace ridge
