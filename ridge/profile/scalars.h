#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ridge/profile/recording.h"
#include "ridge/profile/tensorboard.h"
#include "ridge/session/session.h"

namespace ridge {

// What tensors took during a step, in bytes.
struct StepMemory {
  std::int32_t step = 0;
  double average = 0;  // over its time
  std::uint64_t peak = 0;
};

// Returns the memory of every recorded step, in order; empty unless all of it was recorded.
std::vector<StepMemory> memory_by_step(const Recording& recording);

// The points that a step adds to TensorBoard's curves. `memory` is null for a step that was not
// recorded. `compute_floor_seconds` is the time that a step's necessary FLOPs take at the machine's
// measured peak, from which its MFU follows: in percent, never above 100. No floor, no MFU; no
// tokens in a sample, none per second.
std::vector<Scalar> step_scalars(const StepReport& step, std::int64_t samples_per_step,
                                 std::int64_t tokens_per_sample, const StepMemory* memory,
                                 std::optional<double> compute_floor_seconds);

}  // namespace ridge
