#pragma once

// Activations of one element, in f32: what several kernels apply.

#include "ridge/base/normal_tail.h"
#include "ridge/gpu/device/runtime.h"

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

struct Relu6Of {
  __device__ float operator()(float x) const { return x < 0.0f ? 0.0f : (x > 6.0f ? 6.0f : x); }
};

struct Relu6GradOf {
  __device__ float operator()(float dy, float x) const { return x > 0.0f && x < 6.0f ? dy : 0.0f; }
};

struct SigmoidOf {
  __device__ float operator()(float x) const { return sigmoid(x); }
};

struct SigmoidGradOf {
  __device__ float operator()(float dy, float x) const {
    const float s = sigmoid(x);
    return dy * s * (1.0f - s);
  }
};

struct HardSigmoidOf {
  __device__ float operator()(float x) const { return Relu6Of()(x + 3.0f) * (1.0f / 6.0f); }
};

struct HardSigmoidGradOf {
  __device__ float operator()(float dy, float x) const {
    return x > -3.0f && x < 3.0f ? dy * (1.0f / 6.0f) : 0.0f;
  }
};

struct HardSwishOf {
  __device__ float operator()(float x) const { return x * HardSigmoidOf()(x); }
};

struct HardSwishGradOf {
  __device__ float operator()(float dy, float x) const {
    return dy * (x <= -3.0f ? 0.0f : (x >= 3.0f ? 1.0f : x * (1.0f / 3.0f) + 0.5f));
  }
};

// The normal distribution: of its tail beyond |x|, and the density at x.
struct Normal {
  float tail, density;

  __device__ explicit Normal(float x) {
    const float t = __fdividef(1.0f, 1.0f + normal_tail_scale * fabsf(x));
    const float exponential = __expf(-0.5f * x * x);
    tail = 0.5f * normal_tail(t) * exponential;
    density = normal_density_scale * exponential;
  }
  __device__ float below(float x) const { return x < 0.0f ? tail : 1.0f - tail; }
};

struct GeluOf {
  __device__ float operator()(float x) const { return x * Normal(x).below(x); }
};

struct GeluGradOf {
  __device__ float operator()(float dy, float x) const {
    const Normal normal(x);
    return dy * (normal.below(x) + x * normal.density);
  }
};

struct ExpOf {
  __device__ float operator()(float x) const { return expf(x); }
};

struct ExpGradOf {
  __device__ float operator()(float dy, float x) const { return dy * expf(x); }
};

struct SqrtOf {
  __device__ float operator()(float x) const { return sqrtf(x); }
};

struct SqrtGradOf {
  __device__ float operator()(float dy, float x) const { return dy * 0.5f / sqrtf(x); }
};

struct ExpCappedOf {
  __device__ float operator()(float x) const {
    const float y = expf(x);
    return y > 100.0f ? 100.0f : y;
  }
};

struct ExpCappedGradOf {
  __device__ float operator()(float dy, float x) const {
    const float y = expf(x);
    return y <= 100.0f ? dy * y : 0.0f;
  }
};

struct TanhOf {
  __device__ float operator()(float x) const { return tanhf(x); }
};

struct TanhGradOf {
  __device__ float operator()(float dy, float x) const {
    const float y = tanhf(x);
    return dy * (1.0f - y * y);
  }
};

}  // namespace ridge::gpu
