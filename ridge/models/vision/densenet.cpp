// Huang, Liu, van der Maaten, Weinberger: "Densely connected convolutional networks" (2016).

#include <fmt/format.h>

#include <array>
#include <vector>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/join.h"

namespace ridge::vision {
namespace {

struct Config {
  std::int64_t growth = 32;     // channels that a layer adds
  std::array<int, 4> layers{};  // of each block
  std::int64_t stem = 64;       // channels before the first block
};

Value norm_relu(const Layers& layers, Value x, std::string_view name) {
  return layers.act(layers.batch_norm(x, name), Act::relu);
}

// Each layer reads what all before it in its block have made.
Value dense_block(const Layers& layers, Value x, int count, std::int64_t growth) {
  std::vector<Value> made{x};
  for (int i = 1; i <= count; ++i) {
    const Scope scope(layers.graph(), fmt::format("denselayer{}", i), ScopeKind::block);
    Value y = made.size() == 1 ? x : concat(made, 1);
    y = layers.conv(norm_relu(layers, y, "norm1"), "conv1", {.out = 4 * growth});
    made.push_back(
        layers.conv(norm_relu(layers, y, "norm2"), "conv2", {.out = growth, .kernel = 3}));
  }
  return concat(made, 1);
}

Value transition(const Layers& layers, Value x) {
  x = layers.conv(norm_relu(layers, x, "norm"), "conv", {.out = x.shape()[1] / 2});
  return layers.avg_pool(x, {.kernel = 2, .stride = 2});
}

Value features(const Layers& layers, Value x, const Config& config) {
  const Scope scope(layers.graph(), "features");
  x = layers.conv_norm(x, "conv0", "norm0", {.out = config.stem, .kernel = 7, .stride = 2},
                       Act::relu);
  x = layers.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    {
      const Scope block(layers.graph(), fmt::format("denseblock{}", i + 1));
      x = dense_block(layers, x, config.layers[i], config.growth);
    }
    if (i + 1 == config.layers.size()) break;
    const Scope between(layers.graph(), fmt::format("transition{}", i + 1));
    x = transition(layers, x);
  }
  return norm_relu(layers, x, "norm5");
}

template <Config config>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  const Value x = layers.pooled(features(layers, images, config));
  return layers.logits(x, "classifier", classes);
}

constexpr Network table[] = {
    {.name = "densenet121", .build = build<{.layers = {6, 12, 24, 16}}>, .least_size = 29},
    {.name = "densenet161",
     .build = build<{.growth = 48, .layers = {6, 12, 36, 24}, .stem = 96}>,
     .least_size = 29},
    {.name = "densenet169", .build = build<{.layers = {6, 12, 32, 32}}>, .least_size = 29},
    {.name = "densenet201", .build = build<{.layers = {6, 12, 48, 32}}>, .least_size = 29},
};

}  // namespace

std::span<const Network> densenets() { return table; }

}  // namespace ridge::vision
