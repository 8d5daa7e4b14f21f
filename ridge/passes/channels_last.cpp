#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "ridge/passes/orders.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

using PermuteOrder = decltype(Permute::order);

const Order nhwc{0, 2, 3, 1};

PermuteOrder padded(const Order& order) {
  PermuteOrder result{};
  std::ranges::copy(order, result.begin());
  return result;
}

// `shape` with extents of 1 before it.
Shape of_rank(const Shape& shape, std::size_t rank) {
  std::vector<std::int64_t> dims(rank - shape.rank(), 1);
  dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
  return Shape(dims);
}

// How a node is to be applied: with its operands in these orders, to give its results in those. The
// order of an operand may be of the result's rank, to which it is then brought.
struct Placement {
  Op op;
  std::vector<Order> operands, results;
  bool is_renaming = false;  // a permute that moves nothing: the result is the operand
};

// Goes through the forward graph once and says in which order each value is computed, and to which
// others it has to be brought. Convolutions take channels last; what follows stays in the order in
// which it arrives wherever that computes the same, so that permutes are put off, and those that
// undo each other vanish. An order is given up where the elements' neighborhood matters: in
// products, norms of rows and the like, which take what they are given in the order that is meant.
class Placer {
 public:
  explicit Placer(Rewriter& rw) : rw_(rw) {
    for (ValueId v = 0; v < rw.graph().value_count(); ++v)
      orders_.push_back({identity_order(rw.type(v).shape)});
    find_images();
  }

  // The nodes that change, in order.
  std::map<NodeId, Placement> placements() {
    std::map<NodeId, Placement> changed;
    for (NodeId n = 0; n < rw_.nodes().size(); ++n) {
      Placement placement = placed(n);
      if (adopt(n, placement)) changed.emplace(n, std::move(placement));
    }
    return changed;
  }

 private:
  const Shape& shape(ValueId v) const { return rw_.type(v).shape; }
  ValueId operand(NodeId n, std::size_t i = 0) const { return rw_.node(n).inputs[i]; }
  ValueId result(NodeId n) const { return rw_.node(n).outputs[0]; }
  // The order in which it was computed.
  const Order& order(ValueId v) const { return orders_[v].front(); }

  // Elements to be moved to have v in this order.
  std::int64_t price(ValueId v, const Order& wanted) const {
    if (wanted.size() > shape(v).rank()) {
      const Shape full = of_rank(shape(v), wanted.size());
      return is_same_memory(full, wanted, identity_order(full))
                 ? price(v, identity_order(shape(v)))
                 : std::numeric_limits<std::int32_t>::max();
    }
    const bool there = std::ranges::any_of(orders_[v], [&](const Order& available) {
      return is_same_memory(shape(v), available, wanted);
    });
    return there ? 0 : shape(v).numel();
  }

  // Whether v is there in exactly this order from now on only.
  bool bring(ValueId v, Order wanted) {
    if (wanted.size() > shape(v).rank()) wanted = identity_order(shape(v));
    if (std::ranges::find(orders_[v], wanted) != orders_[v].end()) return false;
    orders_[v].push_back(std::move(wanted));
    return true;
  }

