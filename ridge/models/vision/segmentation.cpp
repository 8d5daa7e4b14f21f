// Long, Shelhamer, Darrell: "Fully convolutional networks for semantic segmentation" (2014); Chen
// et al.: "Rethinking atrous convolution for semantic image segmentation" (2017); Howard et al.:
// "Searching for MobileNetV3" (2019), whose head LR-ASPP is.

#include <fmt/format.h>

#include <vector>

#include "ridge/models/vision/mobilenet.h"
#include "ridge/models/vision/network.h"
#include "ridge/models/vision/resnet.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/join.h"
#include "ridge/ops/resize.h"

namespace ridge::vision {
namespace {

Value resized_like(Value x, Value image) { return resize(x, {image.shape()[2], image.shape()[3]}); }

constexpr ResNetConfig dilated(ResNetConfig config) {
  config.dilated = true;
  return config;
}

template <ResNetConfig config>
Value resnet_backbone(const Layers& layers, Value images) {
  const Scope scope(layers.graph(), "backbone");
  return resnet_features(layers, images, dilated(config));
}

Value mobilenet_backbone(const Layers& layers, Value images) {
  const Scope scope(layers.graph(), "backbone");
  return dilated_mobilenet_features(layers, images).high;
}

Value fcn_head(const Layers& layers, Value x, std::int64_t classes) {
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  x = layers.conv_norm(x, "0", "1", {.out = x.shape()[1] / 4, .kernel = 3}, Act::relu);
  return layers.conv(layers.dropout(x, 0.1f), "4",
                     {.out = classes, .bias = true, .fresh = Fresh::linear});
}

// Pyramid of dilations: the same features seen at five scales.
Value atrous_pyramid(const Layers& layers, Value x) {
  constexpr std::int64_t channels = 256;
  std::vector<Value> scales{layers.conv_norm(x, "convs.0", {.out = channels}, Act::relu)};
  for (const std::int64_t rate : {12, 24, 36})
    scales.push_back(layers.conv_norm(x, fmt::format("convs.{}", scales.size()),
                                      {.out = channels, .kernel = 3, .dilation = rate}, Act::relu));
  const Value mean =
      layers.conv_norm(layers.mean_pool(x), "convs.4.1", "convs.4.2", {.out = channels}, Act::relu);
  scales.push_back(resized_like(mean, x));
  x = layers.conv_norm(concat(scales, 1), "project", {.out = channels}, Act::relu);
  return layers.dropout(x, 0.5f);
}

Value deeplab_head(const Layers& layers, Value x, std::int64_t classes) {
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  {
    const Scope pyramid(layers.graph(), "0");
    x = atrous_pyramid(layers, x);
  }
  x = layers.conv_norm(x, "1", "2", {.out = 256, .kernel = 3}, Act::relu);
  return layers.conv(x, "4", {.out = classes, .bias = true, .fresh = Fresh::linear});
}

template <Value (*backbone)(const Layers&, Value),
          Value (*head)(const Layers&, Value, std::int64_t)>
Value build(const Layers& layers, Value images, std::int64_t classes) {
  return resized_like(head(layers, backbone(layers, images), classes), images);
}

Value lraspp(const Layers& layers, Value images, std::int64_t classes) {
  MobileNetFeatures features;
  {
    const Scope scope(layers.graph(), "backbone");
    features = dilated_mobilenet_features(layers, images);
  }
  const auto [low, high] = features;
  const Scope scope(layers.graph(), "classifier", ScopeKind::head);
  Value x = layers.conv_norm(high, "cbr", {.out = 128}, Act::relu);
  const Value weights = layers.conv(layers.mean_pool(high), "scale.1", {.out = 128});
  x = resized_like(mul(x, layers.act(weights, Act::sigmoid)), low);
  const ConvOptions classify{.out = classes, .bias = true, .fresh = Fresh::linear};
  const Value coarse = layers.conv(x, "high_classifier", classify);
  return resized_like(add(layers.conv(low, "low_classifier", classify), coarse), images);
}

constexpr std::int64_t voc_classes = 21;  // of Pascal VOC, with the background

constexpr Network table[] = {
    {.name = "fcn_resnet50",
     .build = build<resnet_backbone<resnet50>, fcn_head>,
     .classes = voc_classes},
    {.name = "fcn_resnet101",
     .build = build<resnet_backbone<resnet101>, fcn_head>,
     .classes = voc_classes},
    {.name = "deeplabv3_resnet50",
     .build = build<resnet_backbone<resnet50>, deeplab_head>,
     .classes = voc_classes},
    {.name = "deeplabv3_resnet101",
     .build = build<resnet_backbone<resnet101>, deeplab_head>,
     .classes = voc_classes},
    {.name = "deeplabv3_mobilenet_v3_large",
     .build = build<mobilenet_backbone, deeplab_head>,
     .classes = voc_classes},
    {.name = "lraspp_mobilenet_v3_large", .build = lraspp, .classes = voc_classes},
};

}  // namespace

std::span<const Network> segmenters() { return table; }

}  // namespace ridge::vision
