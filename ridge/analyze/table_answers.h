#pragma once

// What the tables of variants say, in sentences with the figures that they rest on: the workshop's
// questions on batch sizes, compile modes, precisions and their combinations. Each returns lines,
// all ended; none where too little was measured.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/analyze/tables.h"

namespace ridge {

// The smallest batch that reaches this share of the best samples/s is called the sweet spot.
inline constexpr double sweet_spot_share = 0.9;

// After how many batches the time that compiling took beyond the first result's is paid back: at
// least 0. Nothing where a batch does not clearly take less time.
std::optional<double> steps_to_pay(const TimedVariant& first, const TimedVariant& compiled);
std::string batches_text(double batches);  // "1 batch", "1,204 batches": rounded up

// The bytes of one use, by its name in TensorBytes::parts(); 0 if there are none.
std::size_t bytes_named(const TensorBytes& bytes, std::string_view name);

std::string batch_size_answers(std::span<const TimedVariant> results, const TableTerms& terms);
std::string mode_answers(std::span<const TimedVariant> results);
std::string precision_answers(std::span<const TimedVariant> results);
std::string combination_answers(std::span<const TimedVariant> results, const TableTerms& terms);

}  // namespace ridge