  // Notes what the placement makes and needs. Whether the node changes.
  bool adopt(NodeId n, const Placement& placement) {
    bool changes = placement.is_renaming;
    const Node& node = rw_.node(n);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!placement.is_renaming) changes |= bring(node.inputs[i], placement.operands[i]);
      changes |= !is_identity(placement.operands[i]);
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId out = node.outputs[i];
      changes |= !is_identity(placement.results[i]);
      orders_[out] = {placement.results[i]};
      if (rw_.is_readable(out)) bring(out, identity_order(shape(out)));
    }
    return changes;
  }

  Placement as_meant(NodeId n) const {
    Placement placement{*rw_.node(n).op, {}, {}};
    for (const ValueId in : rw_.node(n).inputs)
      placement.operands.push_back(identity_order(shape(in)));
    for (const ValueId out : rw_.node(n).outputs)
      placement.results.push_back(identity_order(shape(out)));
    return placement;
  }

  Placement placed(NodeId n) const {
    if (rw_.node(n).phase != Phase::forward) return as_meant(n);
    for (auto rule : {&Placer::image, &Placer::same_shape, &Placer::broadcast, &Placer::along_dim,
                      &Placer::reshape, &Placer::permute})
      if (auto placement = (this->*rule)(n)) return *placement;
    return as_meant(n);
  }

  // All that has four dimensions is an image or, alike, the weight of a convolution.
  std::optional<Placement> image(NodeId n) const {
    Placement placement = as_meant(n);
    if (!to_channels_last(placement.op)) return std::nullopt;
    if (!is_convolution(placement.op) &&
        !is_same_memory(shape(operand(n)), order(operand(n)), nhwc))
      return std::nullopt;
    for (std::vector<Order>* orders : {&placement.operands, &placement.results})
      for (Order& order : *orders)
        if (order.size() == 4) order = nhwc;
    return placement;
  }

  // The cheapest of the orders in which operands of the result's shape were computed.
  Order cheapest(NodeId n) const {
    const Order meant = identity_order(shape(result(n)));
    Order best = meant;
    std::int64_t least = price_of_all(n, meant);
    for (const ValueId in : rw_.node(n).inputs) {
      if (shape(in).rank() != meant.size()) continue;
      const std::int64_t sum = price_of_all(n, order(in));
      const bool first = is_identity(best) && sum == 0;
      if (sum > least || (sum == least && !first)) continue;
      best = order(in);
      least = sum;
    }
    return best;
  }
  std::int64_t price_of_all(NodeId n, const Order& wanted) const {
    std::int64_t sum = 0;
    for (const ValueId in : rw_.node(n).inputs) sum += price(in, wanted);
    return sum;
  }

  Placement all_in(NodeId n, const Order& order) const {
    Placement placement = as_meant(n);
    std::ranges::fill(placement.operands, order);
    std::ranges::fill(placement.results, order);
    return placement;
  }

  std::optional<Placement> same_shape(NodeId n) const {
    if (const Dropout* dropout = rw_.op<Dropout>(n)) {
      // Elsewhere elements draw their numbers in the order that is meant.
      const Order& order = this->order(operand(n));
      const bool samples = shape(operand(n)).rank() > 0 && order[0] == 0 &&
                           dropout->block * shape(operand(n))[0] == shape(operand(n)).numel();
      if (!samples) return std::nullopt;
      Placement placement = as_meant(n);
      placement.operands[0] = placement.results[0] = order;
      return placement;
    }
    if (!is_elementwise(*rw_.node(n).op)) return std::nullopt;
    if (!std::ranges::all_of(rw_.node(n).inputs,
                             [&](ValueId in) { return shape(in) == shape(result(n)); }))
      return std::nullopt;
    return all_in(n, cheapest(n));
  }

  std::optional<Placement> broadcast(NodeId n) const {
    if (!is_elementwise(*rw_.node(n).op)) return std::nullopt;
    Placement placement = all_in(n, cheapest(n));
    // As it is meant, an operand of fewer dimensions stays what it is.
    if (is_identity(placement.results[0])) return as_meant(n);
    return placement;
  }

  std::optional<Placement> along_dim(NodeId n) const {
    if (Op op = *rw_.node(n).op; !dimension_of(op)) return std::nullopt;
    const Order order = cheapest(n);
    Placement placement = all_in(n, order);
    std::uint32_t& dim = *dimension_of(placement.op);
    dim = place_of(order, dim);
    return placement;
  }

  std::optional<Placement> reshape(NodeId n) const {
    if (!rw_.op<Reshape>(n) || is_identity(order(operand(n)))) return std::nullopt;
    const Shape &from = shape(operand(n)), &to = shape(result(n));
    const OrderedReshape orders = reshape_in_order(from, to, order(operand(n)));
    return Placement{
        Reshape{.shape = ordered(to, orders.result)}, {orders.operand}, {orders.result}};
  }

  // A permute of what was computed as it is meant stays where it is, unless it leads to an image.
  std::optional<Placement> permute(NodeId n) const {
    const Permute* op = rw_.op<Permute>(n);
    if (!op || op->to || rw_.is_readable(result(n))) return std::nullopt;
    if (is_identity(order(operand(n))) && !leads_to_image_[result(n)]) return std::nullopt;
    Placement placement = as_meant(n);
    placement.operands[0] = order(operand(n));
    placement.results[0] = relabeled(order(operand(n)), op->order.data());
    placement.is_renaming = true;
    return placement;
  }

  // Which values are images, or become ones by what any order can go through.
  void find_images() {
    leads_to_image_.assign(orders_.size(), false);
    for (NodeId n = static_cast<NodeId>(rw_.nodes().size()); n-- > 0;) {
      Op op = *rw_.node(n).op;
      if (to_channels_last(op)) leads_to_image_[operand(n)] = true;
      const bool goes_through =
          is_elementwise(op) || dimension_of(op) || rw_.op<Reshape>(n) || rw_.op<Permute>(n);
      if (goes_through && leads_to_image_[result(n)])
        for (const ValueId in : rw_.node(n).inputs) leads_to_image_[in] = true;
    }
  }

  Rewriter& rw_;
  std::vector<std::vector<Order>> orders_;  // by value: as computed, then those it was brought to
  std::vector<bool> leads_to_image_;        // by value
};

