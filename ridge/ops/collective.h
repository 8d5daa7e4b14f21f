#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// Operators that every rank of a run applies at the same time, each to its own tensors
// (device/communicator.h).

// Each element by its sum over all ranks or, if `mean`, by their mean: y = (sum over r of x_r) /
// ranks. In place: output i is the memory of operand i. Takes one or more tensors, which go
// together. Sums in f32; all ranks get the same bits. Of one rank there is nothing to do.
struct AllReduce {
  static constexpr std::string_view name = "all_reduce";

  std::int64_t ranks = 1;
  bool mean = false;

  RIDGE_OPERATOR(AllReduce);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  // The same over all ranks at once: what reference() is of one rank alone.
  void reference_over(std::span<ReferenceCall> calls) const;
};

std::vector<Value> all_reduce(std::span<const Value> x, const AllReduce& op);

}  // namespace ridge
