#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/graph/graph.h"
#include "ridge/models/vision/vision.h"
#include "ridge/ops/activation.h"
#include "ridge/ops/conv.h"
#include "ridge/ops/pool.h"

namespace ridge::vision {

// Down and across; one number for both.
struct Both : Pair {
  constexpr Both(std::int64_t both) : Pair{both, both} {}  // NOLINT(google-explicit-constructor)
  constexpr Both(std::int64_t down, std::int64_t across) : Pair{down, across} {}
};

// What follows a layer.
enum class Act : std::uint8_t { none, relu, relu6, silu, hard_swish, gelu, sigmoid, hard_sigmoid };

// The deviation of fresh weights: what keeps the variance of what flows back, or of what flows
// forward, through a ReLU (He et al., 2015); that of PyTorch's layers where nobody asks for another
// (uniform in +-1 / sqrt(fan_in)); or 0.01, which leaves logits near 0.
enum class Fresh : std::uint8_t { fan_out, fan_in, linear, small };

struct ConvOptions {
  std::int64_t out = 1;  // channels
  Both kernel = 1;
  Both stride = 1;
  std::optional<Both> padding{};  // unless given, what keeps the extent where the stride is 1
  Both dilation = 1;
  std::int64_t groups = 1;
  bool bias = false;
  Fresh fresh = Fresh::fan_out;
  std::optional<float> deviation{};  // of fresh weights, in place of what `fresh` says
};

// A batch norm's eps, added to variances, and its momentum: the fraction of the distance to a
// batch's statistics by which running ones move in training.
struct Norm {
  float eps = 1e-5f;
  float momentum = 0.1f;
};
// The batch norm of MobileNet v3, MaxViT and EfficientNet b5 to b7.
inline constexpr Norm slow_norm{.eps = 1e-3f, .momentum = 0.01f};

struct PoolOptions {
  Both kernel = 1;
  Both stride = 1;
  Both padding = 0;
  bool ceil = false;
};

// The layers that networks are made of, as torchvision has them: each creates its parameters below
// the graph's current scope under the names they have there, so that a published file of weights
// fits. Images are [N, C, H, W]. With `compute` bf16, products and what lies between layers are
// bf16, while parameters and statistics are f32.
class Layers {
 public:
  Layers(Graph& graph, const VisionOptions& options) : graph_(graph), options_(options) {}

  Graph& graph() const { return graph_; }

  Value conv(Value x, std::string_view name, const ConvOptions& options) const;
  // The convolution with bias of patches of size x size that lie side by side, as one product:
  // [N, C, H, W] -> [N, H / size, W / size, out], less what is no whole patch. A deviation, here
  // and below, is that of fresh weights, in place of the layer's own.
  Value patches(Value x, std::string_view name, std::int64_t out, std::int64_t size,
                std::optional<float> deviation = {}) const;
  Value batch_norm(Value x, std::string_view name, const Norm& norm = {}) const;
  // A convolution, the norm of it, and an activation.
  Value conv_norm(Value x, std::string_view conv_name, std::string_view norm_name,
                  const ConvOptions& options, Act act, const Norm& norm = {}) const;
  // The same under the names "<name>.0" and "<name>.1".
  Value conv_norm(Value x, std::string_view name, const ConvOptions& options, Act act,
                  const Norm& norm = {}) const;
  // Over the last dimension, as is the norm below.
  Value linear(Value x, std::string_view name, std::int64_t out, bool bias = true,
               std::optional<float> deviation = {}) const;
  Value layer_norm(Value x, std::string_view name, float eps = 1e-5f) const;
  // The linear layer that is all of a network's head.
  Value logits(Value x, std::string_view name, std::int64_t classes,
               std::optional<float> deviation = {}) const;
  // x times weights of its channels, which two 1 x 1 convolutions with `squeeze` channels between
  // them compute from their means (Hu et al., 2018): "<name>.fc1" and "<name>.fc2".
  Value squeeze_excitation(Value x, std::string_view name, std::int64_t squeeze, Act inner,
                           Act gate) const;
  Value act(Value x, Act act) const;

  Value max_pool(Value x, const PoolOptions& options) const;
  Value avg_pool(Value x, const PoolOptions& options) const;
  // [N, C, H, W] -> [N, C, size, size]
  Value mean_pool(Value x, Both size = 1) const;
  // [N, C, H, W] -> [N, C]
  Value pooled(Value x) const;
  Value flatten(Value x) const;  // [N, ..] -> [N, all the rest]

  // In training, elements or whole samples at random become 0; otherwise x itself.
  Value dropout(Value x, float rate) const;
  Value stochastic_depth(Value x, float rate) const;

  // A parameter or a constant of the network's own, converted to what is computed in.
  Value parameter(std::string_view name, const Shape& shape, Init init) const;
  Value parameter_f32(std::string_view name, const Shape& shape, Init init) const;
  Value constant(std::string_view name, const TensorType& type, std::vector<float> values) const;
  Value computed(Value x) const;  // in the dtype that is computed in

 private:
  Value buffer(std::string_view name, const TensorType& type, Init init) const;
  Value drop(Value x, float rate, std::int64_t block) const;
  // A linear layer, whose parameters lie in the current scope.
  Value dense(Value x, std::int64_t out, bool bias, std::optional<float> deviation) const;

  Graph& graph_;
  VisionOptions options_;
};

// The multiple of `divisor` next to `value`, but at least `least` (0: the divisor) and at least 0.9
// of it: how the MobileNet family rounds numbers of channels.
std::int64_t round_channels(double value, std::int64_t divisor = 8, std::int64_t least = 0);

}  // namespace ridge::vision
