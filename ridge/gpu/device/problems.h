#pragma once

// What kernels of several origins, ours and the vendor's, are asked to compute.

#include <cstddef>
#include <cstdint>
#include <string>

#include "ridge/base/dtype.h"
#include "ridge/ops/conv.h"

namespace ridge::gpu {

// Flash attention: operands of 16 bits, float accumulation and softmax, and no matrix of scores in
// memory. y = softmax(scale q k^T + mask) v for each head; query heads h n_kv_heads / n_heads share
// key head kv without it being repeated. Queries and keys are of one sequence.
struct FlashShape {
  std::int64_t batch = 0, seq = 0;
  std::int64_t n_heads = 0, n_kv_heads = 0;  // n_heads is a multiple of n_kv_heads
  std::int64_t head_dim = 0;                 // 32, 64 or 128
  float scale = 1;
  bool causal = false;
  DType dtype = DType::bf16;  // of all operands and results but lse; or f16
};

// On the device. Head h of position s, counted through the batch (b * seq + s), is head_dim
// contiguous elements at element s * stride + h * head_dim; so columns of one packed matrix will
// do.
struct FlashOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  // The table [seq, head_dim / 2] of float pairs (cos, sin) by which a rotary embedding rotates
  // columns (2i, 2i + 1) of q and k on their way in; only for kernels that rotates() says
  // do so.
  const float* rotation = nullptr;
};

// Where the backward pass writes (overwrites), laid out like FlashOperands. With a `rotation`, the
// table by which q and k were rotated, beforehand or on their way in, dq and dk are those of q and
// k before it.
struct FlashGradients {
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  const float* rotation = nullptr;
};

// A convolution with what Conv2d does to its result, or a gradient of one.
struct ConvProblem {
  enum class Kind : std::uint8_t { forward, input_grad, weight_grad };

  Kind kind = Kind::forward;
  ConvGeometry geometry;
  ImageShape x, y, weight;  // of the weight: O, C / G, R, S
  DType dtype = DType::f32;
  bool bias = false, residual = false;
  Epilogue epilogue = Epilogue::none;
  bool tf32 = false;  // whether f32 may be rounded to it
  bool deterministic = false;
};

// Whether cuDNN has kernels for what follows the convolution; for all else it compiles one when a
// plan is prepared, most of a second long.
inline bool is_ready_made(const ConvProblem& problem) {
  return !problem.residual &&
         (problem.epilogue == Epilogue::none || problem.epilogue == Epilogue::relu);
}

// All that a choice of its kernel depends on: "bf16[32, 56, 56, 64] to 256, 1 x 1, bias, relu".
std::string to_string(const ConvProblem& problem);

// Aligned to 16 bytes. Of the kind forward y is written, of the others x or weight is; bias and
// residual are null where there is none.
struct ConvPointers {
  const void *x, *weight, *y;
  const void *bias = nullptr, *residual = nullptr;
};

}  // namespace ridge::gpu
