#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "ridge/analyze/plan.h"

namespace ridge {

// The largest batch of a workload: by the plan, and as a run confirms it.
struct LargestBatch {
  RunOptions options;  // with the batch size that ran, or 0 if none did
  SizeLimit planned;
  std::size_t budget = 0;
  std::size_t measured_peak = 0;  // of the run: of tensors, or the arena
  double seconds = 0;             // of a step at that size
  std::string fault;              // why no batch ran; empty if one did

  double samples_per_second() const;  // of all batches of a step; 0 if none ran
};

// Runs the planned batch; where the device refuses it all the same, for memory lies in pieces, a
// sixteenth less, until one runs, or `stop` says that it is enough.
LargestBatch find_largest_batch(const RunOptions& options, Device& device, std::size_t budget,
                                const std::function<bool()>& stop = {});

std::string largest_batches_text(std::span<const LargestBatch> found);
std::string largest_batches_json(std::span<const LargestBatch> found);

}  // namespace ridge
