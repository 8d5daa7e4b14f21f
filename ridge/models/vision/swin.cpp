// Liu et al.: "Swin transformer: hierarchical vision transformer using shifted windows" (2021);
// "Swin transformer V2: scaling up capacity and resolution" (2021).

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/models/vision/windows.h"
#include "ridge/ops/activation.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/fill.h"
#include "ridge/ops/join.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/relu.h"
#include "ridge/ops/rms_norm.h"
#include "ridge/ops/unary.h"
#include "ridge/ops/window_attention.h"

namespace ridge::vision {
namespace {

struct Config {
  int version = 1;
  std::int64_t dim = 96;         // of the first stage; each next one doubles it
  std::array<int, 4> depths{};   // blocks of each stage
  std::int64_t first_heads = 3;  // of the first stage
  float drop_rate = 0.2f;        // of the last block; they rise from 0
  std::int64_t window = 7;
};

Value resized(Value x, std::uint32_t dim, std::int64_t extent) {
  return x.shape()[static_cast<int>(dim)] == extent ? x : window(x, dim, 0, extent);
}

// Version 2's bias is a small network of the offsets, on a logarithmic scale from -8 to 8.
Value offset_network(const Layers& layers, std::int64_t window, std::int64_t heads) {
  const std::int64_t side = 2 * window - 1;
  const auto coordinate = [&](std::int64_t i) {
    const double x = 8.0 * static_cast<double>(i - window + 1) / static_cast<double>(window - 1);
    return static_cast<float>(std::copysign(std::log2(std::abs(x) + 1) / 3, x));
  };
  std::vector<float> offsets;
  for (std::int64_t i = 0; i < side; ++i)
    for (std::int64_t j = 0; j < side; ++j) {
      offsets.push_back(coordinate(i));
      offsets.push_back(coordinate(j));
    }
  const Value table = layers.constant("relative_coords_table", {DType::f32, {1, side, side, 2}},
                                      std::move(offsets));
  const Value x =
      layers.linear(layers.computed(reshape(table, {side * side, 2})), "cpb_mlp.0", 512);
  return layers.linear(relu(x), "cpb_mlp.2", heads, false);
}

Value bias_of(const Layers& layers, const Config& config, std::int64_t heads) {
  const std::int64_t positions = config.window * config.window, side = 2 * config.window - 1;
  const Value table = config.version == 1
                          ? layers.parameter("relative_position_bias_table", {side * side, heads},
                                             Init::normal(0.02f))
                          : offset_network(layers, config.window, heads);
  const Value index = relative_position_index(layers, config.window, {positions * positions});
  const Value bias = relative_position_bias(table, index, positions);
  return config.version == 1 ? bias : scale(layers.act(bias, Act::sigmoid), 16.0f);
}

// x / |x| over the last dimension.
Value unit_vectors(const Layers& layers, Value x) {
  const std::int64_t d = x.shape()[-1];
  const auto root = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
  return rms_norm(x, fill(layers.graph(), {DType::f32, {d}}, root), 1e-24f);
}

// Version 2 has no bias for the keys, which would not change the angles much.
Value without_key_bias(const Layers& layers, Value bias) {
  const std::int64_t dim = bias.shape()[0] / 3;
  return concat({{window(bias, 0, 0, dim), fill(layers.graph(), {bias.dtype(), {dim}}, 0.0f),
                  window(bias, 0, 2 * dim, dim)}},
                0);
}

Value qkv_of(const Layers& layers, Value x, const Config& config) {
  if (config.version == 1) return layers.linear(x, "qkv", 3 * x.shape()[-1]);
  const Scope scope(layers.graph(), "qkv");
  const std::int64_t dim = x.shape()[-1];
  const Value weight = layers.parameter("weight", {3 * dim, dim}, Init::normal(0.02f));
  const Value bias = layers.parameter("bias", {3 * dim}, Init::zeros());
  return add(project(x, weight), without_key_bias(layers, bias));
}

// Version 2's scores are angles, by a learned factor of at most 100: queries and keys of such
// lengths that their products are these.
Value with_angles(const Layers& layers, Value qkv, std::int64_t heads) {
  const Shape& s = qkv.shape();
  const std::int64_t dim = s[3] / 3;
  const Shape rows{s[0], s[1], s[2], dim}, split{s[0], s[1], s[2], heads, dim / heads};
  const auto part = [&](std::int64_t i) { return window(qkv, 3, i * dim, dim); };
  const auto units = [&](std::int64_t i) { return unit_vectors(layers, reshape(part(i), split)); };
  const Value factor =
      activation(layers.parameter("logit_scale", {heads, 1, 1}, Init::normal(1.0f)),
                 ActivationKind::exp_capped);
  const Value q = mul(units(0), reshape(factor, {heads, 1}));
  return concat({{reshape(q, rows), reshape(units(1), rows), part(2)}}, 3);
}

// Among the positions of each window, of windows that are shifted in every other block.
Value attention(const Layers& layers, Value image, const Config& config, std::int64_t heads,
                std::int64_t shift) {
  const Scope scope(layers.graph(), "attn", ScopeKind::attention);
  const Shape s = image.shape();
  const auto whole = [&](std::int64_t extent) {
    return (extent + config.window - 1) / config.window * config.window;
  };
  const std::int64_t h = whole(s[1]), w = whole(s[2]), head_dim = s[3] / heads;
  Value qkv = qkv_of(layers, resized(resized(image, 1, h), 2, w), config);
  if (config.version == 2) qkv = with_angles(layers, qkv, heads);
  // One window has no neighbors to exchange positions with.
  const Value y = window_attention(
      qkv, bias_of(layers, config, heads),
      {.n_heads = heads,
       .side = config.window,
       .shift_down = config.window >= h ? 0 : shift,
       .shift_across = config.window >= w ? 0 : shift,
       .scale = config.version == 2
                    ? 1.0f
                    : static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))});
  return resized(resized(layers.linear(y, "proj", s[3]), 1, s[1]), 2, s[2]);
}

