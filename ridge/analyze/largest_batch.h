#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "ridge/analyze/plan.h"
#include "ridge/bench/options.h"
#include "ridge/device/device.h"

namespace ridge {

// What a benchmark takes of the device's memory, read off its graph: nothing is allocated. Where
// memory is planned that is the whole arena; kernels are then those that would be taken without
// timing them. Nothing where the batch is refused as too large for any memory.
std::optional<std::size_t> bytes_needed(const BenchOptions& options, Device& device);

// What of the device's memory a benchmark may fill: a part is left to what no plan knows, and on a
// CPU to other programs, which would suffer.
std::size_t usable_memory(Device& device);

// The largest batch of a network: by the plan, and as a run confirms it.
struct LargestBatch {
  BenchOptions options;  // with the batch size that ran, or 0 if none did
  BatchLimit planned;
  std::size_t budget = 0;
  std::size_t measured_peak = 0;  // of the run: of tensors, or the arena
  double seconds = 0;             // of a pass at that size
  std::string fault;              // why no batch ran; empty if one did
};

// Runs the planned batch; where the device refuses it all the same, for memory lies in pieces, a
// sixteenth less, until one runs, or `stop` says that it is enough.
LargestBatch find_largest_batch(const BenchOptions& options, Device& device, std::size_t budget,
                                const std::function<bool()>& stop = {});

std::string largest_batches_text(std::span<const LargestBatch> found);
std::string largest_batches_json(std::span<const LargestBatch> found);

}  // namespace ridge
