#include "ridge/passes/int8.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// Fewer channels than a vector of 8 bits has elements leave most of it empty.
constexpr std::int64_t least_channels = 16;

// A convolution or a linear layer, which is one of an image of rows.
struct Layer {
  ConvGeometry geometry;
  ValueId x = no_value, weight = no_value;
  std::optional<ValueId> bias, residual;
  Epilogue epilogue = Epilogue::none;
  ValueId y = no_value;
  bool is_linear = false;
};

// [.., channels] as an image of one column.
Shape as_image(const Shape& shape) { return {1, shape.rows(), 1, shape[-1]}; }

// Whether a product is a linear layer without bias: rows times a weight[out, in].
bool is_dense(const Rewriter& rw, NodeId n, const MatMul& product) {
  const Node& node = rw.node(n);
  return product.trans_b && !product.trans_a && product.causal == CausalPart::none &&
         node.inputs.size() == 2 && rw.type(node.inputs[1]).shape.rank() == 2 &&
         rw.type(node.inputs[0]).dtype == rw.type(node.outputs[0]).dtype;
}

std::optional<Layer> layer_at(const Rewriter& rw, NodeId n) {
  const Node& node = rw.node(n);
  // One that is not there is past the end.
  const auto operand = [&](std::size_t i) {
    return i < node.inputs.size() ? std::optional(node.inputs[i]) : std::nullopt;
  };
  Layer layer;
  if (const Conv2d* conv = rw.op<Conv2d>(n)) {
    layer = {.geometry = *conv,
             .bias = operand(conv->operands().bias),
             .residual = operand(conv->operands().residual),
             .epilogue = conv->epilogue};
  } else if (const Linear* linear = rw.op<Linear>(n)) {
    layer = {.geometry = {.layout = ImageLayout::nhwc},
             .bias = operand(linear->operands().bias),
             .residual = operand(linear->operands().residual),
             .epilogue = linear->epilogue,
             .is_linear = true};
  } else if (const MatMul* product = rw.op<MatMul>(n); product && is_dense(rw, n, *product)) {
    layer = {.geometry = {.layout = ImageLayout::nhwc}, .is_linear = true};
  } else {
    return std::nullopt;
  }
  layer.x = node.inputs[0];
  layer.weight = node.inputs[1];
  layer.y = node.outputs[0];
  return layer;
}

// Whether node n hands its operands on as they are.
bool hands_on(const Rewriter& rw, NodeId n) { return takes_dtype(*rw.node(n).op, DType::s8); }

// Which nodes and values of a graph turn to integers.
class Plan {
 public:
  Plan(const Rewriter& rw, const Int8Rules& rules)
      : rw_(rw),
        layers_(rw.nodes().size()),
        in_s8_(rw.graph().value_count(), false),
        group_(rw.graph().value_count()) {
    std::iota(group_.begin(), group_.end(), ValueId{0});
    find_layers(rules);
    for (auto n = static_cast<NodeId>(rw.nodes().size()); n-- > 0;) decide(n);
    for (NodeId n = 0; n < rw.nodes().size(); ++n) note_rounded(n);
  }

  const std::optional<Layer>& layer(NodeId n) const { return layers_[n]; }
  bool in_s8(ValueId v) const { return in_s8_[v]; }  // nowhere in floating point
  bool hands_on_s8(NodeId n) const { return hands_on(rw_, n) && in_s8_[rw_.node(n).outputs[0]]; }
  const std::set<ValueId>& rounded() const { return rounded_; }

  // One for all values with the same scale.
  ValueId group(ValueId v) const {
    while (group_[v] != v) v = group_[v];
    return v;
  }

 private:
  // By value: whether it is the same in every run.
  std::vector<bool> constants() const {
    std::vector<bool> constant;
    for (ValueId v = 0; v < rw_.graph().value_count(); ++v)
      constant.push_back(rw_.info(v).persistent && rw_.info(v).role != Role::input);
    for (const Node& node : rw_.nodes()) {
      const bool all = std::ranges::all_of(node.inputs, [&](ValueId in) { return constant[in]; });
      for (const ValueId out : node.outputs) constant[out] = all;
    }
    return constant;
  }

