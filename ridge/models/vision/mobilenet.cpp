// Sandler et al.: "MobileNetV2: inverted residuals and linear bottlenecks" (2018); Howard et al.:
// "Searching for MobileNetV3" (2019).

#include "ridge/models/vision/mobilenet.h"

#include <fmt/format.h>

#include <span>

#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"

namespace ridge::vision {
namespace {

// Version 2 ---------------------------------------------------------------------------------------

Value inverted_residual(const Layers& layers, Value x, std::int64_t out, std::int64_t stride,
                        std::int64_t expansion) {
  const std::int64_t in = x.shape()[1], inner = in * expansion;
  const Scope scope(layers.graph(), "conv");
  Value y = x;
  int index = 0;
  if (expansion != 1) y = layers.conv_norm(y, fmt::to_string(index++), {.out = inner}, Act::relu6);
  y = layers.conv_norm(y, fmt::to_string(index++),
                       {.out = inner, .kernel = 3, .stride = stride, .groups = inner}, Act::relu6);
  y = layers.conv_norm(y, fmt::to_string(index), fmt::to_string(index + 1), {.out = out},
                       Act::none);
  return stride == 1 && in == out ? add(x, y) : y;
}

Value mobilenet_v2(const Layers& layers, Value images, std::int64_t classes) {
  struct Stage {
    std::int64_t expansion, out;
    int repeats;
    std::int64_t stride;
  };
  constexpr Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  Value x =
      layers.conv_norm(images, "features.0", {.out = 32, .kernel = 3, .stride = 2}, Act::relu6);
  int index = 1;
  for (const Stage& stage : stages)
    for (int i = 0; i < stage.repeats; ++i) {
      const Scope scope(layers.graph(), fmt::format("features.{}", index++), ScopeKind::block);
      x = inverted_residual(layers, x, stage.out, i == 0 ? stage.stride : 1, stage.expansion);
    }
  x = layers.conv_norm(x, fmt::format("features.{}", index), {.out = 1280}, Act::relu6);
  return layers.logits(layers.dropout(layers.pooled(x), 0.2f), "classifier.1", classes);
}

// Version 3 ---------------------------------------------------------------------------------------

struct Bottleneck {
  std::int64_t kernel, inner, out;
  bool squeeze;
  Act act;
  std::int64_t stride, dilation = 1;
};

constexpr Act RE = Act::relu, HS = Act::hard_swish;

constexpr Bottleneck large[] = {
    {3, 16, 16, false, RE, 1},  {3, 64, 24, false, RE, 2},  {3, 72, 24, false, RE, 1},
    {5, 72, 40, true, RE, 2},   {5, 120, 40, true, RE, 1},  {5, 120, 40, true, RE, 1},
    {3, 240, 80, false, HS, 2}, {3, 200, 80, false, HS, 1}, {3, 184, 80, false, HS, 1},
    {3, 184, 80, false, HS, 1}, {3, 480, 112, true, HS, 1}, {3, 672, 112, true, HS, 1},
    {5, 672, 160, true, HS, 2}, {5, 960, 160, true, HS, 1}, {5, 960, 160, true, HS, 1},
};

constexpr Bottleneck small[] = {
    {3, 16, 16, true, RE, 2},  {3, 72, 24, false, RE, 2}, {3, 88, 24, false, RE, 1},
    {5, 96, 40, true, HS, 2},  {5, 240, 40, true, HS, 1}, {5, 240, 40, true, HS, 1},
    {5, 120, 48, true, HS, 1}, {5, 144, 48, true, HS, 1}, {5, 288, 96, true, HS, 2},
    {5, 576, 96, true, HS, 1}, {5, 576, 96, true, HS, 1},
};

Value bottleneck(const Layers& layers, Value x, const Bottleneck& b) {
  const std::int64_t in = x.shape()[1];
  const Scope scope(layers.graph(), "block");
  Value y = x;
  int index = 0;
  if (b.inner != in)
    y = layers.conv_norm(y, fmt::to_string(index++), {.out = b.inner}, b.act, slow_norm);
  y = layers.conv_norm(y, fmt::to_string(index++),
                       {.out = b.inner,
                        .kernel = b.kernel,
                        .stride = b.stride,
                        .dilation = b.dilation,
                        .groups = b.inner},
                       b.act, slow_norm);
  if (b.squeeze)
    y = layers.squeeze_excitation(y, fmt::to_string(index++),
                                  round_channels(static_cast<double>(b.inner) / 4), Act::relu,
                                  Act::hard_sigmoid);
  y = layers.conv_norm(y, fmt::to_string(index), {.out = b.out}, Act::none, slow_norm);
  return b.stride == 1 && in == b.out ? add(y, x) : y;
}

Value stem(const Layers& layers, Value images) {
  return layers.conv_norm(images, "0", {.out = 16, .kernel = 3, .stride = 2}, HS, slow_norm);
}

Value last(const Layers& layers, Value x, std::size_t index) {
  return layers.conv_norm(x, fmt::to_string(index), {.out = 6 * x.shape()[1]}, HS, slow_norm);
}

Value mobilenet_v3(const Layers& layers, Value images, std::span<const Bottleneck> blocks,
                   std::int64_t head, std::int64_t classes) {
  Value x;
  {
    const Scope features(layers.graph(), "features");
    x = stem(layers, images);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Scope scope(layers.graph(), fmt::to_string(i + 1), ScopeKind::block);
      x = bottleneck(layers, x, blocks[i]);
    }
    x = last(layers, x, blocks.size() + 1);
  }
  x = layers.pooled(x);
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  x = layers.act(layers.linear(x, "0", head), HS);
  return layers.linear(layers.dropout(x, 0.2f), "3", classes);
}

Value mobilenet_v3_large(const Layers& layers, Value images, std::int64_t classes) {
  return mobilenet_v3(layers, images, large, 1280, classes);
}

Value mobilenet_v3_small(const Layers& layers, Value images, std::int64_t classes) {
  return mobilenet_v3(layers, images, small, 1024, classes);
}

constexpr Network table[] = {
    {.name = "mobilenet_v2", .build = mobilenet_v2},
    {.name = "mobilenet_v3_large", .build = mobilenet_v3_large},
    {.name = "mobilenet_v3_small", .build = mobilenet_v3_small},
};

}  // namespace

MobileNetFeatures dilated_mobilenet_features(const Layers& layers, Value images) {
  constexpr std::size_t low_block = 3, first_dilated = 12;  // the one that would halve the extent
  MobileNetFeatures features;
  Value x = stem(layers, images);
  for (std::size_t i = 0; i < std::size(large); ++i) {
    Bottleneck block = large[i];
    if (i >= first_dilated) block.stride = 1, block.dilation = 2;
    const Scope scope(layers.graph(), fmt::to_string(i + 1), ScopeKind::block);
    x = bottleneck(layers, x, block);
    if (i == low_block) features.low = x;
  }
  features.high = last(layers, x, std::size(large) + 1);
  return features;
}

std::span<const Network> mobilenets() { return table; }

}  // namespace ridge::vision
