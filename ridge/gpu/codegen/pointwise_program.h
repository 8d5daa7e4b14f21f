#pragma once

#include <cstdint>
#include <vector>

#include "ridge/ops/pointwise.h"

namespace ridge::gpu {

// A Pointwise operator for kernels/elementwise/pointwise.cu to interpret. Values are in slots in
// shared memory; the value of the step before is at hand in registers, too, and gets a slot only if
// something else needs it. Slots are shared by values that are never alive at once.
struct PointwiseProgram {
  static constexpr int most_operands = 40, most_results = 40, most_steps = 80;
  static constexpr std::uint8_t previous = 255;  // a slot: the value of the step before
  static constexpr std::uint8_t none = 254;      // a slot: nowhere

  struct Step {
    Pointwise::Code code = Pointwise::Code::add;
    std::uint8_t a = none, b = none, to = none;  // slots
    ActivationKind kind = ActivationKind::gelu;
    float factor = 1.0f;
  };
  // A result is stored when the step that it is the value of is done; of an operand, at the start.
  struct Result {
    std::uint8_t slot = none;  // of an operand, or `previous`
    std::uint8_t index = 0;    // of the result
    std::uint8_t after = 0;    // steps
    DType dtype = DType::f32;
  };

  int operands = 0, steps = 0, results = 0, slots = 0;
  DType operand_dtype[most_operands] = {};  // operand i is put into slot i
  // How operands lie under the results, as BroadcastLoops has it: a bit for each loop.
  int loops = 0;
  bool all_whole = true;
  std::int64_t extent[Shape::max_rank] = {};
  std::uint8_t moves[most_operands] = {};
  Step step[most_steps];
  Result result[most_results];  // in the order of `after`

  // Error if the operator exceeds what a program can hold.
  PointwiseProgram(const Pointwise& op, Types in, const Shape& shape);

  constexpr bool moves_along(int operand, int loop) const { return (moves[operand] >> loop) & 1; }
  constexpr bool is_whole(int operand) const { return moves[operand] == (1 << loops) - 1; }
};

}  // namespace ridge::gpu
