#pragma once

#include <array>

#include "ridge/ops/operator.h"

namespace ridge {

// The same elements under another shape. Free: the result shares the operand's memory.
struct Reshape {
  static constexpr std::string_view name = "reshape";
  static constexpr DTypes dtypes = f32_and_bf16;

  Shape shape;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Reshape>> samples();
  std::optional<std::uint32_t> aliased_input(std::uint32_t output) const;
  KernelPtr cpu(CpuPrepare& prepare) const;
  bool operator==(const Reshape&) const = default;
};

// Moves data so that dimension i of the result is dimension order[i] of the operand.
struct Permute {
  static constexpr std::string_view name = "permute";
  static constexpr DTypes dtypes = f32_and_bf16;

  // Only the first rank() entries count; the others are 0.
  std::array<std::uint8_t, Shape::max_rank> order{};

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Permute>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  bool operator==(const Permute&) const = default;
};

// The value itself if it has that shape already.
Value reshape(Value x, const Shape& shape);
Value permute(Value x, std::array<std::uint8_t, Shape::max_rank> order);

}  // namespace ridge
