// Simonyan and Zisserman: "Very deep convolutional networks for large-scale image recognition"
// (2014).

#include <fmt/format.h>

#include <array>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"

namespace ridge::vision {
namespace {

// How many convolutions each of the five stages has before its pooling.
using Stages = std::array<int, 5>;

Value features(const Layers& layers, Value x, const Stages& stages, bool norm) {
  constexpr std::int64_t channels[] = {64, 128, 256, 512, 512};
  const Scope scope(layers.graph(), "features");
  int index = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (int i = 0; i < stages[stage]; ++i) {
      x = layers.conv(x, fmt::to_string(index++),
                      {.out = channels[stage], .kernel = 3, .bias = true});
      if (norm) x = layers.batch_norm(x, fmt::to_string(index++));
      x = layers.act(x, Act::relu);
      ++index;
    }
    x = layers.max_pool(x, {.kernel = 2, .stride = 2});
    ++index;
  }
  return x;
}

template <Stages stages, bool norm>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  Value x = layers.flatten(layers.mean_pool(features(layers, images, stages, norm), 7));
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  x = layers.dropout(layers.act(layers.linear(x, "0", 4096), Act::relu), 0.5f);
  x = layers.dropout(layers.act(layers.linear(x, "3", 4096), Act::relu), 0.5f);
  return layers.linear(x, "6", classes);
}

constexpr Stages vgg11{1, 1, 2, 2, 2}, vgg13{2, 2, 2, 2, 2}, vgg16{2, 2, 3, 3, 3},
    vgg19{2, 2, 4, 4, 4};

constexpr Network table[] = {
    {.name = "vgg11", .build = build<vgg11, false>, .least_size = 32},
    {.name = "vgg13", .build = build<vgg13, false>, .least_size = 32},
    {.name = "vgg16", .build = build<vgg16, false>, .least_size = 32},
    {.name = "vgg19", .build = build<vgg19, false>, .least_size = 32},
    {.name = "vgg11_bn", .build = build<vgg11, true>, .least_size = 32},
    {.name = "vgg13_bn", .build = build<vgg13, true>, .least_size = 32},
    {.name = "vgg16_bn", .build = build<vgg16, true>, .least_size = 32},
    {.name = "vgg19_bn", .build = build<vgg19, true>, .least_size = 32},
};

}  // namespace

std::span<const Network> vgg() { return table; }

}  // namespace ridge::vision
