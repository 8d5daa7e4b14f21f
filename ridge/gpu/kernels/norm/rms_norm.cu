#include "ridge/ops/rms_norm.h"

#include <algorithm>

#include "ridge/gpu/kernels/rows.h"

namespace ridge {
namespace {

using namespace gpu;

// Weights are f32: packs of 16 bytes of these.
constexpr int wide = 4;

// RmsNorm of x; or, where delta is given, AddRmsNorm of x + delta.
template <class X, class Delta, class Y>
struct NormOperands {
  const X* x;
  const Delta* delta;
  const float* weight;
  X* sum;
  Y* y;
  float* rstd;
};

// 1 / sqrt(mean + eps) of a row, from the sum of its squares.
__device__ float inverse_deviation(float squares, std::int64_t columns, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(columns) + eps);
}

// At least as far from zero as `least`.
__device__ float away_from_zero(float weight, float least) {
  return fabsf(weight) < least ? copysignf(least, weight) : weight;
}

// Replaces the packs of x by x + delta and writes them to sum.
template <class Columns, int N, int K, class Delta>
__device__ void add_delta(const Delta* delta, int columns, Held<float, N> (&packs)[K], float* sum) {
  Held<Delta, N> deltas[K];
  Columns::load_row(delta, columns, deltas);
  Columns::each(columns, [&](int k, int c) {
#pragma unroll
    for (int i = 0; i < N; ++i) packs[k].at[i] += deltas[k][i];
    *reinterpret_cast<Held<float, N>*>(sum + c) = packs[k];
  });
}

// `least_weight`: how far the weights keep from zero.
template <class Threads, int N, int K, bool add, class X, class Delta, class Y>
__global__ void __launch_bounds__(Threads::max_threads)
    rms_norm_kernel(std::int64_t rows, std::int64_t columns, float eps, NormOperands<X, Delta, Y> o,
                    float least_weight) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<Threads, N, K>;
  const std::int64_t row = first_row<Threads>();
  if (row >= rows) return;
  const std::int64_t at = row * columns;
  Held<X, N> packs[K];
  Held<float, N> weights[K];
  float squares = 0.0f;
  for (std::int64_t begin = 0; begin < columns; begin += Columns::held()) {
    const int rest = Columns::clamp(columns - begin);
    Columns::load_row(o.x + at + begin, rest, packs);
    if (begin == 0) Columns::load_row(o.weight, rest, weights);
    if constexpr (add) add_delta<Columns>(o.delta + at + begin, rest, packs, o.sum + at + begin);
    Columns::each(rest, [&](int k, int) {
#pragma unroll
      for (int i = 0; i < N; ++i) squares += packs[k][i] * packs[k][i];
    });
  }
  const float scale = inverse_deviation(Threads::template reduce<Sum>(squares), columns, eps);
  if (Threads::rank() == 0) o.rstd[row] = scale;
  const X* x = add ? o.sum : o.x;
  for (std::int64_t begin = 0; begin < columns; begin += Columns::held()) {
    const int rest = Columns::clamp(columns - begin);
    if (columns > Columns::held()) {
      Columns::load_row(x + at + begin, rest, packs);
      Columns::load_row(o.weight + begin, rest, weights);
    }
    Columns::each(rest, [&](int k, int c) {
      float result[N];
#pragma unroll
      for (int i = 0; i < N; ++i)
        result[i] = packs[k][i] * scale * away_from_zero(weights[k][i], least_weight);
      store_pack<N>(o.y + at + begin + c, result);
    });
  }
}

// What a forward norm has besides its operands.
struct NormTerms {
  float eps;
  float least_weight;  // how far weights keep from zero: 0 unless the norm is invertible

  template <class Op>
  explicit NormTerms(const Op& op)
      : eps(op.eps), least_weight(op.invertible ? least_norm_weight : 0.0f) {}
};

