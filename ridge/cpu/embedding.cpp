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

// The positions of ids, ordered by key_of(id) in [0, keys) and, where equal, by position: those of
// key v are order[first[v]] up to order[first[v + 1]]. `first` has room for keys + 2.
template <class F>
void counting_sort(const std::int32_t* ids, std::int64_t count, std::int64_t keys, const F& key_of,
                   std::int64_t* first, std::int64_t* order) {
  // Counted two places up, the starts end up one place up; placing moves each on to the next start.
  std::fill_n(first, keys + 2, 0);
  for (std::int64_t i = 0; i < count; ++i) ++first[key_of(ids[i]) + 2];
  for (std::int64_t v = 2; v <= keys; ++v) first[v] += first[v - 1];
  for (std::int64_t i = 0; i < count; ++i) order[first[key_of(ids[i]) + 1]++] = i;
}

// Tasks own rows of the table, so that each is written once and summed in the order of ids.
template <class T>
KernelPtr scatter(CpuPrepare& prepare) {
  const std::int64_t columns = prepare.out[0].shape[1], rows = prepare.out[0].shape[0];
  const std::int64_t count = prepare.in[1].numel();
  // Small tables get small tasks: in text most ids fall on few neighboring rows.
  const std::int64_t grain = std::clamp<std::int64_t>(rows / 256, 1, rows_per_task(columns));
  prepare.workspace = static_cast<std::size_t>(rows + 2 + count) * sizeof(std::int64_t);
  return make_kernel([&pool = prepare.pool, columns, rows, count, grain](const Launch& call) {
    const T* dy = call.in<T>(0);
    T* dtable = call.out<T>(0);
    auto* first = static_cast<std::int64_t*>(call.workspace);
    auto* order = first + rows + 2;
    const auto itself = [](std::int32_t id) { return id; };
    counting_sort(call.in<std::int32_t>(1), count, rows, itself, first, order);
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

// To the row of the first of the ids at `begin` those that follow with the same id; returns the
// first with another.
template <class T>
std::int64_t* add_to_row(const std::int32_t* ids, std::int64_t* begin, std::int64_t* end,
                         std::int64_t columns, const T* rows, T* table) {
  const std::int32_t id = ids[*begin];
  std::int64_t* last = begin + 1;
  while (last < end && ids[*last] == id) ++last;
  float sums[max_width];
  for (std::int64_t c0 = 0; c0 < columns; c0 += max_width) {
    const std::int64_t width = std::min(max_width, columns - c0);
    T* to = table + id * columns + c0;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) sums[c] = load(&to[c]);
    for (const std::int64_t* i = begin; i < last; ++i) {
      const T* from = rows + *i * columns + c0;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) sums[c] += load(&from[c]);
    }
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) store(&to[c], sums[c]);
  }
  return last;
}

// Tasks own neighboring rows of the table: a bucket's ids are sorted, and each row is read and
// written once.
template <class T>
KernelPtr add_rows(CpuPrepare& prepare) {
  constexpr std::int64_t most_buckets = 4096;
  const std::int64_t columns = prepare.in[0].shape[1], count = prepare.in[1].numel();
  const std::int64_t buckets = std::min(count, most_buckets);
  const std::int64_t rows_per_bucket = (prepare.in[0].shape[0] + buckets - 1) / buckets;
  prepare.workspace = static_cast<std::size_t>(buckets + 2 + count) * sizeof(std::int64_t);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const auto* ids = call.in<std::int32_t>(1);
    const T* rows = call.in<T>(2);
    T* table = call.out<T>();
    auto* first = static_cast<std::int64_t*>(call.workspace);
    auto* order = first + buckets + 2;
    const auto bucket_of = [=](std::int32_t id) { return id / rows_per_bucket; };
    counting_sort(ids, count, buckets, bucket_of, first, order);
    pool.run(buckets, [=](std::int64_t bucket) {
      std::int64_t *at = order + first[bucket], *const end = order + first[bucket + 1];
      std::stable_sort(at, end, [=](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
      while (at < end) at = add_to_row(ids, at, end, columns, rows, table);
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

KernelPtr IndexAdd::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return add_rows<T>(prepare); });
}

}  // namespace ridge
