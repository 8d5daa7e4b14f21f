// Iandola et al.: "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters" (2016), and the
// lighter release 1.1.

#include <fmt/format.h>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/join.h"

namespace ridge::vision {
namespace {

Value conv_relu(const Layers& layers, Value x, std::string_view name, ConvOptions options,
                Fresh fresh = Fresh::fan_in) {
  options.bias = true;
  options.fresh = fresh;
  return layers.act(layers.conv(x, name, options), Act::relu);
}

Value fire(const Layers& layers, Value x, int index, std::int64_t squeeze, std::int64_t expand) {
  const Scope scope(layers.graph(), fmt::to_string(index), ScopeKind::block);
  x = conv_relu(layers, x, "squeeze", {.out = squeeze});
  const Value one = conv_relu(layers, x, "expand1x1", {.out = expand});
  const Value three = conv_relu(layers, x, "expand3x3", {.out = expand, .kernel = 3});
  return concat({{one, three}}, 1);
}

Value pool(const Layers& layers, Value x) {
  return layers.max_pool(x, {.kernel = 3, .stride = 2, .ceil = true});
}

Value features_1_0(const Layers& layers, Value x) {
  const Scope scope(layers.graph(), "features");
  x = conv_relu(layers, x, "0", {.out = 96, .kernel = 7, .stride = 2, .padding = 0});
  x = fire(layers, pool(layers, x), 3, 16, 64);
  x = fire(layers, fire(layers, x, 4, 16, 64), 5, 32, 128);
  x = fire(layers, pool(layers, x), 7, 32, 128);
  x = fire(layers, fire(layers, x, 8, 48, 192), 9, 48, 192);
  x = fire(layers, x, 10, 64, 256);
  return fire(layers, pool(layers, x), 12, 64, 256);
}

Value features_1_1(const Layers& layers, Value x) {
  const Scope scope(layers.graph(), "features");
  x = conv_relu(layers, x, "0", {.out = 64, .kernel = 3, .stride = 2, .padding = 0});
  x = fire(layers, pool(layers, x), 3, 16, 64);
  x = fire(layers, x, 4, 16, 64);
  x = fire(layers, pool(layers, x), 6, 32, 128);
  x = fire(layers, x, 7, 32, 128);
  x = fire(layers, pool(layers, x), 9, 48, 192);
  x = fire(layers, x, 10, 48, 192);
  return fire(layers, fire(layers, x, 11, 64, 256), 12, 64, 256);
}

template <Value (*features)(const Layers&, Value)>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  const Value x = layers.dropout(features(layers, images), 0.5f);
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  return layers.pooled(conv_relu(layers, x, "1", {.out = classes}, Fresh::small));
}

constexpr Network table[] = {
    {.name = "squeezenet1_0", .build = build<features_1_0>, .least_size = 29},
    {.name = "squeezenet1_1", .build = build<features_1_1>, .least_size = 25},
};

}  // namespace

std::span<const Network> squeezenets() { return table; }

}  // namespace ridge::vision