template <bool add, class X, class Delta, class Y>
void run_forward(const Context& gpu, std::int64_t rows, std::int64_t columns,
                 const NormTerms& terms, const NormOperands<X, Delta, Y>& o) {
  const bool packed = rows_are_packable<wide>(columns, o.x, o.delta, o.weight, o.sum, o.y);
  dispatch_packed<wide>(packed, [&]<int N>() {
    // Two: x and the weights.
    dispatch_threads<N, 2>(columns, [&]<class Threads, int K>(ThreadsLaunch group) {
      launch(gpu, rms_norm_kernel<Threads, N, K, add, X, Delta, Y>, group.grid(rows), group.block(),
             0, rows, columns, terms.eps, o, terms.least_weight);
    });
  });
}

// The most threads of a block that takes a row, and the warps of a block where each takes one.
constexpr int max_grad_threads = 512, grad_warps = 8;

// The operands of RmsNormGrad, and those that only AddRmsNormGrad may have: dsum and rounded, or
// null. With from_result x is y.
template <class X, class Dy, class Dx, bool from_result>
struct GradOperands {
  const float* dsum;
  const Dy* dy;
  const X* x;
  const float *weight, *rstd;
  Dx* dx;
  RoundedCopy rounded;

  // What x is to be multiplied with to be xhat: a factor of the column, and one of the row.
  __device__ static float column_factor(float weight) {
    return from_result ? 1.0f / away_from_zero(weight, least_norm_weight) : 1.0f;
  }
  __device__ static float row_factor(float rstd) { return from_result ? 1.0f : rstd; }
};

// dx of one pack, with dsum added and a second, rounded copy where these are given.
template <int N, class Operands, class X, class Dy>
__device__ void write_dx(const Operands& o, std::int64_t at, const Held<Dy, N>& dy,
                         const Held<X, N>& x, const Held<float, N>& weight,
                         const Held<float, N>& factor, const Held<float, N>& dsum, float scale,
                         float mean) {
  float result[N];
  mean *= Operands::row_factor(scale);
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = scale * (weight[i] * dy[i] - x[i] * factor[i] * mean);
  if (o.dsum) {
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] += dsum[i];
  }
  store_pack<N>(o.dx + at, result);
  if (o.rounded) o.rounded.at(at, [&](auto* to) { store_pack<N>(to, result); });
}

// What a thread reads of a row.
template <class Threads, int N, int K, class X, class Dy>
struct GradRow {
  Held<X, N> x[K];
  Held<Dy, N> dy[K];
  Held<float, N> dsum[K];
  float scale;

  template <class Operands>
  __device__ void load(const Operands& o, std::int64_t row, int columns) {
    using Columns = ColumnsOf<Threads, N, K>;
    const std::int64_t at = row * columns;
    scale = o.rstd[row];
    Columns::load_row(o.x + at, columns, x);
    Columns::load_row(o.dy + at, columns, dy);
    if (o.dsum) Columns::load_row(o.dsum + at, columns, dsum);
  }
};

// Leaves the sum of the groups' parts of dweight, in the order of the groups, in the block's row of
// `partial`. A block as group has one part.
template <class Columns, class Threads, int N, int K>
__device__ void write_partial(const float (&sums)[K][N], int columns, float* partial) {
  partial += blockIdx.x * static_cast<std::int64_t>(columns);
  if constexpr (Threads::is_block) {
    Columns::each(columns, [&](int k, int c) { store_pack<N>(partial + c, sums[k]); });
  } else {
    float* parts = gpu::dynamic_shared<float>();
    Columns::each(columns, [&](int k, int c) {
#pragma unroll
      for (int i = 0; i < N; ++i) parts[Threads::index() * columns + c + i] = sums[k][i];
    });
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < columns; c += static_cast<int>(blockDim.x)) {
      float sum = parts[c];
      for (int t = 1; t < Threads::count(); ++t) sum += parts[t * columns + c];
      partial[c] = sum;
    }
  }
}

