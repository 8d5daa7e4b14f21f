#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/interleaved.h"
#include "ridge/analyze/plan.h"
#include "ridge/session/options.h"

namespace ridge {

// A step of an ablation: all passes so far and one more, from one schedule towards a later one.
struct AblationStep {
  std::string pass;         // empty for the first, which is the version itself
  std::string description;  // of the pass, or of the version
  std::string version;      // the one that is complete with it; often empty
  RunOptions options;
};

// Returns the steps in the order of the schedules' passes. Passes of --disable-pass, and those that
// find nothing in this workload's graph, are left out; passes of --enable-pass are there from the
// start. UsageError if no pass lies between the two schedules.
std::vector<AblationStep> ablation_steps(const RunOptions& options, Device& device,
                                         std::string_view from, std::string_view to);

struct AblationRow {
  std::string pass, description, version;  // as above
  std::vector<double> round_seconds;       // of one training step
  double seconds = 0;                      // their median
  Ratio to_before, to_first;               // of times, paired by round; 1 in the first row
  std::size_t peak_bytes = 0;              // the rest is read off the graph
  std::int64_t kernels = 0, bytes = 0, flops = 0;

  // "v1", "fuse-qkv"
  const std::string& name() const { return pass.empty() ? version : pass; }
};

AblationRow ablation_row(const AblationStep& step, const TimedVariant& timed, const StepPlan& plan);

// Sets the times and ratios of all rows from their rounds.
void compare_rows(std::vector<AblationRow>& rows);

// What each optimization is worth on top of those before it.
struct Ablation {
  std::string model;   // "hidden 256, ..., fp32"
  std::string device;  // as it describes itself
  RunOptions options;  // of the run, but for the schedule
  Rounds rounds;
  std::vector<AblationRow> rows;  // one at least
};

std::string ablation_text(const Ablation& ablation);  // for the terminal
std::string ablation_json(const Ablation& ablation);

// The waterfall: from the first version's time down to the last's, with memory, kernels and bytes
// beneath. Looks right on light and on dark.
std::string ablation_svg(const Ablation& ablation);
// The same and the table, as a page that needs no other file and no network.
std::string ablation_html(const Ablation& ablation);

}  // namespace ridge
