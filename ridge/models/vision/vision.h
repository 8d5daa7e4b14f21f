#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// What is known of a network of the vision benchmark before it is built.
struct VisionNetwork {
  std::string_view name;                  // "resnext50_32x4d"
  std::vector<std::string_view> aliases;  // "resnext50"
  std::int64_t input_size = 224;          // rows and columns of the images it is usually given
  std::int64_t classes = 1000;
};

// All of them, family by family.
std::vector<VisionNetwork> vision_networks();
// By its name or an alias; UsageError, naming the nearest ones, for a name that is none.
VisionNetwork vision_network(std::string_view name);

struct VisionOptions {
  std::int64_t batch_size = 1;
  std::int64_t image_size = 0;  // rows and columns; 0: the network's own
  DType compute = DType::f32;
  // Batch norm by the batch's statistics, and dropout. Otherwise by those that training left, and
  // no dropout.
  bool training = false;
  std::int64_t classes = 0;  // 0: the network's own
  bool dropout = true;       // in training; so is stochastic depth
  // By which running statistics move, in training; none: by the network's own.
  std::optional<float> statistics_momentum{};
};

struct VisionModel {
  Value images;   // input, f32[N, 3, H, W]
  Value targets;  // input, i32[N], or [N, H, W] of a network that segments, in [0, classes)
  Value logits;   // f32, bf16 or f16 [N, classes], or [N, classes, H, W]; kept readable
  Value loss;     // f32 scalar: mean cross-entropy in nats, kept readable
  Value step;     // input, i32 scalar, that decides what is dropped; no value if nothing is
};

// Appends the forward graph of the network called `name`. Parameters and buffers are called what
// torchvision calls them. UsageError for sizes that make no sense, and images too small.
VisionModel build_vision(Graph& graph, std::string_view name, const VisionOptions& options);

}  // namespace ridge