// dx, and each block's part of dweight. The group holds whole rows, so that x and dy are read once
// and the sums over rows stay in registers; it fetches its next row while it works on one.
template <class Threads, int N, int K, class X, class Dy, class Dx, bool from_result>
__global__ void __launch_bounds__(Threads::is_block ? max_grad_threads : grad_warps* warp_width)
    rms_norm_grad_kernel(std::int64_t rows, int columns, GradOperands<X, Dy, Dx, from_result> o,
                         float* partial) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<Threads, N, K>;
  Held<float, N> weight[K], factor[K];
  Columns::load_row(o.weight, columns, weight);
  Columns::template each_element<true>(
      columns, [&](int k, int i) { factor[k].at[i] = o.column_factor(weight[k][i]); });
  float sums[K][N] = {};
  GradRow<Threads, N, K, X, Dy> next;
  std::int64_t row = first_row<Threads>();
  if (row < rows) next.load(o, row, columns);
  while (row < rows) {
    const GradRow<Threads, N, K, X, Dy> now = next;
    const std::int64_t at = row * columns;
    row += row_step<Threads>();
    if (row < rows) next.load(o, row, columns);
    const float row_factor = o.row_factor(now.scale);
    float dot = 0.0f;
    Columns::template each_element<true>(columns, [&](int k, int i) {
      const float part = now.dy[k][i] * now.x[k][i] * (factor[k][i] * row_factor);
      sums[k][i] += part;
      dot += weight[k][i] * part;
    });
    const float mean = Threads::template reduce<Sum>(dot) / static_cast<float>(columns);
    Columns::each(columns, [&](int k, int c) {
      write_dx(o, at + c, now.dy[k], now.x[k], weight[k], factor[k], now.dsum[k], now.scale, mean);
    });
  }
  write_partial<Columns, Threads>(sums, columns, partial);
}

// The same for rows that no block holds: each is read twice, and the sums over rows lie in memory.
template <class X, class Dy, class Dx, bool from_result>
__global__ void __launch_bounds__(1024)
    rms_norm_grad_of_long_rows(std::int64_t rows, std::int64_t columns,
                               GradOperands<X, Dy, Dx, from_result> o, float* partial) {
  gpu::begin_kernel();
  partial += blockIdx.x * columns;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t at = row * columns;
    const float scale = o.rstd[row];
    float dot = 0.0f;
    for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      const float factor = o.column_factor(o.weight[c]) * o.row_factor(scale);
      const float part = load(&o.dy[at + c]) * load(&o.x[at + c]) * factor;
      partial[c] = row == blockIdx.x ? part : partial[c] + part;
      dot += o.weight[c] * part;
    }
    const float mean = reduce_block<Sum>(dot) / static_cast<float>(columns);
    for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      write_dx<1>(o, at + c, Held<Dy, 1>{o.dy[at + c]}, Held<X, 1>{o.x[at + c]},
                  Held<float, 1>{o.weight[c]}, Held<float, 1>{o.column_factor(o.weight[c])},
                  Held<float, 1>{o.dsum ? o.dsum[at + c] : 0.0f}, scale, mean);
    }
  }
}

constexpr int sum_columns = 8, sum_parts = 32;

