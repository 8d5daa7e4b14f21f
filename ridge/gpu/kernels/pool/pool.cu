#include "ridge/ops/pool.h"

#include "ridge/gpu/kernels/pixels.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge {
namespace {

using namespace gpu;

// The windows along one dimension.
struct Windows {
  int kernel, stride, padding;

  Windows(const PoolWindows& w, std::size_t d)
      : kernel(static_cast<int>(w.kernel[d])),
        stride(static_cast<int>(w.stride[d])),
        padding(static_cast<int>(w.padding[d])) {}

  // The windows, of so many, that element p lies in: [first, end).
  __device__ int first(int p) const {
    return max(p + padding - kernel + stride, 0) / static_cast<unsigned>(stride);
  }
  __device__ int end(int p, int windows) const {
    return min(static_cast<int>((p + padding) / static_cast<unsigned>(stride)) + 1, windows);
  }
};

// f(tap, packs of x there) for what a window has of the image, row by row. `size` is that of a
// square window, which is then read at once, or 0 for any.
template <int size, int N, class T, class F>
__device__ void each_tap(const Windows& down, const Windows& across, const Pixels& in, const T* x,
                         int i, int j, const F& f) {
  const int row = i * down.stride - down.padding, column = j * across.stride - across.padding;
  const auto inside = [&](int r, int c) {
    return row + r >= 0 && row + r < in.h && column + c >= 0 && column + c < in.w;
  };
  const auto at = [&](int r, int c) {
    return reinterpret_cast<const Held<T, N>*>(x + in.at(0, row + r, column + c));
  };
  if constexpr (size > 0) {
    Held<T, N> packs[size * size];
#pragma unroll
    for (int t = 0; t < size * size; ++t)
      if (inside(t / size, t % size)) packs[t] = *at(t / size, t % size);
#pragma unroll
    for (int t = 0; t < size * size; ++t)
      if (inside(t / size, t % size)) f(t, packs[t]);
  } else {
    for (int r = 0; r < down.kernel; ++r)
      for (int c = 0; c < across.kernel; ++c)
        if (inside(r, c)) f(r * across.kernel + c, *at(r, c));
  }
}

// NaN is larger than anything, so that it stays.
template <int size, int N, class Index, class T>
__global__ void __launch_bounds__(elementwise_threads)
    max_pool_kernel(Windows down, Windows across, Pixels in, Pixels out, Index threads, const T* x,
                    T* y) {
  gpu::begin_kernel();
  const Index i = thread_index<Index>();
  if (i >= threads) return;
  const Place<N> place(out, i);
  float most[N];
#pragma unroll
  for (int k = 0; k < N; ++k) most[k] = -INFINITY;
  each_tap<size, N>(down, across, in, x + in.at(place.outer, 0, 0) + place.channel,
                    static_cast<int>(place.row), static_cast<int>(place.column),
                    [&](int, const Held<T, N>& pack) {
#pragma unroll
                      for (int k = 0; k < N; ++k) {
                        const float value = pack[k];
                        most[k] = value > most[k] || value != value ? value : most[k];
                      }
                    });
  store_pack<N>(y + out.at(place.outer, place.row, place.column) + place.channel, most);
}

// Which tap of each window has its first largest element.
template <int size, int N, class Index, class T, class Tap>
__global__ void __launch_bounds__(elementwise_threads)
    largest_tap_kernel(Windows down, Windows across, Pixels in, Pixels out, Index threads,
                       const T* x, Tap* taps) {
  gpu::begin_kernel();
  const Index i = thread_index<Index>();
  if (i >= threads) return;
  const Place<N> place(out, i);
  float most[N];
  Pack<Tap, N> largest;
  bool first = true;
  each_tap<size, N>(down, across, in, x + in.at(place.outer, 0, 0) + place.channel,
                    static_cast<int>(place.row), static_cast<int>(place.column),
                    [&](int tap, const Held<T, N>& pack) {
#pragma unroll
                      for (int k = 0; k < N; ++k) {
                        const float value = pack[k];
                        if (first || value > most[k] || (value != value && most[k] == most[k])) {
                          most[k] = value;
                          largest.at[k] = static_cast<Tap>(tap);
                        }
                      }
                      first = false;
                    });
  *reinterpret_cast<Pack<Tap, N>*>(taps + out.at(place.outer, place.row, place.column) +
                                   place.channel) = largest;
}

// Each element of dx adds the dy of the windows whose largest element it is.
template <int N, class Index, class T, class Tap>
__global__ void __launch_bounds__(elementwise_threads)
    max_pool_grad_kernel(Windows down, Windows across, Pixels in, Pixels out, Index threads,
                         const T* dy, const Tap* taps, T* dx) {
  gpu::begin_kernel();
  const Index thread = thread_index<Index>();
  if (thread >= threads) return;
  const Place<N> place(in, thread);
  const auto row = static_cast<int>(place.row), column = static_cast<int>(place.column);
  const int end_i = down.end(row, static_cast<int>(out.h));
  const int end_j = across.end(column, static_cast<int>(out.w));
  float sum[N] = {};
  for (int i = down.first(row); i < end_i; ++i)
#pragma unroll 2
    for (int j = across.first(column); j < end_j; ++j) {
      const std::int64_t at = out.at(place.outer, i, j) + place.channel;
      const auto largest = *reinterpret_cast<const Pack<Tap, N>*>(taps + at);
      const auto grads = *reinterpret_cast<const Held<T, N>*>(dy + at);
      const int tap = (row - (i * down.stride - down.padding)) * across.kernel + column -
                      (j * across.stride - across.padding);
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (largest.at[k] == static_cast<Tap>(tap)) sum[k] += grads[k];
    }
  store_pack<N>(dx + in.at(place.outer, place.row, place.column) + place.channel, sum);
}

// The same for windows of 3 x 3 at every second pixel: a thread takes four pixels, 2 x 2, which the
// same four windows overlap. `padding` is 0 or 1.
template <int padding, int N, class Index, class T>
__global__ void __launch_bounds__(elementwise_threads)
    max_pool_grad_squares_kernel(Pixels squares, Pixels in, Pixels out, Index threads, const T* dy,
                                 const std::uint8_t* taps, T* dx) {
  gpu::begin_kernel();
  const Index thread = thread_index<Index>();
  if (thread >= threads) return;
  const Place<N> place(squares, thread);
  const std::int64_t first_i = place.row - (1 - padding), first_j = place.column - (1 - padding);
  Pack<std::uint8_t, N> largest[2][2];
  Held<T, N> grads[2][2];
  const auto inside = [&](int u, int v) {
    return first_i + u >= 0 && first_i + u < out.h && first_j + v >= 0 && first_j + v < out.w;
  };
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (!inside(w / 2, w % 2)) continue;
    const std::int64_t at = out.at(place.outer, first_i + w / 2, first_j + w % 2) + place.channel;
    largest[w / 2][w % 2] = *reinterpret_cast<const Pack<std::uint8_t, N>*>(taps + at);
    grads[w / 2][w % 2] = *reinterpret_cast<const Held<T, N>*>(dy + at);
  }
#pragma unroll
  for (int pixel = 0; pixel < 4; ++pixel) {
    const int a = pixel / 2, b = pixel % 2;
    const std::int64_t row = 2 * place.row + a, column = 2 * place.column + b;
    if (row >= in.h || column >= in.w) continue;
    float sum[N] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      // Where the pixel lies in the window.
      const int i = a + 2 - padding - 2 * (w / 2), j = b + 2 - padding - 2 * (w % 2);
      if (i < 0 || i > 2 || j < 0 || j > 2 || !inside(w / 2, w % 2)) continue;
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (largest[w / 2][w % 2].at[k] == 3 * i + j) sum[k] += grads[w / 2][w % 2][k];
    }
    store_pack<N>(dx + in.at(place.outer, row, column) + place.channel, sum);
  }
}

