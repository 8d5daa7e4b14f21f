#pragma once

// The two halves of the backward pass of flash attention, which FlashBackward says how to use. dK
// and dV come from blocks that own keys; dQ either from blocks that own queries and compute the
// scores again, or summed over key tiles, in no fixed order, by the blocks that own keys.

#include <cuda_runtime.h>

#include <cstddef>

#include "ridge/gpu/kernels/attention/flash.h"

namespace ridge::gpu::sm90 {

struct BackwardCall {
  const FlashShape& shape;
  const FlashOperands& operands;
  const void* y;
  const float* lse;
  const void* dy;
  const FlashGradients& gradients;
  cudaStream_t stream;
  // Where operands have scales: these, and delta, which else comes from dy and y. Else null.
  const float* scale = nullptr;
  const float* dy_scale = nullptr;
  const float* delta = nullptr;

  bool scaled() const { return scale != nullptr; }
};

// dP of scaled operands is a sum of at most 128 products of two numbers below 2^16, which is scaled
// down by this on its way to dS in f16.
inline constexpr float score_gradient_scale = 0x1p-25f;
// And where keys are rows, P is larger by 2 to this power: small probabilities of long rows keep
// their bits.
inline constexpr float probability_shift = 10;

// What both halves keep in the workspace: for each [batch, n_heads, padded_seq] the pair
// (lse log2(e), delta) with delta = rowsum(dY Y). Rows past the end have an infinite lse, so that
// their probabilities are zero.
inline constexpr std::int64_t padded_rows = 128;  // padded_seq is a multiple
inline std::int64_t padded_seq(const FlashShape& shape) {
  return (shape.seq + padded_rows - 1) / padded_rows * padded_rows;
}

// dQ, and the row statistics. Of scaled operands these are lse log2(e) - probability_shift, and
// delta in the units of dS divided by 2^probability_shift.
void backward_queries(const BackwardCall& call, float2* stats);

// dK and dV, given the row statistics.
void backward_keys(const BackwardCall& call, const float2* stats);

// The query tiles by which dQ is summed: of 64 rows, a half of whose columns is each warpgroup's;
// or of 128, a half of whose rows is.
constexpr int summed_queries(int head_dim) { return head_dim == 128 ? 64 : 128; }

// Before and after the sum: the row statistics, and zeros for dQ; dQ scaled and rounded.
void prepare_sum(const BackwardCall& call, float2* stats, float* dq);
void finish_sum(const BackwardCall& call, const float* dq);

// dQ, dK, dV and the row statistics; `dq` is float [batch * n_heads * padded_seq * head_dim].
void backward_summed(const BackwardCall& call, float2* stats, float* dq);

}  // namespace ridge::gpu::sm90
