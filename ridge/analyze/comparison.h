#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/bench/options.h"
#include "ridge/bench/session.h"
#include "ridge/device/device.h"

namespace ridge {

// One row of a table: the same network under other options.
struct BenchVariant {
  std::string name;
  BenchOptions options;
  std::string refusal = {};  // why it cannot run at all, where that is known before
};

struct VariantResult {
  BenchVariant variant;
  std::vector<std::vector<double>> rounds;  // seconds of each iteration, by round
  double loss = 0;
  std::vector<float> logits;  // of the first round, if they were to be kept
  std::size_t peak_tensor_bytes = 0;
  double compile_seconds = 0;  // of the first time
  std::string fault;           // why it was not measured; empty if it was

  bool measured() const { return !rounds.empty(); }
  std::vector<double> seconds() const;   // of all iterations
  std::vector<double> by_round() const;  // medians
  double samples_per_second() const;     // in the median time, which tables show beside it
  double samples_per_second_per_gb() const;
};

struct ComparisonHooks {
  bool keep_logits = false;
  BenchHooks session = {};                                            // of all sessions
  std::function<void(std::int64_t done, std::int64_t all)> progress;  // iterations
  std::function<bool()> stop;  // asked between iterations; what was measured until then is kept
};

// Times variants against each other in one process. In each round every variant has its turn, so
// that slow changes of the machine meet all alike. `options.iterations` of each are shared out
// among ten rounds, after `options.warmup` before the first and one before each other. As many
// sessions stay on the device as its memory holds. A variant that does not fit, or
// with a refusal, has a `fault`; any other error is thrown.
std::vector<VariantResult> time_variants(const std::vector<BenchVariant>& variants, Device& device,
                                         const ComparisonHooks& hooks = {});

// How many times as fast as the first a result is, with its interval. 0 where one is not measured.
Ratio speedup_over(const VariantResult& first, const VariantResult& result);

// How far results are from those of the first.
struct Difference {
  double loss = 0;        // absolute
  double logits = 0;      // the largest, over the root mean square of the first's
  std::int64_t same = 0;  // samples (or pixels) whose largest logit is of the same class
  std::int64_t all = 0;
};
// `classes` is the extent of the logits' dimension 1 and `inner` that of all behind it together.
Difference difference_of(const VariantResult& first, const VariantResult& result,
                         std::int64_t classes, std::int64_t inner = 1);

// The tables of the workshop, aligned for a terminal.
std::string modes_table(std::span<const VariantResult> results);
std::string precisions_table(std::span<const VariantResult> results,
                             std::span<const Difference> differences);
std::string batch_sizes_table(std::span<const VariantResult> results);

// "kind" and an object a row.
std::string comparison_json(std::string_view kind, std::span<const VariantResult> results,
                            std::span<const Difference> differences = {});

}  // namespace ridge
