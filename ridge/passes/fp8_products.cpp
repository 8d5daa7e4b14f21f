#include "ridge/passes/fp8_products.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// An operand, whatever matrix of its rows it was reshaped to, and the dtype that it is wanted in.
struct Source {
  ValueId value;
  std::int64_t columns;
  DType to;
  bool operator<(const Source& o) const {
    return std::tie(value, columns, to) < std::tie(o.value, o.columns, o.to);
  }
};

// What is made of one: first which of it the products want, then, once it is there, the results.
struct Quantized {
  bool plain = false, transposed = false;
  std::vector<Value> results;
};

// An operand of a product, which wants the summed dimension innermost.
struct Factor {
  ValueId value;
  Source source;
  bool transposed;
};

bool is_under(const std::string& scope, std::span<const std::string> scopes) {
  return std::ranges::any_of(scopes, [&](const std::string& s) {
    return scope.starts_with(s) && (scope.size() == s.size() || scope[s.size()] == '.');
  });
}

bool is_eligible(const Rewriter& rw, NodeId n, std::span<const std::string> scopes) {
  const MatMul* product = rw.op<MatMul>(n);
  if (!product || product->causal != CausalPart::none) return false;
  const Node& node = rw.node(n);
  for (const ValueId v : node.inputs) {
    const TensorType& type = rw.type(v);
    if (type.dtype != DType::bf16 || type.shape.rank() != 2) return false;
    for (const std::int64_t extent : type.shape.dims())
      if (extent % ScaledMatMul::extent_multiple != 0) return false;
  }
  return is_under(rw.graph().scope_name(node.scope), scopes);
}

Factor factor_of(const Rewriter& rw, ValueId v, DType to, bool transposed) {
  const std::int64_t columns = rw.type(v).shape[-1];
  ValueId root = v;
  for (NodeId n = rw.producer<Reshape>(root); n != no_node; n = rw.producer<Reshape>(root)) {
    const ValueId before = rw.node(n).inputs[0];
    if (rw.type(before).shape.rank() == 0 || rw.type(before).shape[-1] != columns) break;
    root = before;
  }
  return {.value = v, .source = {root, columns, to}, .transposed = transposed};
}

// y = x W^T, as opposed to the products of its gradient: dW = dy^T x and dx = dy W.
bool is_forward(const MatMul& product) { return !product.trans_a && product.trans_b; }

// Where gate and up lie side by side, what SwiGlu and its gradient make of them need not be stored
// to be quantised.
void quantise_swiglu(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const Quantize* into = rw.op<Quantize>(n);
    if (!into) continue;
    std::vector<NodeId> nodes{n};
    ValueId x = rw.node(n).inputs[0];
    if (rw.only_use<Quantize>(x) == no_node) continue;
    if (const NodeId shaped = rw.producer<Reshape>(x); shaped != no_node) {
      x = rw.node(shaped).inputs[0];
      if (rw.only_use<Reshape>(x) == no_node) continue;
      nodes.push_back(shaped);
    }
    const NodeId result = rw.producer<SwiGlu>(x), gradient = rw.producer<SwiGluGrad>(x);
    const NodeId source = result != no_node ? result : gradient;
    if (source == no_node || rw.node(source).phase != rw.node(n).phase) continue;
    const bool alone = rw.node(source).outputs.size() == 1;
    if (!alone || rw.node(source).inputs.size() != (gradient == no_node ? 1 : 2)) continue;
    nodes.push_back(source);
    rw.replace(nodes, n, [&rw, &graph, n, source, op = QuantizeSwiGlu{*into, gradient != no_node}] {
      std::vector<Value> inputs;
      for (const ValueId in : rw.node(source).inputs) inputs.push_back(rw.value(in));
      const std::vector<Value> made = graph.apply(op, inputs);
      Rewriter::Substitutes results;
      for (std::size_t i = 0; i < made.size(); ++i)
        results.emplace_back(rw.node(n).outputs[i], made[i]);
      return results;
    });
  }
  rw.commit();
}

}  // namespace

std::size_t fp8_products(Graph& graph, std::span<const std::string> scopes) {
  Rewriter rw(graph);
  std::map<Source, Quantized> quantized;
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!is_eligible(rw, n, scopes)) continue;
    const MatMul& product = *rw.op<MatMul>(n);
    const bool forward = is_forward(product);
    const Node& node = rw.node(n);
    const std::array factors{
        factor_of(rw, node.inputs[0], forward ? DType::f8e4m3 : DType::f8e5m2, product.trans_a),
        factor_of(rw, node.inputs[1], DType::f8e4m3, !product.trans_b)};
    for (const Factor& factor : factors) {
      Quantized& q = quantized[factor.source];
      (factor.transposed ? q.transposed : q.plain) = true;
    }
    rw.replace({n}, n, [&rw, &graph, &quantized, &node, factors, forward] {
      std::vector<Value> operands, scales;
      for (const Factor& factor : factors) {
        Quantized& q = quantized[factor.source];
        const Quantize op{.to = factor.source.to, .plain = q.plain, .transposed = q.transposed};
        if (q.results.empty()) q.results = graph.apply(op, std::array{rw.value(factor.value)});
        operands.push_back(
            q.results[factor.transposed ? op.transposed_output() : op.plain_output()]);
        scales.push_back(q.results[0]);
      }
      const ScaledMatMul op{.out = rw.type(node.outputs[0]).dtype, .fast_accumulation = forward};
      const Value y = graph.apply1(op, {operands[0], operands[1], scales[0], scales[1]});
      return Rewriter::Substitutes{{node.outputs[0], y}};
    });
  }
  const std::size_t products = rw.commit();
  quantise_swiglu(graph);
  return products;
}

}  // namespace ridge
