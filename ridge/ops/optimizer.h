#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// acc += x, in place: the output is the accumulator's memory. Takes (acc, x) of one type.
struct Accumulate {
  static constexpr std::string_view name = "accumulate";
  static constexpr DTypes dtypes = f32_only;
  static constexpr std::string_view aten = "aten::add_";

  RIDGE_OPERATOR(Accumulate);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

// The Euclidean norm of all operands together, an f32 scalar: sqrt(sum of all x^2). One or more
// tensors, each of its own dtype. Sums in f64 over fixed blocks.
struct GlobalNorm {
  static constexpr std::string_view name = "global_norm";

  RIDGE_OPERATOR(GlobalNorm);
};

// AdamW (Loshchilov and Hutter, 2017): decoupled weight decay, in place. Takes param, grad, exp_avg
// and exp_avg_sq of one f32 type (grad may be in 16 bits), schedule[3] = (learning rate, 1 -
// beta1^t, 1 - beta2^t) and, if max_norm is above 0, the scalar norm of all gradients; outputs 0,
// 1, 2 are the memory of param, exp_avg, exp_avg_sq.
//   g = grad * min(1, max_norm / (norm + 1e-6))     (without max_norm, g = grad)
//   param -= lr * weight_decay * param
//   exp_avg = beta1 * exp_avg + (1 - beta1) * g;  exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) g^2
//   param -= lr / (1 - beta1^t) * exp_avg / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)
// `scaled`: grad and norm are those of a loss that was multiplied by a scale, and schedule has a
// fourth number, by which they are multiplied first: the scale's inverse, or 0 for a step that is
// to be skipped, which leaves everything as it was. See UpdateLossScale, which computes it.
struct AdamW {
  static constexpr std::string_view name = "adamw", name_of_all = "adamw_all";
  static constexpr DTypes dtypes = f32_only;
  static constexpr std::uint32_t moments = 2;  // tensors of state for each parameter

  // In double, since 1 - beta2 in f32 would be off by 1e-5 of itself.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double max_norm = 0.0;  // 0: no clipping
  bool scaled = false;

  TensorType schedule_type() const { return {DType::f32, {scaled ? 4 : 3}}; }
  std::int64_t flops_per_element() const;

  // Which operand is which; a norm that is not there is past the end.
  struct Operands {
    std::size_t param = 0, grad = 1, exp_avg = 2, exp_avg_sq = 3, schedule = 4, norm = 5, count = 6;
  };
  constexpr Operands operands() const { return {.count = 5u + (max_norm > 0)}; }

  RIDGE_OPERATOR(AdamW);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

// Stochastic gradient descent with momentum, as PyTorch has it, in place. Takes param, grad and
// buffer of one f32 type (grad may be in 16 bits) and, as AdamW does, the schedule, of which it
// uses the learning rate and the scale, and the norm; outputs 0 and 1 are the memory of param and
// buffer.
//   g = grad * min(1, max_norm / (norm + 1e-6)) + weight_decay * param
//   buffer = momentum * buffer + g                  (which begins at 0)
//   param -= lr * buffer                            (nesterov: lr * (g + momentum * buffer))
struct Sgd {
  static constexpr std::string_view name = "sgd", name_of_all = "sgd_all";
  static constexpr DTypes dtypes = f32_only;
  static constexpr std::uint32_t moments = 1;

  double momentum = 0.9;
  double weight_decay = 0.0;
  double max_norm = 0.0;  // 0: no clipping
  bool nesterov = false;
  bool scaled = false;

  TensorType schedule_type() const { return {DType::f32, {scaled ? 4 : 3}}; }
  std::int64_t flops_per_element() const;

  // Which operand is which; a norm that is not there is past the end.
  struct Operands {
    std::size_t param = 0, grad = 1, buffer = 2, schedule = 3, norm = 4, count = 5;
  };
  constexpr Operands operands() const { return {.count = 4u + (max_norm > 0)}; }

  RIDGE_OPERATOR(Sgd);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

// One kernel for all parameters, to the bit what Each, an optimizer above, does to each. Takes the
// schedule, the norm if max_norm is above 0, and (param, grad, moments) of every parameter. Gives
// (param, moments) of every parameter in their memory, with `zero_grad` followed by its grad, whose
// memory is zero after it was used, or skipped: ready to accumulate. Last, in and out, come the
// copies of the parameters that `copied` marks, 16-bit tensors of their shapes: what they held is
// not read, but overwritten with the updated parameter, rounded; a skipped step leaves them too.
// Parameters may be split_f32, which are in bf16 already; gradients may be in 16 bits, unless they
// are to be zeroed.
template <class Each>
struct UpdateAll {
  static constexpr std::string_view name = Each::name_of_all;
  static constexpr DTypes dtypes = f32_only;
  static constexpr bool partial = true;  // copies are written alone
  static constexpr std::uint32_t operands_each = 2 + Each::moments;

  Each each;
  bool zero_grad = false;
  std::vector<bool> copied{};  // one entry per parameter, or empty: no copies

  RIDGE_OPERATOR(UpdateAll);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;

  // The operands before those of the first parameter, the outputs of each parameter, the copies
  // after those of all, and how many parameters that leaves of so many operands.
  std::uint32_t shared_operands() const { return each.max_norm > 0 ? 2 : 1; }
  std::uint32_t outputs_each() const { return 1 + Each::moments + (zero_grad ? 1 : 0); }
  std::size_t copies() const;
  std::size_t parameters(std::size_t operands) const {
    return (operands - shared_operands() - copies()) / operands_each;
  }
};

using AdamWAll = UpdateAll<AdamW>;
using SgdAll = UpdateAll<Sgd>;

}  // namespace ridge
