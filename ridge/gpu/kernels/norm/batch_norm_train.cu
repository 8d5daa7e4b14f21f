// Batch norm by the batch's statistics, and its gradient: over the image twice each. What is behind
// the norm, a residual and an activation, is applied on the way, and so is its derivative.

#include <array>

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/collective/rows_of_ranks.h"
#include "ridge/gpu/kernels/conv/conv_epilogue.h"
#include "ridge/gpu/kernels/norm/channels.h"
#include "ridge/ops/batch_norm.h"

namespace ridge {
namespace {

using namespace gpu;

// The norm before the epilogue, the same to the bit going forward and back: the gradient of a relu
// asks again on which side of its kink an element is.
__device__ inline float normalized(float x, float mean, float factor, float bias) {
  return fmaf(x - mean, factor, bias);
}

template <int N>
__device__ inline void activate(Epilogue epilogue, float (&values)[N]) {
  if (epilogue == Epilogue::gelu)
    map_values(GeluOf(), values);
  else
    apply_epilogue(epilogue, values);
}

template <class F, int N>
__device__ inline void map_grads(F function, float (&grads)[N], const float (&x)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) grads[k] = function(grads[k], x[k]);
}

// grads *= epilogue'(x)
template <int N>
__device__ inline void differentiate(Epilogue epilogue, float (&grads)[N], const float (&x)[N]) {
  switch (epilogue) {
    case Epilogue::relu:
      return map_grads(ReluGradOf(), grads, x);
    case Epilogue::relu6:
      return map_grads(Relu6GradOf(), grads, x);
    case Epilogue::silu:
      return map_grads(SiluGradOf(), grads, x);
    case Epilogue::hard_swish:
      return map_grads(HardSwishGradOf(), grads, x);
    case Epilogue::gelu:
      return map_grads(GeluGradOf(), grads, x);
    default:
      return;
  }
}

template <int N, class T>
__device__ Held<T, N> held(const T* p) {
  return *reinterpret_cast<const Held<T, N>*>(p);
}

// Sums of deviations from the channel's first element, which is close to the mean: squares of what
// is far from zero would leave few digits to the variance.
template <class T>
struct Deviations {
  const T* x;
  std::int64_t plane;  // elements from a channel's first to that of the next: 1 with channels last

  template <int N>
  struct Channels {
    float shift[N];
  };
  template <int N>
  __device__ Channels<N> at(std::int64_t c) const {
    Channels<N> channels;
#pragma unroll
    for (int k = 0; k < N; ++k) channels.shift[k] = gpu::load(&x[(c + k) * plane]);
    return channels;
  }
  template <int N>
  __device__ Held<T, N> load(std::int64_t i) const {
    return held<N>(x + i);
  }
  template <int N>
  __device__ void add(const Channels<N>& channels, const Held<T, N>& loaded, std::int64_t,
                      std::int64_t, float (&a)[N], float (&b)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float deviation = loaded[k] - channels.shift[k];
      a[k] += deviation;
      b[k] += deviation * deviation;
    }
  }
};

// The mean of some elements of a channel, and the sum of their squared distances from it.
struct Moments {
  double mean, squares;
};

template <class T>
__device__ Moments moments_of(const T& first, double count, double sum, double squares) {
  const double offset = sum / count;
  return {load(&first) + offset, fmax(squares - sum * offset, 0.0)};
}

// What a norm keeps of its channels.
struct Statistics {
  float eps, momentum;
  float *mean, *rstd, *running_mean, *running_variance;

  __device__ void set(std::int64_t c, double count, const Moments& m) const {
    mean[c] = static_cast<float>(m.mean);
    rstd[c] = static_cast<float>(1.0 / sqrt(m.squares / count + double{eps}));
    const auto unbiased = static_cast<float>(m.squares / (count - 1));
    running_mean[c] += momentum * (mean[c] - running_mean[c]);
    running_variance[c] += momentum * (unbiased - running_variance[c]);
  }
};

template <class T>
struct FinishStatistics {
  const T* x;
  std::int64_t plane;
  double count;  // elements of a channel
  Statistics statistics;

  __device__ void operator()(std::int64_t c, double sum, double squares) const {
    statistics.set(c, count, moments_of(x[c * plane], count, sum, squares));
  }
};

// The same of one rank of several, for the others.
template <class T>
struct FinishMoments {
  const T* x;
  std::int64_t plane;
  double count;
  Moments* own;

  __device__ void operator()(std::int64_t c, double sum, double squares) const {
    own[c] = moments_of(x[c * plane], count, sum, squares);
  }
};

