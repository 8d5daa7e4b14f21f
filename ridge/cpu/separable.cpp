#include "ridge/cpu/separable.h"

#include <algorithm>
#include <vector>

#include "ridge/cpu/simd.h"
#include "ridge/ops/pool.h"
#include "ridge/ops/resize.h"

namespace ridge {
namespace {

// A linear map of one dimension as a band of a matrix: result i is the sum of weight[k] * operand k
// over a range.
class Band {
 public:
  Band(const Axis& axis, bool transposed) {
    const std::int64_t results = transposed ? axis.in : axis.out;
    for (std::int64_t i = 0; i < results; ++i) {
      const Axis::Range range = transposed ? axis.results_of(i) : axis.operands_of(i);
      rows_.push_back({range.begin, range.end, static_cast<std::int64_t>(weights_.size())});
      for (std::int64_t k = range.begin; k < range.end; ++k)
        weights_.push_back(transposed ? axis.weight(k, i) : axis.weight(i, k));
    }
  }

  std::int64_t results() const { return static_cast<std::int64_t>(rows_.size()); }

  // f(operand, weight) for result i.
  template <class F>
  void each(std::int64_t i, const F& f) const {
    const Row& row = rows_[static_cast<std::size_t>(i)];
    const float* weights = &weights_[static_cast<std::size_t>(row.first)];
    for (std::int64_t k = row.begin; k < row.end; ++k) f(k, weights[k - row.begin]);
  }

 private:
  struct Row {
    std::int64_t begin, end, first;  // first: of its weights
  };
  std::vector<Row> rows_;
  std::vector<float> weights_;
};

// What a task sums at once, in registers' or the first cache's reach.
constexpr std::int64_t piece = 256;

// A row of a result with channels last: the pixels are vectors of channels.
template <class T>
void row_of_vectors(const T* x, const ImageStrides& at, const Band& down, const Band& across,
                    std::int64_t i, std::int64_t channels, T* y) {
  float sum[piece];
  for (std::int64_t j = 0; j < across.results(); ++j)
    for (std::int64_t begin = 0; begin < channels; begin += piece) {
      const std::int64_t length = std::min(piece, channels - begin);
      std::fill_n(sum, length, 0.0f);
      down.each(i, [&](std::int64_t row, float outer) {
        across.each(j, [&](std::int64_t column, float inner) {
          const T* from = x + row * at.h + column * at.w + begin;
          const float weight = outer * inner;
#pragma omp simd
          for (std::int64_t c = 0; c < length; ++c) sum[c] += weight * load(&from[c]);
        });
      });
      T* to = y + j * channels + begin;
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) store(&to[c], sum[c]);
    }
}

// A row of a result with channels first: rows are summed as vectors, then their columns. `sums` has
// room for a row of the operand.
template <class T>
void row_of_scalars(const T* x, std::int64_t width, const Band& down, const Band& across,
                    std::int64_t i, std::vector<float>& sums, T* y) {
  std::fill_n(sums.begin(), width, 0.0f);
  float* const sum = sums.data();
  down.each(i, [&](std::int64_t row, float weight) {
    const T* from = x + row * width;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) sum[c] += weight * load(&from[c]);
  });
  for (std::int64_t j = 0; j < across.results(); ++j) {
    float total = 0;
    across.each(j, [&](std::int64_t column, float weight) { total += weight * sum[column]; });
    store(&y[j], total);
  }
}

template <class T>
KernelPtr separable(CpuPrepare& prepare, const std::array<Axis, 2>& axes, bool transposed,
                    ImageLayout layout) {
  const ImageShape from(prepare.in[0].shape, layout), to(prepare.out[0].shape, layout);
  const ImageStrides xs(from, layout), ys(to, layout);
  const bool planes = layout == ImageLayout::nchw;
  const std::int64_t rows = to.n * to.h * (planes ? to.c : 1);
  const std::int64_t work = (planes ? 1 : to.c) * std::max(from.pixels(), to.pixels()) / to.h;
  return make_kernel([&pool = prepare.pool, down = Band(axes[0], transposed),
                      across = Band(axes[1], transposed), from, to, xs, ys, planes, rows,
                      work](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    parallel_for(pool, rows, rows_per_task(work), [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> sums(static_cast<std::size_t>(planes ? from.w : 0));
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t i = r % to.h, outer = r / to.h;  // an image, or one of its channels
        if (planes)
          row_of_scalars(x + outer * from.pixels(), from.w, down, across, i, sums,
                         y + outer * to.pixels() + i * to.w);
        else
          row_of_vectors(x + outer * xs.n, xs, down, across, i, to.c, y + outer * ys.n + i * ys.h);
      }
    });
  });
}

}  // namespace

KernelPtr separable_kernel(CpuPrepare& prepare, const std::array<Axis, 2>& axes, bool transposed,
                           ImageLayout layout) {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return separable<T>(prepare, axes, transposed, layout);
  });
}

KernelPtr AvgPool2d::cpu(CpuPrepare& p) const {
  return separable_kernel(p, axes(p.in, p.out), false, layout);
}
KernelPtr AvgPool2dGrad::cpu(CpuPrepare& p) const {
  return separable_kernel(p, axes(p.in, p.out), true, layout);
}
KernelPtr AdaptiveAvgPool2d::cpu(CpuPrepare& p) const {
  return separable_kernel(p, axes(p.in, p.out), false, layout);
}
KernelPtr AdaptiveAvgPool2dGrad::cpu(CpuPrepare& p) const {
  return separable_kernel(p, axes(p.in, p.out), true, layout);
}
KernelPtr Resize::cpu(CpuPrepare& p) const {
  return separable_kernel(p, axes(p.in, p.out), false, layout);
}
KernelPtr ResizeGrad::cpu(CpuPrepare& p) const {
  return separable_kernel(p, axes(p.in, p.out), true, layout);
}

}  // namespace ridge
