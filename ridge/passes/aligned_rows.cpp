#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "ridge/base/ceil_div.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// The units of a GPU that fetch tiles of a matrix want its rows to begin at multiples of 16 bytes:
// so many elements of 16 bits, to which products of f32 may be rounded too.
constexpr std::int64_t row_elements = 8;

std::int64_t aligned_columns(std::int64_t columns) {
  return ceil_div(columns, row_elements) * row_elements;
}

// Whether products with these rows gain by longer ones.
bool should_grow(const TensorType& rows, const AlignedRows& rules) {
  return (is_16_bit(rows.dtype) || rules.of_f32) && rows.shape.rows() >= rules.least_rows &&
         aligned_columns(rows.shape[-1]) != rows.shape[-1];
}

// y = x W^T, and what converts W and what gives y, or x, another shape.
struct Layer {
  NodeId product = no_node, cast = no_node, reshape = no_node;
  ValueId x = 0, weight = 0;  // which is not converted yet

  void add_to(std::vector<NodeId>& nodes) const {
    for (const NodeId n : {product, cast, reshape})
      if (n != no_node) nodes.push_back(n);
  }
};

std::optional<Layer> layer_at(const Rewriter& rw, NodeId product, NodeId reshape) {
  if (product == no_node || *rw.op<MatMul>(product) != MatMul{.trans_b = true}) return std::nullopt;
  const std::vector<ValueId>& in = rw.node(product).inputs;
  if (in.size() != 2 || in[0] == in[1] || rw.type(in[0]).shape.rank() != 2) return std::nullopt;
  Layer layer{.product = product, .reshape = reshape, .x = in[0], .weight = in[1]};
  const NodeId cast = rw.producer<Cast>(in[1]);
  if (cast != no_node && rw.only_use<MatMul>(in[1]) == product) {
    layer.cast = cast;
    layer.weight = rw.node(cast).inputs[0];
  }
  return layer;
}

// The layer that computes y, which only a T reads.
template <class T>
std::optional<Layer> layer_before(const Rewriter& rw, ValueId y) {
  if (rw.only_use<T>(y) == no_node) return std::nullopt;
  const NodeId reshape = rw.producer<Reshape>(y);
  if (reshape != no_node) {
    y = rw.node(reshape).inputs[0];
    if (rw.only_use<Reshape>(y) == no_node) return std::nullopt;
  }
  return layer_at(rw, rw.producer<MatMul>(y), reshape);
}

// The layer that alone reads v, as its x.
std::optional<Layer> layer_behind(const Rewriter& rw, ValueId v) {
  const NodeId reshape = rw.only_use<Reshape>(v);
  if (reshape != no_node) v = rw.node(reshape).outputs[0];
  const std::optional<Layer> layer = layer_at(rw, rw.only_use<MatMul>(v), reshape);
  return layer && layer->x == v ? layer : std::nullopt;
}

// Its weight as the product reads it.
Value weight_of(Rewriter& rw, const Layer& layer) {
  return cast(rw.value(layer.weight), rw.type(layer.x).dtype);
}

// The product of x by a weight, in the scope of the layer's.
Value product_as(Rewriter& rw, const Layer& layer, Value x, Value weight) {
  const Scope scope(rw.graph(), rw.node(layer.product).scope);
  return matmul(x, weight, {.trans_b = true});
}

Shape with_columns(const Shape& shape, std::int64_t columns) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.back() = columns;
  return Shape(dims);
}

// Logits of more columns than there are classes.
void grow_logits(Rewriter& rw, NodeId loss, const AlignedRows& rules, Value& of_model) {
  const ValueId logits = rw.node(loss).inputs[0];
  const std::optional<Layer> layer = layer_before<CrossEntropy>(rw, logits);
  if (!layer) return;
  const TensorType& type = rw.type(logits);
  const std::int64_t classes = type.shape[-1];
  if (rw.op<CrossEntropy>(loss)->classes < classes || !should_grow(type, rules)) return;
  std::vector<NodeId> nodes{loss};
  layer->add_to(nodes);
  rw.replace(nodes, loss, [&rw, &of_model, loss, logits, layer = *layer, type, classes] {
    const std::int64_t columns = aligned_columns(classes);
    const Value weight = window(weight_of(rw, layer), 0, 0, columns);
    const Value rows = product_as(rw, layer, rw.value(layer.x), weight);
    const std::array operands{reshape(rows, with_columns(type.shape, columns)),
                              rw.value(rw.node(loss).inputs[1])};
    if (of_model && of_model.id == logits) of_model = operands[0];
    return Rewriter::each(rw.node(loss).outputs, rw.graph().apply(CrossEntropy{classes}, operands));
  });
}

// Gate and up side by side, each with more columns, and the layer down with as many: the gate of 0
// and 0 is 0.
void grow_inner_layer(Rewriter& rw, NodeId gate, const AlignedRows& rules) {
  if (rw.node(gate).inputs.size() != 1) return;
  const ValueId packed = rw.node(gate).inputs[0], inner = rw.node(gate).outputs[0];
  const std::optional<Layer> up = layer_before<SwiGlu>(rw, packed), down = layer_behind(rw, inner);
  const std::int64_t width = rw.type(inner).shape[-1];
  if (!up || !down || !should_grow(rw.type(inner), rules)) return;
  std::vector<NodeId> nodes{gate};
  up->add_to(nodes);
  down->add_to(nodes);
  rw.replace(nodes, down->product, [&rw, gate, up = *up, down = *down, width] {
    const Shape shape = rw.type(up.weight).shape;
    const std::int64_t columns = aligned_columns(width);
    // Both weights first: so their gradients are taken apart behind the gate's, which other passes
    // join to the products beside it.
    const Value halves = reshape(weight_of(rw, up), {2, width, shape[-1]});
    const Value sides = reshape(window(halves, 1, 0, columns), {2 * columns, shape[-1]});
    const Value back = window(weight_of(rw, down), 1, 0, columns);
    const Value together = product_as(rw, up, rw.value(up.x), sides);
    const auto gated = [&] {
      const Scope scope(rw.graph(), rw.node(gate).scope);
      return rw.graph().apply1(SwiGlu{}, {together});
    };
    const Value y = product_as(rw, down, gated(), back);
    return Rewriter::Substitutes{{rw.node(down.product).outputs[0], y}};
  });
}

}  // namespace

std::size_t aligned_rows(Graph& graph, const AlignedRows& rules, Value& logits) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (rw.op<CrossEntropy>(n)) grow_logits(rw, n, rules, logits);
    if (rw.op<SwiGlu>(n)) grow_inner_layer(rw, n, rules);
  }
  return rw.commit();
}

}  // namespace ridge
