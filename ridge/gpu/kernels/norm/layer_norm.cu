#include "ridge/ops/layer_norm.h"

#include "ridge/gpu/kernels/norm/channel_sums.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge {
namespace {

using namespace gpu;

// As dispatch_threads, with parts of warps for rows that are short.
template <int N, int operands, class F>
void dispatch_lanes(std::int64_t columns, const F& f) {
  constexpr int threads = WarpThreads::max_threads;
  const std::int64_t packs = (columns + N - 1) / N;
  if (N > 1 && packs <= 8 * 4)
    return f.template operator()<LaneThreads<8>, 4>(ThreadsLaunch{threads, threads / 8});
  if (N > 1 && packs <= 16 * 4)
    return f.template operator()<LaneThreads<16>, 4>(ThreadsLaunch{threads, threads / 16});
  dispatch_threads<N, operands>(columns, f);
}

template <class T>
struct NormOperands {
  const T* x;
  const float *weight, *bias;
  T* y;
  float *mean, *rstd;
};

// The group holds a row in registers, as far as they reach; what exceeds them is read again for the
// variance and for the result.
template <class Threads, int N, int K, class T>
__global__ void __launch_bounds__(Threads::max_threads)
    layer_norm_kernel(std::int64_t rows, std::int64_t columns, float eps, NormOperands<T> o) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<Threads, N, K>;
  // Groups without a row of their own take part in the reductions of their warp, with the last row.
  const std::int64_t own = first_row<Threads>(), row = min(own, rows - 1);
  const T* x = o.x + row * columns;
  const auto count = static_cast<float>(columns);
  Held<T, N> packs[K];
  // f(pack, its first column) for the whole row.
  const auto each_pack = [&](const auto& f) {
    for (std::int64_t begin = 0; begin < columns; begin += Columns::held()) {
      const int rest = Columns::clamp(columns - begin);
      if (columns > Columns::held()) Columns::load_row(x + begin, rest, packs);
      Columns::each(rest, [&](int k, int c) { f(packs[k], begin + c); });
    }
  };
  if (columns <= Columns::held()) Columns::load_row(x, static_cast<int>(columns), packs);
  float sum = 0, squares = 0;
  each_pack([&](const Held<T, N>& pack, std::int64_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum += pack[i];
  });
  const float mean = Threads::template reduce<Sum>(sum) / count;
  each_pack([&](const Held<T, N>& pack, std::int64_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (pack[i] - mean) * (pack[i] - mean);
  });
  const float rstd = 1.0f / sqrtf(Threads::template reduce<Sum>(squares) / count + eps);
  if (own >= rows) return;
  if (Threads::rank() == 0) {
    o.mean[row] = mean;
    o.rstd[row] = rstd;
  }
  each_pack([&](const Held<T, N>& pack, std::int64_t c) {
    float weight[N], bias[N];
    load_pack<N>(o.weight + c, weight);
    load_pack<N>(o.bias + c, bias);
#pragma unroll
    for (int i = 0; i < N; ++i) weight[i] = (pack[i] - mean) * rstd * weight[i] + bias[i];
    store_pack<N>(o.y + row * columns + c, weight);
  });
}

