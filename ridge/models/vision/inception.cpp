// Szegedy et al.: "Going deeper with convolutions" (2014), with batch norm and a 3 x 3 kernel where
// the paper has 5 x 5, as its published weights do; "Rethinking the Inception architecture for
// computer vision" (2015). Both without the auxiliary classifiers of their training.

#include "ridge/models/vision/layers.h"
#include "ridge/models/vision/network.h"
#include "ridge/ops/join.h"

namespace ridge::vision {
namespace {

Value conv(const Layers& layers, Value x, std::string_view name, const ConvOptions& options) {
  const Scope scope(layers.graph(), name);
  return layers.conv_norm(x, "conv", "bn", options, Act::relu, {.eps = 1e-3f});
}

Value join(std::initializer_list<Value> branches) { return concat(branches, 1); }

// GoogLeNet ---------------------------------------------------------------------------------------

// Channels: of the 1 x 1 branch; before and in the two 3 x 3 branches; after the pooling.
struct Branches {
  std::int64_t one, before_three, three, before_five, five, pool;
};

Value inception(const Layers& layers, Value x, std::string_view name, const Branches& b) {
  const Scope scope(layers.graph(), name, ScopeKind::block);
  const Value one = conv(layers, x, "branch1", {.out = b.one});
  const Value three = conv(layers, conv(layers, x, "branch2.0", {.out = b.before_three}),
                           "branch2.1", {.out = b.three, .kernel = 3});
  const Value five = conv(layers, conv(layers, x, "branch3.0", {.out = b.before_five}), "branch3.1",
                          {.out = b.five, .kernel = 3});
  const Value pooled = layers.max_pool(x, {.kernel = 3, .stride = 1, .padding = 1, .ceil = true});
  return join({one, three, five, conv(layers, pooled, "branch4.1", {.out = b.pool})});
}

Value googlenet(const Layers& layers, Value images, std::int64_t classes) {
  constexpr PoolOptions halving{.kernel = 3, .stride = 2, .ceil = true};
  Value x = conv(layers, images, "conv1", {.out = 64, .kernel = 7, .stride = 2});
  x = layers.max_pool(x, halving);
  x = conv(layers, x, "conv2", {.out = 64});
  x = layers.max_pool(conv(layers, x, "conv3", {.out = 192, .kernel = 3}), halving);
  x = inception(layers, x, "inception3a", {64, 96, 128, 16, 32, 32});
  x = inception(layers, x, "inception3b", {128, 128, 192, 32, 96, 64});
  x = layers.max_pool(x, halving);
  x = inception(layers, x, "inception4a", {192, 96, 208, 16, 48, 64});
  x = inception(layers, x, "inception4b", {160, 112, 224, 24, 64, 64});
  x = inception(layers, x, "inception4c", {128, 128, 256, 24, 64, 64});
  x = inception(layers, x, "inception4d", {112, 144, 288, 32, 64, 64});
  x = inception(layers, x, "inception4e", {256, 160, 320, 32, 128, 128});
  x = layers.max_pool(x, {.kernel = 2, .stride = 2, .ceil = true});
  x = inception(layers, x, "inception5a", {256, 160, 320, 32, 128, 128});
  x = inception(layers, x, "inception5b", {384, 192, 384, 48, 128, 128});
  return layers.logits(layers.dropout(layers.pooled(x), 0.2f), "fc", classes);
}

// Inception v3 ------------------------------------------------------------------------------------

constexpr Both across{1, 7}, down{7, 1};

Value same_pool(const Layers& layers, Value x) {
  return layers.avg_pool(x, {.kernel = 3, .stride = 1, .padding = 1});
}

Value halved(const Layers& layers, Value x) {
  return layers.max_pool(x, {.kernel = 3, .stride = 2});
}

// Three 3 x 3 convolutions in two branches.
Value block_a(const Layers& layers, Value x, std::string_view name, std::int64_t pool_channels) {
  const Scope scope(layers.graph(), name, ScopeKind::block);
  const Value one = conv(layers, x, "branch1x1", {.out = 64});
  const Value five = conv(layers, conv(layers, x, "branch5x5_1", {.out = 48}), "branch5x5_2",
                          {.out = 64, .kernel = 5});
  Value three = conv(layers, x, "branch3x3dbl_1", {.out = 64});
  three = conv(layers, three, "branch3x3dbl_2", {.out = 96, .kernel = 3});
  three = conv(layers, three, "branch3x3dbl_3", {.out = 96, .kernel = 3});
  const Value pool = conv(layers, same_pool(layers, x), "branch_pool", {.out = pool_channels});
  return join({one, five, three, pool});
}

Value block_b(const Layers& layers, Value x, std::string_view name) {
  const Scope scope(layers.graph(), name, ScopeKind::block);
  const ConvOptions half{.out = 96, .kernel = 3, .stride = 2, .padding = 0};
  const Value three =
      conv(layers, x, "branch3x3", {.out = 384, .kernel = 3, .stride = 2, .padding = 0});
  Value twice = conv(layers, x, "branch3x3dbl_1", {.out = 64});
  twice = conv(layers, twice, "branch3x3dbl_2", {.out = 96, .kernel = 3});
  return join({three, conv(layers, twice, "branch3x3dbl_3", half), halved(layers, x)});
}

// 7 x 7 windows as products of 1 x 7 and 7 x 1.
Value block_c(const Layers& layers, Value x, std::string_view name, std::int64_t channels) {
  const Scope scope(layers.graph(), name, ScopeKind::block);
  const Value one = conv(layers, x, "branch1x1", {.out = 192});
  Value seven = conv(layers, x, "branch7x7_1", {.out = channels});
  seven = conv(layers, seven, "branch7x7_2", {.out = channels, .kernel = across});
  seven = conv(layers, seven, "branch7x7_3", {.out = 192, .kernel = down});
  Value twice = conv(layers, x, "branch7x7dbl_1", {.out = channels});
  twice = conv(layers, twice, "branch7x7dbl_2", {.out = channels, .kernel = down});
  twice = conv(layers, twice, "branch7x7dbl_3", {.out = channels, .kernel = across});
  twice = conv(layers, twice, "branch7x7dbl_4", {.out = channels, .kernel = down});
  twice = conv(layers, twice, "branch7x7dbl_5", {.out = 192, .kernel = across});
  const Value pool = conv(layers, same_pool(layers, x), "branch_pool", {.out = 192});
  return join({one, seven, twice, pool});
}

Value block_d(const Layers& layers, Value x, std::string_view name) {
  const Scope scope(layers.graph(), name, ScopeKind::block);
  Value three = conv(layers, x, "branch3x3_1", {.out = 192});
  three = conv(layers, three, "branch3x3_2", {.out = 320, .kernel = 3, .stride = 2, .padding = 0});
  Value seven = conv(layers, x, "branch7x7x3_1", {.out = 192});
  seven = conv(layers, seven, "branch7x7x3_2", {.out = 192, .kernel = across});
  seven = conv(layers, seven, "branch7x7x3_3", {.out = 192, .kernel = down});
  seven =
      conv(layers, seven, "branch7x7x3_4", {.out = 192, .kernel = 3, .stride = 2, .padding = 0});
  return join({three, seven, halved(layers, x)});
}

Value block_e(const Layers& layers, Value x, std::string_view name) {
  const Scope scope(layers.graph(), name, ScopeKind::block);
  const ConvOptions row{.out = 384, .kernel = {1, 3}}, column{.out = 384, .kernel = {3, 1}};
  const Value one = conv(layers, x, "branch1x1", {.out = 320});
  const Value three = conv(layers, x, "branch3x3_1", {.out = 384});
  Value twice = conv(layers, x, "branch3x3dbl_1", {.out = 448});
  twice = conv(layers, twice, "branch3x3dbl_2", {.out = 384, .kernel = 3});
  const Value three_a = conv(layers, three, "branch3x3_2a", row);
  const Value three_b = conv(layers, three, "branch3x3_2b", column);
  const Value twice_a = conv(layers, twice, "branch3x3dbl_3a", row);
  const Value twice_b = conv(layers, twice, "branch3x3dbl_3b", column);
  const Value pool = conv(layers, same_pool(layers, x), "branch_pool", {.out = 192});
  return join({one, join({three_a, three_b}), join({twice_a, twice_b}), pool});
}

Value inception_v3(const Layers& layers, Value images, std::int64_t classes) {
  Value x =
      conv(layers, images, "Conv2d_1a_3x3", {.out = 32, .kernel = 3, .stride = 2, .padding = 0});
  x = conv(layers, x, "Conv2d_2a_3x3", {.out = 32, .kernel = 3, .padding = 0});
  x = halved(layers, conv(layers, x, "Conv2d_2b_3x3", {.out = 64, .kernel = 3}));
  x = conv(layers, x, "Conv2d_3b_1x1", {.out = 80});
  x = halved(layers, conv(layers, x, "Conv2d_4a_3x3", {.out = 192, .kernel = 3, .padding = 0}));
  x = block_a(layers, x, "Mixed_5b", 32);
  x = block_a(layers, x, "Mixed_5c", 64);
  x = block_a(layers, x, "Mixed_5d", 64);
  x = block_b(layers, x, "Mixed_6a");
  x = block_c(layers, x, "Mixed_6b", 128);
  x = block_c(layers, x, "Mixed_6c", 160);
  x = block_c(layers, x, "Mixed_6d", 160);
  x = block_c(layers, x, "Mixed_6e", 192);
  x = block_d(layers, x, "Mixed_7a");
  x = block_e(layers, x, "Mixed_7b");
  x = block_e(layers, x, "Mixed_7c");
  return layers.logits(layers.dropout(layers.pooled(x), 0.5f), "fc", classes);
}

constexpr Network table[] = {
    {.name = "googlenet", .build = googlenet, .least_size = 31},
    {.name = "inception_v3", .build = inception_v3, .input_size = 299, .least_size = 75},
};

}  // namespace

std::span<const Network> inceptions() { return table; }

}  // namespace ridge::vision
