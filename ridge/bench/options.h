#pragma once

#include <cstdint>
#include <string>

#include "ridge/base/dtype.h"

namespace ridge {

// What `ridge bench` measures.
struct BenchOptions {
  std::string network = "resnet50";
  std::int64_t batch_size = 64;
  std::int64_t iterations = 20;
  std::int64_t warmup = 5;      // iterations before those that count
  std::int64_t image_size = 0;  // rows and columns; 0: the network's own
  std::string dtype = "fp32";
  std::string mode = "inference";      // or training: forward, backward and an SGD step
  std::string compile = "none";        // or default, reduce-overhead, max-autotune
  std::string channels_last = "auto";  // or on, off
  std::string weights;                 // a safetensors file; empty: drawn from the seed
  std::string device = "auto";
  std::int64_t threads = 0;  // processors to use; 0: all this process may
  std::int64_t seed = 42;    // decides weights and images
  // Of training, by SGD.
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 0.0;
  std::string data;  // of ImageData, to learn; empty: one batch of random images

  // UsageError naming the first that makes no sense, with the reason.
  void check() const;
  // In int8 that of what stays in floating point on a processor; see bench/calibration.h.
  DType compute_dtype() const;
  bool trains() const { return mode == "training"; }
};

}  // namespace ridge