// dweight[c] = sum_b partial[b, c]: a block sums 8 columns, each by 32 threads whose sums are then
// added in order.
__global__ void __launch_bounds__(sum_columns* sum_parts)
    sum_partials_kernel(std::int64_t columns, int blocks, const float* partial, float* dweight) {
  gpu::begin_kernel();
  __shared__ float sums[sum_parts][sum_columns];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * sum_columns + threadIdx.x;
  float sum = 0.0f;
  if (c < columns) {
#pragma unroll 8
    for (int b = static_cast<int>(threadIdx.y); b < blocks; b += sum_parts)
      sum += partial[b * columns + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= columns) return;
#pragma unroll 8
  for (int p = 1; p < sum_parts; ++p) sum += sums[p][threadIdx.x];
  dweight[c] = sum;
}

// Who takes a row of a gradient, and the blocks that it runs in, each with its row of partial sums.
struct GradLaunch {
  enum class Row { of_warp, of_block, of_long_block, in_memory } row;
  int blocks, threads, shared_bytes;
};

// For rows read in packs of N.
GradLaunch grad_launch(const Context& gpu, std::int64_t rows, std::int64_t columns, int N) {
  const std::int64_t packs = (columns + N - 1) / N;
  if (packs <= 2 * warp_width) {
    const std::int64_t blocks = std::min<std::int64_t>(blocks_for(rows, grad_warps),
                                                       std::int64_t{2} * gpu.card.multiprocessors);
    return {GradLaunch::Row::of_warp, static_cast<int>(blocks), grad_warps * warp_width,
            static_cast<int>(grad_warps * columns * static_cast<std::int64_t>(sizeof(float)))};
  }
  if (packs > 4 * max_grad_threads)
    return {GradLaunch::Row::in_memory,
            static_cast<int>(std::min<std::int64_t>(rows, gpu.card.multiprocessors)), 1024, 0};
  const bool is_long = packs > max_grad_threads;
  const int k = is_long ? 4 : 1;  // packs of a thread
  const std::int64_t threads = ((packs + k - 1) / k + warp_width - 1) / warp_width * warp_width;
  const std::int64_t resident = 1024 / threads * gpu.card.multiprocessors;
  return {is_long ? GradLaunch::Row::of_long_block : GradLaunch::Row::of_block,
          static_cast<int>(std::min(rows, resident)), static_cast<int>(threads), 0};
}

template <class X, class Dy, class Dx, bool from_result>
bool is_packable(const GradOperands<X, Dy, Dx, from_result>& o, std::int64_t columns,
                 const float* partial) {
  return rows_are_packable<wide>(columns, o.dsum, o.dy, o.x, o.weight, o.dx,
                                 static_cast<std::uint16_t*>(o.rounded.data), partial);
}

// dx, and the blocks' parts of dweight.
template <class X, class Dy, class Dx, bool from_result>
void run_backward(const Context& gpu, std::int64_t rows, std::int64_t columns,
                  const GradOperands<X, Dy, Dx, from_result>& o, float* partial) {
  dispatch_packed<wide>(is_packable(o, columns, partial), [&]<int N>() {
    const GradLaunch grid = grad_launch(gpu, rows, columns, N);
    const auto run = [&](auto kernel, auto kernel_columns) {
      launch(gpu, kernel, dim3(static_cast<unsigned>(grid.blocks)),
             dim3(static_cast<unsigned>(grid.threads)), static_cast<std::size_t>(grid.shared_bytes),
             rows, kernel_columns, o, partial);
    };
    const int held = static_cast<int>(columns);  // where a group holds a row
    switch (grid.row) {
      case GradLaunch::Row::of_warp:
        return run(rms_norm_grad_kernel<WarpThreads, N, 2, X, Dy, Dx, from_result>, held);
      case GradLaunch::Row::of_block:
        return run(rms_norm_grad_kernel<BlockThreads, N, 1, X, Dy, Dx, from_result>, held);
      case GradLaunch::Row::of_long_block:
        return run(rms_norm_grad_kernel<BlockThreads, N, 4, X, Dy, Dx, from_result>, held);
      case GradLaunch::Row::in_memory:
        return run(rms_norm_grad_of_long_rows<X, Dy, Dx, from_result>, columns);
    }
  });
}

template <class X, class Y>
KernelPtr forward(GpuPrepare& prepare, const RmsNorm& op) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel(
      [&gpu = prepare.gpu, rows, columns, terms = NormTerms(op)](const Launch& call) {
        const NormOperands<X, float, Y> o{.x = call.in<X>(0),
                                          .delta = nullptr,
                                          .weight = call.in<float>(1),
                                          .sum = nullptr,
                                          .y = call.out<Y>(0),
                                          .rstd = call.out<float>(1)};
        run_forward<false>(gpu, rows, columns, terms, o);
      });
}

