#include "ridge/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "ridge/gpu/kernels/softmax/softmax.h"

namespace ridge {
namespace {

using namespace gpu;

// A block whose rows do not fit into a warp: small, so that several on a multiprocessor hide each
// other's reductions. A row is read once however long it is.
constexpr int long_row_threads = 256;

// Rows of logits, `pitch` elements apart, of which the first `columns` are classes.
struct Rows {
  std::int64_t count, columns, pitch;
};

// The loss of a row, in the group's first thread, which writes lse. `whole` says that the columns
// are a multiple of N.
template <class Threads, bool whole, int N, int K, class T>
__device__ double row_loss(std::int64_t row, const Rows& rows, const T* logits,
                           const std::int32_t* targets, float* lse) {
  const T* x = logits + row * rows.pitch;
  // Now, so that it is here when the row is; using it at once would hold up the row's own loads.
  const std::int32_t target = targets[row];
  Held<T, N> packs[K];
  const ExpSum all = exp_sum<Threads, whole>(x, rows.columns, 1.0f, packs);
  if (Threads::rank() > 0) return 0;
  const float log_sum = logf(all.sum);
  lse[row] = all.max + log_sum;
  // Not from the rounded lse: logits may be large where their differences are small.
  return static_cast<double>(all.max) - load(&x[target]) + log_sum;
}

// lse and the loss of each row.
template <class Threads, bool whole, int N, int K, class T>
__global__ void __launch_bounds__(Threads::is_block ? long_row_threads : Threads::max_threads)
    cross_entropy_kernel(Rows rows, const T* logits, const std::int32_t* targets, float* lse,
                         double* losses) {
  gpu::begin_kernel();
  const std::int64_t row = first_row<Threads>();
  if (row >= rows.count) return;
  const double loss = row_loss<Threads, whole, N, K>(row, rows, logits, targets, lse);
  if (Threads::rank() == 0) losses[row] = loss;
}

// So few rows that a block has a warp for each.
constexpr int few_rows = 1024 / warp_width < warp_width ? 1024 / warp_width : warp_width;

// All of it at once, by one block.
template <bool whole, int N, int K, class T>
__global__ void __launch_bounds__(few_rows* warp_width)
    few_rows_kernel(Rows rows, const T* logits, const std::int32_t* targets, float* lse,
                    float* loss) {
  gpu::begin_kernel();
  __shared__ double losses[few_rows];
  const int row = WarpThreads::index(), lane = WarpThreads::rank();
  const double own = row_loss<WarpThreads, whole, N, K>(row, rows, logits, targets, lse);
  if (lane == 0) losses[row] = own;
  __syncthreads();
  if (row > 0) return;
  const double sum = reduce_warp<Sum>(lane < rows.count ? losses[lane] : 0.0);
  if (lane == 0) *loss = static_cast<float>(sum / static_cast<double>(rows.count));
}

constexpr int mean_threads = 1024;

// The mean of all rows' losses, by one block.
__global__ void __launch_bounds__(mean_threads)
    mean_kernel(std::int64_t rows, const double* losses, float* loss) {
  gpu::begin_kernel();
  double sum = 0.0;
#pragma unroll 8
  for (std::int64_t r = threadIdx.x; r < rows; r += mean_threads) sum += losses[r];
  sum = reduce_block<Sum>(sum);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / static_cast<double>(rows));
}

// dlogits may be the memory of logits: a thread reads its elements before it writes them.
template <class Threads, int N, int K, class T>
__global__ void __launch_bounds__(Threads::max_threads)
    cross_entropy_grad_kernel(Rows rows, const float* dloss, const T* logits,
                              const std::int32_t* targets, const float* lse, T* dlogits) {
  gpu::begin_kernel();
  using Columns = ColumnsOf<Threads, N, K>;
  const std::int64_t row = first_row<Threads>();
  if (row >= rows.count) return;
  const T* x = logits + row * rows.pitch;
  T* dx = dlogits + row * rows.pitch;
  const float factor = *dloss / static_cast<float>(rows.count), offset = lse[row];
  const std::int64_t target = targets[row];
  for (std::int64_t begin = 0; begin < rows.pitch; begin += Columns::held()) {
    const int rest = Columns::clamp(rows.pitch - begin);
    const int classes = Columns::clamp(max(rows.columns - begin, std::int64_t{0}));
    // The column in this part of the row, if it is there.
    const int hit =
        target >= begin && target < begin + rest ? static_cast<int>(target - begin) : -1;
    Held<T, N> packs[K];
    Columns::load_row(x + begin, rest, packs);
    Columns::each(rest, [&](int k, int c) {
      float result[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float part = __expf(packs[k][i] - offset) - (c + i == hit ? 1.0f : 0.0f);
        result[i] = c + i < classes ? factor * part : 0.0f;
      }
      store_pack<N>(dx + begin + c, result);
    });
  }
}

Rows rows_of(const Shape& logits, std::int64_t classes) {
  return {logits.rows(), std::min(classes, logits[-1]), logits[-1]};
}

template <class T>
KernelPtr forward(GpuPrepare& prepare, std::int64_t classes) {
  const Rows rows = rows_of(prepare.in[0].shape, classes);
  prepare.workspace = static_cast<std::size_t>(rows.count) * sizeof(double);
  const auto mean = [&gpu = prepare.gpu, rows](const Launch& call) {
    launch(gpu, mean_kernel, dim3(1), dim3(mean_threads), 0, rows.count,
           static_cast<const double*>(call.workspace), call.out<float>(0));
  };
  const bool few = rows.count <= few_rows;
  const auto by = [&gpu = prepare.gpu, rows, few, mean]<int N, bool whole>(const Launch& call) {
    const T* logits = call.in<T>(0);
    const auto* targets = call.in<std::int32_t>(1);
    float* lse = call.out<float>(1);
    auto* losses = static_cast<double*>(call.workspace);
    dispatch_threads<N, 1>(rows.columns, [&]<class Threads, int K>(ThreadsLaunch group) {
      if constexpr (!Threads::is_block)
        if (few)
          return launch(gpu, few_rows_kernel<whole, N, K, T>, dim3(1),
                        dim3(static_cast<unsigned>(rows.count * warp_width)), 0, rows, logits,
                        targets, lse, call.out<float>(0));
      if (Threads::is_block) group.threads = std::min(group.threads, long_row_threads);
      launch(gpu, cross_entropy_kernel<Threads, whole, N, K, T>, group.grid(rows.count),
             group.block(), 0, rows, logits, targets, lse, losses);
      if (few) mean(call);
    });
  };
  const auto each = [by, rows](const Launch& call) {
    constexpr int wide = elements_per_access<T>;
    if (!rows_are_packable<wide>(rows.pitch, call.in<T>(0)))
      by.template operator()<1, true>(call);
    else if (rows.columns % wide == 0)
      by.template operator()<wide, true>(call);
    else
      by.template operator()<wide, false>(call);
  };
  if (few) return make_kernel(each);
  return make_kernel(each, mean, 0);  // the gradient needs lse alone
}

template <class T>
KernelPtr backward(GpuPrepare& prepare, std::int64_t classes) {
  static constexpr CrossEntropyGrad::Operands at = CrossEntropyGrad::operands();
  const Rows rows = rows_of(prepare.in[at.logits].shape, classes);
  return make_kernel([&gpu = prepare.gpu, rows](const Launch& call) {
    const T* logits = call.in<T>(at.logits);
    T* dlogits = call.out<T>(0);
    constexpr int wide = elements_per_access<T>;
    dispatch_packed<wide>(rows_are_packable<wide>(rows.pitch, logits, dlogits), [&]<int N>() {
      dispatch_threads<N, 1>(rows.pitch, [&]<class Threads, int K>(ThreadsLaunch group) {
        launch(gpu, cross_entropy_grad_kernel<Threads, N, K, T>, group.grid(rows.count),
               group.block(), 0, rows, call.in<float>(at.dloss), logits,
               call.in<std::int32_t>(at.targets), call.in<float>(at.lse), dlogits);
      });
    });
  });
}

}  // namespace

KernelPtr CrossEntropy::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T>(prepare, classes); });
}

KernelPtr CrossEntropyGrad::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[operands().logits].dtype,
                           [&]<class T>() { return backward<T>(prepare, classes); });
}

}  // namespace ridge
