#pragma once

// The networks of the vision benchmark. Each family has a file beside this with its table; the
// names and what they build are those of torchvision, where it has them.

#include <cstdint>
#include <span>
#include <string_view>

#include "ridge/graph/graph.h"

namespace ridge::vision {

class Layers;  // models/vision/layers.h

struct Network {
  std::string_view name;  // "resnet50"
  // Images [N, 3, H, W] to logits: [N, classes], or [N, classes, H, W] if it segments.
  Value (*build)(const Layers& layers, Value images, std::int64_t classes);
  std::int64_t input_size = 224;  // rows and columns that it is usually given
  std::int64_t classes = 1000;
  std::int64_t least_size = 1;  // of an image that leaves something at the end
};

// Another name for one.
struct Alias {
  std::string_view name, of;
};

std::span<const Network> alexnet();
std::span<const Network> convnexts();
std::span<const Network> densenets();
std::span<const Network> efficientnets();
std::span<const Network> inceptions();  // and googlenet
std::span<const Network> maxvits();
std::span<const Network> mnasnets();
std::span<const Network> mobilenets();
std::span<const Network> regnets();
std::span<const Network> resnets();
std::span<const Network> segmenters();
std::span<const Network> shufflenets();
std::span<const Network> squeezenets();
std::span<const Network> swins();
std::span<const Network> vgg();
std::span<const Network> vits();
std::span<const Network> xceptions();

// All of them, in the order in which networks are listed.
inline constexpr std::span<const Network> (*families[])() = {
    alexnet,       densenets,   inceptions, mnasnets,  mobilenets, resnets,
    shufflenets,   squeezenets, vgg,        xceptions, swins,      vits,
    efficientnets, maxvits,     regnets,    convnexts, segmenters};

}  // namespace ridge::vision
