#pragma once

// The sum of a row's exponentials: what softmax and cross-entropy share.

#include <cmath>

#include "ridge/gpu/kernels/rows.h"

namespace ridge::gpu {

struct ExpSum {
  float max, sum;  // sum_c exp(scale * x[c] - max), with max the greatest scale * x[c]
};

// The maximum and the sum of exponentials of the first `columns` elements of a row, known to the
// whole group. One pass, in which each thread keeps the greatest element that it has met and the
// sum relative to that one. `packs` holds what was read last: the row, if the group can hold it.
// `whole` says that `columns` is a multiple of N.
template <class Threads, bool whole, int N, int K, class T>
__device__ ExpSum exp_sum(const T* x, std::int64_t columns, float scale, Held<T, N> (&packs)[K]) {
  using Columns = ColumnsOf<Threads, N, K>;
  float max = -INFINITY, sum = 0.0f;
  for (std::int64_t begin = 0; begin < columns; begin += Columns::held()) {
    const int rest = Columns::clamp(columns - begin);
    Columns::load_row(x + begin, rest, packs);
    const float before = max;
    Columns::template each_element<whole>(
        rest, [&](int k, int i) { max = fmaxf(max, scale * packs[k][i]); });
    // Where there is nothing finite yet the exponentials are 0 beside any number, but not beside
    // -infinity.
    const float offset = max == -INFINITY ? 0.0f : max;
    sum *= __expf(before - offset);
    Columns::template each_element<whole>(
        rest, [&](int k, int i) { sum += __expf(scale * packs[k][i] - offset); });
  }
  const float row_max = Threads::template reduce<Max>(max);
  return {row_max, Threads::template reduce<Sum>(sum * __expf(max - row_max))};
}

}  // namespace ridge::gpu
