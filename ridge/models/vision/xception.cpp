// Chollet: "Xception: deep learning with depthwise separable convolutions" (2016).

#include <fmt/format.h>

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/binary.h"

namespace ridge::vision {
namespace {

// A convolution of each channel alone, one across channels, and the norm of it.
Value separable(const Layers& layers, Value x, std::string_view name, std::string_view norm,
                std::int64_t out) {
  const std::int64_t in = x.shape()[1];
  {
    const Scope scope(layers.graph(), name);
    x = layers.conv(x, "conv1", {.out = in, .kernel = 3, .groups = in});
    x = layers.conv(x, "pointwise", {.out = out});
  }
  return layers.batch_norm(x, norm);
}

struct Block {
  std::int64_t first, second;  // channels of its two convolutions
  bool begins_with_relu = true;
};

// Halves the extent; the shortcut is a strided convolution.
Value halving_block(const Layers& layers, Value x, const Block& block) {
  Value y = block.begins_with_relu ? layers.act(x, Act::relu) : x;
  y = layers.act(separable(layers, y, "sep1", "bn1", block.first), Act::relu);
  y = separable(layers, y, "sep2", "bn2", block.second);
  y = layers.max_pool(y, {.kernel = 3, .stride = 2, .padding = 1});
  return add(y,
             layers.conv_norm(x, "skip", "skipbn", {.out = block.second, .stride = 2}, Act::none));
}

Value middle_block(const Layers& layers, Value x) {
  Value y = x;
  for (int i = 1; i <= 3; ++i)
    y = separable(layers, layers.act(y, Act::relu), fmt::format("sep{}", i), fmt::format("bn{}", i),
                  x.shape()[1]);
  return add(y, x);
}

Value build(const Layers& layers, Value images, std::int64_t classes) {
  Value x = layers.conv_norm(images, "conv1", "bn1",
                             {.out = 32, .kernel = 3, .stride = 2, .padding = 0}, Act::relu);
  x = layers.conv_norm(x, "conv2", "bn2", {.out = 64, .kernel = 3, .padding = 0}, Act::relu);
  int index = 1;
  for (const Block& block : {Block{128, 128, false}, Block{256, 256}, Block{728, 728}}) {
    const Scope scope(layers.graph(), fmt::format("block{}", index++), ScopeKind::block);
    x = halving_block(layers, x, block);
  }
  for (; index <= 11; ++index) {
    const Scope scope(layers.graph(), fmt::format("block{}", index), ScopeKind::block);
    x = middle_block(layers, x);
  }
  {
    const Scope scope(layers.graph(), "block12", ScopeKind::block);
    x = halving_block(layers, x, {728, 1024});
  }
  x = layers.act(separable(layers, x, "conv3", "bn3", 1536), Act::relu);
  x = layers.act(separable(layers, x, "conv4", "bn4", 2048), Act::relu);
  return layers.logits(layers.pooled(x), "fc", classes);
}

constexpr Network table[] = {{.name = "xception", .build = build, .least_size = 7}};

}  // namespace

std::span<const Network> xceptions() { return table; }

}  // namespace ridge::vision
