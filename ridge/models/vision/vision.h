#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/models/model.h"

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
// By its name or an alias; UsageError for a name that is none.
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

// Appends the forward graph of the network called `name`: input f32[N, 3, H, W], targets i32[N] in
// [0, classes), logits [N, classes], kept readable; of a network that segments, i32[N, H, W] and
// [N, classes, H, W]. Parameters and buffers are called what torchvision calls them. UsageError for
// sizes that make no sense, and images too small.
Model build_vision(Graph& graph, std::string_view name, const VisionOptions& options);

}  // namespace ridge
