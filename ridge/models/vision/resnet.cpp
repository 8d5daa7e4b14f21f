// He, Zhang, Ren, Sun: "Deep residual learning for image recognition" (2015), with the stride in a
// bottleneck's 3 x 3 convolution; Xie et al.: "Aggregated residual transformations for deep neural
// networks" (2016); Zagoruyko and Komodakis: "Wide residual networks" (2016).

#include "ridge/models/vision/resnet.h"

#include <fmt/format.h>

#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"

namespace ridge::vision {
namespace {

struct Block {
  std::int64_t planes, out, stride, dilation;
};

Value residual(const Layers& layers, Value x, const ResNetConfig& config, const Block& block) {
  const auto [planes, out, stride, dilation] = block;
  if (!config.bottleneck) {
    x = layers.conv_norm(x, "conv1", "bn1", {.out = planes, .kernel = 3, .stride = stride},
                         Act::relu);
    return layers.conv_norm(x, "conv2", "bn2", {.out = planes, .kernel = 3}, Act::none);
  }
  const std::int64_t width = planes * config.group_width / 64 * config.groups;
  x = layers.conv_norm(x, "conv1", "bn1", {.out = width}, Act::relu);
  x = layers.conv_norm(
      x, "conv2", "bn2",
      {.out = width, .kernel = 3, .stride = stride, .dilation = dilation, .groups = config.groups},
      Act::relu);
  return layers.conv_norm(x, "conv3", "bn3", {.out = out}, Act::none);
}

Value block(const Layers& layers, Value x, const ResNetConfig& config, const Block& block) {
  const Value y = residual(layers, x, config, block);
  if (block.stride != 1 || x.shape()[1] != block.out)
    x = layers.conv_norm(x, "downsample", {.out = block.out, .stride = block.stride}, Act::none);
  return layers.act(add(y, x), Act::relu);
}

}  // namespace

Value resnet_features(const Layers& layers, Value images, const ResNetConfig& config) {
  Value x =
      layers.conv_norm(images, "conv1", "bn1", {.out = 64, .kernel = 7, .stride = 2}, Act::relu);
  x = layers.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  std::int64_t dilation = 1;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::int64_t planes = std::int64_t{64} << stage;
    const std::int64_t out = config.bottleneck ? 4 * planes : planes;
    // A stage that is dilated begins with the dilation of the one before.
    std::int64_t stride = stage == 0 ? 1 : 2, first_dilation = dilation;
    if (config.dilated && stage >= 2) {
      dilation *= stride;
      stride = 1;
    }
    for (int i = 0; i < config.blocks[stage]; ++i) {
      const Scope scope(layers.graph(), fmt::format("layer{}.{}", stage + 1, i), ScopeKind::block);
      x = block(
          layers, x, config,
          i == 0 ? Block{planes, out, stride, first_dilation} : Block{planes, out, 1, dilation});
    }
  }
  return x;
}

namespace {

template <ResNetConfig config>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  return layers.logits(layers.pooled(resnet_features(layers, images, config)), "fc", classes);
}

constexpr ResNetConfig with_groups(ResNetConfig config, std::int64_t groups, std::int64_t width) {
  config.groups = groups;
  config.group_width = width;
  return config;
}

constexpr Network table[] = {
    {.name = "resnet18", .build = build<{.bottleneck = false, .blocks = {2, 2, 2, 2}}>},
    {.name = "resnet34", .build = build<{.bottleneck = false, .blocks = {3, 4, 6, 3}}>},
    {.name = "resnet50", .build = build<resnet50>},
    {.name = "resnet101", .build = build<resnet101>},
    {.name = "resnet152", .build = build<{.blocks = {3, 8, 36, 3}}>},
    {.name = "resnext50_32x4d", .build = build<with_groups(resnet50, 32, 4)>},
    {.name = "resnext101_32x8d", .build = build<with_groups(resnet101, 32, 8)>},
    {.name = "resnext101_64x4d", .build = build<with_groups(resnet101, 64, 4)>},
    {.name = "wide_resnet50_2", .build = build<with_groups(resnet50, 1, 128)>},
    {.name = "wide_resnet101_2", .build = build<with_groups(resnet101, 1, 128)>},
};

}  // namespace

std::span<const Network> resnets() { return table; }

}  // namespace ridge::vision
