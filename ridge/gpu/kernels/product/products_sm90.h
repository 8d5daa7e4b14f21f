#pragma once

// Products by Hopper's own instructions, from ridge/gpu/sm90: of 16 bits, accumulated in f32.

#include <cstdint>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/ops/epilogue.h"

namespace ridge::gpu {

// A product, in need of no workspace; null for cards other than Hopper, for batches, for operands
// of other than 16 bits, and for extents that the copy engine cannot take: those along which
// matrices are stored must be multiples of 8.
ProductPtr product90(const Context& gpu, const ProductShape& shape);

// A product of f32 operands by way of three bf16 pieces of each (gpu/pieces.h), which lie in its
// workspace, some rows or terms at a time; to f32's accuracy, and the same bits always. c must be
// f32. Null for cards other than Hopper, for batches, and where the workspace would be more than
// 384 MiB.
ProductPtr piece_product90(const Context& gpu, const ProductShape& shape);

// A product of [m, k] with the feed-forward's gate of `intermediate` columns behind it.
struct GateProduct {
  std::int64_t m = 0, intermediate = 0, k = 0;
  DType dtype = DType::bf16;  // of all that is multiplied and computed
};

// Whether there are kernels for the two below: for Hopper, in bf16 and f16, if `intermediate` is a
// multiple of 64 and k one of 8.
bool gate_products90_support(const Context& gpu, const GateProduct& shape);

// packed[m, 2 intermediate] = x[m, k] weight[2 intermediate, k]^T, gate and up side by side, and
// y[m, intermediate] = silu(gate) * up. All at multiples of 16 bytes. Enqueues; DeviceError.
void swiglu_product90(const Context& gpu, const GateProduct& shape, const void* x,
                      const void* weight, void* packed, void* y);

// With dy[m, intermediate] = g[m, k] weight[k, intermediate], and gate and up side by side in
// packed: dpacked[m, 2 intermediate] = (dgate, dup), see ops/swiglu.h; it may be packed. y, if not
// null, is silu(gate) * up once more. `way` of as many as there are; the rest as above.
inline constexpr int swiglu_grad_product90_ways = 2;
void swiglu_grad_product90(const Context& gpu, const GateProduct& shape, int way, const void* g,
                           const void* weight, const void* packed, void* dpacked, void* y);

// y[m, n] = epilogue(x[m, k] weight[n, k]^T + bias[n] + residual[m, n]), row-major and dense; all
// bf16 or all f16. GELU is the exact one.
struct LinearProduct {
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::bf16;
  Epilogue epilogue = Epilogue::none;
};

// Whether there are kernels for it: for Hopper, if n and k are multiples of 8.
bool linear_product90_supports(const Context& gpu, const LinearProduct& shape);

// `bias` and `residual` are left out where they are null; y may be residual. All at multiples of 16
// bytes. `way` of as many as there are: they differ in their tiles, so that each is the fastest for
// some extents. Enqueues; DeviceError.
inline constexpr int linear_product90_ways = 4;
// The one whose tiles go round most evenly.
int linear_product90_expected_best(const Context& gpu, const LinearProduct& shape);
void linear_product90(const Context& gpu, const LinearProduct& shape, int way, const void* x,
                      const void* weight, const void* bias, const void* residual, void* y);

}  // namespace ridge::gpu
