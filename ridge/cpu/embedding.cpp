#include "ridge/ops/embedding.h"

#include <algorithm>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

constexpr std::int64_t max_width = 256;  // columns summed at a time, in f32 whatever the dtype

template <class T>
KernelPtr gather(CpuPrepare& prepare) {
  const std::int64_t columns = prepare.in[0].shape[1], count = prepare.in[1].numel();
  return make_kernel([&pool = prepare.pool, columns, count](const Launch& call) {
    const T* table = call.in<T>(0);
    const auto* ids = call.in<std::int32_t>(1);
    T* y = call.out<T>(0);
    parallel_for(pool, count, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        std::copy_n(table + ids[i] * columns, columns, y + i * columns);
    });
  });
}

// The positions of ids, ordered by id and, where equal, by position: those of id v are
// order[first[v]] up to order[first[v + 1]]. `first` has one element more than there are ids.
void counting_sort(const std::int32_t* ids, std::int64_t count, std::int64_t rows,
                   std::int64_t* first, std::int64_t* order) {
  // Counted two places up, the starts end up one place up; placing moves each on to the next start.
  std::fill_n(first, rows + 2, 0);
  for (std::int64_t i = 0; i < count; ++i) ++first[ids[i] + 2];
  for (std::int64_t v = 2; v <= rows; ++v) first[v] += first[v - 1];
  for (std::int64_t i = 0; i < count; ++i) order[first[ids[i] + 1]++] = i;
}

// Tasks own rows of the table, so that each is written once and summed in the order of ids.
template <class T>
KernelPtr scatter(CpuPrepare& prepare) {
  const std::int64_t columns = prepare.out[0].shape[1], rows = prepare.out[0].shape[0];
  const std::int64_t count = prepare.in[1].numel();
  // Small tables get small tasks: in text most ids fall on few neighbouring rows.
  const std::int64_t grain = std::clamp<std::int64_t>(rows / 256, 1, rows_per_task(columns));
  prepare.workspace = static_cast<std::size_t>(rows + 2 + count) * sizeof(std::int64_t);
  return make_kernel([&pool = prepare.pool, columns, rows, count, grain](const Launch& call) {
    const T* dy = call.in<T>(0);
    T* dtable = call.out<T>(0);
    auto* first = static_cast<std::int64_t*>(call.workspace);
    auto* order = first + rows + 2;
    counting_sort(call.in<std::int32_t>(1), count, rows, first, order);
    parallel_for(pool, rows, grain, [=](std::int64_t begin, std::int64_t end) {
      float sums[max_width];
      for (std::int64_t v = begin; v < end; ++v)
        for (std::int64_t c0 = 0; c0 < columns; c0 += max_width) {
          const std::int64_t width = std::min(max_width, columns - c0);
          std::fill_n(sums, width, 0.0f);
          for (std::int64_t i = first[v]; i < first[v + 1]; ++i) {
            const T* row = dy + order[i] * columns + c0;
#pragma omp simd
            for (std::int64_t c = 0; c < width; ++c) sums[c] += load(&row[c]);
          }
          T* out = dtable + v * columns + c0;
#pragma omp simd
          for (std::int64_t c = 0; c < width; ++c) store(&out[c], sums[c]);
        }
    });
  });
}

}  // namespace

KernelPtr Embedding::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return gather<T>(prepare); });
}

KernelPtr EmbeddingGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return scatter<T>(prepare); });
}

}  // namespace ridge
