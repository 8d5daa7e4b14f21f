#include "ridge/ops/batch_norm.h"

#include "ridge/gpu/activation.h"
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

constexpr int apply_rows = 4;  // of a thread with channels last that are under way at once

// apply(load(row), row) for every row of the calling thread. What is loaded does not wait for what
// is written before it.
template <class Load, class Apply>
__device__ void each_row(const Layout& s, std::int64_t step, const Load& load, const Apply& apply) {
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * sum_lanes + threadIdx.y;
       first < s.rows; first += apply_rows * step) {
    decltype(load(first)) loaded[apply_rows];
#pragma unroll
    for (int k = 0; k < apply_rows; ++k)
      if (first + k * step < s.rows) loaded[k] = load(first + k * step);
#pragma unroll
    for (int k = 0; k < apply_rows; ++k)
      if (first + k * step < s.rows) apply(loaded[k], first + k * step);
  }
}

// Map::at<N>(c) gives what it needs of N channels, load<N>(i) what it needs of the N elements at an
// offset, and apply() writes what it makes of both.
template <int N, class Map>
__global__ void __launch_bounds__(sum_packs* sum_lanes) apply_rows_kernel(Layout s, Map map) {
  gpu::begin_kernel();
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * sum_packs + threadIdx.x) * N;
  if (c >= s.columns) return;
  const auto channels = map.template at<N>(c);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * sum_lanes;
  each_row(
      s, step, [&](std::int64_t row) { return map.template load<N>(row * s.columns + c); },
      [&](const auto& loaded, std::int64_t row) {
        map.template apply<N>(channels, loaded, row * s.columns + c);
      });
}

// Blocks below one another: no more than keep the card busy, since each begins by working out what
// it needs of its channels.
unsigned blocks_down(const Context& gpu, std::int64_t rows, unsigned across) {
  constexpr std::int64_t per_multiprocessor = 16;  // two waves
  const std::int64_t most = std::max<std::int64_t>(
      1, per_multiprocessor * gpu.multiprocessors / static_cast<std::int64_t>(across));
  const std::int64_t wanted = blocks_for(rows, sum_lanes * apply_rows);
  return static_cast<unsigned>(std::min<std::int64_t>({wanted, most, 65535}));
}

