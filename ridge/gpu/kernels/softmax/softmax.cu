#include "ridge/ops/softmax.h"

#include "ridge/gpu/kernels/softmax/softmax.h"

namespace ridge {
namespace {

using namespace gpu;

// The elements of a row that count: under the causal mask those up to its own position.
template <bool masked>
__device__ std::int64_t seen_of(std::int64_t row, std::int64_t columns) {
  return masked ? row % columns + 1 : columns;
}

// y = softmax(scale * x) of each row's seen elements and 0 beyond. The group holds the row, and
// takes each exponential once.
template <class Threads, int N, int K, bool masked, class T>
__global__ void __launch_bounds__(Threads::max_threads)
    softmax_kernel(std::int64_t rows, int columns, float scale, const T* x, T* y) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<Threads, N, K>;
  const std::int64_t row = first_row<Threads>();
  if (row >= rows) return;
  const int seen = static_cast<int>(seen_of<masked>(row, columns));
  x += row * columns;
  y += row * columns;
  Held<T, N> packs[K];
  Columns::load_row(x, seen, packs);
  float values[K][N] = {};  // the scaled elements, then their exponentials
  float max = -INFINITY, sum = 0.0f;
  Columns::each(seen, [&](int k, int c) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[k][i] = !masked || c + i < seen ? scale * packs[k][i] : -INFINITY;
      max = fmaxf(max, values[k][i]);
    }
  });
  max = Threads::template reduce<Max>(max);
  Columns::each(seen, [&](int k, int) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[k][i] = __expf(values[k][i] - max);
      sum += values[k][i];
    }
  });
  const float inverse = 1.0f / Threads::template reduce<Sum>(sum);
  Columns::each(columns, [&](int k, int c) {
#pragma unroll
    for (int i = 0; i < N; ++i) values[k][i] *= inverse;
    store_pack<N>(y + c, values[k]);
  });
}

// Writes f(k, i) for the seen elements of a pack that begins at column c, and 0 beyond.
template <int N, bool masked, class T, class F>
__device__ void store_seen(T* y, int k, int c, int seen, const F& f) {
  float result[N] = {};
  if (!masked || c + N <= seen) {
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = f(k, i);
  } else if (c < seen) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (c + i < seen) result[i] = f(k, i);
  }
  store_pack<N>(y + c, result);
}

// The same for rows that no block holds.
template <int N, int K, bool masked, class T>
__global__ void __launch_bounds__(BlockThreads::max_threads)
    softmax_of_long_rows(std::int64_t columns, float scale, const T* x, T* y) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<BlockThreads, N, K>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t seen = seen_of<masked>(row, columns);
  x += row * columns;
  y += row * columns;
  Held<T, N> packs[K];
  const ExpSum all = exp_sum<BlockThreads, !masked>(x, seen, scale, packs);
  const float inverse = 1.0f / all.sum;
  for (std::int64_t begin = 0; begin < columns; begin += Columns::held()) {
    const int rest = Columns::clamp(seen - begin);
    if (seen > Columns::held()) Columns::load_row(x + begin, rest, packs);
    Columns::each(Columns::clamp(columns - begin), [&](int k, int c) {
      store_seen<N, masked>(y + begin, k, c, rest, [&](int pack, int i) {
        return __expf(scale * packs[pack][i] - all.max) * inverse;
      });
    });
  }
}

// dx = scale * y * (dy - sum(dy * y)) of each row's seen elements and 0 beyond.
template <class Threads, int N, int K, bool masked, class T>
__global__ void __launch_bounds__(Threads::max_threads)
    softmax_grad_kernel(std::int64_t rows, std::int64_t columns, float scale, const T* dy,
                        const T* y, T* dx) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<Threads, N, K>;
  const std::int64_t row = first_row<Threads>();
  if (row >= rows) return;
  const std::int64_t seen = seen_of<masked>(row, columns);
  dy += row * columns;
  y += row * columns;
  dx += row * columns;
  Held<T, N> grads[K], results[K];
  float dot = 0.0f;
  for (std::int64_t begin = 0; begin < seen; begin += Columns::held()) {
    const int rest = Columns::clamp(seen - begin);
    Columns::load_row(dy + begin, rest, grads);
    Columns::load_row(y + begin, rest, results);
    Columns::template each_element<!masked>(
        rest, [&](int k, int i) { dot += grads[k][i] * results[k][i]; });
  }
  dot = Threads::template reduce<Sum>(dot);
  for (std::int64_t begin = 0; begin < columns; begin += Columns::held()) {
    const int rest = Columns::clamp(seen - begin);
    if (seen > Columns::held()) {
      Columns::load_row(dy + begin, rest, grads);
      Columns::load_row(y + begin, rest, results);
    }
    Columns::each(Columns::clamp(columns - begin), [&](int k, int c) {
      store_seen<N, masked>(dx + begin, k, c, rest, [&](int pack, int i) {
        return scale * results[pack][i] * (grads[pack][i] - dot);
      });
    });
  }
}

template <class T, bool masked>
KernelPtr forward(GpuPrepare& prepare, float scale) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&gpu = prepare.gpu, rows, columns, scale](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    constexpr int wide = elements_per_access<T>;
    dispatch_packed<wide>(rows_are_packable<wide>(columns, x, y), [&]<int N>() {
      constexpr int threads = BlockThreads::max_threads, elements = 32;
      constexpr int held = N == 1 ? 8 : 4;  // packs in a thread of a block
      if (columns > threads * N * held) {
        launch(gpu, softmax_of_long_rows<N, held, masked, T>, dim3(blocks_for(rows, 1)),
               dim3(threads), 0, columns, scale, x, y);
        return;
      }
      dispatch_threads<N, 2, elements>(columns, [&]<class Threads, int K>(ThreadsLaunch group) {
        launch(gpu, softmax_kernel<Threads, N, K, masked, T>, group.grid(rows), group.block(), 0,
               rows, static_cast<int>(columns), scale, x, y);
      });
    });
  });
}

template <class T, bool masked>
KernelPtr backward(GpuPrepare& prepare, float scale) {
  const std::int64_t columns = prepare.in[1].shape[-1], rows = prepare.in[1].shape.rows();
  return make_kernel([&gpu = prepare.gpu, rows, columns, scale](const Launch& call) {
    const T *dy = call.in<T>(0), *y = call.in<T>(1);
    T* dx = call.out<T>(0);
    constexpr int wide = elements_per_access<T>;
    dispatch_packed<wide>(rows_are_packable<wide>(columns, dy, y, dx), [&]<int N>() {
      dispatch_threads<N, 2>(columns, [&]<class Threads, int K>(ThreadsLaunch group) {
        launch(gpu, softmax_grad_kernel<Threads, N, K, masked, T>, group.grid(rows), group.block(),
               0, rows, columns, scale, dy, y, dx);
      });
    });
  });
}

}  // namespace

KernelPtr Softmax::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T, false>(prepare, 1.0f); });
}

KernelPtr SoftmaxGrad::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return backward<T, false>(prepare, 1.0f); });
}

KernelPtr MaskedSoftmax::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T, true>(prepare, scale); });
}

KernelPtr MaskedSoftmaxGrad::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return backward<T, true>(prepare, scale); });
}

}  // namespace ridge
