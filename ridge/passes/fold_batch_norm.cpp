#include <algorithm>
#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// On which side of a convolution a batch norm by constant statistics is.
enum class Side : std::uint8_t { after, before };

// Zeros around a normalized image are not what is normalized to zero; and with groups the norm's
// channels are not those of each kernel.
bool takes_norm_before(const Conv2d& conv) {
  return conv.padding == Pair{0, 0} && conv.groups == 1 && conv.layout == ImageLayout::nchw;
}

bool takes_norm_after(const Conv2d& conv) {
  return !conv.residual && conv.epilogue == Epilogue::none;
}

// The convolution on whose `side` norm n is, where one computes what the other alone reads; else
// no_node.
NodeId conv_of(const Rewriter& rw, NodeId n, Side side) {
  const BatchNorm& norm = *rw.op<BatchNorm>(n);
  const ValueId x = rw.node(n).inputs[0], y = rw.node(n).outputs[0];
  NodeId c = no_node;
  if (side == Side::after)
    c = rw.only_use<BatchNorm>(x) == n ? rw.producer<Conv2d>(x) : no_node;
  else
    c = rw.only_use<Conv2d>(y);
  if (c == no_node) return no_node;
  const Conv2d& conv = *rw.op<Conv2d>(c);
  const bool fits = side == Side::after ? takes_norm_after(conv)
                                        : takes_norm_before(conv) && rw.node(c).inputs[0] == y;
  return fits && conv.layout == norm.layout ? c : no_node;
}

// What a value was before it was rounded to the dtype of products.
Value unrounded(Value v) {
  const NodeId n = v.graph->info(v.id).producer;
  if (n == no_node) return v;
  const Node& node = v.graph->nodes()[n];
  const Value x{v.graph, node.inputs.empty() ? v.id : node.inputs[0]};
  return std::holds_alternative<Cast>(node.op->variant()) && x.dtype() == DType::f32 ? x : v;
}

struct Parameters {
  Value weight, bias;
};

// The statistics and parameters of a norm, in the order of its operands.
struct Norm {
  Value gamma, beta, mean, variance;
  float eps = 0;

  Value of(Value image) const { return batch_norm(image, gamma, beta, mean, variance, eps); }
  // Without its offset: image * factor, with factor[c] = gamma[c] / sqrt(variance[c] + eps).
  Value scaled(Value image) const {
    const Value zeros = fill(*image.graph, gamma.type(), 0.0f);
    return batch_norm(image, gamma, zeros, zeros, variance, eps);
  }
};

// Returns the parameters of the convolution that equals conv and a norm of its result. Along its
// first dimension a weight is an image's channels, and
//   norm(conv(x, w) + b) = conv(x, factor * w) + norm(b)
Parameters with_norm_after(const Norm& norm, const Parameters& conv) {
  const auto per_channel = [](Value x) {
    return reshape(x, {1, x.shape()[0], x.shape().numel() / x.shape()[0], 1});
  };
  return {reshape(norm.scaled(per_channel(conv.weight)), conv.weight.shape()),
          reshape(norm.of(per_channel(conv.bias)), conv.bias.shape())};
}

// The same for a norm of conv's image: along the second dimension a weight is images of the norm's
// channels, and the offset reaches every result alike, as it reaches the one of an image that is no
// larger than the kernel:
//   conv(norm(x), w) + b = conv(x, factor * w) + conv(norm(0), w) + b
Parameters with_norm_before(const Norm& norm, const Parameters& conv) {
  const Shape& w = conv.weight.shape();
  const Value offset = norm.of(fill(*conv.weight.graph, {DType::f32, {1, w[1], w[2], w[3]}}, 0.0f));
  return {norm.scaled(conv.weight),
          reshape(conv2d(offset, conv.weight, conv.bias, {}), conv.bias.shape())};
}

// In f32, before weights are rounded to the dtype of products.
std::size_t fold(Graph& graph, Side side) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const NodeId c = rw.op<BatchNorm>(n) ? conv_of(rw, n, side) : no_node;
    if (c == no_node) continue;
    const NodeId first = std::min(c, n), last = std::max(c, n);
    rw.replace({first, last}, last, [&rw, &graph, c, n, first, last, side] {
      const Node &conv = rw.node(c), &norm = rw.node(n);
      const Scope module(graph, conv.scope);  // whose work it is, and not that of the norm
      Conv2d op = std::get<Conv2d>(conv.op->variant());
      const auto operand = [&](std::size_t i) {
        return cast(unrounded(rw.value(conv.inputs[i])), DType::f32);
      };
      const Conv2d::Operands at = op.operands();
      const BatchNorm& norm_op = std::get<BatchNorm>(norm.op->variant());
      const BatchNorm::Operands of = norm_op.operands();
      const Value weight = operand(at.weight);
      const Value bias =
          op.bias ? operand(at.bias) : fill(graph, {DType::f32, {weight.shape()[0]}}, 0.0f);
      const Norm constants{rw.value(norm.inputs[of.weight]), rw.value(norm.inputs[of.bias]),
                           rw.value(norm.inputs[of.mean]), rw.value(norm.inputs[of.variance]),
                           norm_op.eps};
      const Parameters folded = side == Side::after ? with_norm_after(constants, {weight, bias})
                                                    : with_norm_before(constants, {weight, bias});
      const Value x = rw.value(rw.node(first).inputs[0]);
      std::vector<Value> operands{x, cast(folded.weight, x.dtype()), cast(folded.bias, x.dtype())};
      if (op.residual) operands.push_back(rw.value(conv.inputs[at.residual]));
      op.bias = true;
      return Rewriter::Substitutes{{rw.node(last).outputs[0], graph.apply(op, operands)[0]}};
    });
  }
  return rw.commit();
}

}  // namespace

std::size_t fold_batch_norm(Graph& graph) {
  const std::size_t after = fold(graph, Side::after);
  return after + fold(graph, Side::before);
}

}  // namespace ridge
