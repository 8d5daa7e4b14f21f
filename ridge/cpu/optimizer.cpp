#include "ridge/ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

constexpr std::int64_t block = 16384;  // elements per task

}  // namespace

KernelPtr Accumulate::cpu(CpuPrepare& prepare) const {
  const std::int64_t n = prepare.in[0].numel();
  return make_kernel([&pool = prepare.pool, n](const Launch& call) {
    const float *acc = call.in<float>(0), *x = call.in<float>(1);
    float* y = call.out<float>(0);
    parallel_for(pool, n, block, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = acc[i] + x[i];
    });
  });
}

// The blocks of all operands are one loop; each leaves its sum in the workspace, and the sums are
// added in order.
KernelPtr GlobalNorm::cpu(CpuPrepare& prepare) const {
  struct Block {
    std::size_t operand;
    std::int64_t begin, end;
  };
  std::vector<std::int64_t> sizes;
  std::int64_t count = 0;
  for (const TensorType& type : prepare.in) {
    sizes.push_back(type.numel());
    count += (type.numel() + block - 1) / block;
  }
  prepare.workspace = static_cast<std::size_t>(count) * sizeof(double);
  return make_kernel([&pool = prepare.pool, count, sizes = std::move(sizes)](const Launch& call) {
    std::vector<Block> blocks;
    blocks.reserve(static_cast<std::size_t>(count));
    for (std::size_t operand = 0; operand < sizes.size(); ++operand)
      for (std::int64_t i = 0, n = sizes[operand]; i < n; i += block)
        blocks.push_back({operand, i, std::min(n, i + block)});
    auto* partial = static_cast<double*>(call.workspace);
    pool.run(count, [&](std::int64_t b) {
      const Block& part = blocks[static_cast<std::size_t>(b)];
      const float* x = call.in<float>(part.operand);
      const std::int64_t end = part.end;
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = part.begin; i < end; ++i) sum += static_cast<double>(x[i]) * x[i];
      partial[b] = sum;
    });
    double total = 0;
    for (std::int64_t b = 0; b < count; ++b) total += partial[b];
    *call.out<float>() = static_cast<float>(std::sqrt(total));
  });
}

// The operations and their order are those of PyTorch's AdamW and clip_grad_norm_, so that both
// agree to rounding.
KernelPtr AdamW::cpu(CpuPrepare& prepare) const {
  const std::int64_t n = prepare.in[0].numel();
  return make_kernel([&pool = prepare.pool, n, op = *this](const Launch& call) {
    const float *param = call.in<float>(0), *grad = call.in<float>(1);
    const float *m = call.in<float>(2), *v = call.in<float>(3);
    const float* schedule = call.in<float>(4);
    float *new_param = call.out<float>(0), *new_m = call.out<float>(1), *new_v = call.out<float>(2);

    const double lr = schedule[0];
    const float keep = static_cast<float>(1.0 - lr * op.weight_decay);
    const float step = static_cast<float>(lr / schedule[1]);
    const float correction = static_cast<float>(1.0 / std::sqrt(static_cast<double>(schedule[2])));
    const float decay2 = static_cast<float>(op.beta2), tiny = static_cast<float>(op.eps);
    const float rest1 = static_cast<float>(1.0 - op.beta1);
    const float rest2 = static_cast<float>(1.0 - op.beta2);
    float clip = 1.0f;
    if (op.max_norm > 0)
      clip = std::min(1.0f, static_cast<float>(op.max_norm) / (*call.in<float>(5) + 1e-6f));

    parallel_for(pool, n, block, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const float g = grad[i] * clip;
        const float mi = m[i] + rest1 * (g - m[i]);
        const float vi = v[i] * decay2 + rest2 * (g * g);
        new_m[i] = mi;
        new_v[i] = vi;
        new_param[i] = param[i] * keep - step * (mi / (std::sqrt(vi) * correction + tiny));
      }
    });
  });
}

}  // namespace ridge
