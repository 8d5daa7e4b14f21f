// Liu et al.: "A ConvNet for the 2020s" (2022).

#include <fmt/format.h>

#include <array>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"

namespace ridge::vision {
namespace {

struct Config {
  std::array<std::int64_t, 4> channels{};  // by stage
  std::array<int, 4> depths{3, 3, 27, 3};  // blocks, by stage
  float drop_rate = 0.5f;                  // of the last block; they rise from 0
};

constexpr float eps = 1e-6f;          // of all layer norms
constexpr float deviation = 0.02f;    // of all fresh weights
constexpr float layer_scale = 1e-6f;  // a fresh block hardly changes what passes it

// Layer norms and linear layers work on [N, H, W, C], and so does the residual path; convolutions
// take [N, C, H, W].
Value channels_first(Value x) { return permute(x, {0, 3, 1, 2}); }
Value channels_last(Value x) { return permute(x, {0, 2, 3, 1}); }

Value feed_forward(const Layers& layers, Value x) {
  const Scope scope(layers.graph(), "block", ScopeKind::feed_forward);
  const std::int64_t channels = x.shape()[-1];
  x = layers.layer_norm(x, "2", eps);
  x = layers.act(layers.linear(x, "3", 4 * channels, true, deviation), Act::gelu);
  return layers.linear(x, "5", channels, true, deviation);
}

Value block(const Layers& layers, Value x, float drop_rate) {
  const std::int64_t channels = x.shape()[-1];
  Value y = layers.conv(
      channels_first(x), "block.0",
      {.out = channels, .kernel = 7, .groups = channels, .bias = true, .deviation = deviation});
  y = feed_forward(layers, channels_last(y));
  const Value factors =
      layers.parameter("layer_scale", {channels, 1, 1}, Init::constant(layer_scale));
  y = mul(y, reshape(factors, {channels}));
  return add(layers.stochastic_depth(y, drop_rate), x);
}

// Half the rows and columns, and the next stage's channels.
Value downsample(const Layers& layers, Value x, std::int64_t out) {
  x = channels_first(layers.layer_norm(x, "0", eps));
  return channels_last(layers.conv(
      x, "1",
      {.out = out, .kernel = 2, .stride = 2, .padding = 0, .bias = true, .deviation = deviation}));
}

// [N, 3, H, W] -> [N, H / 32, W / 32, C]
Value features(const Layers& layers, Value images, const Config& config) {
  const Scope scope(layers.graph(), "features");
  Value x = layers.patches(images, "0.0", config.channels[0], 4, deviation);
  x = layers.layer_norm(x, "0.1", eps);
  int blocks = 0, done = 0;
  for (const int depth : config.depths) blocks += depth;
  for (std::size_t stage = 0; stage < config.depths.size(); ++stage) {
    if (stage > 0) {
      const Scope place(layers.graph(), fmt::to_string(2 * stage));
      x = downsample(layers, x, config.channels[stage]);
    }
    for (int i = 0; i < config.depths[stage]; ++i, ++done) {
      const Scope place(layers.graph(), fmt::format("{}.{}", 2 * stage + 1, i), ScopeKind::block);
      const float rate =
          config.drop_rate * static_cast<float>(done) / static_cast<float>(blocks - 1);
      x = block(layers, x, rate);
    }
  }
  return x;
}

template <Config config>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  const Value x = layers.pooled(channels_first(features(layers, images, config)));
  return layers.logits(layers.layer_norm(x, "classifier.0", eps), "classifier.2", classes,
                       deviation);
}

constexpr Config tiny{.channels = {96, 192, 384, 768}, .depths = {3, 3, 9, 3}, .drop_rate = 0.1f},
    small{.channels = {96, 192, 384, 768}, .drop_rate = 0.4f},
    base{.channels = {128, 256, 512, 1024}}, large{.channels = {192, 384, 768, 1536}};

constexpr Network table[] = {
    {.name = "convnext_tiny", .build = build<tiny>, .least_size = 32},
    {.name = "convnext_small", .build = build<small>, .least_size = 32},
    {.name = "convnext_base", .build = build<base>, .least_size = 32},
    {.name = "convnext_large", .build = build<large>, .least_size = 32},
};

}  // namespace

std::span<const Network> convnexts() { return table; }

}  // namespace ridge::vision
