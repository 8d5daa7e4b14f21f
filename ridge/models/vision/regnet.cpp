// Radosavovic et al.: "Designing network design spaces" (2020).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"

namespace ridge::vision {
namespace {

// The numbers that describe a network, with the symbols of the paper's section 3.3.
struct Config {
  int depth = 0;                 // d: blocks of all stages
  double initial_width = 0;      // w_0: channels of the first block, before they are rounded
  double slope = 0;              // w_a: channels that each further block has more, before rounding
  double step = 0;               // w_m: the quotient of the widths of two stages
  std::int64_t group_width = 1;  // g: channels of a group
  double squeeze = 0;  // channels inside squeeze-excitation over a block's inputs; 0: there is none
};

struct Stage {
  std::int64_t width = 0, groups = 1;
  int depth = 0;  // blocks
};

// The width of block `index` grows linearly with the index (the paper's equation 2). It is rounded
// to w_0 times the nearest power of w_m (equations 3 and 4), and this to a multiple of 8.
std::int64_t width_of(const Config& config, int index) {
  const double linear = config.initial_width + config.slope * index;
  const double power =
      std::nearbyint(std::log(linear / config.initial_width) / std::log(config.step));
  const double width = config.initial_width * std::pow(config.step, power);
  return 8 * static_cast<std::int64_t>(std::nearbyint(width / 8));
}

// A stage is a run of blocks of one width, which is rounded so that whole groups fill it.
std::vector<Stage> stages_of(const Config& config) {
  std::vector<Stage> stages;
  for (int i = 0; i < config.depth; ++i) {
    const std::int64_t width = width_of(config, i);
    if (stages.empty() || stages.back().width != width) stages.push_back({.width = width});
    ++stages.back().depth;
  }
  for (Stage& stage : stages) {
    const std::int64_t group_width = std::min(config.group_width, stage.width);
    stage.width = round_channels(static_cast<double>(stage.width), group_width);
    stage.groups = stage.width / group_width;
  }
  return stages;
}

// Fresh weights are drawn as if a grouped convolution led to all channels.
Value grouped(const Layers& layers, Value x, const Stage& stage, std::int64_t stride) {
  const auto fan_out = static_cast<double>(3 * 3 * stage.width);
  return layers.conv_norm(x, "b",
                          {.out = stage.width,
                           .kernel = 3,
                           .stride = stride,
                           .groups = stage.groups,
                           .deviation = static_cast<float>(std::sqrt(2 / fan_out))},
                          Act::relu);
}

Value residual(const Layers& layers, Value x, const Stage& stage, std::int64_t stride,
               double squeeze) {
  const Scope scope(layers.graph(), "f");
  const auto squeezed =
      static_cast<std::int64_t>(std::nearbyint(squeeze * static_cast<double>(x.shape()[1])));
  x = layers.conv_norm(x, "a", {.out = stage.width}, Act::relu);
  x = grouped(layers, x, stage, stride);
  if (squeezed > 0) x = layers.squeeze_excitation(x, "se", squeezed, Act::relu, Act::sigmoid);
  return layers.conv_norm(x, "c", {.out = stage.width}, Act::none);
}

Value block(const Layers& layers, Value x, const Stage& stage, std::int64_t stride,
            double squeeze) {
  const Value y = residual(layers, x, stage, stride, squeeze);
  if (stride != 1 || x.shape()[1] != stage.width)
    x = layers.conv_norm(x, "proj", {.out = stage.width, .stride = stride}, Act::none);
  return layers.act(add(y, x), Act::relu);
}

template <Config config>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  Value x = layers.conv_norm(images, "stem", {.out = 32, .kernel = 3, .stride = 2}, Act::relu);
  int number = 1;
  for (const Stage& stage : stages_of(config)) {
    for (int i = 0; i < stage.depth; ++i) {
      const Scope scope(layers.graph(),
                        fmt::format("trunk_output.block{0}.block{0}-{1}", number, i),
                        ScopeKind::block);
      x = block(layers, x, stage, i == 0 ? 2 : 1, config.squeeze);
    }
    ++number;
  }
  return layers.logits(layers.pooled(x), "fc", classes, 0.01f);
}

// The class y has squeeze-excitation, the class x has not. A name gives the multiply-accumulates of
// an image of 224 x 224, which is why all are listed with that size, though torchvision's weights
// of regnet_y_128gf are for 384 x 384.
constexpr Network table[] = {
    {.name = "regnet_x_400mf", .build = build<{22, 24, 24.48, 2.54, 16}>},
    {.name = "regnet_x_800mf", .build = build<{16, 56, 35.73, 2.28, 16}>},
    {.name = "regnet_x_1_6gf", .build = build<{18, 80, 34.01, 2.25, 24}>},
    {.name = "regnet_x_3_2gf", .build = build<{25, 88, 26.31, 2.25, 48}>},
    {.name = "regnet_x_8gf", .build = build<{23, 80, 49.56, 2.88, 120}>},
    {.name = "regnet_x_16gf", .build = build<{22, 216, 55.59, 2.1, 128}>},
    {.name = "regnet_x_32gf", .build = build<{23, 320, 69.86, 2.0, 168}>},
    {.name = "regnet_y_400mf", .build = build<{16, 48, 27.89, 2.09, 8, 0.25}>},
    {.name = "regnet_y_800mf", .build = build<{14, 56, 38.84, 2.4, 16, 0.25}>},
    {.name = "regnet_y_1_6gf", .build = build<{27, 48, 20.71, 2.65, 24, 0.25}>},
    {.name = "regnet_y_3_2gf", .build = build<{21, 80, 42.63, 2.66, 24, 0.25}>},
    {.name = "regnet_y_8gf", .build = build<{17, 192, 76.82, 2.19, 56, 0.25}>},
    {.name = "regnet_y_16gf", .build = build<{18, 200, 106.23, 2.48, 112, 0.25}>},
    {.name = "regnet_y_32gf", .build = build<{20, 232, 115.89, 2.53, 232, 0.25}>},
    {.name = "regnet_y_128gf", .build = build<{27, 456, 160.83, 2.52, 264, 0.25}>},
};

}  // namespace

std::span<const Network> regnets() { return table; }

}  // namespace ridge::vision