  void find_layers(const Int8Rules& rules) {
    const std::vector<bool> constant = constants();
    std::vector<bool> ends(rw_.graph().value_count(), false);  // in what is read after a run
    for (auto n = static_cast<NodeId>(rw_.nodes().size()); n-- > 0;) {
      const Node& node = rw_.node(n);
      const bool is_last = std::ranges::any_of(
          node.outputs, [&](ValueId out) { return ends[out] || rw_.is_readable(out); });
      const auto layer = layer_at(rw_, n);
      if (!layer && is_last)
        for (const ValueId in : node.inputs) ends[in] = true;
      if (layer && layer->residual && is_last) ends[*layer->residual] = true;
      if (layer && !is_last && constant[layer->weight] && fits(*layer, rules)) layers_[n] = layer;
    }
  }

  bool fits(const Layer& layer, const Int8Rules& rules) const {
    const Shape &x = rw_.type(layer.x).shape, &y = rw_.type(layer.y).shape;
    const std::int64_t groups = layer.geometry.groups, channels = x[-1];
    if (layer.geometry.layout != ImageLayout::nhwc || channels < least_channels ||
        channels % rules.channel_multiple != 0 || y[-1] % rules.channel_multiple != 0)
      return false;
    if (layer.is_linear) return true;
    // What is computed of means is little work and much of the result.
    const bool has_pixels = y[1] * y[2] > 1;
    const bool depthwise = groups == channels && channels == y[-1];
    return has_pixels && (groups == 1 || depthwise || rules.groups);
  }

  // Whether v lies in s8 somewhere if node n takes it so.
  bool comes_in_s8(ValueId v) const {
    const NodeId n = rw_.producer(v);
    if (n == no_node) return false;
    if (layers_[n]) return true;
    return hands_on(rw_, n) &&
           std::ranges::any_of(rw_.node(n).inputs, [&](ValueId in) { return comes_in_s8(in); });
  }

  // Whether node n, which uses v, could take v in s8, provided that its own result may be so.
  bool may_take(NodeId n, ValueId v) const {
    if (const auto& layer = layers_[n])
      return v != layer->weight && v != layer->bias && (v != layer->residual || in_s8_[layer->y]);
    return hands_on_s8(n);
  }

  // After all nodes that use its result.
  void decide(NodeId n) {
    if (!layers_[n] && !hands_on(rw_, n)) return;
    const ValueId y = rw_.node(n).outputs[0];
    const auto& uses = rw_.uses(y);
    bool takes = !uses.empty() && !rw_.is_readable(y) &&
                 std::ranges::all_of(uses, [&](NodeId use) { return may_take(use, y); });
    // What hands on something that others need in floating point would only be rounded earlier.
    if (!layers_[n])
      for (const ValueId in : rw_.node(n).inputs)
        takes = takes && std::ranges::all_of(rw_.uses(in), [&](NodeId use) {
                  return use == n || may_take(use, in);
                });
    in_s8_[y] = takes && comes_in_s8(y);
  }

  void note_rounded(NodeId n) {
    const Node& node = rw_.node(n);
    if (const auto& layer = layers_[n]) {
      rounded_.insert(layer->x);
      if (!in_s8_[layer->y]) return;
      rounded_.insert(layer->y);
      if (layer->residual) rounded_.insert(*layer->residual);
    } else if (hands_on_s8(n)) {
      rounded_.insert(node.outputs[0]);
      rounded_.insert(node.inputs.begin(), node.inputs.end());
      for (const ValueId in : node.inputs) group_[group(in)] = group(node.outputs[0]);
    }
  }

  const Rewriter& rw_;
  std::vector<std::optional<Layer>> layers_;  // by node
  std::vector<bool> in_s8_;                   // by value
  std::vector<ValueId> group_;                // another of the same scale, or itself
  std::set<ValueId> rounded_;
};

// By group: the scale of its values.
std::map<ValueId, float> scales_of(const Plan& plan, const Int8Ranges& ranges) {
  std::map<ValueId, float> most, scales;
  for (const ValueId v : plan.rounded()) {
    const auto found = ranges.find(v);
    const float range = found == ranges.end() ? 127.0f : found->second;
    if (!std::isfinite(range))
      throw Error(
          "calibration for int8 met numbers that are not finite: the network's results "
          "are none either");
    float& largest = most[plan.group(v)];
    largest = std::max(largest, range);
  }
  for (const auto& [group, range] : most) scales[group] = int8_scale(range);
  return scales;
}

