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
  std::int64_t sent_bytes(Types in) const;
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  // The same over all ranks at once: what reference() is of one rank alone.
  void reference_over(std::span<ReferenceCall> calls) const;
};

// The sum or mean over all ranks as AllReduce has it, of which each rank gets its own part alone
// (part_of() in base/part.h, of the elements in the order of memory). Takes one or more
// tensors, which go together, and gives the part of each, a vector.
struct ReduceScatter {
  static constexpr std::string_view name = "reduce_scatter";

  std::int64_t ranks = 1, rank = 0;
  bool mean = false;

  RIDGE_OPERATOR(ReduceScatter);
  std::int64_t sent_bytes(Types in) const;
  void reference_over(std::span<ReferenceCall> calls) const;
};

// Puts tensors together of which each rank has its own part. Takes the part, a vector, of each of
// one or more, and gives tensors of these shapes. Without shapes it takes, after each part, the
// tensor in whose memory the parts of all come together: output i is the memory of operand 2 i + 1.
// What that held of its own part is not read; the part may lie there already. With shapes, each
// rank may round its parts to 16 bits before it sends them.
struct AllGather {
  static constexpr std::string_view name = "all_gather";
  static constexpr DTypes dtypes = f32_16_bit_and_s8;
  static constexpr bool partial = true;

  std::int64_t ranks = 1, rank = 0;
  std::vector<Shape> shapes{};
  std::optional<DType> rounded_to{};

  RIDGE_OPERATOR(AllGather);
  std::int64_t sent_bytes(Types in) const;
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  void reference_over(std::span<ReferenceCall> calls) const;

  std::size_t operands_each() const { return shapes.empty() ? 2 : 1; }
  DType sent_dtype(const TensorType& part) const { return rounded_to.value_or(part.dtype); }
};

std::vector<Value> all_reduce(std::span<const Value> x, const AllReduce& op);

}  // namespace ridge
