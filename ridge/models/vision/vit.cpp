// Dosovitskiy et al.: "An image is worth 16x16 words: transformers for image recognition at scale"
// (2020).

#include <fmt/format.h>

#include <cmath>

#include "ridge/base/error.h"
#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/attention.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/fill.h"
#include "ridge/ops/join.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/matmul.h"

namespace ridge::vision {
namespace {

struct Config {
  std::int64_t patch = 16;
  std::int64_t n_layers = 12, n_heads = 12, hidden_dim = 768, mlp_dim = 3072;
};

constexpr float eps = 1e-6f;

Value self_attention(const Layers& layers, Value x, std::int64_t n_heads) {
  const Scope scope(layers.graph(), "self_attention", ScopeKind::attention);
  const std::int64_t dim = x.shape()[-1];
  const Value weight = layers.parameter("in_proj_weight", {3 * dim, dim}, Init::normal(0.02f));
  const Value bias = layers.parameter("in_proj_bias", {3 * dim}, Init::zeros());
  const std::int64_t head_dim = dim / n_heads;
  const Value y =
      attention(add(project(x, weight), bias),
                {.n_heads = n_heads,
                 .n_kv_heads = n_heads,
                 .head_dim = head_dim,
                 .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim))),
                 .causal = false});
  return layers.linear(y, "out_proj", dim);
}

Value feed_forward(const Layers& layers, Value x, std::int64_t inner) {
  const Scope scope(layers.graph(), "mlp", ScopeKind::feed_forward);
  const std::int64_t dim = x.shape()[-1];
  return layers.linear(layers.act(layers.linear(x, "0", inner), Act::gelu), "3", dim);
}

Value block(const Layers& layers, Value x, const Config& config) {
  x = add(x, self_attention(layers, layers.layer_norm(x, "ln_1", eps), config.n_heads));
  return add(x, feed_forward(layers, layers.layer_norm(x, "ln_2", eps), config.mlp_dim));
}

// [N, 3, H, W] -> [N, 1 + patches, D], a learned token first.
Value tokens(const Layers& layers, Value images, const Config& config) {
  const std::int64_t n = images.shape()[0], dim = config.hidden_dim;
  if (images.shape()[2] % config.patch != 0 || images.shape()[3] % config.patch != 0)
    throw UsageError(
        "a ViT with patches of {} takes images whose extents are multiples of that; these are {} x "
        "{}",
        config.patch, images.shape()[2], images.shape()[3]);
  Value x = layers.patches(images, "conv_proj", dim, config.patch);
  x = reshape(x, {n, x.shape()[1] * x.shape()[2], dim});
  const Value token = layers.parameter("class_token", {1, 1, dim}, Init::zeros());
  const Value none = fill(layers.graph(), {x.dtype(), {n, 1, dim}}, 0.0f);
  return concat({{add(none, token), x}}, 1);
}

template <Config config>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  Value x = tokens(layers, images, config);
  const std::int64_t n = x.shape()[0], length = x.shape()[1], dim = x.shape()[2];
  {
    const Scope encoder(layers.graph(), "encoder");
    x = add(x, layers.parameter("pos_embedding", {1, length, dim}, Init::normal(0.02f)));
    for (std::int64_t i = 0; i < config.n_layers; ++i) {
      const Scope scope(layers.graph(), fmt::format("layers.encoder_layer_{}", i),
                        ScopeKind::block);
      x = block(layers, x, config);
    }
    // Only the learned token of the result is read.
    x = layers.layer_norm(reshape(window(x, 1, 0, 1), {n, dim}), "ln", eps);
  }
  return layers.logits(x, "heads.head", classes);
}

constexpr Config large{.n_layers = 24, .n_heads = 16, .hidden_dim = 1024, .mlp_dim = 4096};

constexpr Config with_patch(Config config, std::int64_t patch) {
  config.patch = patch;
  return config;
}

constexpr Network table[] = {
    {.name = "vit_b_16", .build = build<{}>, .least_size = 16},
    {.name = "vit_b_32", .build = build<{.patch = 32}>, .least_size = 32},
    {.name = "vit_l_16", .build = build<large>, .least_size = 16},
    {.name = "vit_l_32", .build = build<with_patch(large, 32)>, .least_size = 32},
    {.name = "vit_h_14",
     .build =
         build<{.patch = 14, .n_layers = 32, .n_heads = 16, .hidden_dim = 1280, .mlp_dim = 5120}>,
     .least_size = 14},
};

}  // namespace

std::span<const Network> vits() { return table; }

}  // namespace ridge::vision
