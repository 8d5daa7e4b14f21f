#include "ridge/passes/scaled_products.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// An operand, whatever matrix of its rows it was reshaped to, and the dtype that it is wanted in.
struct Source {
  ValueId value;
  std::int64_t columns;
  DType to;
  bool again = false;  // a second time, for the backward pass
  bool operator<(const Source& o) const {
    return std::tie(value, columns, to, again) < std::tie(o.value, o.columns, o.to, o.again);
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

// What products become.
struct Narrowing {
  DType from;                      // of the operands
  DType values, gradients;         // what they are quantized to; the latter: gradients that came in
  bool summed_innermost = false;   // whether operands must lie with the summed dimension innermost
  bool fast_accumulation = false;  // forward
  bool all_extents = false;        // whether all extents must be multiples, or only rows' lengths
  std::int64_t multiple = 1;
  // Whether what can be made again in the backward pass, of values that it has anyway, is not kept.
  bool repeats = false;
};

constexpr Narrowing to_8_bits{.from = DType::bf16,
                              .values = DType::f8e4m3,
                              .gradients = DType::f8e5m2,
                              .summed_innermost = true,
                              .fast_accumulation = true,
                              .all_extents = true,
                              .multiple = ScaledMatMul::extent_multiple};
constexpr Narrowing to_f16{.from = DType::f32,
                           .values = DType::f16,
                           .gradients = DType::f16,
                           .multiple = ScaledMatMul::row_multiple,
                           .repeats = true};

bool is_eligible(const Rewriter& rw, NodeId n, const Narrowing& narrowing) {
  const MatMul* product = rw.op<MatMul>(n);
  if (!product || product->causal != CausalPart::none) return false;
  for (const ValueId v : std::span(rw.node(n).inputs).first(2)) {
    const TensorType& type = rw.type(v);
    if (type.dtype != narrowing.from || type.shape.rank() != 2) return false;
    if (type.shape[1] % narrowing.multiple != 0) return false;
    if (narrowing.all_extents && type.shape[0] % narrowing.multiple != 0) return false;
  }
  return true;
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

// Whether a forward value is read in the backward pass as it is, not only by products: then it is
// kept anyway, and what was made of it need not be.
bool is_kept(const Rewriter& rw, ValueId v) {
  const NodeId producer = rw.producer(v);
  if (producer == no_node || rw.node(producer).phase != Phase::forward) return false;
  return std::ranges::any_of(rw.uses(v), [&](NodeId n) {
    return rw.node(n).phase == Phase::backward && !rw.op<MatMul>(n) && !rw.op<Reshape>(n);
  });
}

// y = x W^T, as opposed to the products of its gradient: dW = dy^T x and dx = dy W.
bool is_forward(const MatMul& product) { return !product.trans_a && product.trans_b; }

// Where gate and up lie side by side, what SwiGlu and its gradient make of them need not be stored
// to be quantized.
void quantize_swiglu(Graph& graph) {
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
      return Rewriter::each(rw.node(n).outputs, graph.apply(op, rw.values(rw.node(source).inputs)));
    });
  }
  rw.commit();
}

// A gradient of SwiGlu in f16, and the product of the backward pass that reads SwiGlu's result in
// f16, which the forward pass made.
struct GateAgain {
  NodeId gradient, result, product;
  std::size_t operand;  // of the product: which the result is
};

std::optional<GateAgain> gate_again_at(const Rewriter& rw, NodeId n) {
  const QuantizeSwiGlu* op = rw.op<QuantizeSwiGlu>(n);
  if (!op || !op->gradient || op->into.to != DType::f16) return std::nullopt;
  for (const NodeId forward : rw.uses(rw.node(n).inputs[1])) {
    const QuantizeSwiGlu* result = rw.op<QuantizeSwiGlu>(forward);
    if (!result || result->gradient || rw.node(forward).phase != Phase::forward) continue;
    const ValueId y = rw.node(forward).outputs[result->into.plain_output()];
    std::vector<NodeId> readers;
    for (const NodeId reader : rw.uses(y))
      if (rw.node(reader).phase != Phase::forward) readers.push_back(reader);
    if (readers.size() != 1 || !rw.op<ScaledMatMul>(readers[0])) continue;
    const Node& product = rw.node(readers[0]);
    for (const NodeId later : rw.uses(product.outputs[0]))
      if (later <= n) return std::nullopt;
    return GateAgain{n, forward, readers[0], product.inputs[0] == y ? 0u : 1u};
  }
  return std::nullopt;
}

