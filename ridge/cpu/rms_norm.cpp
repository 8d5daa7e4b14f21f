#include "ridge/ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// 1 / sqrt(mean + eps) of a row, from the sum of its squares.
float inverse_deviation(float squares, std::int64_t columns, float eps) {
  return 1.0f / std::sqrt(squares / static_cast<float>(columns) + eps);
}

// At least as far from zero as `least`.
float away_from_zero(float weight, float least = least_norm_weight) {
  return std::abs(weight) < least ? std::copysign(least, weight) : weight;
}

template <class X, class Y>
void normalize(const X* x, float scale, const float* weight, float least, Y* y,
               std::int64_t columns) {
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) {
    store(&y[c], load(&x[c]) * scale * away_from_zero(weight[c], least));
  }
}

// How far the weights of a forward norm keep from zero.
template <class Op>
float least_weight(const Op& op) {
  return op.invertible ? least_norm_weight : 0.0f;
}

template <class X, class Y>
KernelPtr forward(CpuPrepare& prepare, const RmsNorm& op) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  const float eps = op.eps, least = least_weight(op);
  return make_kernel([&pool = prepare.pool, rows, columns, eps, least](const Launch& call) {
    const X* x = call.in<X>(0);
    const float* weight = call.in<float>(1);
    Y* y = call.out<Y>(0);
    float* rstd = call.out<float>(1);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const X* xr = x + r * columns;
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < columns; ++c) squares += load(&xr[c]) * load(&xr[c]);
        rstd[r] = inverse_deviation(squares, columns, eps);
        normalize(xr, rstd[r], weight, least, y + r * columns, columns);
      }
    });
  });
}

template <class Delta, class Y>
KernelPtr add_forward(CpuPrepare& prepare, const AddRmsNorm& op) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  const float eps = op.eps, least = least_weight(op);
  return make_kernel([&pool = prepare.pool, rows, columns, eps, least](const Launch& call) {
    const float* x = call.in<float>(0);
    const Delta* delta = call.in<Delta>(1);
    const float* weight = call.in<float>(2);
    float* sum = call.out<float>(0);
    Y* y = call.out<Y>(1);
    float* rstd = call.out<float>(2);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* xr = x + r * columns;
        const Delta* dr = delta + r * columns;
        float *sr = sum + r * columns, squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < columns; ++c) {
          const float s = xr[c] + load(&dr[c]);
          sr[c] = s;
          squares += s * s;
        }
        rstd[r] = inverse_deviation(squares, columns, eps);
        normalize(sr, rstd[r], weight, least, y + r * columns, columns);
      }
    });
  });
}

// A row of x, or of y where the gradient is from the result: its xhat.
template <class X, bool from_result>
struct Row {
  const X* x;
  const float* weight;
  float scale;
  float xhat(std::int64_t c) const {
    return from_result ? load(&x[c]) / away_from_zero(weight[c]) : load(&x[c]) * scale;
  }
};

// One row of a norm's gradient: adds its part to dweight and returns mean_c(w dy xhat).
template <class Row, class Dy>
float sum_products(const Dy* dy, const Row& row, float* dweight, std::int64_t columns) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t c = 0; c < columns; ++c) {
    const float product = load(&dy[c]) * row.xhat(c);
    dweight[c] += product;
    dot += row.weight[c] * product;
  }
  return dot / static_cast<float>(columns);
}

// A tensor of 16-bit elements of either kind, or none.
struct RoundedCopy {
  void* data = nullptr;
  DType dtype = DType::bf16;

  // From `begin` on, of one row.
  void write(std::int64_t begin, const auto* from, std::int64_t columns) const {
    if (!data) return;
    dispatch_floating(dtype, [&]<class T>() {
      T* to = static_cast<T*>(data) + begin;
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) store(&to[c], load(&from[c]));
    });
  }
};

// dx of a norm alone (RmsNormGrad), or with dsum added where that is given (AddRmsNormGrad).
template <class Row, class Dy, class Dx>
void differentiate(const Dy* dy, const Row& row, float mean, const float* dsum, Dx* dx,
                   std::int64_t columns) {
  auto at = [=](std::int64_t c) {
    return row.scale * (row.weight[c] * load(&dy[c]) - row.xhat(c) * mean);
  };
  if (dsum) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) store(&dx[c], dsum[c] + at(c));
  } else {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) store(&dx[c], at(c));
  }
}

