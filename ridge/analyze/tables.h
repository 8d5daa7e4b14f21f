#pragma once

// The tables of the workshop's exercises: variants of one workload, or of several, side by side,
// for a terminal and as JSON.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/analyze/interleaved.h"

namespace ridge {

// How far results are from those of the first.
struct Difference {
  double loss = 0;        // absolute
  double logits = 0;      // the largest, over the root mean square of the first's
  std::int64_t same = 0;  // samples (or pixels, or tokens) whose largest logit is of the same class
  std::int64_t all = 0;
};
// Both with their logits kept; all zero where one was not measured.
Difference difference_of(const TimedVariant& first, const TimedVariant& result);

// What a reader gives, beside what was measured.
struct TableTerms {
  std::optional<double> price_per_hour;  // of the machine, in any currency
  std::optional<double> latency_limit;   // of a batch, in seconds
};

// Each table ends with what it says, in sentences (analyze/table_answers.h).
std::string modes_table(std::span<const TimedVariant> results, const TableTerms& terms = {});
std::string precisions_table(std::span<const TimedVariant> results,
                             std::span<const Difference> differences, const TableTerms& terms = {});
std::string batch_sizes_table(std::span<const TimedVariant> results, const TableTerms& terms = {});
// Of results that differ in more than one thing, or in their network. A speed-up is over the first
// row of the same network and batch.
std::string combinations_table(std::span<const TimedVariant> results, const TableTerms& terms = {});

// The result that another's speed-up is over: the first of the same network and batch size.
const TimedVariant& baseline_of(std::span<const TimedVariant> results, const TimedVariant& result);

// "1.52x [1.49, 1.55]"; "-" where there is none.
std::string speedup_text(const Ratio& ratio);
// The price of 1,000 samples at a price of an hour of the machine; 0 of what was not measured.
double price_of_thousand(double samples_per_second, double price_per_hour);
// "0.0231": four digits of an amount of money, however small.
std::string price_text(double price);

// "kind", an object a row, and the lines of `answers` (analyze/table_answers.h).
std::string variants_json(std::string_view kind, std::span<const TimedVariant> results,
                          std::span<const Difference> differences = {},
                          const TableTerms& terms = {}, std::string_view answers = {});

}  // namespace ridge