bool is_in_squares(const PoolWindows& w) {
  return w.kernel == Pair{3, 3} && w.stride == Pair{2, 2} && w.padding[0] == w.padding[1] &&
         w.padding[0] <= 1;
}

template <class T>
void launch_squares(const Context& gpu, const PoolWindows& windows, const Pixels& in,
                    const Pixels& out, const T* dy, const std::uint8_t* taps, T* dx) {
  Pixels squares = in;
  squares.h = (in.h + 1) / 2;
  squares.w = (in.w + 1) / 2;
  dispatch_pixels<elements_per_access<T>>(
      squares,
      [&]<int N, class Index>(Index threads, dim3 grid) {
        const auto run = [&](auto kernel) {
          launch(gpu, kernel, grid, dim3(elementwise_threads), 0, squares, in, out, threads, dy,
                 taps, dx);
        };
        if (windows.padding[0] == 0)
          run(max_pool_grad_squares_kernel<0, N, Index, T>);
        else
          run(max_pool_grad_squares_kernel<1, N, Index, T>);
      },
      dy, dx, taps);
}

// Calls f.template operator()<size>() for the size of a square window that has its own kernel, or
// 0.
template <class F>
void dispatch_size(const PoolWindows& w, const F& f) {
  if (w.kernel == Pair{3, 3})
    f.template operator()<3>();
  else if (w.kernel == Pair{2, 2})
    f.template operator()<2>();
  else
    f.template operator()<0>();
}

