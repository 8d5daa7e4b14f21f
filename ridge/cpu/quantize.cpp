#include "ridge/ops/quantize.h"

#include <algorithm>
#include <cmath>

#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

template <class T>
float largest_magnitude(const T* x, std::int64_t begin, std::int64_t end) {
  float most = 0;
#pragma omp simd reduction(max : most)
  for (std::int64_t i = begin; i < end; ++i) {
    const float magnitude = std::abs(load(&x[i]));
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

// x[rows, columns] and the scratch memory to quantize it.
struct Matrix {
  std::int64_t rows, columns;

  explicit Matrix(const TensorType& type) : rows(type.shape.rows()), columns(type.shape[-1]) {}
  std::int64_t numel() const { return rows * columns; }
  std::size_t tasks() const {
    return static_cast<std::size_t>((numel() + elements_per_task - 1) / elements_per_task);
  }
};

// `partial` has an element for each task.
template <class T, class Q>
void quantize(ThreadPool& pool, const Quantize& op, Matrix m, const T* x, float* partial,
              const Launch& call) {
  parallel_for(pool, m.numel(), elements_per_task, [=](std::int64_t begin, std::int64_t end) {
    partial[begin / elements_per_task] = largest_magnitude(x, begin, end);
  });
  const float amax = m.tasks() == 0 ? 0.0f : *std::max_element(partial, partial + m.tasks());
  const float scale = quantization_scale(amax, largest_of<Q>()), inverse = 1.0f / scale;
  *call.out<float>(0) = scale;
  Q* plain = op.plain ? call.out<Q>(op.plain_output()) : nullptr;
  Q* transposed = op.transposed ? call.out<Q>(op.transposed_output()) : nullptr;
  parallel_for(pool, m.rows, rows_per_task(m.columns), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t c = 0; c < m.columns; ++c) {
        const Q q(load(&x[r * m.columns + c]) * inverse);
        if (plain) plain[r * m.columns + c] = q;
        if (transposed) transposed[c * m.rows + r] = q;
      }
  });
}

// Row r of y = silu(gate) * up, or with dy of [dgate, dup].
template <class T>
void swiglu_row(const T* dy, const T* packed, std::int64_t columns, float* x) {
  const T *gate = packed, *up = packed + columns;
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) {
    const float g = load(&gate[c]), u = load(&up[c]);
    const float s = sigmoid(g), silu = g * s;
    if (dy) {
      const float d = load(&dy[c]);
      x[c] = d * u * (s + silu * (1.0f - s));
      x[columns + c] = d * silu;
    } else {
      x[c] = silu * u;
    }
  }
}

// y = silu(gate) * up again, in f16.
template <class T>
void write_result(ThreadPool& pool, std::int64_t rows, std::int64_t columns, const T* packed,
                  float scale, Float16* y) {
  const float inverse = 1.0f / scale;
  parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T *gate = packed + r * 2 * columns, *up = gate + columns;
      for (std::int64_t c = 0; c < columns; ++c) {
        const float g = load(&gate[c]);
        y[r * columns + c] = Float16(g * sigmoid(g) * load(&up[c]) * inverse);
      }
    }
  });
}

template <class F>
KernelPtr dispatch(CpuPrepare& prepare, DType to, const F& function) {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return dispatch_quantized(to, [&]<class Q>() { return function.template operator()<T, Q>(); });
  });
}

}  // namespace

KernelPtr Quantize::cpu(CpuPrepare& prepare) const {
  const Matrix m(prepare.in[0]);
  prepare.workspace = m.tasks() * sizeof(float);
  return dispatch(prepare, to, [&]<class T, class Q>() {
    return make_kernel([&pool = prepare.pool, m, op = *this](const Launch& call) {
      quantize<T, Q>(pool, op, m, call.in<T>(0), static_cast<float*>(call.workspace), call);
    });
  });
}

KernelPtr QuantizeSwiGlu::cpu(CpuPrepare& prepare) const {
  const Matrix m(quantized(prepare.in));
  prepare.workspace = (static_cast<std::size_t>(m.numel()) + m.tasks()) * sizeof(float);
  return dispatch(prepare, into.to, [&]<class T, class Q>() {
    const Operands at = operands(prepare.in.size());
    return make_kernel([&pool = prepare.pool, m, op = *this, at](const Launch& call) {
      const T* dy = op.gradient ? call.in<T>(at.dy) : nullptr;
      const T* packed = call.in<T>(at.packed);
      const std::int64_t half = op.gradient ? m.columns / 2 : m.columns;
      auto* x = static_cast<float*>(call.workspace);
      parallel_for(pool, m.rows, rows_per_task(half), [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          swiglu_row(dy ? dy + r * half : nullptr, packed + r * 2 * half, half, x + r * m.columns);
      });
      quantize<float, Q>(pool, op.into, m, x, x + m.numel(), call);
      if (at.scale < at.count)
        write_result(pool, m.rows, half, packed, *call.in<float>(at.scale),
                     call.out<Float16>(call.outputs.size() - 1));
    });
  });
}

}  // namespace ridge
