#pragma once

// Products by the instructions of sm90, from ridge/gpu/sm90: of 16 bits, accumulated in f32.

#include <cstdint>
#include <string>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/ops/epilogue.h"

namespace ridge::gpu {

// A product, in need of no workspace; null for cards other than sm90, for batches, for operands of
// other than 16 bits, and for extents that the copy engine cannot take: those along which matrices
// are stored must be multiples of 8.
ProductPtr product_sm90(const Context& gpu, const ProductShape& shape);

// A product of f32 operands by way of three bf16 components of each (kernels/product/split_bf16.h),
// which lie in its workspace, some rows or terms at a time; to f32's accuracy, and the same bits
// always. c must be f32. Null for cards other than sm90, for batches, and where the workspace would
// be more than Crossovers::split_workspace_bytes.
ProductPtr split_product_sm90(const Context& gpu, const ProductShape& shape);

// A product of [m, k] with the feed-forward's gate of `intermediate` columns behind it.
struct GateProduct {
  std::int64_t m = 0, intermediate = 0, k = 0;
  DType dtype = DType::bf16;  // of all that is multiplied and computed
};

// Whether there are kernels for the two below: on sm90, in bf16 and f16, if `intermediate` is a
// multiple of 64 and k one of 8.
bool gate_products_sm90_support(const Context& gpu, const GateProduct& shape);

// packed[m, 2 intermediate] = x[m, k] weight[2 intermediate, k]^T, gate and up side by side, and
// y[m, intermediate] = silu(gate) * up. All at multiples of 16 bytes. Enqueues; DeviceError.
void swiglu_product_sm90(const Context& gpu, const GateProduct& shape, const void* x,
                         const void* weight, void* packed, void* y);

// What the shared memory beside a gradient's product is for: loading gate and up further ahead, or
// more stages of the product's operands. Which is faster depends on how long the product is.
enum class GradBuffers : std::uint8_t { more_ahead, more_stages };

// With dy[m, intermediate] = g[m, k] weight[k, intermediate], and gate and up side by side in
// packed: dpacked[m, 2 intermediate] = (dgate, dup), see ops/swiglu.h; it may be packed. y, if not
// null, is silu(gate) * up once more. The rest as above.
void swiglu_grad_product_sm90(const Context& gpu, const GateProduct& shape, GradBuffers buffers,
                              const void* g, const void* weight, const void* packed, void* dpacked,
                              void* y);

// y[m, n] = epilogue(x[m, k] weight[n, k]^T + bias[n] + residual[m, n]), row-major and dense; all
// bf16 or all f16. GELU is the exact one.
struct LinearProduct {
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::bf16;
  Epilogue epilogue = Epilogue::none;
};

// Whether there are kernels for it: on sm90, if n and k are multiples of 8.
bool linear_product_sm90_supports(const Context& gpu, const LinearProduct& shape);

// How y is cut: tiles of 128 x `columns`, of which a pair of thread blocks computes two side by
// side, or one above the other.
struct LinearTiles {
  int columns = 128;
  bool side_by_side = true;
  bool operator==(const LinearTiles&) const = default;
};
std::string to_string(const LinearTiles& tiles);

// Those that there are kernels for.
inline constexpr LinearTiles linear_tiles[] = {{128, true}, {128, false}, {64, false}, {192, true}};
// Those that go round most evenly.
LinearTiles linear_product_sm90_expected_best(const Card& card, const LinearProduct& shape);

// `bias` and `residual` are left out where they are null; y may be residual. All at multiples of 16
// bytes. Enqueues; DeviceError.
void linear_product_sm90(const Context& gpu, const LinearProduct& shape, const LinearTiles& tiles,
                         const void* x, const void* weight, const void* bias, const void* residual,
                         void* y);

}  // namespace ridge::gpu
