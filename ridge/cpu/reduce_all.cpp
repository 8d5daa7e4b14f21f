#include "ridge/ops/reduce_all.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/reductions.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

constexpr std::int64_t piece = 1024;  // elements that stay in the first cache
constexpr std::int64_t pieces_per_block = 16;

// What is known of the piece x[0, n) whose first element is number `first`: in loops that compilers
// vectorize, each over elements that are at hand.
template <class T>
void take_piece(MeanOf& state, const T* x, std::int64_t n, std::int64_t) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += load(&x[i]);
  state.merge({sum});
}

template <class T>
void take_piece(ProductOf& state, const T* x, std::int64_t n, std::int64_t) {
  float product = 1;
#pragma omp simd reduction(* : product)
  for (std::int64_t i = 0; i < n; ++i) product *= load(&x[i]);
  state.merge({product});
}

template <class T>
void take_piece(SquaredNormOf& state, const T* x, std::int64_t n, std::int64_t) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += load(&x[i]) * load(&x[i]);
  state.merge({sum});
}

template <class T>
void take_piece(VarianceOf& state, const T* x, std::int64_t n, std::int64_t) {
  float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += load(&x[i]);
  const float mean = sum / static_cast<float>(n);
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < n; ++i) squares += (load(&x[i]) - mean) * (load(&x[i]) - mean);
  state.merge({n, mean, squares});
}

template <class T>
void take_piece(LargestMagnitudeOf& state, const T* x, std::int64_t n, std::int64_t) {
  float best = 0;
  bool has_nan = false;
#pragma omp simd reduction(max : best) reduction(|| : has_nan)
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = std::abs(load(&x[i]));
    best = magnitude > best ? magnitude : best;
    has_nan = has_nan || magnitude != magnitude;
  }
  state.take(has_nan ? std::numeric_limits<float>::quiet_NaN() : best);
}

// Only a piece whose extreme beats all before is searched for its place.
template <int sign, class T>
void take_piece(ExtremeOf<sign>& state, const T* x, std::int64_t n, std::int64_t first) {
  float best = sign * load(&x[0]);
  bool has_nan = false;
#pragma omp simd reduction(max : best) reduction(|| : has_nan)
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = sign * load(&x[i]);
    best = value > best ? value : best;
    has_nan = has_nan || value != value;
  }
  if (!has_nan && state.index >= 0 && !(best > state.best)) return;
  for (std::int64_t i = 0; i < n; ++i) state.add(load(&x[i]), first + i);
}

template <class State, class T>
State of_block(const T* x, std::int64_t begin, std::int64_t end) {
  State state;
  for (std::int64_t i = begin; i < end; i += piece)
    take_piece(state, x + i, std::min(piece, end - i), i);
  return state;
}

// Blocks are cut by the number of elements alone, and come together in their order.
template <class T, class State, class Finish>
KernelPtr reduce(CpuPrepare& prepare, Finish finish) {
  const std::int64_t n = prepare.in[0].numel(), step = piece * pieces_per_block;
  const std::int64_t blocks = (n + step - 1) / step;
  prepare.workspace = static_cast<std::size_t>(blocks) * sizeof(State);
  return make_kernel([&pool = prepare.pool, n, blocks, finish](const Launch& call) {
    const T* x = call.in<T>(0);
    auto* states = static_cast<State*>(call.workspace);
    parallel_for(pool, blocks, 1, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b)
        states[b] = of_block<State>(x, b * step, std::min(n, (b + 1) * step));
    });
    State all = states[0];
    for (std::int64_t b = 1; b < blocks; ++b) all.merge(states[b]);
    finish(call, all);
  });
}

template <class T, class State>
KernelPtr reduce_to_value(CpuPrepare& prepare, bool root) {
  const std::int64_t n = prepare.in[0].numel();
  return reduce<T, State>(prepare, [n, root](const Launch& call, const State& all) {
    const float value = all.value(n);
    store(call.out<T>(), root ? std::sqrt(value) : value);
  });
}

template <class T, class State>
KernelPtr reduce_to_place(CpuPrepare& prepare) {
  return reduce<T, State>(prepare, [](const Launch& call, const State& all) {
    *call.out<std::int32_t>() = static_cast<std::int32_t>(all.index);
  });
}

}  // namespace

KernelPtr ReduceAll::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() -> KernelPtr {
    switch (kind) {
      case Reduction::mean:
        return reduce_to_value<T, MeanOf>(prepare, false);
      case Reduction::prod:
        return reduce_to_value<T, ProductOf>(prepare, false);
      case Reduction::norm:
        return reduce_to_value<T, SquaredNormOf>(prepare, true);
      case Reduction::max:
        return reduce_to_value<T, LargestOf>(prepare, false);
      case Reduction::std:
        return reduce_to_value<T, VarianceOf>(prepare, true);
      case Reduction::var:
        return reduce_to_value<T, VarianceOf>(prepare, false);
      case Reduction::absmax:
        return reduce_to_value<T, LargestMagnitudeOf>(prepare, false);
      case Reduction::argmax:
        return reduce_to_place<T, LargestOf>(prepare);
      default:
        return reduce_to_place<T, SmallestOf>(prepare);
    }
  });
}

}  // namespace ridge