// Merges the moments of all ranks, of as many elements each, in their order: all get the same bits.
// Chan, Golub and LeVeque, 1979.
__global__ void merge_moments_kernel(int ranks, std::int64_t channels, double count,
                                     const Moments* moments, Statistics statistics) {
  begin_kernel();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  Moments all = moments[c];
  for (int rank = 1; rank < ranks; ++rank) {
    const Moments& other = moments[rank * channels + c];
    const double delta = other.mean - all.mean;
    const double of_all = 1.0 / (rank + 1);
    all.squares += other.squares + delta * delta * count * rank * of_all;
    all.mean += delta * of_all;
  }
  statistics.set(c, count * ranks, all);
}

// y = epilogue(norm + residual)
template <class T>
struct Normalize {
  const T *x, *residual;  // the latter null unless there is one
  const float *weight, *bias, *mean, *rstd;
  Epilogue epilogue;
  T* y;

  template <int M>
  struct Channels {
    float mean[M], factor[M], bias[M];
  };
  template <int N>
  struct Loaded {
    Held<T, N> x, residual;
  };
  template <int M>
  __device__ Channels<M> at(std::int64_t c) const {
    Channels<M> channels;
#pragma unroll
    for (int k = 0; k < M; ++k) {
      channels.mean[k] = mean[c + k];
      channels.factor[k] = weight[c + k] * rstd[c + k];
      channels.bias[k] = bias[c + k];
    }
    return channels;
  }
  template <int N>
  __device__ Loaded<N> load(std::int64_t i) const {
    Loaded<N> loaded;
    loaded.x = held<N>(x + i);
    if (residual) loaded.residual = held<N>(residual + i);
    return loaded;
  }
  template <int N, int M>
  __device__ void apply(const Channels<M>& c, const Loaded<N>& loaded, std::int64_t i) const {
    float values[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      values[k] = normalized(loaded.x[k], c.mean[m], c.factor[m], c.bias[m]);
      if (residual) values[k] += loaded.residual[k];
    }
    activate(epilogue, values);
    store_pack<N>(y + i, values);
  }
};

template <class T>
KernelPtr forward(GpuPrepare& prepare, const BatchNormTrain& op) {
  const ChannelSums s =
      sums_of(prepare.gpu, prepare.in[0].shape, op.layout, elements_per_access<T>);
  const std::shared_ptr<DeviceMemory> counters = reserve_sums(prepare, s);
  const RowsOfRanks rows(prepare, op.name, op.ranks, 2 * s.columns);
  return make_kernel([&gpu = prepare.gpu, s, op, rows, arrived = counters](const Launch& call) {
    constexpr int wide = elements_per_access<T>;
    const BatchNormTrain::Operands at = op.operands();
    const T* x = call.in<T>(at.x);
    const T* residual = op.residual ? call.in<T>(at.residual) : nullptr;
    float *mean = call.out<float>(1), *rstd = call.out<float>(2);
    const std::int64_t plane = s.planes ? s.plane : 1;
    const auto count = static_cast<double>(s.rows);
    const Statistics statistics{op.eps, op.momentum,        mean,
                                rstd,   call.out<float>(3), call.out<float>(4)};
    const auto sum = [&](const auto& finish) {
      sum_channels<wide>(gpu, s, rows_are_packable<wide>(s.columns, x), Deviations<T>{x, plane},
                         finish, static_cast<float*>(call.workspace), *arrived);
    };
    if (rows.ranks() == 1) {
      sum(FinishStatistics<T>{x, plane, count, statistics});
    } else {
      const auto moments = [](double* row) { return reinterpret_cast<Moments*>(row); };
      sum(FinishMoments<T>{x, plane, count, moments(rows.own(call.workspace))});
      rows.gather(call.workspace);
      launch(gpu, merge_moments_kernel, dim3(blocks_for(s.columns, elementwise_threads)),
             dim3(elementwise_threads), 0, rows.ranks(), s.columns, count,
             moments(rows.all(call.workspace)), statistics);
    }
    const Normalize<T> map{
        x,           residual,     call.in<float>(at.weight), call.in<float>(at.bias), mean, rstd,
        op.epilogue, call.out<T>()};
    const bool aligned = is_aligned(x, 16) && is_aligned(residual, 16) && is_aligned(map.y, 16);
    apply_channels<wide>(gpu, layout_of(s), aligned, map, few_blocks);
  });
}

// How g, the gradient that reaches the norm, follows from dy.
enum class Gate : std::uint8_t {
  none,
  result,      // where the relu's result is above 0
  recomputed,  // by the epilogue's derivative at the norm, which is computed again
};