// SwiGlu's result in f16 is not kept for the backward pass: its gradient, which reads gate and up,
// gives it again.
void repeat_swiglu(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto found = gate_again_at(rw, n))
      rw.replace({found->product, n}, n, [&rw, &graph, at = *found] {
        const Node &gradient = rw.node(at.gradient), &product = rw.node(at.product);
        std::vector<Value> in = rw.values(gradient.inputs);
        in.push_back(rw.value(rw.node(at.result).outputs[0]));
        const std::vector<Value> made = graph.apply(*gradient.op, in);
        Rewriter::Substitutes results = Rewriter::each(gradient.outputs, made);
        std::vector<Value> operands = rw.values(product.inputs);
        operands[at.operand] = reshape(made.back(), rw.type(product.inputs[at.operand]).shape);
        results.emplace_back(product.outputs[0], graph.apply(*product.op, operands)[0]);
        return results;
      });
  rw.commit();
}

template <class Wanted>
std::size_t narrow_products(Graph& graph, const Narrowing& narrowing, const Wanted& wanted) {
  Rewriter rw(graph);
  std::map<Source, Quantized> quantized;
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!is_eligible(rw, n, narrowing) || !wanted(rw.node(n))) continue;
    const MatMul& product = *rw.op<MatMul>(n);
    const bool forward = is_forward(product);
    const Node& node = rw.node(n);
    const DType left = forward ? narrowing.values : narrowing.gradients;
    const bool moves = narrowing.summed_innermost;
    std::array factors{factor_of(rw, node.inputs[0], left, moves && product.trans_a),
                       factor_of(rw, node.inputs[1], narrowing.values, moves && !product.trans_b)};
    for (Factor& factor : factors) {
      factor.source.again =
          narrowing.repeats && node.phase == Phase::backward && is_kept(rw, factor.source.value);
      Quantized& q = quantized[factor.source];
      (factor.transposed ? q.transposed : q.plain) = true;
    }
    const ScaledMatMul op{.out = rw.type(node.outputs[0]).dtype,
                          .trans_a = !moves && product.trans_a,
                          .trans_b = moves || product.trans_b,
                          .fast_accumulation = forward && narrowing.fast_accumulation};
    rw.replace({n}, n, [&rw, &graph, &quantized, &node, factors, op] {
      std::vector<Value> operands, scales;
      for (const Factor& factor : factors) {
        Quantized& q = quantized[factor.source];
        const Quantize quantize{
            .to = factor.source.to, .plain = q.plain, .transposed = q.transposed};
        if (q.results.empty())
          q.results = graph.apply(quantize, std::array{rw.value(factor.value)});
        operands.push_back(
            q.results[factor.transposed ? quantize.transposed_output() : quantize.plain_output()]);
        scales.push_back(q.results[0]);
      }
      std::vector<Value> in{operands[0], operands[1], scales[0], scales[1]};
      const MatMul::Operands at = MatMul::operands(node.inputs.size());
      if (at.sum < at.count) in.push_back(rw.value(node.inputs[at.sum]));
      return Rewriter::Substitutes{{node.outputs[0], graph.apply(op, in)[0]}};
    });
  }
  const std::size_t products = rw.commit();
  quantize_swiglu(graph);
  if (narrowing.repeats) repeat_swiglu(graph);
  return products;
}

}  // namespace

std::size_t fp8_products(Graph& graph) {
  std::vector<ScopeId> inner = graph.blocks();
  if (inner.size() < 3) return 0;
  inner.pop_back();
  inner.erase(inner.begin());
  return narrow_products(graph, to_8_bits, [&](const Node& node) {
    const auto block = graph.enclosing(node.scope, ScopeKind::block);
    return block && std::ranges::find(inner, *block) != inner.end();
  });
}

std::size_t f16_products(Graph& graph) {
  return narrow_products(graph, to_f16, [](const Node&) { return true; });
}

}  // namespace ridge
