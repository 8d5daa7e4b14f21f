#pragma once

#include <array>
#include <cstdint>

#include "ridge/models/vision/layers.h"

namespace ridge::vision {

struct ResNetConfig {
  bool bottleneck = true;       // blocks of three convolutions instead of two
  std::array<int, 4> blocks{};  // of each stage
  std::int64_t groups = 1;      // of a bottleneck's middle convolution
  std::int64_t group_width = 64;
  // The last two stages keep their resolution and widen their view by dilation instead.
  bool dilated = false;
};

inline constexpr ResNetConfig resnet50{.blocks = {3, 4, 6, 3}};
inline constexpr ResNetConfig resnet101{.blocks = {3, 4, 23, 3}};

// The features of all stages: [N, 2048 or 512, H / 32, W / 32], or H / 8 and W / 8 if dilated.
Value resnet_features(const Layers& layers, Value images, const ResNetConfig& config);

}  // namespace ridge::vision