// The operands are AddRmsNormGrad's, as which RmsNormGrad's without dsum count. The sum over rows
// for dweight: a fixed number of row blocks, each summed into its own row of the workspace, then
// the blocks in order. The result does not depend on the number of threads.
template <class X, class Dy, class Dx, bool from_result>
KernelPtr backward(CpuPrepare& prepare) {
  constexpr std::int64_t max_blocks = 32;
  const AddRmsNormGrad::Operands operand = AddRmsNormGrad::operands(prepare.in.size());
  const bool round = prepare.out.size() == 3;
  const DType delta = prepare.out.back().dtype;
  const Shape& shape = prepare.out[0].shape;
  const std::int64_t columns = shape[-1], rows = shape.rows();
  const std::int64_t block = (rows + max_blocks - 1) / max_blocks;
  const std::int64_t blocks = (rows + block - 1) / block;
  prepare.workspace = static_cast<std::size_t>(blocks * columns) * sizeof(float);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const float* dsum = operand.dsum < operand.count ? call.in<float>(operand.dsum) : nullptr;
    const Dy* dy = call.in<Dy>(operand.dy);
    const X* x = call.in<X>(operand.sum);
    const float *weight = call.in<float>(operand.weight), *rstd = call.in<float>(operand.rstd);
    Dx* dx = call.out<Dx>(0);
    float* dweight = call.out<float>(1);
    const RoundedCopy rounded = round ? RoundedCopy{call.outputs[2], delta} : RoundedCopy{};
    auto* partial = static_cast<float*>(call.workspace);
    pool.run(blocks, [=](std::int64_t b) {
      float* sums = partial + b * columns;
      std::fill_n(sums, columns, 0.0f);
      for (std::int64_t r = b * block; r < std::min(rows, (b + 1) * block); ++r) {
        const std::int64_t at = r * columns;
        const Row<X, from_result> row{x + at, weight, rstd[r]};
        const float mean = sum_products(dy + at, row, sums, columns);
        differentiate(dy + at, row, mean, dsum ? dsum + at : nullptr, dx + at, columns);
        rounded.write(at, dx + at, columns);
      }
    });
    parallel_for(pool, columns, 256, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) dweight[c] = partial[c];
      for (std::int64_t b = 1; b < blocks; ++b)
        for (std::int64_t c = begin; c < end; ++c) dweight[c] += partial[b * columns + c];
    });
  });
}

// f.template operator()<X, Dy, Dx, from_result>() for a gradient with x or sum, or y, in X.
template <class Prepare, class F>
KernelPtr dispatch_gradient(const Prepare& prepare, bool from_result, const F& f) {
  const AddRmsNormGrad::Operands operand = AddRmsNormGrad::operands(prepare.in.size());
  return dispatch_floating(prepare.in[operand.sum].dtype, [&]<class X>() {
    return dispatch_floating(prepare.in[operand.dy].dtype, [&]<class Dy>() {
      return from_result ? f.template operator()<X, Dy, float, true>()
                         : f.template operator()<X, Dy, X, false>();
    });
  });
}

}  // namespace

KernelPtr RmsNorm::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class X>() {
    return dispatch_floating(prepare.out[0].dtype,
                             [&]<class Y>() { return forward<X, Y>(prepare, *this); });
  });
}

KernelPtr RmsNormGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_gradient(prepare, from_result, [&]<class X, class Dy, class Dx, bool y>() {
    return backward<X, Dy, Dx, y>(prepare);
  });
}

KernelPtr AddRmsNorm::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[1].dtype, [&]<class Delta>() {
    return dispatch_floating(prepare.out[1].dtype,
                             [&]<class Y>() { return add_forward<Delta, Y>(prepare, *this); });
  });
}

KernelPtr AddRmsNormGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_gradient(prepare, from_result, [&]<class X, class Dy, class Dx, bool y>() {
    return backward<X, Dy, Dx, y>(prepare);
  });
}

}  // namespace ridge
