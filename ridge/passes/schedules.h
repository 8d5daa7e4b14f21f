#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/passes/passes.h"

namespace ridge {

// A row of the table of schedules: the passes that it wants, in the order in which the table's rows
// bring them. The workshop's versions of its model and the compile modes of its benchmark are both
// such rows, of which any workload runs under any.
struct ScheduleRow {
  enum class Kind : std::uint8_t { version, compile_mode };

  Kind kind = Kind::version;
  std::string_view name;   // "v1", "max-autotune"
  std::string_view title;  // "V1 - Baseline"; of a compile mode its name
  std::string_view description;
  std::span<const std::string_view> passes;
};

// v1 to v4, each with what the one before it has, then none to max-autotune, likewise.
std::span<const ScheduleRow> schedules();
// UsageError, naming all there are, for a name that is none.
const ScheduleRow& schedule_row(std::string_view name);
// The names of a kind of rows, separated by commas.
std::string schedule_names(ScheduleRow::Kind kind);

// What a user asks for: a row, names of passes to add and to leave out, separated by commas, and
// what to recompute: "none", "attention", "block", or in the first blocks alone "block:3".
struct ScheduleRequest {
  std::string row = "v1";
  std::string enable = {}, disable = {};
  std::string recompute = "none";
  std::int64_t ranks = 1;  // that share each batch
  // See RunOptions::sums_pairwise() and RunOptions::zero.
  bool pairwise_sums = false;
  std::int64_t zero = 0;
  bool sync_batch_norm = false;
};

// What will be done: the answer to a request on a device, in a precision.
struct Schedule {
  std::string row;
  Use use = Use::training;
  Precision precision = {};
  Target target = {};
  Recompute recompute = Recompute::none;
  std::int64_t ranks = 1;
  bool pairwise_sums = false;
  std::int64_t zero = 0;
  std::vector<const Pass*> passes = {};  // in the order in which they run

  // A pass that the row wants or the user enabled, and that is not done all the same.
  struct LeftOut {
    const Pass* pass;
    std::string why;     // "for a GPU", "for training", "excluded by fp8-products"
    bool asked = false;  // by --enable-pass: the user wants to know
  };
  std::vector<LeftOut> left_out = {};

  bool has(std::string_view pass) const;
};

// Resolves a request. Here, and nowhere else, it is decided what depends on the device, the
// precision and the use:
//   - a pass of the row stays if it suits all three;
//   - an enabled pass brings what it needs. A rewrite stays on the other kind of device too, a
//     choice of execution is left out there; both are where the precision rules them out;
//   - a disabled pass takes with it what needs it;
//   - what the precision, --recompute or --ranks means is added;
//   - a pass that another one excludes leaves;
//   - int8 computes the rest in the narrowest type in which the device is fast.
// UsageError for a name that is none, a pass that is both enabled and disabled, one enabled that
// needs one disabled or is for the other use, and a precision that the device or the use does not
// have.
Schedule resolve(const ScheduleRequest& request, const Precision& precision, const Target& target,
                 Use use);

// UsageError unless the request's names exist and agree with each other, whatever the device.
void check(const ScheduleRequest& request);

}  // namespace ridge
