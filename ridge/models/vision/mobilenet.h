#pragma once

#include "ridge/models/vision/layers.h"

namespace ridge::vision {

// What segmentation builds on: the features of MobileNet v3 large at an eighth and, its last stage
// dilated instead of strided, a sixteenth of the image's extent.
struct MobileNetFeatures {
  Value low;   // [N, 40, H / 8, W / 8]
  Value high;  // [N, 960, H / 16, W / 16]
};
MobileNetFeatures dilated_mobilenet_features(const Layers& layers, Value images);

}  // namespace ridge::vision