class Int8Rewrite {
 public:
  Int8Rewrite(Graph& graph, const Int8Rules& rules, const Int8Ranges& ranges)
      : rw_(graph),
        plan_(rw_, rules),
        scales_(scales_of(plan_, ranges)),
        made_(graph.value_count()) {}

  std::size_t run() {
    std::size_t layers = 0;
    for (NodeId n = 0; n < rw_.nodes().size(); ++n)
      if (plan_.layer(n)) {
        rw_.replace({n}, n, [this, n] { return build(*plan_.layer(n)); });
        ++layers;
      } else if (plan_.hands_on_s8(n)) {
        rw_.replace({n}, n, [this, n] { return hand_on(rw_.node(n)); });
      }
    rw_.commit();
    return layers;
  }

 private:
  Graph& graph() const { return rw_.graph(); }
  float scale(ValueId v) const { return scales_.at(plan_.group(v)); }

  // v in s8: as it was computed, or rounded where it is first wanted.
  Value in_s8(ValueId v) {
    if (!made_[v]) made_[v] = graph().apply1(Int8Quantize{scale(v)}, {rw_.value(v)});
    return made_[v];
  }

  Value bias_of(const Layer& layer, std::int64_t channels) {
    if (!layer.bias) return graph().apply1(Fill{{DType::f32, {channels}}, 0.0f}, {});
    // As it was before it was rounded to what the layer computed in.
    const NodeId rounding = rw_.producer<Cast>(*layer.bias);
    const ValueId bias = rounding == no_node ? *layer.bias : rw_.node(rounding).inputs[0];
    return cast(rw_.value(bias), DType::f32);
  }

  Rewriter::Substitutes build(const Layer& layer) {
    const bool stays = plan_.in_s8(layer.y);
    const TensorType& y = rw_.type(layer.y);
    const auto shaped = [&](Value v) {
      return layer.is_linear ? reshape(v, as_image(v.shape())) : v;
    };
    const std::int64_t channels = y.shape[-1];
    const std::vector<Value> weight =
        graph().apply(Int8Weights{}, std::array{rw_.value(layer.weight)});
    std::vector<Value> operands{shaped(in_s8(layer.x)), weight[0], weight[1],
                                bias_of(layer, channels)};
    if (layer.is_linear) operands[1] = reshape(weight[0], {channels, 1, 1, weight[0].shape()[-1]});
    Int8Conv2d op{layer.geometry};
    op.out = stays ? DType::s8 : y.dtype;
    op.epilogue = layer.epilogue;
    op.x_scale = scale(layer.x);
    if (stays) op.y_scale = scale(layer.y);
    if (layer.residual) {
      op.residual = true;
      if (stays) op.residual_scale = scale(*layer.residual);
      operands.push_back(shaped(stays ? in_s8(*layer.residual) : rw_.value(*layer.residual)));
    }
    const Value result = reshape(graph().apply(op, operands)[0], y.shape);
    if (!stays) return {{layer.y, result}};
    made_[layer.y] = result;
    return {};
  }

  Rewriter::Substitutes hand_on(const Node& node) {
    std::vector<Value> operands;
    for (const ValueId in : node.inputs) operands.push_back(in_s8(in));
    made_[node.outputs[0]] = graph().apply(*node.op, operands)[0];
    return {};
  }

  Rewriter rw_;
  const Plan plan_;
  const std::map<ValueId, float> scales_;
  std::vector<Value> made_;  // by value: it in s8
};

}  // namespace

std::vector<ValueId> int8_values(Graph& graph, const Int8Rules& rules) {
  const Rewriter rw(graph);
  const Plan plan(rw, rules);
  return {plan.rounded().begin(), plan.rounded().end()};
}

std::size_t int8_layers(Graph& graph, const Int8Rules& rules, const Int8Ranges& ranges) {
  return Int8Rewrite(graph, rules, ranges).run();
}

}  // namespace ridge
