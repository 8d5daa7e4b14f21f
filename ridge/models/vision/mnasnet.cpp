// Tan et al.: "MnasNet: platform-aware neural architecture search for mobile" (2018).

#include <fmt/format.h>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"

namespace ridge::vision {
namespace {

constexpr Norm norm{.momentum = 3e-4f};

struct Stack {
  std::int64_t out, kernel, stride, expansion;
  int repeats;
};

Value block(const Layers& layers, Value x, std::int64_t out, const Stack& stack,
            std::int64_t stride) {
  const std::int64_t in = x.shape()[1], inner = in * stack.expansion;
  const Scope scope(layers.graph(), "layers");
  Value y = layers.conv_norm(x, "0", "1", {.out = inner}, Act::relu, norm);
  y = layers.conv_norm(y, "3", "4",
                       {.out = inner, .kernel = stack.kernel, .stride = stride, .groups = inner},
                       Act::relu, norm);
  y = layers.conv_norm(y, "6", "7", {.out = out}, Act::none, norm);
  return stride == 1 && in == out ? add(y, x) : y;
}

Value features(const Layers& layers, Value x, double width) {
  constexpr Stack stacks[] = {{24, 3, 2, 3, 3}, {40, 5, 2, 3, 3},  {80, 5, 2, 6, 3},
                              {96, 3, 1, 6, 2}, {192, 5, 2, 6, 4}, {320, 3, 1, 6, 1}};
  const auto channels = [&](std::int64_t n) {
    return round_channels(static_cast<double>(n) * width);
  };
  const Scope scope(layers.graph(), "layers");
  const std::int64_t stem = channels(32);
  x = layers.conv_norm(x, "0", "1", {.out = stem, .kernel = 3, .stride = 2}, Act::relu, norm);
  x = layers.conv_norm(x, "3", "4", {.out = stem, .kernel = 3, .groups = stem}, Act::relu, norm);
  x = layers.conv_norm(x, "6", "7", {.out = channels(16)}, Act::none, norm);
  int index = 8;
  for (const Stack& stack : stacks) {
    for (int i = 0; i < stack.repeats; ++i) {
      const Scope place(layers.graph(), fmt::format("{}.{}", index, i), ScopeKind::block);
      x = block(layers, x, channels(stack.out), stack, i == 0 ? stack.stride : 1);
    }
    ++index;
  }
  return layers.conv_norm(x, "14", "15", {.out = 1280}, Act::relu, norm);
}

template <int width_percent>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  const Value x = layers.pooled(features(layers, images, width_percent / 100.0));
  return layers.logits(layers.dropout(x, 0.2f), "classifier.1", classes);
}

constexpr Network table[] = {
    {.name = "mnasnet0_5", .build = build<50>},
    {.name = "mnasnet0_75", .build = build<75>},
    {.name = "mnasnet1_0", .build = build<100>},
    {.name = "mnasnet1_3", .build = build<130>},
};

}  // namespace

std::span<const Network> mnasnets() { return table; }

}  // namespace ridge::vision