template <class T>
KernelPtr forward(GpuPrepare& prepare, const PoolWindows& windows) {
  const Pixels in({prepare.in[0].shape, windows.layout}, windows.layout);
  const Pixels out({prepare.out[0].shape, windows.layout}, windows.layout);
  return make_kernel([&gpu = prepare.gpu, windows, in, out](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    dispatch_size(windows, [&]<int size>() {
      dispatch_pixels<elements_per_access<T>>(
          out,
          [&]<int N, class Index>(Index threads, dim3 grid) {
            launch(gpu, max_pool_kernel<size, N, Index, T>, grid, dim3(elementwise_threads), 0,
                   Windows(windows, 0), Windows(windows, 1), in, out, threads, x, y);
          },
          x, y);
    });
  });
}

// In two passes, because several elements ask each window which is its largest.
template <class T, class Tap>
KernelPtr backward(GpuPrepare& prepare, const PoolWindows& windows) {
  const Pixels in({prepare.in[1].shape, windows.layout}, windows.layout);
  const Pixels out({prepare.in[0].shape, windows.layout}, windows.layout);
  prepare.workspace = static_cast<std::size_t>(prepare.in[0].numel()) * sizeof(Tap);
  return make_kernel([&gpu = prepare.gpu, windows, in, out](const Launch& call) {
    constexpr int wide = elements_per_access<T>;
    const T *dy = call.in<T>(0), *x = call.in<T>(1);
    T* dx = call.out<T>();
    auto* taps = static_cast<Tap*>(call.workspace);
    const Windows down(windows, 0), across(windows, 1);
    dispatch_size(windows, [&]<int size>() {
      dispatch_pixels<wide>(
          out,
          [&]<int N, class Index>(Index threads, dim3 grid) {
            launch(gpu, largest_tap_kernel<size, N, Index, T, Tap>, grid, dim3(elementwise_threads),
                   0, down, across, in, out, threads, x, taps);
          },
          x, taps);
    });
    if constexpr (sizeof(Tap) == 1)
      if (is_in_squares(windows)) return launch_squares(gpu, windows, in, out, dy, taps, dx);
    dispatch_pixels<wide>(
        in,
        [&]<int N, class Index>(Index threads, dim3 grid) {
          launch(gpu, max_pool_grad_kernel<N, Index, T, Tap>, grid, dim3(elementwise_threads), 0,
                 down, across, in, out, threads, dy, taps, dx);
        },
        dy, dx, taps);
  });
}

}  // namespace

KernelPtr MaxPool2d::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_rounded(prepare.in[0].dtype,
                               [&]<class T>() { return forward<T>(prepare, *this); });
}

KernelPtr MaxPool2dGrad::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    if (kernel[0] * kernel[1] <= 256) return backward<T, std::uint8_t>(prepare, *this);
    return backward<T, std::uint32_t>(prepare, *this);
  });
}

}  // namespace ridge
