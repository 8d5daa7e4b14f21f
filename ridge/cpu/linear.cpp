#include "ridge/ops/linear.h"

#include "ridge/cpu/activation.h"
#include "ridge/cpu/conv.h"
#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/gemm.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// The product leaves f32: in y itself, or, where y is rounded, in the workspace. What follows is
// done tile by tile, as the tiles are made.
template <class T, class F>
KernelPtr kernel(const Linear& op, CpuPrepare& prepare, const F& function) {
  const auto [m, n, k] = linear_extents(prepare.in);
  constexpr bool rounds = sizeof(T) < sizeof(float);
  GemmPtr gemm = chosen_gemm(
      {.m = m, .n = n, .k = k, .trans_b = true, .in = prepare.in[0].dtype, .out = DType::f32},
      prepare);
  const std::size_t gemm_bytes = (prepare.workspace + 63) / 64 * 64;
  if (rounds) prepare.workspace = gemm_bytes + static_cast<std::size_t>(m * n) * sizeof(float);
  return make_kernel([&pool = prepare.pool, gemm = std::move(gemm), op, n, gemm_bytes,
                      function](const Launch& call) {
    T* const y = call.out<T>();
    float* sums = nullptr;
    if constexpr (rounds)
      sums = reinterpret_cast<float*>(static_cast<std::byte*>(call.workspace) + gemm_bytes);
    else
      sums = y;
    const Linear::Operands at = op.operands();
    const T* const bias = op.bias ? call.in<T>(at.bias) : nullptr;
    const T* const residual = op.residual ? call.in<T>(at.residual) : nullptr;
    gemm->run(pool, call.inputs[at.x], call.inputs[at.weight], sums, call.workspace,
              [=](const GemmTile& tile) {
                for (std::int64_t i = tile.row; i < tile.row + tile.rows; ++i) {
                  const std::int64_t first = i * n + tile.column;
                  finish_row(sums + first, bias ? bias + tile.column : nullptr,
                             residual ? residual + first : nullptr, y + first, tile.columns,
                             function);
                }
              });
  });
}

// The layer as a convolution with kernels of one pixel, of an image whose rows are the layer's.
ConvShape conv_shape(const Linear& op, const LinearExtents& e, DType dtype) {
  return {.geometry = {.layout = ImageLayout::nhwc},
          .x = {1, e.k, e.m, 1},
          .y = {1, e.n, e.m, 1},
          .weight = {e.n, e.k, 1, 1},
          .weight_layout = ImageLayout::nhwc,
          .dtype = dtype,
          .bias = op.bias,
          .residual = op.residual,
          .epilogue = op.epilogue};
}

}  // namespace

// Where the weights stay the same the convolution is faster than any product that packs them anew.
KernelPtr Linear::cpu(CpuPrepare& prepare) const {
  const DType dtype = prepare.in[0].dtype;
  KernelPtr product;
  if (dtype != DType::f16)
    product = dispatch_floating(dtype, [&]<class T>() {
      return with_epilogue(
          epilogue, [&](const auto& function) { return kernel<T>(*this, prepare, function); });
    });
  return conv_kernel(
      prepare, conv_shape(*this, linear_extents(prepare.in), dtype),
      [](const Launch& call, const ConvShape& s) {
        const Operands at = Linear{s.bias, s.residual}.operands();
        return ConvOperands{const_cast<void*>(call.inputs[at.x]),
                            const_cast<void*>(call.inputs[at.weight]), call.outputs[0],
                            s.bias ? call.inputs[at.bias] : nullptr,
                            s.residual ? call.inputs[at.residual] : nullptr};
      },
      std::move(product));
}

}  // namespace ridge
