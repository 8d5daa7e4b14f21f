#include "ridge/ops/matmul.h"

#include <algorithm>

#include "ridge/cpu/onednn.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

template <class From, class To>
void convert(ThreadPool& pool, const From* from, To* to, std::int64_t n) {
  parallel_for(pool, n, 16384, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) store(&to[i], load(&from[i]));
  });
}

std::size_t padded(std::int64_t floats) {
  return (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
}

// bf16 on a CPU that cannot multiply it: widened to f32 first, rounded after.
KernelPtr widened_product(CpuPrepare& prepare, GemmShape shape) {
  shape.in = shape.out = DType::f32;
  const std::int64_t na = prepare.in[0].numel(), nb = prepare.in[1].numel();
  const std::int64_t nc = prepare.out[0].numel();
  prepare.workspace = padded(na) + padded(nb) + padded(nc);
  return make_kernel([&pool = prepare.pool, gemm = Gemm(shape), na, nb, nc](const Launch& call) {
    auto* a = static_cast<float*>(call.workspace);
    auto* b = a + padded(na) / sizeof(float);
    auto* c = b + padded(nb) / sizeof(float);
    convert(pool, call.in<BFloat16>(0), a, na);
    convert(pool, call.in<BFloat16>(1), b, nb);
    gemm.run(pool, a, b, c);
    convert(pool, c, call.out<BFloat16>(), nc);
  });
}

}  // namespace

KernelPtr MatMul::cpu(CpuPrepare& prepare) const {
  const Shape &a = prepare.in[0].shape, &c = prepare.out[0].shape;
  const GemmShape shape{.batch = c.rows(2),
                        .m = c[-2],
                        .n = c[-1],
                        .k = trans_a ? a[-2] : a[-1],
                        .trans_a = trans_a,
                        .trans_b = trans_b,
                        .in = prepare.in[0].dtype,
                        .out = prepare.out[0].dtype};
  if (shape.in == DType::bf16 && !Gemm::supports_bf16()) return widened_product(prepare, shape);
  return make_kernel([&pool = prepare.pool, gemm = Gemm(shape)](const Launch& call) {
    gemm.run(pool, call.inputs[0], call.inputs[1], call.outputs[0]);
  });
}

}  // namespace ridge
