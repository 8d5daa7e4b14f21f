#include "ridge/ops/swiglu.h"

#include <algorithm>

#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

// gate and up as rows of `columns` elements, whose starts are `step` apart. Two separate tensors
// are one long row each.
struct Rows {
  std::int64_t columns, step;
};

Rows rows_of(bool packed, const TensorType& y) {
  if (!packed) return {y.numel(), y.numel()};
  return {y.shape[-1], 2 * y.shape[-1]};
}

// body(element of the result, the same in gate and in up, how many follow) for all of [begin, end).
template <class F>
void for_each_row(Rows rows, std::int64_t begin, std::int64_t end, const F& body) {
  for (std::int64_t i = begin, run = 0; i < end; i += run) {
    const std::int64_t column = i % rows.columns;
    run = std::min(end - i, rows.columns - column);
    body(i, i / rows.columns * rows.step + column, run);
  }
}

template <class T>
KernelPtr forward(CpuPrepare& prepare) {
  const std::int64_t n = prepare.out[0].numel();
  const bool packed = prepare.in.size() == 1;
  const Rows rows = rows_of(packed, prepare.out[0]);
  return make_kernel([&pool = prepare.pool, n, packed, rows](const Launch& call) {
    const T* gates = call.in<T>(0);
    const T* ups = packed ? gates + rows.columns : call.in<T>(1);
    T* results = call.out<T>();
    auto run = [=](std::int64_t i, std::int64_t at, std::int64_t count) {
      const T *gate = gates + at, *up = ups + at;
      T* y = results + i;
      const auto pieces = [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
        for (std::int64_t c = first; c < last; ++c) {
          const float g = load(&gate[c]);
          store(&y[c], g * sigmoid(g) * load(&up[c]));
        }
      };
      streamed(0, count, pieces, gate, up);
    };
    parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
      for_each_row(rows, begin, end, run);
    });
  });
}

template <class T, bool with_result>
KernelPtr backward(CpuPrepare& prepare) {
  const SwiGluGrad::Operands operand = SwiGluGrad::operands(prepare.in.size());
  const std::int64_t n = prepare.in[operand.dy].numel();
  const bool packed = operand.up == operand.gate;
  const Rows rows = rows_of(packed, prepare.in[operand.dy]);
  return make_kernel([&pool = prepare.pool, operand, n, packed, rows](const Launch& call) {
    const T *grads = call.in<T>(operand.dy), *gates = call.in<T>(operand.gate);
    const T* ups = packed ? gates + rows.columns : call.in<T>(operand.up);
    T* dgates = call.out<T>(0);
    T* dups = packed ? dgates + rows.columns : call.out<T>(1);
    T* results = with_result ? call.out<T>(packed ? 1 : 2) : nullptr;  // the memory of dy
    auto run = [=](std::int64_t i, std::int64_t at, std::int64_t count) {
      const T *dy = grads + i, *gate = gates + at, *up = ups + at;
      T *dgate = dgates + at, *dup = dups + at;
      [[maybe_unused]] T* y = results + (with_result ? i : 0);
      const auto pieces = [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
        for (std::int64_t c = first; c < last; ++c) {
          const float d = load(&dy[c]), g = load(&gate[c]), u = load(&up[c]);
          const float s = sigmoid(g), silu = g * s;
          store(&dgate[c], d * u * (s + silu * (1.0f - s)));
          store(&dup[c], d * silu);
          if constexpr (with_result) store(&y[c], silu * u);
        }
      };
      streamed(0, count, pieces, dy, gate, up);
    };
    parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
      for_each_row(rows, begin, end, run);
    });
  });
}

}  // namespace

KernelPtr SwiGlu::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return forward<T>(prepare); });
}

KernelPtr SwiGluGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return result ? backward<T, true>(prepare) : backward<T, false>(prepare);
  });
}

}  // namespace ridge