template <class Delta, class Y>
KernelPtr add_forward(GpuPrepare& prepare, const AddRmsNorm& op) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel(
      [&gpu = prepare.gpu, rows, columns, terms = NormTerms(op)](const Launch& call) {
        const NormOperands<float, Delta, Y> o{.x = call.in<float>(0),
                                              .delta = call.in<Delta>(1),
                                              .weight = call.in<float>(2),
                                              .sum = call.out<float>(0),
                                              .y = call.out<Y>(1),
                                              .rstd = call.out<float>(2)};
        run_forward<true>(gpu, rows, columns, terms, o);
      });
}

// The operands are AddRmsNormGrad's, as which RmsNormGrad's without dsum count.
template <class X, class Dy, class Dx, bool from_result>
KernelPtr backward(GpuPrepare& prepare) {
  const AddRmsNormGrad::Operands at = AddRmsNormGrad::operands(prepare.in.size());
  const bool round = prepare.out.size() == 3;
  const DType delta = prepare.out.back().dtype;  // if so
  const Shape& shape = prepare.out[0].shape;
  const std::int64_t columns = shape[-1], rows = shape.rows();
  // A row of sums for each block, of which there are at most 16 on a multiprocessor.
  prepare.workspace =
      static_cast<std::size_t>(
          std::min<std::int64_t>(rows, std::int64_t{16} * prepare.gpu.card.multiprocessors) *
          columns) *
      sizeof(float);
  const auto operands = [at, round, delta](const Launch& call) {
    return GradOperands<X, Dy, Dx, from_result>{
        .dsum = at.dsum < at.count ? call.in<float>(at.dsum) : nullptr,
        .dy = call.in<Dy>(at.dy),
        .x = call.in<X>(at.sum),
        .weight = call.in<float>(at.weight),
        .rstd = call.in<float>(at.rstd),
        .dx = call.out<Dx>(0),
        .rounded = round ? RoundedCopy(call.outputs[2], delta) : RoundedCopy()};
  };
  const auto rest = [&gpu = prepare.gpu, rows, columns, operands](const Launch& call) {
    const auto* partial = static_cast<const float*>(call.workspace);
    const int N = is_packable(operands(call), columns, partial) ? wide : 1;
    launch(gpu, sum_partials_kernel, dim3(blocks_for(columns, sum_columns)),
           dim3(sum_columns, sum_parts), 0, columns, grad_launch(gpu, rows, columns, N).blocks,
           partial, call.out<float>(1));
  };
  return make_kernel(
      [&gpu = prepare.gpu, rows, columns, operands](const Launch& call) {
        run_backward(gpu, rows, columns, operands(call), static_cast<float*>(call.workspace));
      },
      rest, 1);
}

// f.template operator()<X, Dy, Dx, from_result>() for a gradient with x or sum, or y, in X.
template <class Prepare, class F>
KernelPtr dispatch_gradient(const Prepare& prepare, bool from_result, const F& f) {
  const AddRmsNormGrad::Operands at = AddRmsNormGrad::operands(prepare.in.size());
  const DType x = prepare.in[at.sum].dtype, dy = prepare.in[at.dy].dtype;
  return dispatch_floating(x, dy, [&]<class X, class Dy>() {
    return from_result ? f.template operator()<X, Dy, float, true>()
                       : f.template operator()<X, Dy, X, false>();
  });
}

}  // namespace

KernelPtr RmsNorm::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, prepare.out[0].dtype,
                           [&]<class X, class Y>() { return forward<X, Y>(prepare, *this); });
}

KernelPtr RmsNormGrad::gpu(GpuPrepare& prepare) const {
  return dispatch_gradient(prepare, from_result, [&]<class X, class Dy, class Dx, bool y>() {
    return backward<X, Dy, Dx, y>(prepare);
  });
}

KernelPtr AddRmsNorm::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[1].dtype, prepare.out[1].dtype, [&]<class Delta, class Y>() {
    return add_forward<Delta, Y>(prepare, *this);
  });
}

KernelPtr AddRmsNormGrad::gpu(GpuPrepare& prepare) const {
  return dispatch_gradient(prepare, from_result, [&]<class X, class Dy, class Dx, bool y>() {
    return backward<X, Dy, Dx, y>(prepare);
  });
}

}  // namespace ridge
