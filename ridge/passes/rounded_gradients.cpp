#include <algorithm>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// Has ranks send gradients in bf16 that come from products of bf16 operands.
class RoundedGradients {
 public:
  explicit RoundedGradients(Graph& graph) : rw_(graph) {}

  std::size_t apply() {
    for (NodeId n = 0; n < rw_.nodes().size(); ++n)
      if (rw_.op<AllReduce>(n)) round(n);
    return rw_.commit();
  }

 private:
  // The product of bf16 operands that computes v, an f32 value that node `reader` alone reads,
  // through a reshape or not. In f16 a gradient of a scaled loss might overflow.
  bool is_product(ValueId v, NodeId reader) const {
    const NodeId n = rw_.producer(v);
    if (rw_.uses(v) != std::vector<NodeId>{reader}) return false;
    if (rw_.op<Reshape>(n)) return is_product(rw_.node(n).inputs[0], n);
    const auto* const product = rw_.op<MatMul>(n);
    return product != nullptr && product->out == DType::f32 && rw_.node(n).inputs.size() == 2 &&
           rw_.type(rw_.node(n).inputs[0]).dtype == DType::bf16;
  }

  // Whether those who read v, or a part or another shape of it, take 16 bits too.
  bool may_be_rounded(ValueId v) const {
    return std::ranges::all_of(rw_.uses(v), [&](NodeId use) {
      const Node& node = rw_.node(use);
      if (rw_.op<Reshape>(use) || rw_.op<Slice>(use)) return may_be_rounded(node.outputs[0]);
      return rw_.op<GlobalNorm>(use) || is_gradient_of<AdamW>(use, v) ||
             is_gradient_of<Sgd>(use, v);
    });
  }

  template <class Each>
  bool is_gradient_of(NodeId use, ValueId v) const {
    const Each* const op = rw_.op<Each>(use);
    return op != nullptr && rw_.node(use).inputs[op->operands().grad] == v;
  }

  void round(NodeId n) {
    const Node& node = rw_.node(n);
    const bool fits =
        std::ranges::all_of(node.inputs, [&](ValueId in) { return is_product(in, n); }) &&
        std::ranges::all_of(node.outputs, [&](ValueId out) { return may_be_rounded(out); });
    if (!fits) return;
    for (const ValueId in : node.inputs) round_product(rw_.producer(in));
    apply_again(n, *node.op);
    for (const ValueId out : node.outputs) round_views(out);
  }

  // Has a product write bf16: node n, or the one whose result n reshapes.
  void round_product(NodeId n) {
    const Node& node = rw_.node(n);
    if (rw_.op<Reshape>(n)) {
      round_product(rw_.producer(node.inputs[0]));
      apply_again(n, *node.op);
      return;
    }
    MatMul product = *rw_.op<MatMul>(n);
    product.out = DType::bf16;
    apply_again(n, product);
  }

  void round_views(ValueId v) {
    for (const NodeId use : rw_.uses(v))
      if (rw_.op<Reshape>(use) || rw_.op<Slice>(use)) {
        const Node& view = rw_.node(use);
        apply_again(use, *view.op);
        round_views(view.outputs[0]);
      }
  }

  // Applies an operator in place of node n, to operands whose dtype may be another by now.
  void apply_again(NodeId n, const Op& op) {
    rw_.replace({n}, n, [this, &node = rw_.node(n), op] {
      return Rewriter::each(node.outputs, rw_.graph().apply(op, rw_.values(node.inputs)));
    });
  }

  Rewriter rw_;
};

}  // namespace

// Sends a gradient that comes from a product of bf16 operands in bf16: it has no more good digits
// than they, and half the bytes. (PyTorch's autocast rounds it too, and sends it in f32.)
std::size_t rounded_gradients(Graph& graph) { return RoundedGradients(graph).apply(); }

}  // namespace ridge
