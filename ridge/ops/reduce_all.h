#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// What can be said of all elements by one number; the sum of some or all is SumTo (ops/reduce.h).
enum class Reduction : std::uint8_t {
  mean,
  prod,
  norm,  // sqrt(sum x^2)
  max,
  std,  // sqrt(var)
  var,  // sum (x - mean)^2 / (n - 1); NaN for one element
  argmax,
  argmin,
  absmax,  // max |x|
};
std::string_view name_of(Reduction kind);  // "mean"

// One number from all elements of a tensor, a scalar of its type; of argmax and argmin an i32, the
// place where the extreme stands first, counted in the order of memory. Accumulates in f32, in an
// order that depends on the number of elements alone.
struct ReduceAll {
  static constexpr std::string_view name = "reduce_all";

  Reduction kind = Reduction::mean;

  RIDGE_OPERATOR(ReduceAll);
  std::string_view aten_name(Types in) const;
};

}  // namespace ridge
