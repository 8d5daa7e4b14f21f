#include "ridge/ops/batch_norm.h"

#include "ridge/gpu/channel_sums.h"
#include "ridge/gpu/nest.h"

namespace ridge {
namespace {

using namespace gpu;

// Elements and their channels, for what is done to each element.
struct Layout {
  bool planes;
  std::int64_t columns, rows, plane;  // as ChannelSums has them
};

constexpr int apply_rows = 4;  // of a thread with channels last, so that it loads vectors once

// Map::at<N>(c) gives what it needs of N channels, and that then maps N elements, at an offset.
template <int N, class Map>
__global__ void __launch_bounds__(sum_packs* sum_lanes) apply_rows_kernel(Layout s, Map map) {
  gpu::begin_kernel();
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * sum_packs + threadIdx.x) * N;
  if (c >= s.columns) return;
  const auto channels = map.template at<N>(c);
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.y) * (sum_lanes * apply_rows) + threadIdx.y;
#pragma unroll
  for (int k = 0; k < apply_rows; ++k) {
    const std::int64_t row = first + k * sum_lanes;
    if (row < s.rows) map.template apply<N>(channels, row * s.columns + c);
  }
}

// With channels first a pack lies in one plane.
template <int N, class Map>
__global__ void __launch_bounds__(elementwise_threads)
    apply_planes_kernel(Layout s, std::int64_t packs, Map map) {
  gpu::begin_kernel();
  const std::int64_t i = thread_index<std::int64_t>();
  if (i >= packs) return;
  const std::int64_t c = i * N / s.plane % s.columns;
  map.template apply<N>(map.template at<1>(c), i * N);
}

template <int wide, class Map>
void apply(const Context& gpu, const Layout& s, bool aligned, const Map& map) {
  const std::int64_t run = s.planes ? s.plane : s.columns;
  dispatch_packed<wide>(aligned && run % wide == 0, [&]<int N>() {
    if (s.planes) {
      const std::int64_t packs = s.columns * s.rows / N;
      launch(gpu, apply_planes_kernel<N, Map>, dim3(blocks_for(packs, elementwise_threads)),
             dim3(elementwise_threads), 0, s, packs, map);
      return;
    }
    // Grids are at most 65535 high.
    constexpr std::int64_t most = std::int64_t{65535} * sum_lanes * apply_rows;
    for (std::int64_t row = 0; row < s.rows; row += most) {
      Layout part = s;
      part.rows = std::min(most, s.rows - row);
      launch(
          gpu, apply_rows_kernel<N, Map>,
          dim3(blocks_for(s.columns, sum_packs * N), blocks_for(part.rows, sum_lanes * apply_rows)),
          dim3(sum_packs, sum_lanes), 0, part, map.from(row * s.columns));
    }
  });
}

template <int M>
struct NormOf {
  float mean[M], factor[M], bias[M];
};

// y = (x - mean) * factor + bias, where factor is weight * rstd, or, in the form of inference,
// weight / sqrt(variance + eps).
template <class T, bool inference>
struct Normalise {
  const T* x;
  const float *weight, *bias, *mean, *scale;  // scale: rstd, or the variance
  float eps;
  T* y;

  Normalise from(std::int64_t offset) const {
    Normalise moved = *this;
    moved.x += offset;
    moved.y += offset;
    return moved;
  }
  template <int M>
  __device__ NormOf<M> at(std::int64_t c) const {
    NormOf<M> norm;
#pragma unroll
    for (int k = 0; k < M; ++k) {
      norm.mean[k] = mean[c + k];
      norm.bias[k] = bias[c + k];
      norm.factor[k] =
          inference ? weight[c + k] / sqrtf(scale[c + k] + eps) : weight[c + k] * scale[c + k];
    }
    return norm;
  }
  template <int N, int M>
  __device__ void apply(const NormOf<M>& norm, std::int64_t i) const {
    float values[N];
    load_pack<N>(x + i, values);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      values[k] = (values[k] - norm.mean[m]) * norm.factor[m] + norm.bias[m];
    }
    store_pack<N>(y + i, values);
  }
};

