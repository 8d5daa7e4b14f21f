#pragma once

// Activations of one element, in f32: what several kernels apply.

#include "ridge/gpu/runtime.h"

namespace ridge::gpu {

// To 2 units in the last place beside what __expf leaves.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

struct SiluOf {
  __device__ float operator()(float x) const { return x * sigmoid(x); }
};

struct SiluGradOf {
  __device__ float operator()(float dy, float x) const {
    const float s = sigmoid(x);
    return dy * s * (1.0f + x * (1.0f - s));
  }
};

// Written so that NaN stays NaN.
struct ReluOf {
  __device__ float operator()(float x) const { return x < 0.0f ? 0.0f : x; }
};

struct ReluGradOf {
  __device__ float operator()(float dy, float y) const { return y > 0.0f ? dy : 0.0f; }
};

}  // namespace ridge::gpu
