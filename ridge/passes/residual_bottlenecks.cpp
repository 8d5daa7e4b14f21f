#include <algorithm>
#include <optional>
#include <vector>

#include "ridge/ops/residual_bottleneck.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

struct Found {
  NodeId inner = no_node, expansion = no_node;
  NodeId last = no_node;       // gives the sum: the expansion, or what added its result to its own
  NodeId reduction = no_node;  // if that can be part of it

  std::vector<NodeId> nodes() const {
    std::vector<NodeId> all{inner, expansion};
    if (last != expansion) all.push_back(last);
    if (reduction != no_node) all.push_back(reduction);
    return all;
  }
};

// What a convolution does to its sums.
struct After {
  bool residual;
  Epilogue epilogue;
};

bool has_after(const Conv2d& op, const After& after) {
  return op.bias && op.residual == after.residual && op.epilogue == after.epilogue;
}

// Whether node n is a convolution of 16 bits, channels last, of windows of `size` x `size` at steps
// of one that leave an image as large as it is.
bool is_convolution(const Rewriter& rw, NodeId n, std::int64_t size, const After& after) {
  const Conv2d* op = rw.op<Conv2d>(n);
  if (!op) return false;
  const ConvGeometry geometry{.padding = {size / 2, size / 2}, .layout = ImageLayout::nhwc};
  const TensorType& weight = rw.type(rw.node(n).inputs[op->operands().weight]);
  const ImageShape shape(weight.shape, op->layout);
  return is_16_bit(weight.dtype) && static_cast<const ConvGeometry&>(*op) == geometry &&
         has_after(*op, after) && shape.h == size && shape.w == size;
}

// The channels of the result, and of the image, of node n, a channels-last convolution.
std::int64_t channels_of(const Rewriter& rw, NodeId n) {
  return rw.type(rw.node(n).outputs[0]).shape[3];
}
std::int64_t channels_into(const Rewriter& rw, NodeId n) {
  return rw.type(rw.node(n).inputs[0]).shape[3];
}

// The reduction of a node's result to so many channels that the others who read it come after.
NodeId reduction_after(const Rewriter& rw, NodeId last, std::int64_t channels) {
  const std::vector<NodeId>& uses = rw.uses(rw.node(last).outputs[0]);
  if (uses.empty()) return no_node;
  const NodeId first = uses.front();
  return is_convolution(rw, first, 1, {false, Epilogue::relu}) && channels_of(rw, first) == channels
             ? first
             : no_node;
}

// The convolution that gives v, if node n alone uses v.
NodeId only_producer(const Rewriter& rw, ValueId v, NodeId n) {
  return rw.only_use<Conv2d>(v) == n ? rw.producer<Conv2d>(v) : no_node;
}

// Where node n is the last: it adds a residual to what it expands, or adds what is expanded to its
// own result, as the projection beside the first block of a stage does.
std::optional<Found> found_at(const Rewriter& rw, NodeId n, const BottleneckRules& rules) {
  Found found{.expansion = n, .last = n};
  if (!is_convolution(rw, n, 1, {true, Epilogue::relu})) return std::nullopt;
  const std::size_t residual = rw.op<Conv2d>(n)->operands().residual;
  const NodeId added = only_producer(rw, rw.node(n).inputs[residual], n);
  if (is_convolution(rw, added, 1, {false, Epilogue::none}) &&
      channels_into(rw, n) == rules.channels)
    found.expansion = added;
  const std::int64_t expanded = channels_of(rw, found.expansion);
  found.inner = only_producer(rw, rw.node(found.expansion).inputs[0], found.expansion);
  if (expanded > rules.most_expanded || expanded % rules.channels != 0 ||
      !is_convolution(rw, found.inner, 3, {false, Epilogue::relu}) ||
      channels_of(rw, found.inner) != rules.channels ||
      channels_into(rw, found.inner) != rules.channels)
    return std::nullopt;
  found.reduction = reduction_after(rw, n, rules.channels);
  return found;
}

// Appends what computes the same.
Rewriter::Substitutes joined(Rewriter& rw, Graph& graph, const Found& found) {
  const Node &inner = rw.node(found.inner), &expansion = rw.node(found.expansion),
             &last = rw.node(found.last);
  ResidualBottleneck op{static_cast<const ConvGeometry&>(std::get<Conv2d>(inner.op->variant()))};
  op.projects = found.last != found.expansion;
  op.reduces = found.reduction != no_node;
  std::vector<ValueId> operands = inner.inputs, results = last.outputs;
  const auto append = [&operands](const Node& node, std::initializer_list<std::size_t> which) {
    for (const std::size_t i : which) operands.push_back(node.inputs[i]);
  };
  const Conv2d::Operands at = Conv2d{{}, true, true}.operands();  // all have a bias
  append(expansion, {at.weight, at.bias});
  if (op.projects)
    append(last, {at.x, at.weight, at.bias});
  else
    append(expansion, {at.residual});
  if (op.reduces) {
    append(rw.node(found.reduction), {at.weight, at.bias});
    results.push_back(rw.node(found.reduction).outputs[0]);
  }
  const Scope scope(graph, expansion.scope);
  return Rewriter::each(results, graph.apply(op, rw.values(operands)));
}

}  // namespace

std::size_t residual_bottlenecks(Graph& graph, const BottleneckRules& rules) {
  if (rules.channels == 0) return 0;
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto found = found_at(rw, n, rules))
      rw.replace(found->nodes(), found->reduction != no_node ? found->reduction : n,
                 [&rw, &graph, found = *found] { return joined(rw, graph, found); });
  return rw.commit();
}

}  // namespace ridge