template <class T>
struct GradOperands {
  const T *dy, *more, *x, *y;  // null: nothing more is to be added; the gate does not ask
  const float *weight, *bias, *mean, *rstd;
  Epilogue epilogue;
};

template <class T, Gate gate>
struct Gradient : GradOperands<T> {
  template <int M>
  struct Channels {
    float mean[M], factor[M], bias[M];
  };
  template <int N>
  struct Loaded {
    Held<T, N> dy, more, x;
  };
  template <int N>
  struct LoadedWithResult : Loaded<N> {
    Held<T, N> y;
  };

  template <int M>
  __device__ Channels<M> at(std::int64_t c) const {
    Channels<M> channels;
#pragma unroll
    for (int k = 0; k < M; ++k) {
      channels.mean[k] = this->mean[c + k];
      if constexpr (gate == Gate::recomputed) {
        channels.factor[k] = this->weight[c + k] * this->rstd[c + k];
        channels.bias[k] = this->bias[c + k];
      }
    }
    return channels;
  }
  template <int N>
  __device__ auto load(std::int64_t i) const {
    std::conditional_t<gate == Gate::result, LoadedWithResult<N>, Loaded<N>> loaded;
    loaded.dy = held<N>(this->dy + i);
    loaded.x = held<N>(this->x + i);
    if (this->more) loaded.more = held<N>(this->more + i);
    if constexpr (gate == Gate::result) loaded.y = held<N>(this->y + i);
    return loaded;
  }
  // g and x - mean
  template <int N, int M, class AnyLoaded>
  __device__ void of(const Channels<M>& c, const AnyLoaded& loaded, float (&g)[N],
                     float (&centered)[N]) const {
    float norm[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      g[k] = loaded.dy[k];
      if (this->more) g[k] += loaded.more[k];
      centered[k] = loaded.x[k] - c.mean[m];
      if constexpr (gate == Gate::result) g[k] = ReluGradOf()(g[k], loaded.y[k]);
      if constexpr (gate == Gate::recomputed)
        norm[k] = normalized(loaded.x[k], c.mean[m], c.factor[m], c.bias[m]);
    }
    if constexpr (gate == Gate::recomputed) differentiate(this->epilogue, g, norm);
  }
};

// The sums of g and of g (x - mean). With Gate::result g is written too.
template <class T, Gate gate>
struct GradSums {
  Gradient<T, gate> gradient;
  T* g;

  template <int N>
  __device__ auto at(std::int64_t c) const {
    return gradient.template at<N>(c);
  }
  template <int N>
  __device__ auto load(std::int64_t i) const {
    return gradient.template load<N>(i);
  }
  template <int N, class Channels, class Loaded>
  __device__ void add(const Channels& channels, const Loaded& loaded, std::int64_t i, std::int64_t,
                      float (&a)[N], float (&b)[N]) const {
    float grads[N], centered[N];
    gradient.of(channels, loaded, grads, centered);
    if constexpr (gate == Gate::result) store_pack<N>(g + i, grads);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      a[k] += grads[k];
      b[k] += grads[k] * centered[k];
    }
  }
};

struct FinishGrads {
  const float* rstd;
  float *dweight, *dbias;
  __device__ void operator()(std::int64_t c, double a, double b) const {
    dbias[c] = static_cast<float>(a);
    dweight[c] = static_cast<float>(b * rstd[c]);
  }
};

// The gradients of one rank of several, and its sums for the others.
struct FinishGradsOfRank {
  FinishGrads finish;
  double2* own;
  __device__ void operator()(std::int64_t c, double a, double b) const {
    finish(c, a, b);
    own[c] = {a, b};
  }
};

// Adds the sums of all ranks, in their order: all get the same bits.
__global__ void add_sums_kernel(int ranks, std::int64_t channels, const double2* sums,
                                FinishGrads finish) {
  begin_kernel();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  double a = 0, b = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    a += sums[rank * channels + c].x;
    b += sums[rank * channels + c].y;
  }
  finish(c, a, b);
}

// dx = weight * rstd * (g - dbias / M - (x - mean) * rstd * dweight / M)
template <class T, Gate gate>
struct Differentiate {
  Gradient<T, gate> gradient;
  const float *dweight, *dbias;
  float inverse_count;
  T* dx;

