// Zhang, Zhou, Lin, Sun: "ShuffleNet: an extremely efficient convolutional neural network for
// mobile devices" (2017), with three groups and its full width; Ma, Zhang, Zheng, Sun: "ShuffleNet
// V2: practical guidelines for efficient CNN architecture design" (2018).

#include <fmt/format.h>

#include <array>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/join.h"
#include "ridge/ops/layout.h"

namespace ridge::vision {
namespace {

constexpr int repeats[] = {4, 8, 4};  // of the three stages

// Deals the channels of each of `groups` groups out in turn.
Value shuffle(Value x, std::int64_t groups) {
  const Shape shape = x.shape();
  const std::int64_t n = shape[0], c = shape[1], pixels = shape[2] * shape[3];
  x = permute(reshape(x, {n, groups, c / groups, pixels}), {0, 2, 1, 3});
  return reshape(x, shape);
}

Value stem(const Layers& layers, Value images) {
  const Value x =
      layers.conv_norm(images, "conv1", {.out = 24, .kernel = 3, .stride = 2}, Act::relu);
  return layers.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
}

// Version 1 ---------------------------------------------------------------------------------------

Value grouped_unit(const Layers& layers, Value x, std::int64_t out, bool halves, bool first) {
  constexpr std::int64_t groups = 3;
  const std::int64_t stride = halves ? 2 : 1, inner = out / 4;
  // What is concatenated brings its own channels.
  const std::int64_t made = halves ? out - x.shape()[1] : out;
  // The 24 channels of the stem are too few to be grouped.
  Value y =
      layers.conv_norm(x, "conv1", "bn1", {.out = inner, .groups = first ? 1 : groups}, Act::relu);
  y = layers.conv_norm(shuffle(y, groups), "conv2", "bn2",
                       {.out = inner, .kernel = 3, .stride = stride, .groups = inner}, Act::none);
  y = layers.conv_norm(y, "conv3", "bn3", {.out = made, .groups = groups}, Act::none);
  if (!halves) return layers.act(add(x, y), Act::relu);
  const Value shortcut = layers.avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  return layers.act(concat({{shortcut, y}}, 1), Act::relu);
}

Value shufflenet_v1(const Layers& layers, Value images, std::int64_t classes) {
  Value x = stem(layers, images);
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < repeats[stage]; ++i) {
      const Scope scope(layers.graph(), fmt::format("stage{}.{}", stage + 2, i), ScopeKind::block);
      x = grouped_unit(layers, x, std::int64_t{240} << stage, i == 0, stage == 0 && i == 0);
    }
  return layers.logits(layers.pooled(x), "fc", classes);
}

// Version 2 ---------------------------------------------------------------------------------------

Value depthwise(const Layers& layers, Value x, std::string_view conv, std::string_view norm,
                std::int64_t stride) {
  const std::int64_t channels = x.shape()[1];
  return layers.conv_norm(x, conv, norm,
                          {.out = channels, .kernel = 3, .stride = stride, .groups = channels},
                          Act::none);
}

Value right_branch(const Layers& layers, Value x, std::int64_t out, std::int64_t stride) {
  const Scope scope(layers.graph(), "branch2");
  x = layers.conv_norm(x, "0", "1", {.out = out}, Act::relu);
  x = depthwise(layers, x, "3", "4", stride);
  return layers.conv_norm(x, "5", "6", {.out = out}, Act::relu);
}

Value left_branch(const Layers& layers, Value x, std::int64_t out) {
  const Scope scope(layers.graph(), "branch1");
  x = depthwise(layers, x, "0", "1", 2);
  return layers.conv_norm(x, "2", "3", {.out = out}, Act::relu);
}

Value unit(const Layers& layers, Value x, std::int64_t out, bool halves) {
  const std::int64_t half = out / 2;
  const Value left = halves ? left_branch(layers, x, half) : window(x, 1, 0, half);
  const Value right =
      right_branch(layers, halves ? x : window(x, 1, half, half), half, halves ? 2 : 1);
  return shuffle(concat({{left, right}}, 1), 2);
}

// Channels of the three stages and of the last convolution.
using Widths = std::array<std::int64_t, 4>;

template <Widths widths>
Value shufflenet_v2(const Layers& layers, Value images, std::int64_t classes) {
  Value x = stem(layers, images);
  for (std::size_t stage = 0; stage < 3; ++stage)
    for (int i = 0; i < repeats[stage]; ++i) {
      const Scope scope(layers.graph(), fmt::format("stage{}.{}", stage + 2, i), ScopeKind::block);
      x = unit(layers, x, widths[stage], i == 0);
    }
  x = layers.conv_norm(x, "conv5", {.out = widths[3]}, Act::relu);
  return layers.logits(layers.pooled(x), "fc", classes);
}

constexpr Network table[] = {
    {.name = "shufflenet", .build = shufflenet_v1},
    {.name = "shufflenet_v2_x0_5", .build = shufflenet_v2<Widths{48, 96, 192, 1024}>},
    {.name = "shufflenet_v2_x1_0", .build = shufflenet_v2<Widths{116, 232, 464, 1024}>},
    {.name = "shufflenet_v2_x1_5", .build = shufflenet_v2<Widths{176, 352, 704, 1024}>},
    {.name = "shufflenet_v2_x2_0", .build = shufflenet_v2<Widths{244, 488, 976, 2048}>},
};

}  // namespace

std::span<const Network> shufflenets() { return table; }

}  // namespace ridge::vision
