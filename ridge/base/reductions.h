#pragma once

#include <cstdint>

namespace ridge {

// How a reduction of many numbers to one goes on any device: what is known of some of the elements,
// how one more is taken in, and how two parts come together, the earlier one first. Where the
// result is a root, `value` gives what it is the root of. The name and the formula of each are
// those of ops/reduce_all.h.

struct MeanOf {
  float sum = 0;
  constexpr void add(float x, std::int64_t) { sum += x; }
  constexpr void merge(const MeanOf& later) { sum += later.sum; }
  constexpr float value(std::int64_t n) const { return sum / static_cast<float>(n); }
};

struct ProductOf {
  float product = 1;
  constexpr void add(float x, std::int64_t) { product *= x; }
  constexpr void merge(const ProductOf& later) { product *= later.product; }
  constexpr float value(std::int64_t) const { return product; }
};

struct SquaredNormOf {
  float sum = 0;
  constexpr void add(float x, std::int64_t) { sum += x * x; }
  constexpr void merge(const SquaredNormOf& later) { sum += later.sum; }
  constexpr float value(std::int64_t) const { return sum; }
};

// NaN counts as the largest.
struct LargestMagnitudeOf {
  float best = 0;
  constexpr void take(float x) {
    if (x > best || x != x) best = best != best ? best : x;
  }
  constexpr void add(float x, std::int64_t) { take(x < 0 ? -x : x); }
  constexpr void merge(const LargestMagnitudeOf& later) { take(later.best); }
  constexpr float value(std::int64_t) const { return best; }
};

// The variance as Welford (1962) takes in one element, and as Chan, Golub and LeVeque (1979) join
// two parts: nothing large is subtracted from something large.
struct VarianceOf {
  std::int64_t count = 0;
  float mean = 0, squares = 0;  // of the deviations from it
  constexpr void add(float x, std::int64_t) {
    ++count;
    const float off = x - mean;
    mean += off / static_cast<float>(count);
    squares += off * (x - mean);
  }
  constexpr void merge(const VarianceOf& later) {
    if (later.count == 0) return;
    const float share = static_cast<float>(later.count) / static_cast<float>(count + later.count);
    const float off = later.mean - mean;
    squares += later.squares + off * off * share * static_cast<float>(count);
    mean += off * share;
    count += later.count;
  }
  constexpr float value(std::int64_t n) const { return squares / static_cast<float>(n - 1); }
};

// The largest of the elements times `sign`, and where it stands first. NaN counts as the largest.
template <int sign>
struct ExtremeOf {
  float best = 0;
  std::int64_t index = -1;  // none yet

  static constexpr bool beats(float x, float y) { return x > y || (x != x && y == y); }
  constexpr void take(float x, std::int64_t i) {
    if (index >= 0 && !beats(x, best)) return;
    best = x;
    index = i;
  }
  constexpr void add(float x, std::int64_t i) { take(sign * x, i); }
  constexpr void merge(const ExtremeOf& later) {
    if (later.index < 0) return;
    // Parts of one block of threads are interleaved: of equals the first counts.
    if (index >= 0 && later.index < index && !beats(best, later.best)) index = -1;
    take(later.best, later.index);
  }
  constexpr float value(std::int64_t) const { return sign * best; }
};
using LargestOf = ExtremeOf<1>;
using SmallestOf = ExtremeOf<-1>;

}  // namespace ridge
