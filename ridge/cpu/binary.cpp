#include "ridge/ops/binary.h"

#include "ridge/base/loop_nest.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

// c[i] = function(a[i * step_a], b[i * step_b]) for steps of 0 and 1, which the compiler must know
// in order to load whole vectors.
template <int step_a, int step_b, class T, class F>
void run(const T* a, const T* b, T* c, std::int64_t n, F function) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    store(&c[i], function(load(&a[i * step_a]), load(&b[i * step_b])));
}

// Equal shapes are one long run; a row added to all rows is one run per row. Along the innermost
// loop left after merging, at most one of the operands stands still.
template <class T, class F>
KernelPtr broadcasting(CpuPrepare& prepare, F function) {
  const Shape& shape = prepare.out[0].shape;
  LoopNest nest = broadcast_nest(shape, prepare.in[0].shape, prepare.in[1].shape);
  if (nest.empty()) nest.push_back({1, {1, 1}});
  return make_kernel([&pool = prepare.pool, n = shape.numel(), nest, function](const Launch& call) {
    const T *a = call.in<T>(0), *b = call.in<T>(1);
    T* c = call.out<T>();
    const Offsets step = nest.back().strides;
    parallel_for(pool, n, elements_per_task, [&, a, b, c](std::int64_t begin, std::int64_t end) {
      for_each_run(nest, begin, end, [&](std::int64_t i, Offsets at, std::int64_t length) {
        if (step[0] == 0)
          run<0, 1>(a + at[0], b + at[1], c + i, length, function);
        else if (step[1] == 0)
          run<1, 0>(a + at[0], b + at[1], c + i, length, function);
        else
          run<1, 1>(a + at[0], b + at[1], c + i, length, function);
      });
    });
  });
}

}  // namespace

KernelPtr Add::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return broadcasting<T>(prepare, [](float a, float b) { return a + b; });
  });
}

KernelPtr Mul::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return broadcasting<T>(prepare, [](float a, float b) { return a * b; });
  });
}

KernelPtr Arithmetic::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    switch (kind) {
      case ArithmeticKind::sub:
        return broadcasting<T>(prepare, [](float a, float b) { return a - b; });
      case ArithmeticKind::div:
        return broadcasting<T>(prepare, [](float a, float b) { return a / b; });
      default:
        return broadcasting<T>(prepare, [](float a, float b) { return a == b ? 1.0f : 0.0f; });
    }
  });
}

}  // namespace ridge