  template <int M>
  struct Channels : Gradient<T, gate>::template Channels<M> {
    float scale[M], offset[M], slope[M];
  };
  template <int M>
  __device__ Channels<M> at(std::int64_t c) const {
    Channels<M> channels{gradient.template at<M>(c), {}, {}, {}};
#pragma unroll
    for (int k = 0; k < M; ++k) {
      const float rstd = gradient.rstd[c + k];
      channels.scale[k] = gradient.weight[c + k] * rstd;
      channels.offset[k] = dbias[c + k] * inverse_count;
      channels.slope[k] = dweight[c + k] * inverse_count * rstd;
    }
    return channels;
  }
  template <int N>
  __device__ auto load(std::int64_t i) const {
    return gradient.template load<N>(i);
  }
  template <int N, int M, class Loaded>
  __device__ void apply(const Channels<M>& c, const Loaded& loaded, std::int64_t i) const {
    float grads[N], centered[N];
    gradient.of(c, loaded, grads, centered);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      grads[k] = c.scale[m] * (grads[k] - c.offset[m] - centered[k] * c.slope[m]);
    }
    store_pack<N>(dx + i, grads);
  }
};

template <class T, Gate gate>
KernelPtr backward(GpuPrepare& prepare, const BatchNormGrad& op) {
  const ChannelSums s =
      sums_of(prepare.gpu, prepare.out[0].shape, op.layout, elements_per_access<T>);
  const std::shared_ptr<DeviceMemory> counters = reserve_sums(prepare, s);
  const RowsOfRanks rows(prepare, op.name, op.ranks, 2 * s.columns);
  return make_kernel([&gpu = prepare.gpu, s, op, rows, arrived = counters](const Launch& call) {
    constexpr int wide = elements_per_access<T>;
    const BatchNormGrad::Operands at = op.operands();
    const GradOperands<T> o{.dy = call.in<T>(at.dy),
                            .more = op.summed ? call.in<T>(at.summand) : nullptr,
                            .x = call.in<T>(at.x),
                            .y = gate == Gate::result ? call.in<T>(at.kinks) : nullptr,
                            .weight = call.in<float>(at.weight),
                            .bias = gate == Gate::recomputed ? call.in<float>(at.kinks) : nullptr,
                            .mean = call.in<float>(at.mean),
                            .rstd = call.in<float>(at.rstd),
                            .epilogue = op.epilogue};
    T* const dx = call.out<T>(0);
    T* const g = gate == Gate::result ? call.out<T>(3) : nullptr;
    float *dweight = call.out<float>(1), *dbias = call.out<float>(2);
    bool aligned = is_aligned(dx, 16) && is_aligned(g, 16);
    for (const T* p : std::array{o.dy, o.more, o.x, o.y}) aligned = aligned && is_aligned(p, 16);
    auto* const sums = static_cast<float*>(call.workspace);
    const auto sum = [&](const auto& finish) {
      sum_channels<wide>(gpu, s, aligned && s.columns % wide == 0, GradSums<T, gate>{{o}, g},
                         finish, sums, *arrived);
    };
    const FinishGrads finish{o.rstd, dweight, dbias};
    // What the gradients of the elements go by: of all ranks, in the room of the parts' sums.
    const float *all_dweight = dweight, *all_dbias = dbias;
    if (rows.ranks() == 1) {
      sum(finish);
    } else {
      const auto pairs = [](double* row) { return reinterpret_cast<double2*>(row); };
      sum(FinishGradsOfRank{finish, pairs(rows.own(call.workspace))});
      rows.gather(call.workspace);
      launch(gpu, add_sums_kernel, dim3(blocks_for(s.columns, elementwise_threads)),
             dim3(elementwise_threads), 0, rows.ranks(), s.columns, pairs(rows.all(call.workspace)),
             FinishGrads{o.rstd, sums, sums + s.columns});
      all_dweight = sums, all_dbias = sums + s.columns;
    }
    const float inverse_count = 1.0f / static_cast<float>(s.rows * rows.ranks());
    if constexpr (gate == Gate::result) {
      GradOperands<T> of_g = o;
      of_g.dy = g;
      of_g.more = of_g.y = nullptr;
      apply_channels<wide>(
          gpu, layout_of(s), aligned,
          Differentiate<T, Gate::none>{{of_g}, all_dweight, all_dbias, inverse_count, dx},
          few_blocks);
    } else {
      apply_channels<wide>(gpu, layout_of(s), aligned,
                           Differentiate<T, gate>{{o}, all_dweight, all_dbias, inverse_count, dx},
                           few_blocks);
    }
  });
}

}  // namespace

KernelPtr BatchNormTrain::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return forward<T>(prepare, *this); });
}

KernelPtr BatchNormGrad::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    if (residual) return backward<T, Gate::result>(prepare, *this);
    if (epilogue != Epilogue::none) return backward<T, Gate::recomputed>(prepare, *this);
    return backward<T, Gate::none>(prepare, *this);
  });
}

}  // namespace ridge
