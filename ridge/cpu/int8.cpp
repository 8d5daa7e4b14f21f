#include "ridge/ops/int8.h"

#include <algorithm>
#include <cmath>

#include "ridge/cpu/conv.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {

KernelPtr Int8Quantize::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return map_elements<T, Int8>(prepare,
                                 [inverse = 1.0f / scale](float x) { return x * inverse; });
  });
}

namespace {

// One kernel of a weight.
template <class T>
void quantize_row(const T* w, std::int64_t n, Int8* q, float* scale) {
  float amax = 0;
#pragma omp simd reduction(max : amax)
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = std::abs(load(&w[i]));
    amax = magnitude > amax ? magnitude : amax;
  }
  const float s = int8_scale(amax);
  *scale = s;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(&q[i], load(&w[i]) / s);
}

}  // namespace

KernelPtr Int8Weights::cpu(CpuPrepare& prepare) const {
  const std::int64_t kernels = prepare.in[0].shape[0];
  const std::int64_t length = prepare.in[0].numel() / std::max<std::int64_t>(kernels, 1);
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return make_kernel([&pool = prepare.pool, kernels, length](const Launch& call) {
      const T* w = call.in<T>(0);
      Int8* q = call.out<Int8>(0);
      float* scales = call.out<float>(1);
      parallel_for(pool, kernels, rows_per_task(length), [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t o = begin; o < end; ++o)
          quantize_row(w + o * length, length, q + o * length, scales + o);
      });
    });
  });
}

KernelPtr Int8Conv2d::cpu(CpuPrepare& prepare) const {
  const ConvShape shape{
      .geometry = *this,
      .x = {prepare.in[0].shape, layout},
      .y = {prepare.out[0].shape, layout},
      .weight = {prepare.in[1].shape, layout},
      .weight_layout = layout,
      .dtype = DType::s8,
      .residual = residual,
      .epilogue = epilogue,
      .int8 = Int8Scales{.out = out, .x = x_scale, .residual = residual_scale, .y = y_scale}};
  return conv_kernel(prepare, shape, [](const Launch& call, const ConvShape& s) {
    constexpr Operands at;
    return ConvOperands{const_cast<void*>(call.inputs[at.x]),
                        const_cast<void*>(call.inputs[at.weight]),
                        call.outputs[0],
                        call.inputs[at.bias],
                        s.residual ? call.inputs[at.residual] : nullptr,
                        call.in<float>(at.weight_scale)};
  });
}

}  // namespace ridge
