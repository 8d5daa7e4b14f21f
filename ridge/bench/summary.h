#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/bench/options.h"
#include "ridge/session/summary.h"

namespace ridge {

// What a benchmark found, as it is observed.
struct BenchRecord {
  std::vector<double> seconds;  // of each iteration after the warm-up
  std::vector<double> losses;
  // Those of them, by index, during which a profile was recorded. Their times do not count, unless
  // there are no others.
  std::vector<std::size_t> recorded;
  std::size_t peak_tensor_bytes = 0;
  std::size_t reserved_bytes = 0;  // of the device, for tensors
  std::int64_t parameters = 0;
  std::int64_t macs = 0;  // of one image
  double compile_seconds = 0;
};

// What is reported of it; times in seconds.
struct BenchSummary {
  Statistics iteration;
  std::size_t left_out = 0;             // recorded iterations that do not count
  std::optional<double> p90, p95, p99;  // where there are iterations beyond them
  double samples_per_second = 0;        // over the time of all iterations
  double flops_per_second = 0;          // two for each multiply-accumulate
  // The spread is so wide that the mean says little: something else used the machine.
  bool unsteady() const { return iteration.variation() > unsteady_variation; }
  static constexpr double unsteady_variation = 0.025;
};

BenchSummary summarize(const BenchOptions& options, const BenchRecord& record);

// The lines of the summary, in the layout of the workshop.
std::string summary_text(const BenchOptions& options, const BenchRecord& record,
                         const BenchSummary& summary, bool on_gpu);

// All of it, as JSON; `profile` is JSON too, or empty.
std::string bench_json(const BenchOptions& options, const BenchRecord& record,
                       const BenchSummary& summary, const SystemInfo& system,
                       const std::string& timestamp, const std::string& profile = {});

// "iteration,loss,seconds,recorded" and a line for each.
std::string times_csv(const BenchRecord& record);

}  // namespace ridge
