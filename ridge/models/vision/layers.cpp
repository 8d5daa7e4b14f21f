#include "ridge/models/vision/layers.h"

#include <fmt/format.h>
#include "ridge/base/error.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "ridge/base/random.h"
#include "ridge/ops/batch_norm.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/dropout.h"
#include "ridge/ops/join.h"
#include "ridge/ops/layer_norm.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/op.h"
#include "ridge/ops/relu.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/unary.h"

namespace ridge::vision {
namespace {

Init fresh_weights(Fresh fresh, std::int64_t fan_in, std::int64_t fan_out,
                   std::optional<float> deviation) {
  if (deviation) return Init::normal(*deviation);
  if (fresh == Fresh::small) return Init::normal(0.01f);
  const std::int64_t fan = std::max<std::int64_t>(1, fresh == Fresh::fan_out ? fan_out : fan_in);
  const double gain = fresh == Fresh::linear ? 1.0 / 3.0 : 2.0;
  return Init::normal(static_cast<float>(std::sqrt(gain / static_cast<double>(fan))));
}

Pair keeping_padding(const ConvOptions& o) {
  return {o.dilation[0] * (o.kernel[0] - 1) / 2, o.dilation[1] * (o.kernel[1] - 1) / 2};
}

}  // namespace

Value Layers::computed(Value x) const { return cast(x, options_.compute); }

Value Layers::parameter_f32(std::string_view name, const Shape& shape, Init init) const {
  return graph_.parameter(name, shape, std::move(init));
}

Value Layers::parameter(std::string_view name, const Shape& shape, Init init) const {
  return computed(parameter_f32(name, shape, std::move(init)));
}

Value Layers::buffer(std::string_view name, const TensorType& type, Init init) const {
  const std::string& scope = graph_.scope_name(graph_.current_scope());
  return graph_.state(scope.empty() ? std::string(name) : fmt::format("{}.{}", scope, name), type,
                      Role::buffer, std::move(init));
}

Value Layers::constant(std::string_view name, const TensorType& type,
                       std::vector<float> values) const {
  return buffer(name, type, Init::of(std::move(values)));
}

Value Layers::conv(Value x, std::string_view name, const ConvOptions& o) const {
  const Scope scope(graph_, name);
  const std::int64_t in = x.shape()[1] / o.groups;
  const std::int64_t taps = o.kernel[0] * o.kernel[1];
  const Value weight =
      parameter("weight", {o.out, in, o.kernel[0], o.kernel[1]},
                fresh_weights(o.fresh, in * taps, o.out * taps / o.groups, o.deviation));
  const Value bias = o.bias ? parameter("bias", {o.out}, Init::zeros()) : Value{};
  return conv2d(x, weight, bias,
                {.stride = o.stride,
                 .padding = o.padding ? Pair(*o.padding) : keeping_padding(o),
                 .dilation = o.dilation,
                 .groups = o.groups});
}

Value Layers::patches(Value x, std::string_view name, std::int64_t out, std::int64_t size,
                      std::optional<float> deviation) const {
  const Scope scope(graph_, name, ScopeKind::embedding);
  const Shape s = x.shape();
  const std::int64_t rows = s[2] / size, columns = s[3] / size, inner = s[1] * size * size;
  if (rows * size != s[2]) x = window(x, 2, 0, rows * size);
  if (columns * size != s[3]) x = window(x, 3, 0, columns * size);
  x = permute(reshape(x, {s[0], s[1], rows, size, columns, size}), {0, 2, 4, 1, 3, 5});
  const Value weight =
      parameter("weight", {out, s[1], size, size},
                fresh_weights(Fresh::fan_out, inner, out * size * size, deviation));
  const Value y = project(reshape(x, {s[0], rows, columns, inner}), reshape(weight, {out, inner}));
  return add(y, parameter("bias", {out}, Init::zeros()));
}

Value Layers::batch_norm(Value x, std::string_view name, const Norm& norm) const {
  const Scope scope(graph_, name);
  const Shape channels{x.shape()[1]};
  const Value weight = parameter_f32("weight", channels, Init::ones());
  const Value bias = parameter_f32("bias", channels, Init::zeros());
  const Value mean = buffer("running_mean", {DType::f32, channels}, Init::zeros());
  const Value variance = buffer("running_var", {DType::f32, channels}, Init::ones());
  if (!options_.training) return ridge::batch_norm(x, weight, bias, mean, variance, norm.eps);
  if (x.shape().numel() == channels.numel())
    throw UsageError(
        "one image of this size leaves batch norm a single element of each channel, which has no "
        "variance to train with: use a larger batch or larger images");
  return batch_norm_train(x, weight, bias, mean, variance, norm.eps,
                          options_.statistics_momentum.value_or(norm.momentum));
}

Value Layers::conv_norm(Value x, std::string_view conv_name, std::string_view norm_name,
                        const ConvOptions& options, Act activation, const Norm& norm) const {
  return act(batch_norm(conv(x, conv_name, options), norm_name, norm), activation);
}

Value Layers::conv_norm(Value x, std::string_view name, const ConvOptions& options, Act activation,
                        const Norm& norm) const {
  const Scope scope(graph_, name);
  return conv_norm(x, "0", "1", options, activation, norm);
}

Value Layers::dense(Value x, std::int64_t out, bool bias, std::optional<float> deviation) const {
  const std::int64_t in = x.shape()[-1];
  const Value weight =
      parameter("weight", {out, in}, fresh_weights(Fresh::linear, in, out, deviation));
  const Value y = project(x, weight);
  return bias ? add(y, parameter("bias", {out}, Init::zeros())) : y;
}

Value Layers::linear(Value x, std::string_view name, std::int64_t out, bool bias,
                     std::optional<float> deviation) const {
  const Scope scope(graph_, name);
  return dense(x, out, bias, deviation);
}

Value Layers::logits(Value x, std::string_view name, std::int64_t classes,
                     std::optional<float> deviation) const {
  const Scope scope(graph_, name, ScopeKind::head);
  return dense(x, classes, true, deviation);
}

Value Layers::layer_norm(Value x, std::string_view name, float eps) const {
  const Scope scope(graph_, name);
  const Shape channels{x.shape()[-1]};
  const Value weight = parameter_f32("weight", channels, Init::ones());
  const Value bias = parameter_f32("bias", channels, Init::zeros());
  return ridge::layer_norm(x, weight, bias, eps);
}

Value Layers::squeeze_excitation(Value x, std::string_view name, std::int64_t squeeze, Act inner,
                                 Act gate) const {
  const Scope scope(graph_, name);
  Value weights = conv(mean_pool(x), "fc1", {.out = squeeze, .bias = true});
  weights = conv(act(weights, inner), "fc2", {.out = x.shape()[1], .bias = true});
  return mul(act(weights, gate), x);
}

Value Layers::act(Value x, Act act) const {
  switch (act) {
    case Act::none:
      return x;
    case Act::relu:
      return relu(x);
    case Act::silu:
      return silu(x);
    case Act::relu6:
      return activation(x, ActivationKind::relu6);
    case Act::hard_swish:
      return activation(x, ActivationKind::hard_swish);
    case Act::gelu:
      return activation(x, ActivationKind::gelu);
    case Act::sigmoid:
      return activation(x, ActivationKind::sigmoid);
    case Act::hard_sigmoid:
      return activation(x, ActivationKind::hard_sigmoid);
  }
  return x;
}

Value Layers::max_pool(Value x, const PoolOptions& o) const {
  return max_pool2d(x,
                    {.kernel = o.kernel, .stride = o.stride, .padding = o.padding, .ceil = o.ceil});
}

Value Layers::avg_pool(Value x, const PoolOptions& o) const {
  return avg_pool2d(x,
                    {.kernel = o.kernel, .stride = o.stride, .padding = o.padding, .ceil = o.ceil});
}

Value Layers::mean_pool(Value x, Both size) const { return adaptive_avg_pool2d(x, size); }

Value Layers::pooled(Value x) const { return flatten(mean_pool(x)); }

Value Layers::flatten(Value x) const {
  return reshape(x, {x.shape()[0], x.shape().numel() / x.shape()[0]});
}

Value Layers::drop(Value x, float rate, std::int64_t block) const {
  if (!options_.training || !options_.dropout || rate == 0) return x;
  Value step = graph_.find("step");
  if (!step) step = graph_.input("step", {DType::i32, {}});
  // Each has a stream of its own, by its place among them: the same one in every precision.
  const auto before = std::ranges::count_if(graph_.nodes(), [](const Node& node) {
    return std::holds_alternative<Dropout>(node.op->variant());
  });
  const std::uint64_t seed = stream_of(fmt::format("dropout {}", before));
  return ridge::dropout(x, step, rate, seed, block);
}

Value Layers::dropout(Value x, float rate) const { return drop(x, rate, 1); }

Value Layers::stochastic_depth(Value x, float rate) const {
  return drop(x, rate, x.shape().numel() / x.shape()[0]);
}

std::int64_t round_channels(double value, std::int64_t divisor, std::int64_t least) {
  if (least == 0) least = divisor;
  const auto whole = static_cast<std::int64_t>(value + static_cast<double>(divisor) / 2);
  const std::int64_t rounded = std::max(least, whole / divisor * divisor);
  return static_cast<double>(rounded) < 0.9 * value ? rounded + divisor : rounded;
}

}  // namespace ridge::vision