// The same of rows that `lanes` threads hold in K packs each, and with them the weight and bias. A
// group takes rows one after another, and reads the next while it computes.
template <int lanes, int N, int K, class T>
__global__ void __launch_bounds__(LaneThreads<lanes>::max_threads)
    short_layer_norm_kernel(std::int64_t rows, int columns, float eps, NormOperands<T> o) {
  gpu::begin_kernel();
  using Threads = LaneThreads<lanes>;
  using Columns = ColumnsOf<Threads, N, K>;
  float weight[K][N], bias[K][N];
  Columns::each(columns, [&](int k, int c) {
    load_pack<N>(o.weight + c, weight[k]);
    load_pack<N>(o.bias + c, bias[k]);
  });
  const auto count = static_cast<float>(columns);
  // Groups without a row of their own take part in the reductions of their warp, with the last row.
  const auto row_of = [&](std::int64_t own) { return min(own, rows - 1); };
  const std::int64_t step = row_step<Threads>();
  std::int64_t own = first_row<Threads>();
  Held<T, N> packs[K], next[K];
  Columns::load_row(o.x + row_of(own) * columns, columns, next);
  // The first row of the warp: as long as it has one, all its lanes go on.
  for (std::int64_t left = rows - (own - Threads::index() % (warp_width / lanes)); left > 0;
       left -= step, own += step) {
#pragma unroll
    for (int k = 0; k < K; ++k) packs[k] = next[k];
    Columns::load_row(o.x + row_of(own + step) * columns, columns, next);
    float sum = 0, squares = 0;
    Columns::each(columns, [&](int k, int) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum += packs[k][i];
    });
    const float mean = Threads::template reduce<Sum>(sum) / count;
    Columns::each(columns, [&](int k, int) {
#pragma unroll
      for (int i = 0; i < N; ++i) squares += (packs[k][i] - mean) * (packs[k][i] - mean);
    });
    const float rstd = 1.0f / sqrtf(Threads::template reduce<Sum>(squares) / count + eps);
    if (own >= rows) continue;
    if (Threads::rank() == 0) {
      o.mean[own] = mean;
      o.rstd[own] = rstd;
    }
    Columns::each(columns, [&](int k, int c) {
      float y[N];
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] = (packs[k][i] - mean) * rstd * weight[k][i] + bias[k][i];
      store_pack<N>(o.y + own * columns + c, y);
    });
  }
}

// Calls f.template operator()<lanes, K>() with the fewest lanes that hold a row; false if a warp's
// do not.
template <class F>
bool dispatch_short_rows(std::int64_t packs, const F& f) {
  const auto with = [&]<int lanes>() {
    if (packs <= 3 * lanes)
      f.template operator()<lanes, 3>();
    else if (packs <= 4 * lanes)
      f.template operator()<lanes, 4>();
    else
      return false;
    return true;
  };
  return with.template operator()<4>() || with.template operator()<8>() ||
         with.template operator()<16>() || with.template operator()<32>();
}

template <class T>
struct GradOperands {
  const T *dy, *x;
  const float *weight, *mean, *rstd;
  T* dx;
};

template <class Threads, int N, int K, class T>
__global__ void __launch_bounds__(Threads::max_threads)
    layer_norm_grad_kernel(std::int64_t rows, std::int64_t columns, GradOperands<T> o) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<Threads, N, K>;
  const std::int64_t own = first_row<Threads>(), row = min(own, rows - 1);
  const std::int64_t at = row * columns;
  const float mean = o.mean[row], rstd = o.rstd[row], count = static_cast<float>(columns);
  Held<T, N> x[K], dy[K];
  const auto load = [&](std::int64_t begin, int rest) {
    Columns::load_row(o.x + at + begin, rest, x);
    Columns::load_row(o.dy + at + begin, rest, dy);
  };
  // f(k, first column, the weights there) for the whole row.
  const auto each_pack = [&](const auto& f) {
    for (std::int64_t begin = 0; begin < columns; begin += Columns::held()) {
      const int rest = Columns::clamp(columns - begin);
      if (columns > Columns::held()) load(begin, rest);
      Columns::each(rest, [&](int k, int c) {
        float weight[N];
        load_pack<N>(o.weight + begin + c, weight);
        f(k, begin + c, weight);
      });
    }
  };
  if (columns <= Columns::held()) load(0, static_cast<int>(columns));
  float sum = 0, products = 0;
  each_pack([&](int k, std::int64_t, const float(&weight)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = weight[i] * dy[k][i];
      sum += g;
      products += g * (x[k][i] - mean) * rstd;
    }
  });
  const float mean_g = Threads::template reduce<Sum>(sum) / count;
  const float mean_product = Threads::template reduce<Sum>(products) / count;
  if (own >= rows) return;
  each_pack([&](int k, std::int64_t c, const float(&weight)[N]) {
    float result[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float xhat = (x[k][i] - mean) * rstd;
      result[i] = rstd * (weight[i] * dy[k][i] - mean_g - xhat * mean_product);
    }
    store_pack<N>(o.dx + at + c, result);
  });
}

// The sums that dbias and dweight are made of.
template <class T>
struct GradTerms {
  const T *dy, *x;
  const float *mean, *rstd;