// With channels first a pack lies in one plane.
template <int N, class Map>
__global__ void __launch_bounds__(elementwise_threads)
    apply_planes_kernel(Layout s, std::int64_t packs, Map map) {
  gpu::begin_kernel();
  const std::int64_t i = thread_index<std::int64_t>();
  if (i >= packs) return;
  const std::int64_t c = i * N / s.plane % s.columns;
  map.template apply<N>(map.template at<1>(c), map.template load<N>(i * N), i * N);
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
    const unsigned across = blocks_for(s.columns, sum_packs * N);
    launch(gpu, apply_rows_kernel<N, Map>, dim3(across, blocks_down(gpu, s.rows, across)),
           dim3(sum_packs, sum_lanes), 0, s, map);
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
  bool relu = false;

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
  template <int N>
  __device__ Pack<T, N> load(std::int64_t i) const {
    return *reinterpret_cast<const Pack<T, N>*>(x + i);
  }
  template <int N, int M>
  __device__ void apply(const NormOf<M>& norm, const Pack<T, N>& read, std::int64_t i) const {
    float values[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      values[k] = (gpu::load(&read.at[k]) - norm.mean[m]) * norm.factor[m] + norm.bias[m];
      if (relu) values[k] = ReluOf()(values[k]);
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
  template <int N>
  struct Loaded {
    Pack<T, N> dy, x;
  };
  template <int N>
  __device__ Loaded<N> load(std::int64_t i) const {
    return {*reinterpret_cast<const Pack<T, N>*>(dy + i),
            *reinterpret_cast<const Pack<T, N>*>(x + i)};
  }
  template <int N, int M>
  __device__ void apply(const GradOf<M>& grad, const Loaded<N>& loaded, std::int64_t i) const {
    float grads[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      const float centred = gpu::load(&loaded.x.at[k]) - grad.mean[m];
      grads[k] =
          grad.factor[m] * (gpu::load(&loaded.dy.at[k]) - grad.offset[m] - centred * grad.slope[m]);
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
  return make_kernel([&gpu = prepare.gpu, all, op](const Launch& call) {
    const Normalise<T, true> map{call.in<T>(0),     call.in<float>(1),
                                 call.in<float>(2), call.in<float>(3),
                                 call.in<float>(4), op.eps,
                                 call.out<T>(),     op.relu};
    apply<wide>(gpu, all, is_aligned(map.x, 16) && is_aligned(map.y, 16), map);
  });
}

// Images whose channels lie side by side in the result.
struct Parts {
  int count;
  const void* x[BatchNorm::most_parts];
  std::int32_t begin[BatchNorm::most_parts + 1];  // of the result's channels

  // The part that channel c is of.
  __device__ int of(std::int64_t c) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= c ? low : high) = middle;
    }
    return low;
  }
};

// Each thread goes down N channels of the result, all of one part.
template <int N, class T>
__global__ void __launch_bounds__(sum_packs* sum_lanes)
    joined_kernel(Layout s, const __grid_constant__ Parts parts, Normalise<T, true> map) {
  gpu::begin_kernel();
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * sum_packs + threadIdx.x) * N;
  if (c >= s.columns) return;
  const auto norm = map.template at<N>(c);
  const int part = parts.of(c);
  const std::int64_t begin = parts.begin[part], channels = parts.begin[part + 1] - begin;
  const T* x = static_cast<const T*>(parts.x[part]) + (c - begin);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * sum_lanes;
  each_row(
      s, step,
      [&](std::int64_t row) { return *reinterpret_cast<const Pack<T, N>*>(x + row * channels); },
      [&](const auto& loaded, std::int64_t row) {
        map.template apply<N>(norm, loaded, row * s.columns + c);
      });
}

template <class T>
KernelPtr joined_form(GpuPrepare& prepare, const BatchNorm& op) {
  constexpr int wide = elements_per_access<T>;
  const ImageShape image(prepare.out[0].shape, op.layout);
  const Layout all{.planes = false, .columns = image.c, .rows = image.n * image.pixels()};
  Parts parts{.count = static_cast<int>(op.parts)};
  bool in_packs = true;
  for (std::size_t p = 0; p < op.parts; ++p) {
    const std::int64_t channels = prepare.in[p].shape[3];
    parts.begin[p + 1] = parts.begin[p] + static_cast<std::int32_t>(channels);
    in_packs = in_packs && channels % wide == 0;
  }
  return make_kernel([&gpu = prepare.gpu, all, parts, in_packs, op](const Launch& call) {
    Parts images = parts;
    const Normalise<T, true> map{nullptr,
                                 call.in<float>(op.parts),
                                 call.in<float>(op.parts + 1),
                                 call.in<float>(op.parts + 2),
                                 call.in<float>(op.parts + 3),
                                 op.eps,
                                 call.out<T>(),
                                 op.relu};
    bool packed = in_packs && is_aligned(map.y, 16);
    for (std::size_t p = 0; p < op.parts; ++p) {
      images.x[p] = call.inputs[p];
      packed = packed && is_aligned(images.x[p], 16);
    }
    dispatch_packed<wide>(packed, [&]<int N>() {
      const unsigned across = blocks_for(all.columns, sum_packs * N);
      launch(gpu, joined_kernel<N, T>, dim3(across, blocks_down(gpu, all.rows, across)),
             dim3(sum_packs, sum_lanes), 0, all, images, map);
    });
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
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return parts == 1 ? infer_form<T>(prepare, *this) : joined_form<T>(prepare, *this);
  });
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
