// Krizhevsky: "One weird trick for parallelizing convolutional neural networks" (2014).

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"

namespace ridge::vision {
namespace {

Value features(const Layers& layers, Value x) {
  const Scope scope(layers.graph(), "features");
  const auto conv = [&](std::string_view name, const ConvOptions& options) {
    x = layers.act(layers.conv(x, name, options), Act::relu);
  };
  const auto pool = [&] { x = layers.max_pool(x, {.kernel = 3, .stride = 2}); };
  conv("0", {.out = 64, .kernel = 11, .stride = 4, .padding = 2, .bias = true});
  pool();
  conv("3", {.out = 192, .kernel = 5, .bias = true});
  pool();
  conv("6", {.out = 384, .kernel = 3, .bias = true});
  conv("8", {.out = 256, .kernel = 3, .bias = true});
  conv("10", {.out = 256, .kernel = 3, .bias = true});
  pool();
  return x;
}

Value build(const Layers& layers, Value images, std::int64_t classes) {
  Value x = layers.flatten(layers.mean_pool(features(layers, images), 6));
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  x = layers.act(layers.linear(layers.dropout(x, 0.5f), "1", 4096), Act::relu);
  x = layers.act(layers.linear(layers.dropout(x, 0.5f), "4", 4096), Act::relu);
  return layers.linear(x, "6", classes);
}

constexpr Network table[] = {{.name = "alexnet", .build = build, .least_size = 63}};

}  // namespace

std::span<const Network> alexnet() { return table; }

}  // namespace ridge::vision