  struct Nothing {};
  template <int N>
  struct Loaded {
    Held<T, N> dy, x;
  };
  template <int N>
  __device__ Nothing at(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ Loaded<N> load(std::int64_t i) const {
    return {*reinterpret_cast<const Held<T, N>*>(dy + i),
            *reinterpret_cast<const Held<T, N>*>(x + i)};
  }
  template <int N>
  __device__ void add(const Nothing&, const Loaded<N>& loaded, std::int64_t, std::int64_t row,
                      float (&a)[N], float (&b)[N]) const {
    const float center = mean[row], scale = rstd[row];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      a[k] += loaded.dy[k];
      b[k] += loaded.dy[k] * (loaded.x[k] - center) * scale;
    }
  }
};

template <class T>
KernelPtr forward(GpuPrepare& prepare, float eps) {
  constexpr int wide = 4;  // weights are f32
  constexpr int widest = elements_per_access<T>;
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&gpu = prepare.gpu, rows, columns, eps](const Launch& call) {
    const NormOperands<T> o{call.in<T>(0),  call.in<float>(1),  call.in<float>(2),
                            call.out<T>(0), call.out<float>(1), call.out<float>(2)};
    if (rows_are_packable<widest>(columns, o.x, o.weight, o.bias, o.y) &&
        dispatch_short_rows(columns / widest, [&]<int lanes, int K>() {
          constexpr int threads = LaneThreads<lanes>::max_threads, blocks_each = 4;
          const unsigned blocks = blocks_for(rows, threads / lanes);
          launch(
              gpu, short_layer_norm_kernel<lanes, widest, K, T>,
              dim3(std::min(blocks, static_cast<unsigned>(blocks_each * gpu.card.multiprocessors))),
              dim3(threads), 0, rows, static_cast<int>(columns), eps, o);
        }))
      return;
    const bool packed = rows_are_packable<wide>(columns, o.x, o.weight, o.bias, o.y);
    dispatch_packed<wide>(packed, [&]<int N>() {
      dispatch_lanes<N, 1>(columns, [&]<class Threads, int K>(ThreadsLaunch group) {
        launch(gpu, layer_norm_kernel<Threads, N, K, T>, group.grid(rows), group.block(), 0, rows,
               columns, eps, o);
      });
    });
  });
}

template <class T>
KernelPtr backward(GpuPrepare& prepare) {
  constexpr int wide = 4, sums_wide = elements_per_access<T>;
  static constexpr LayerNormGrad::Operands at = LayerNormGrad::operands();
  const Shape& shape = prepare.in[at.x].shape;
  const std::int64_t columns = shape[-1], rows = shape.rows();
  const ChannelSums s = ChannelSums::of_rows(prepare.gpu, rows, columns, sums_wide);
  return make_kernel([&gpu = prepare.gpu, s, rows, columns,
                      arrived = reserve_sums(prepare, s)](const Launch& call) {
    const GradOperands<T> o{call.in<T>(at.dy),         call.in<T>(at.x),
                            call.in<float>(at.weight), call.in<float>(at.mean),
                            call.in<float>(at.rstd),   call.out<T>(0)};
    const bool packed = rows_are_packable<wide>(columns, o.dy, o.x, o.weight, o.dx);
    dispatch_packed<wide>(packed, [&]<int N>() {
      dispatch_lanes<N, 2>(columns, [&]<class Threads, int K>(ThreadsLaunch group) {
        launch(gpu, layer_norm_grad_kernel<Threads, N, K, T>, group.grid(rows), group.block(), 0,
               rows, columns, o);
      });
    });
    sum_channels<sums_wide>(gpu, s, rows_are_packable<sums_wide>(columns, o.dy, o.x),
                            GradTerms<T>{o.dy, o.x, o.mean, o.rstd},
                            ParameterGrads{call.out<float>(1), call.out<float>(2)},
                            static_cast<float*>(call.workspace), *arrived);
  });
}

}  // namespace

KernelPtr LayerNorm::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return forward<T>(prepare, eps); });
}

KernelPtr LayerNormGrad::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return backward<T>(prepare); });
}

}  // namespace ridge