// Builds what the placer decided.
class Builder {
 public:
  explicit Builder(Rewriter& rw) : rw_(rw), made_(rw.graph().value_count()) {}

  Rewriter::Substitutes build(NodeId n, const Placement& placement) {
    substitutes_.clear();
    const Node& node = rw_.node(n);
    if (placement.is_renaming) {
      make(node.outputs[0], placement.results[0], in_order(node.inputs[0], placement.operands[0]));
    } else {
      std::vector<Value> operands;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        operands.push_back(in_order(node.inputs[i], placement.operands[i]));
      const std::vector<Value> results = rw_.graph().apply(placement.op, operands);
      for (std::size_t i = 0; i < results.size(); ++i)
        make(node.outputs[i], placement.results[i], results[i]);
    }
    for (const ValueId out : node.outputs)
      if (rw_.is_readable(out)) in_order(out, identity_order(rw_.type(out).shape));
    return std::move(substitutes_);
  }

 private:
  // `value` is what `old` is meant to be, in `order`.
  void make(ValueId old, const Order& order, Value value) {
    if (is_identity(order))
      substitutes_.emplace_back(old, value);
    else
      made_[old].emplace_back(order, value);
  }

  Value in_order(ValueId v, const Order& wanted) {
    const Shape& shape = rw_.type(v).shape;
    if (wanted.size() > shape.rank())
      return ridge::reshape(in_order(v, identity_order(shape)),
                            ordered(of_rank(shape, wanted.size()), wanted));
    auto& forms = made_[v];
    if (is_identity(wanted)) {
      for (const auto& [old, value] : substitutes_)
        if (old == v) return value;
      if (is_as_meant(v)) return rw_.value(v);
    }
    for (const auto& [order, value] : forms)
      if (order == wanted) return value;
    const Value found = brought(v, shape, wanted);
    make(v, wanted, found);
    return found;
  }

  // Whether it, or what stands for it, is there as it is meant.
  bool is_as_meant(ValueId v) {
    const ValueInfo& info = rw_.info(v);
    return info.persistent || info.producer != no_node || rw_.value(v).id != v;
  }

  Value brought(ValueId v, const Shape& shape, const Order& wanted) {
    const Order meant = identity_order(shape);
    std::vector<std::pair<Order, Value>> sources = made_[v];
    if (is_as_meant(v)) sources.insert(sources.begin(), {meant, rw_.value(v)});
    for (const auto& [order, value] : sources)
      if (is_same_memory(shape, order, wanted))
        return rw_.graph().apply1(Reshape{.shape = ordered(shape, wanted)}, {value});
    const auto& [order, value] = sources.front();
    return ridge::permute(value, padded(between(order, wanted)));
  }

  Rewriter& rw_;
  std::vector<std::vector<std::pair<Order, Value>>> made_;  // by value: in other orders than meant
  Rewriter::Substitutes substitutes_;                       // of the node being built
};

// What is converted only to be permuted is converted on the way.
void convert_on_the_way(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const Permute* op = rw.op<Permute>(n);
    if (!op || op->to) continue;
    const NodeId cast = rw.producer<Cast>(rw.node(n).inputs[0]);
    if (cast == no_node || rw.only_use<Permute>(rw.node(cast).outputs[0]) != n) continue;
    rw.replace({cast, n}, n, [&rw, cast, n, op = *op] {
      const Value x = rw.value(rw.node(cast).inputs[0]);
      const ValueId y = rw.node(n).outputs[0];
      return Rewriter::Substitutes{{y, permute(x, op.order, rw.type(y).dtype)}};
    });
  }
  rw.commit();
}

}  // namespace

std::size_t channels_last(Graph& graph) {
  Rewriter rw(graph);
  const std::map<NodeId, Placement> placements = Placer(rw).placements();
  Builder builder(rw);
  for (const auto& [n, placement] : placements)
    rw.replace({n}, n,
               [&builder, n = n, &placement = placement] { return builder.build(n, placement); });
  const std::size_t changed = rw.commit();
  if (changed > 0) convert_on_the_way(graph);
  return changed;
}

}  // namespace ridge
