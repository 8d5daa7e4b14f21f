// Tu et al.: "MaxViT: multi-axis vision transformer" (2022).

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/models/vision/windows.h"
#include "ridge/ops/activation.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/window_attention.h"

namespace ridge::vision {
namespace {

constexpr std::int64_t head_dim = 32, partition = 7;

// An inverted residual whose shortcut is pooled and projected where the shape changes.
Value mobile_block(const Layers& layers, Value x, std::int64_t out, std::int64_t stride,
                   float drop_rate) {
  const std::int64_t in = x.shape()[1], inner = 4 * out;
  const Scope scope(layers.graph(), "layers.MBconv");
  Value shortcut = x;
  if (stride != 1 || in != out) {
    if (stride == 2) shortcut = layers.avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
    const std::string_view name = stride == 2 ? "proj.1" : "proj.0";
    shortcut = layers.conv(shortcut, name, {.out = out, .bias = true});
  }
  const Scope inside(layers.graph(), "layers");
  Value y = layers.batch_norm(x, "pre_norm", slow_norm);
  y = layers.conv_norm(y, "conv_a", {.out = inner}, Act::gelu, slow_norm);
  y = layers.conv_norm(y, "conv_b", {.out = inner, .kernel = 3, .stride = stride, .groups = inner},
                       Act::gelu, slow_norm);
  y = layers.squeeze_excitation(y, "squeeze_excitation", out / 4, Act::silu, Act::sigmoid);
  y = layers.conv(y, "conv_c", {.out = out, .bias = true});
  return add(shortcut, layers.stochastic_depth(y, drop_rate));
}

// Among neighbors, or among as many positions spread over the whole image.
enum class Reach { window, grid };

Value self_attention(const Layers& layers, Value x, Reach reach) {
  const std::int64_t dim = x.shape()[-1], heads = dim / head_dim, positions = partition * partition;
  const std::int64_t side = 2 * partition - 1;
  const Scope scope(layers.graph(), "attn_layer.1", ScopeKind::attention);
  const Value qkv = layers.linear(x, "to_qkv", 3 * dim);
  const Value table =
      layers.parameter("relative_position_bias_table", {side * side, heads}, Init::normal(0.02f));
  const Value index = relative_position_index(layers, partition, {positions, positions});
  const Value y =
      window_attention(qkv, relative_position_bias(table, index, positions),
                       {.n_heads = heads,
                        .side = partition,
                        .spread = reach == Reach::grid,
                        // By the root of all channels, not of a head's.
                        .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)))});
  return layers.linear(y, "merge", dim);
}

Value feed_forward(const Layers& layers, Value x) {
  const Scope scope(layers.graph(), "mlp_layer", ScopeKind::feed_forward);
  const std::int64_t c = x.shape()[-1];
  x = layers.linear(layers.layer_norm(x, "0"), "1", 4 * c);
  return layers.linear(layers.act(x, Act::gelu), "3", c);
}

// [N, H, W, C]
Value partition_attention(const Layers& layers, Value x, Reach reach, float drop_rate) {
  const Scope scope(layers.graph(),
                    reach == Reach::window ? "layers.window_attention" : "layers.grid_attention");
  const auto branch = [&](Value y) { return layers.stochastic_depth(y, drop_rate); };
  x = add(x, branch(self_attention(layers, layers.layer_norm(x, "attn_layer.0"), reach)));
  return add(x, branch(feed_forward(layers, x)));
}

Value build(const Layers& layers, Value images, std::int64_t classes) {
  constexpr std::array<std::int64_t, 4> channels{64, 128, 256, 512};
  constexpr std::array<int, 4> depths{2, 2, 5, 2};
  constexpr int blocks = 11;
  if (images.shape()[2] % (32 * partition) != 0 || images.shape()[3] % (32 * partition) != 0)
    throw UsageError("maxvit_t takes images whose extents are multiples of {}; these are {} x {}",
                     32 * partition, images.shape()[2], images.shape()[3]);
  Value x = layers.conv_norm(images, "stem.0", {.out = 64, .kernel = 3, .stride = 2}, Act::gelu,
                             slow_norm);
  {
    const Scope scope(layers.graph(), "stem.1");
    x = layers.conv(x, "0", {.out = 64, .kernel = 3, .bias = true});
  }
  int done = 0;
  for (std::size_t stage = 0; stage < channels.size(); ++stage)
    for (int i = 0; i < depths[stage]; ++i, ++done) {
      const Scope scope(layers.graph(), fmt::format("blocks.{}.layers.{}", stage, i),
                        ScopeKind::block);
      const float rate = 0.2f * static_cast<float>(done) / (blocks - 1);
      x = mobile_block(layers, x, channels[stage], i == 0 ? 2 : 1, rate);
      x = permute(x, {0, 2, 3, 1});
      x = partition_attention(layers, x, Reach::window, rate);
      x = partition_attention(layers, x, Reach::grid, rate);
      x = permute(x, {0, 3, 1, 2});
    }
  x = layers.pooled(x);
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  x = layers.layer_norm(x, "2");
  x = activation(layers.linear(x, "3", channels.back()), ActivationKind::tanh);
  return layers.linear(x, "5", classes, false);
}

constexpr Network table[] = {{.name = "maxvit_t", .build = build, .least_size = 224}};

}  // namespace

std::span<const Network> maxvits() { return table; }

}  // namespace ridge::vision
