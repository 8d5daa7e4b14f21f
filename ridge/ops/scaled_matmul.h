#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// c[.., m, n] = scale_a scale_b a[.., m, k] b[.., n, k]^T of operands in 8 bits, as Quantize gives
// them. Takes (a, b, scale_a, scale_b): a and b of f8e4m3 or f8e5m2, though not both of the latter,
// which tensor cores do not multiply; scales are f32 scalars. Both operands lie with the summed
// dimension innermost, the only way that tensor cores take 8 bits. Accumulates in f32.
struct ScaledMatMul {
  static constexpr std::string_view name = "scaled_matmul";
  static constexpr DTypes dtypes = f32_only;  // of the scales

  DType out = DType::bf16;  // or f32
  // Whether sums may have as few digits as the tensor core's own registers keep of them on their
  // way (14 bits on Hopper), rather than being added up in f32 every so often.
  bool fast_accumulation = false;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<ScaledMatMul>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const ScaledMatMul&) const = default;

  // What GPUs want of every extent of such a product, in elements.
  static constexpr std::int64_t extent_multiple = 16;
};

}  // namespace ridge
