// Tan and Le: "EfficientNet: rethinking model scaling for convolutional neural networks" (2019).

#include <fmt/format.h>

#include <cmath>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"

namespace ridge::vision {
namespace {

// How a network is larger than b0.
struct Scaling {
  double width = 1, depth = 1;
  float dropout = 0.2f;
  Norm norm = {};
};

struct Stage {
  std::int64_t expansion, kernel, stride, in, out;
  int repeats;
};

constexpr Stage stages[] = {{1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},  {6, 5, 2, 24, 40, 2},
                            {6, 3, 2, 40, 80, 3},  {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4},
                            {6, 3, 1, 192, 320, 1}};

std::int64_t scaled(std::int64_t channels, const Scaling& scaling) {
  return round_channels(static_cast<double>(channels) * scaling.width);
}

int repeats_of(const Stage& stage, const Scaling& scaling) {
  return static_cast<int>(std::ceil(stage.repeats * scaling.depth));
}

Value block(const Layers& layers, Value x, const Stage& stage, std::int64_t out,
            std::int64_t stride, float drop_rate, const Norm& norm) {
  const std::int64_t in = x.shape()[1], inner = in * stage.expansion;
  const Scope scope(layers.graph(), "block");
  Value y = x;
  int index = 0;
  if (inner != in)
    y = layers.conv_norm(y, fmt::to_string(index++), {.out = inner}, Act::silu, norm);
  y = layers.conv_norm(y, fmt::to_string(index++),
                       {.out = inner, .kernel = stage.kernel, .stride = stride, .groups = inner},
                       Act::silu, norm);
  y = layers.squeeze_excitation(y, fmt::to_string(index++), std::max<std::int64_t>(1, in / 4),
                                Act::silu, Act::sigmoid);
  y = layers.conv_norm(y, fmt::to_string(index), {.out = out}, Act::none, norm);
  return stride == 1 && in == out ? add(layers.stochastic_depth(y, drop_rate), x) : y;
}

Value features(const Layers& layers, Value x, const Scaling& scaling) {
  const Scope scope(layers.graph(), "features");
  int blocks = 0, done = 0;
  for (const Stage& stage : stages) blocks += repeats_of(stage, scaling);
  x = layers.conv_norm(x, "0", {.out = scaled(32, scaling), .kernel = 3, .stride = 2}, Act::silu,
                       scaling.norm);
  int index = 1;
  for (const Stage& stage : stages) {
    for (int i = 0; i < repeats_of(stage, scaling); ++i, ++done) {
      const Scope place(layers.graph(), fmt::format("{}.{}", index, i), ScopeKind::block);
      const float drop_rate = 0.2f * static_cast<float>(done) / static_cast<float>(blocks);
      x = block(layers, x, stage, scaled(stage.out, scaling), i == 0 ? stage.stride : 1, drop_rate,
                scaling.norm);
    }
    ++index;
  }
  return layers.conv_norm(x, fmt::to_string(index), {.out = 4 * x.shape()[1]}, Act::silu,
                          scaling.norm);
}

template <Scaling scaling>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  const Value x = layers.pooled(features(layers, images, scaling));
  return layers.logits(layers.dropout(x, scaling.dropout), "classifier.1", classes);
}

constexpr Network table[] = {
    {.name = "efficientnet_b0", .build = build<{}>},
    {.name = "efficientnet_b1", .build = build<{1.0, 1.1}>},
    {.name = "efficientnet_b2", .build = build<{1.1, 1.2, 0.3f}>},
    {.name = "efficientnet_b3", .build = build<{1.2, 1.4, 0.3f}>},
    {.name = "efficientnet_b4", .build = build<{1.4, 1.8, 0.4f}>},
    {.name = "efficientnet_b5", .build = build<{1.6, 2.2, 0.4f, slow_norm}>},
    {.name = "efficientnet_b6", .build = build<{1.8, 2.6, 0.5f, slow_norm}>},
    {.name = "efficientnet_b7", .build = build<{2.0, 3.1, 0.5f, slow_norm}>},
};

}  // namespace

std::span<const Network> efficientnets() { return table; }

}  // namespace ridge::vision