Value feed_forward(const Layers& layers, Value x) {
  const Scope scope(layers.graph(), "mlp", ScopeKind::feed_forward);
  const std::int64_t dim = x.shape()[-1];
  x = layers.act(layers.linear(x, "0", 4 * dim), Act::gelu);
  return layers.linear(x, "3", dim);
}

Value block(const Layers& layers, Value x, const Config& config, std::int64_t heads,
            std::int64_t shift, float drop_rate) {
  const auto attend = [&](Value y) { return attention(layers, y, config, heads, shift); };
  const auto branch = [&](Value y) { return layers.stochastic_depth(y, drop_rate); };
  if (config.version == 1) {
    x = add(x, branch(attend(layers.layer_norm(x, "norm1"))));
    return add(x, branch(feed_forward(layers, layers.layer_norm(x, "norm2"))));
  }
  x = add(x, branch(layers.layer_norm(attend(x), "norm1")));
  return add(x, branch(layers.layer_norm(feed_forward(layers, x), "norm2")));
}

// Four neighbors become one position of twice the channels.
Value merge(const Layers& layers, Value x, const Config& config) {
  x = resized(x, 1, (x.shape()[1] + 1) / 2 * 2);
  x = resized(x, 2, (x.shape()[2] + 1) / 2 * 2);
  const Shape s = x.shape();
  const std::int64_t dim = s[3];
  x = permute(reshape(x, {s[0], s[1] / 2, 2, s[2] / 2, 2, dim}), {0, 1, 3, 4, 2, 5});
  x = reshape(x, {s[0], s[1] / 2, s[2] / 2, 4 * dim});
  if (config.version == 1)
    return layers.linear(layers.layer_norm(x, "norm"), "reduction", 2 * dim, false);
  return layers.layer_norm(layers.linear(x, "reduction", 2 * dim, false), "norm");
}

Value features(const Layers& layers, Value images, const Config& config) {
  const Scope scope(layers.graph(), "features");
  Value x = layers.layer_norm(layers.patches(images, "0.0", config.dim, 4), "0.2");
  int blocks = 0, done = 0;
  for (const int depth : config.depths) blocks += depth;
  for (std::size_t stage = 0; stage < config.depths.size(); ++stage) {
    if (stage > 0) {
      const Scope place(layers.graph(), fmt::to_string(2 * stage));
      x = merge(layers, x, config);
    }
    for (int i = 0; i < config.depths[stage]; ++i, ++done) {
      const Scope place(layers.graph(), fmt::format("{}.{}", 2 * stage + 1, i), ScopeKind::block);
      const float rate =
          config.drop_rate * static_cast<float>(done) / static_cast<float>(blocks - 1);
      x = block(layers, x, config, config.first_heads << stage, i % 2 == 0 ? 0 : config.window / 2,
                rate);
    }
  }
  return x;
}

template <Config config>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  const Value x = layers.layer_norm(features(layers, images, config), "norm");
  return layers.logits(layers.pooled(permute(x, {0, 3, 1, 2})), "head", classes);
}

constexpr Config tiny{.depths = {2, 2, 6, 2}}, small{.depths = {2, 2, 18, 2}, .drop_rate = 0.3f},
    base{.dim = 128, .depths = {2, 2, 18, 2}, .first_heads = 4, .drop_rate = 0.5f};

constexpr Config v2(Config config) {
  config.version = 2;
  config.window = 8;
  return config;
}

constexpr Network table[] = {
    {.name = "swin_t", .build = build<tiny>, .least_size = 4},
    {.name = "swin_s", .build = build<small>, .least_size = 4},
    {.name = "swin_b", .build = build<base>, .least_size = 4},
    {.name = "swin_v2_t", .build = build<v2(tiny)>, .least_size = 4},
    {.name = "swin_v2_s", .build = build<v2(small)>, .least_size = 4},
    {.name = "swin_v2_b", .build = build<v2(base)>, .least_size = 4},
};

}  // namespace

std::span<const Network> swins() { return table; }

}  // namespace ridge::vision