template <int M>
struct GradOf {
  float mean[M], factor[M], offset[M], slope[M];
};

// dx = weight * rstd * (dy - dbias / M - (x - mean) * rstd * dweight / M)
template <class T>
struct Differentiate {
  const T *dy, *x;
  const float *weight, *mean, *rstd, *dweight, *dbias;
  float inverse_count;
  T* dx;

  Differentiate from(std::int64_t offset) const {
    Differentiate moved = *this;
    moved.dy += offset;
    moved.x += offset;
    moved.dx += offset;
    return moved;
  }
  template <int M>
  __device__ GradOf<M> at(std::int64_t c) const {
    GradOf<M> grad;
#pragma unroll
    for (int k = 0; k < M; ++k) {
      grad.mean[k] = mean[c + k];
      grad.factor[k] = weight[c + k] * rstd[c + k];
      grad.offset[k] = dbias[c + k] * inverse_count;
      grad.slope[k] = dweight[c + k] * inverse_count * rstd[c + k];
    }
    return grad;
  }
  template <int N, int M>
  __device__ void apply(const GradOf<M>& grad, std::int64_t i) const {
    float values[N], grads[N];
    load_pack<N>(x + i, values);
    load_pack<N>(dy + i, grads);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      const float centred = values[k] - grad.mean[m];
      grads[k] = grad.factor[m] * (grads[k] - grad.offset[m] - centred * grad.slope[m]);
    }
    store_pack<N>(dx + i, grads);
  }
};

// Deviations from the part's first element, which is close to the mean: squares of what is far from
// zero would leave few digits to the variance.
template <class T>
struct Deviations {
  const T* x;
  __device__ float shift(std::int64_t i) const { return load(&x[i]); }
  template <int N>
  __device__ void add(std::int64_t i, std::int64_t, std::int64_t, const float (&shift)[N],
                      float (&a)[N], float (&b)[N]) const {
    float values[N];
    load_pack<N>(x + i, values);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float deviation = values[k] - shift[k];
      a[k] += deviation;
      b[k] += deviation * deviation;
    }
  }
};

struct Moments {
  double count, mean, squares;  // squares: of the deviations from the mean

  // Chan, Golub and LeVeque, 1979.
  __device__ void merge(const Moments& other) {
    const double all = count + other.count, delta = other.mean - mean;
    if (all == 0) return;
    squares += other.squares + delta * delta * count * other.count / all;
    mean += delta * other.count / all;
    count = all;
  }
};

template <class T>
struct FinishStatistics {
  const T* x;
  float eps, momentum;
  float *mean, *rstd, *running_mean, *running_variance;

  __device__ void add(Moments& moments, const ChannelSums& s, std::int64_t p, std::int64_t c,
                      float sum, float squares) const {
    const auto n = static_cast<double>(s.part_size(p));
    moments.merge({n, load(&x[s.first(p, c)]) + sum / n, squares - double{sum} * sum / n});
  }
  __device__ void operator()(std::int64_t c, const Moments& m) const {
    mean[c] = static_cast<float>(m.mean);
    rstd[c] = static_cast<float>(1.0 / sqrt(m.squares / m.count + double{eps}));
    const auto unbiased = static_cast<float>(m.squares / (m.count - 1));
    running_mean[c] += momentum * (mean[c] - running_mean[c]);
    running_variance[c] += momentum * (unbiased - running_variance[c]);
  }
};

template <class T>
struct GradTerms {
  const T *dy, *x;
  const float *mean, *rstd;
  __device__ float shift(std::int64_t) const { return 0; }
  template <int N>
  __device__ void add(std::int64_t i, std::int64_t, std::int64_t c, const float (&)[N],
                      float (&a)[N], float (&b)[N]) const {
    float values[N], grads[N];
    load_pack<N>(x + i, values);
    load_pack<N>(dy + i, grads);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      a[k] += grads[k];
      b[k] += grads[k] * (values[k] - mean[c + k]) * rstd[c + k];
    }
  }
};

