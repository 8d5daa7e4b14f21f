#pragma once

// The tables of the workshop's exercises: variants of one workload side by side, for a
// terminal and as JSON.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/analyze/interleaved.h"
#include "ridge/analyze/plan.h"

namespace ridge {

// How far results are from those of the first.
struct Difference {
  double loss = 0;        // absolute
  double logits = 0;      // the largest, over the root mean square of the first's
  std::int64_t same = 0;  // samples (or pixels, or tokens) whose largest logit is of the same class
  std::int64_t all = 0;
};
// Both with their logits kept; all zero where one was not measured.
Difference difference_of(const VariantResult& first, const VariantResult& result);

std::string modes_table(std::span<const VariantResult> results);
std::string precisions_table(std::span<const VariantResult> results,
                             std::span<const Difference> differences);
std::string batch_sizes_table(std::span<const VariantResult> results);

// "kind" and an object a row.
std::string variants_json(std::string_view kind, std::span<const VariantResult> results,
                          std::span<const Difference> differences = {});

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
