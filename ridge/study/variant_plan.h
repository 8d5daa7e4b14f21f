#pragma once

// What is computed of a variant of a study before it runs.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/ceilings.h"
#include "ridge/device/device.h"
#include "ridge/study/definition.h"

namespace ridge {

struct VariantPlan {
  std::int64_t parameters = 0;
  std::int64_t samples_per_step = 0, tokens_per_sample = 0;  // tokens 0: samples are no sequences
  std::string sample;                                        // "sequence", "image"
  std::uint64_t parameter_bytes = 0, peak_bytes = 0;
  double mean_bytes = 0;              // over the kernels of a step; 0 in plans of older programs
  std::uint64_t needed_bytes = 0;     // of the device
  std::uint64_t available_bytes = 0;  // that the device had left for it
  std::int64_t flops = 0, bytes = 0;  // of a step; bytes: each operand of each kernel once
  std::int64_t launches = 0;          // of kernels in a step
  // Of layers of these kinds: FLOPs of a step, and bytes alive at the peak; 0 without such layers.
  std::int64_t attention_flops = 0, feed_forward_flops = 0;
  std::uint64_t attention_peak_bytes = 0;
  // The shortest sequence, to within an eighth, at which attention holds more than half of the
  // peak; none if none does that was planned, or samples are no sequences.
  std::optional<std::int64_t> attention_passes_at;
  // The peak in bytes by the length of the sequence, planned at one to three times the variant's:
  // fixed + linear x + quadratic x^2. All 0 if samples are no sequences.
  double fixed_bytes = 0, bytes_per_token = 0, bytes_per_token_squared = 0;
  std::int64_t largest_batch = 0;  // that fits, of a variant of a size; 0: not looked for, or none
  // Against the ceilings of the device, in seconds; 0 without ceilings: see StepPlan.
  double computing_seconds = 0, moving_seconds = 0, seconds_at_peak_rate = 0;

  bool fits() const { return needed_bytes <= available_bytes; }
  bool operator==(const VariantPlan&) const = default;
};

// The longest sequence that is planned in search of attention_passes_at.
inline constexpr std::int64_t longest_planned_sequence = 32768;

// Plans every variant, each on its device; nothing runs. `progress` is told how many are planned.
// UsageError, which names it, for a variant that its device cannot run at all.
std::vector<VariantPlan> plan_variants(std::span<const StudyVariant> variants,
                                       const std::function<void(std::int64_t)>& progress = {});

// Changes of options, one or two at a time, with which a run would fit in the memory of its device,
// those that keep what is computed first: "--version v4", "--batch-size 4".
std::vector<std::string> fitting_changes(const RunOptions& options, Device& device);

// Passes that save memory, with which a run that does not fit in a budget of bytes does.
struct MemoryPasses {
  RunOptions options;
  std::string flags;  // what was changed: "--version v4 --recompute block:3"
};

// As little recomputation as will do, with the run's own version or else with v4's passes. Options
// named in `kept` stay as they are. Nothing if that is not enough.
std::optional<MemoryPasses> memory_passes(const RunOptions& options, Device& device,
                                          std::size_t budget,
                                          std::span<const std::string> kept = {});

// "needs 9.2 GiB, and the cpu has 5.1 GiB left".
std::string shortage_text(const StudyVariant& variant, const VariantPlan& plan);

std::string to_json(std::span<const VariantPlan> plans);
// FormatError for a text that is none, or has not so many.
std::vector<VariantPlan> plans_from_json(std::string_view json, std::size_t count);

}  // namespace ridge