ChannelSums sums_of(const Context& gpu, const Shape& shape, ImageLayout layout, int pack) {
  const ImageShape image(shape, layout);
  return layout == ImageLayout::nchw
             ? ChannelSums::of_planes(image.n, image.c, image.pixels())
             : ChannelSums::of_rows(gpu, image.n * image.pixels(), image.c, pack);
}

Layout layout_of(const ChannelSums& s) { return {s.planes, s.columns, s.rows, s.plane}; }

template <class T>
KernelPtr infer_form(GpuPrepare& prepare, const BatchNorm& op) {
  constexpr int wide = elements_per_access<T>;
  const Layout all = layout_of(sums_of(prepare.gpu, prepare.in[0].shape, op.layout, wide));
  return make_kernel([&gpu = prepare.gpu, all, eps = op.eps](const Launch& call) {
    const Normalise<T, true> map{call.in<T>(0),     call.in<float>(1), call.in<float>(2),
                                 call.in<float>(3), call.in<float>(4), eps,
                                 call.out<T>()};
    apply<wide>(gpu, all, is_aligned(map.x, 16) && is_aligned(map.y, 16), map);
  });
}

template <class T>
KernelPtr train_form(GpuPrepare& prepare, const BatchNormTrain& op) {
  constexpr int wide = elements_per_access<T>;
  const ChannelSums s = sums_of(prepare.gpu, prepare.in[0].shape, op.layout, wide);
  prepare.workspace = s.floats() * sizeof(float);
  return make_kernel([&gpu = prepare.gpu, s, op](const Launch& call) {
    const T* x = call.in<T>(0);
    float *mean = call.out<float>(1), *rstd = call.out<float>(2);
    sum_channels<wide, Moments>(gpu, s, rows_are_packable<wide>(s.columns, x), Deviations<T>{x},
                                FinishStatistics<T>{x, op.eps, op.momentum, mean, rstd,
                                                    call.out<float>(3), call.out<float>(4)},
                                static_cast<float*>(call.workspace));
    const Normalise<T, false> map{x,    call.in<float>(1), call.in<float>(2), mean, rstd,
                                  0.0f, call.out<T>()};
    apply<wide>(gpu, layout_of(s), is_aligned(x, 16) && is_aligned(map.y, 16), map);
  });
}

template <class T>
KernelPtr backward(GpuPrepare& prepare, ImageLayout layout) {
  constexpr int wide = elements_per_access<T>;
  const ChannelSums s = sums_of(prepare.gpu, prepare.in[1].shape, layout, wide);
  prepare.workspace = s.floats() * sizeof(float);
  return make_kernel([&gpu = prepare.gpu, s](const Launch& call) {
    const Differentiate<T> map{.dy = call.in<T>(0),
                               .x = call.in<T>(1),
                               .weight = call.in<float>(2),
                               .mean = call.in<float>(3),
                               .rstd = call.in<float>(4),
                               .dweight = call.out<float>(1),
                               .dbias = call.out<float>(2),
                               .inverse_count = 1.0f / static_cast<float>(s.rows),
                               .dx = call.out<T>(0)};
    sum_channels<wide, TwoSums>(gpu, s, rows_are_packable<wide>(s.columns, map.dy, map.x),
                                GradTerms<T>{map.dy, map.x, map.mean, map.rstd},
                                ParameterGrads{call.out<float>(1), call.out<float>(2)},
                                static_cast<float*>(call.workspace));
    apply<wide>(gpu, layout_of(s),
                is_aligned(map.dy, 16) && is_aligned(map.x, 16) && is_aligned(map.dx, 16), map);
  });
}

}  // namespace

KernelPtr BatchNorm::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return infer_form<T>(prepare, *this); });
}

KernelPtr BatchNormTrain::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return train_form<T>(prepare, *this); });
}

KernelPtr BatchNormGrad::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[1].dtype,
                                [&]<class T>() { return backward<T>(prepare, layout); });
}

}  // namespace ridge
