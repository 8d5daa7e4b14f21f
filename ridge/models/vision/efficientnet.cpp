// Tan and Le: "EfficientNet: rethinking model scaling for convolutional neural networks" (2019);
// "EfficientNetV2: smaller models and faster training" (2021).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"

namespace ridge::vision {
namespace {

struct Stage {
  // What expands: a 1 x 1 convolution before a depthwise one, or one that is neither ("fused").
  enum class Kind { depthwise, fused } kind;
  std::int64_t expansion, kernel, stride, out;
  int repeats;
};

struct Config {
  const Stage* stages = nullptr;
  int n_stages = 0;
  std::int64_t stem = 32;       // channels of the first convolution
  std::int64_t last = 0;        // of the last one; 0: four times those of the last stage
  double width = 1, depth = 1;  // how many times as wide and deep as the stages say
  float dropout = 0.2f;
  Norm norm = {};

  std::span<const Stage> all_stages() const { return {stages, static_cast<std::size_t>(n_stages)}; }
};

std::int64_t scaled(std::int64_t channels, const Config& config) {
  return round_channels(static_cast<double>(channels) * config.width);
}

int repeats_of(const Stage& stage, const Config& config) {
  return static_cast<int>(std::ceil(stage.repeats * config.depth));
}

Value depthwise_branch(const Layers& layers, Value x, const Stage& stage, std::int64_t out,
                       std::int64_t stride, const Norm& norm) {
  const std::int64_t in = x.shape()[1], inner = in * stage.expansion;
  int index = 0;
  if (inner != in)
    x = layers.conv_norm(x, fmt::to_string(index++), {.out = inner}, Act::silu, norm);
  x = layers.conv_norm(x, fmt::to_string(index++),
                       {.out = inner, .kernel = stage.kernel, .stride = stride, .groups = inner},
                       Act::silu, norm);
  x = layers.squeeze_excitation(x, fmt::to_string(index++), std::max<std::int64_t>(1, in / 4),
                                Act::silu, Act::sigmoid);
  return layers.conv_norm(x, fmt::to_string(index), {.out = out}, Act::none, norm);
}

// Where nothing is expanded, one convolution is all.
Value fused_branch(const Layers& layers, Value x, const Stage& stage, std::int64_t out,
                   std::int64_t stride, const Norm& norm) {
  const std::int64_t in = x.shape()[1], inner = in * stage.expansion;
  const bool expands = inner != in;
  x = layers.conv_norm(x, "0",
                       {.out = expands ? inner : out, .kernel = stage.kernel, .stride = stride},
                       Act::silu, norm);
  return expands ? layers.conv_norm(x, "1", {.out = out}, Act::none, norm) : x;
}

Value block(const Layers& layers, Value x, const Stage& stage, std::int64_t out,
            std::int64_t stride, float drop_rate, const Norm& norm) {
  const Scope scope(layers.graph(), "block");
  const auto branch = stage.kind == Stage::Kind::fused ? fused_branch : depthwise_branch;
  const Value y = branch(layers, x, stage, out, stride, norm);
  return stride == 1 && x.shape()[1] == out ? add(layers.stochastic_depth(y, drop_rate), x) : y;
}

Value features(const Layers& layers, Value x, const Config& config) {
  const Scope scope(layers.graph(), "features");
  int blocks = 0, done = 0;
  for (const Stage& stage : config.all_stages()) blocks += repeats_of(stage, config);
  x = layers.conv_norm(x, "0", {.out = scaled(config.stem, config), .kernel = 3, .stride = 2},
                       Act::silu, config.norm);
  int index = 1;
  for (const Stage& stage : config.all_stages()) {
    for (int i = 0; i < repeats_of(stage, config); ++i, ++done) {
      const Scope place(layers.graph(), fmt::format("{}.{}", index, i), ScopeKind::block);
      const float drop_rate = 0.2f * static_cast<float>(done) / static_cast<float>(blocks);
      x = block(layers, x, stage, scaled(stage.out, config), i == 0 ? stage.stride : 1, drop_rate,
                config.norm);
    }
    ++index;
  }
  const std::int64_t last = config.last > 0 ? config.last : 4 * x.shape()[1];
  return layers.conv_norm(x, fmt::to_string(index), {.out = last}, Act::silu, config.norm);
}

template <Config config>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  const Value x = layers.pooled(features(layers, images, config));
  return layers.logits(layers.dropout(x, config.dropout), "classifier.1", classes);
}

constexpr auto depthwise = Stage::Kind::depthwise, fused = Stage::Kind::fused;

constexpr Stage b_stages[] = {{depthwise, 1, 3, 1, 16, 1},  {depthwise, 6, 3, 2, 24, 2},
                              {depthwise, 6, 5, 2, 40, 2},  {depthwise, 6, 3, 2, 80, 3},
                              {depthwise, 6, 5, 1, 112, 3}, {depthwise, 6, 5, 2, 192, 4},
                              {depthwise, 6, 3, 1, 320, 1}};

constexpr Stage s_stages[] = {{fused, 1, 3, 1, 24, 2},      {fused, 4, 3, 2, 48, 4},
                              {fused, 4, 3, 2, 64, 4},      {depthwise, 4, 3, 2, 128, 6},
                              {depthwise, 6, 3, 1, 160, 9}, {depthwise, 6, 3, 2, 256, 15}};

constexpr Stage m_stages[] = {{fused, 1, 3, 1, 24, 3},       {fused, 4, 3, 2, 48, 5},
                              {fused, 4, 3, 2, 80, 5},       {depthwise, 4, 3, 2, 160, 7},
                              {depthwise, 6, 3, 1, 176, 14}, {depthwise, 6, 3, 2, 304, 18},
                              {depthwise, 6, 3, 1, 512, 5}};

constexpr Stage l_stages[] = {{fused, 1, 3, 1, 32, 4},       {fused, 4, 3, 2, 64, 7},
                              {fused, 4, 3, 2, 96, 7},       {depthwise, 4, 3, 2, 192, 10},
                              {depthwise, 6, 3, 1, 224, 19}, {depthwise, 6, 3, 2, 384, 25},
                              {depthwise, 6, 3, 1, 640, 7}};

constexpr Config b(double width, double depth, float dropout, const Norm& norm = {}) {
  return {.stages = b_stages,
          .n_stages = std::size(b_stages),
          .width = width,
          .depth = depth,
          .dropout = dropout,
          .norm = norm};
}

template <std::size_t count>
constexpr Config v2(const Stage (&stages)[count], float dropout) {
  return {.stages = stages,
          .n_stages = count,
          .stem = stages[0].out,
          .last = 1280,
          .dropout = dropout,
          .norm = {.eps = 1e-3f}};
}

constexpr Network table[] = {
    {.name = "efficientnet_b0", .build = build<b(1.0, 1.0, 0.2f)>},
    {.name = "efficientnet_b1", .build = build<b(1.0, 1.1, 0.2f)>},
    {.name = "efficientnet_b2", .build = build<b(1.1, 1.2, 0.3f)>},
    {.name = "efficientnet_b3", .build = build<b(1.2, 1.4, 0.3f)>},
    {.name = "efficientnet_b4", .build = build<b(1.4, 1.8, 0.4f)>},
    {.name = "efficientnet_b5", .build = build<b(1.6, 2.2, 0.4f, slow_norm)>},
    {.name = "efficientnet_b6", .build = build<b(1.8, 2.6, 0.5f, slow_norm)>},
    {.name = "efficientnet_b7", .build = build<b(2.0, 3.1, 0.5f, slow_norm)>},
    {.name = "efficientnet_v2_s", .build = build<v2(s_stages, 0.2f)>, .input_size = 384},
    {.name = "efficientnet_v2_m", .build = build<v2(m_stages, 0.3f)>, .input_size = 480},
    {.name = "efficientnet_v2_l", .build = build<v2(l_stages, 0.4f)>, .input_size = 480},
};

}  // namespace

std::span<const Network> efficientnets() { return table; }

}  // namespace ridge::vision
