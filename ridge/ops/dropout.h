#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = x / (1 - rate) where a random number of the element is at least `rate`, else 0 (Srivastava et
// al., 2014). The number is a function of `seed`, the step and the element, so that the gradient is
// the same operator. With `block` above 1, as many elements in a row share their number: with all
// of a sample's, whole samples are dropped (stochastic depth: Huang et al., 2016). Takes x, whose
// elements are a multiple of `block`, and step[] in i32. `rate` is at least 0 and below 1.
//
// The number of block i, counted from `first`, is word i % 4 of philox(seed, i / 4, step), as a
// fraction of 2^32.
struct Dropout {
  static constexpr std::string_view name = "dropout";

  float rate = 0.5f;
  std::uint64_t seed = 0;
  std::int64_t block = 1;
  std::int64_t first = 0;  // the number of the first block: of a part of a larger tensor

  RIDGE_OPERATOR(Dropout);
  std::vector<Value> grad(GradBuilder& builder) const;

  // What a random word has to reach for the element to stay.
  constexpr std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(double{rate} * 0x1p32);
  }
  constexpr float scale() const { return 1.0f / (1.0f - rate); }
};

Value dropout(Value x, Value step, float rate, std::uint64_t seed, std::int64_t block = 1);

}  // namespace ridge
