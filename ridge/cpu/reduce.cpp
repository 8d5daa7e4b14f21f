#include "ridge/ops/reduce.h"

#include "ridge/base/ceil_div.h"
#include "ridge/base/loop_nest.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

// How the work is cut. The innermost loop, which runs along contiguous elements, is cut in pieces.
// If it is kept, one sum is a vector as long as a piece, and there is one for every iteration of
// the other kept loops and every piece. If it is summed over, one sum is a single number. A sum has
// as many terms as the summed loops have iterations (times the pieces, in the latter case), and
// these are shared out in blocks, whose sums go to the workspace and are added in order. All this
// depends on the shapes only, and so do the bits of the result.
struct Cut : SumNest {
  static constexpr std::int64_t piece = 1024;

  std::int64_t sums = 1, terms = 1, terms_per_block = 1, blocks = 1;

  Cut(const Shape& from, const Shape& to) : SumNest(from, to) {
    sums = iterations(kept) * (innermost_kept ? pieces() : 1);
    terms = iterations(summed) * (innermost_kept ? 1 : pieces());
    // Enough blocks for many cores, and short ones, because rounding errors grow with the length.
    blocks = std::min(terms, std::max(ceil_div(32, sums), ceil_div(terms, 256)));
    terms_per_block = ceil_div(terms, blocks);
    blocks = ceil_div(terms, terms_per_block);
  }

  std::int64_t pieces() const { return ceil_div(extent, piece); }
  std::int64_t length(std::int64_t p) const { return std::min(piece, extent - p * piece); }
};

// A vector of sums over terms [begin, end), where element 0 of term 0 is at x.
template <class T>
void sum_vectors(const Cut& cut, const T* x, std::int64_t length, std::int64_t begin,
                 std::int64_t end, float* sums) {
  std::fill(sums, sums + length, 0.0f);
  for (std::int64_t term = begin; term < end; ++term) {
    const T* row = x + offsets_at(cut.summed, term)[0];
#pragma omp simd
    for (std::int64_t c = 0; c < length; ++c) sums[c] += load(&row[c]);
  }
}

template <class T>
float sum_pieces(const Cut& cut, const T* x, std::int64_t begin, std::int64_t end) {
  float total = 0;
  for (std::int64_t term = begin; term < end; ++term) {
    const std::int64_t p = term % cut.pieces(), length = cut.length(p);
    const T* row = x + offsets_at(cut.summed, term / cut.pieces())[0] + p * Cut::piece;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < length; ++c) sum += load(&row[c]);
    total += sum;
  }
  return total;
}

// Sum `s` over the terms of block `b`, into that block's own copy of the result.
template <class T>
void sum_block(const Cut& cut, const T* x, std::int64_t s, std::int64_t b, float* partial) {
  const std::int64_t begin = b * cut.terms_per_block;
  const std::int64_t end = std::min(cut.terms, begin + cut.terms_per_block);
  if (cut.innermost_kept) {
    const std::int64_t p = s % cut.pieces();
    const auto [from, to] = offsets_at(cut.kept, s / cut.pieces());
    sum_vectors(cut, x + from + p * Cut::piece, cut.length(p), begin, end,
                partial + to + p * Cut::piece);
  } else {
    const auto [from, to] = offsets_at(cut.kept, s);
    partial[to] = sum_pieces(cut, x + from, begin, end);
  }
}

template <class T>
KernelPtr sum(CpuPrepare& prepare) {
  const std::int64_t n = prepare.out[0].numel();
  const Cut cut(prepare.in[0].shape, prepare.out[0].shape);
  prepare.workspace = static_cast<std::size_t>(cut.blocks * n) * sizeof(float);
  const std::int64_t grain = rows_per_task(cut.terms_per_block * std::min(cut.extent, Cut::piece));
  return make_kernel([&pool = prepare.pool, n, cut, grain](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    auto* partial = static_cast<float*>(call.workspace);
    parallel_for(pool, cut.blocks * cut.sums, grain, [&, x](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t b = task / cut.sums;
        sum_block(cut, x, task % cut.sums, b, partial + b * n);
      }
    });
    parallel_for(pool, n, 256, [=, blocks = cut.blocks](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = 1; b < blocks; ++b) {
        const float* block = partial + b * n;
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) partial[i] += block[i];
      }
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) store(&y[i], partial[i]);
    });
  });
}

}  // namespace

KernelPtr SumTo::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return sum<T>(prepare); });
}

}  // namespace ridge
