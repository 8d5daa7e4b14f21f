#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/session/options.h"

namespace ridge {

// A schedule under verification: a version, with passes or a recomputation added or left out.
struct VerifiedSchedule {
  std::string name;  // "v3", "v1 + swiglu", "v4 - tuned-products", "v1 + recompute block"
  std::string version, enable_pass, disable_pass, recompute = "none";

  void apply_to(RunOptions& options) const;
};

// All rows of the table of schedules, every pass of a use alone, and in training recomputations.
std::vector<VerifiedSchedule> verified_schedules(Use use);

// The schedule that a name as above describes; throws UsageError if a part of it is not known.
VerifiedSchedule schedule_named(std::string_view name);

// Resolved options of small LLaMAs, odd ones among them: sequences of 1, 17 and 1023 tokens, one
// key head and as many as query heads, heads of 6 to 256, a vocabulary of 7, clipping, tied
// embeddings.
std::vector<RunOptions> verified_configurations(Use use = Use::training);
// The same of vision networks, one of each kind of block, on small images.
std::vector<RunOptions> verified_networks(Use use);
// Defaults of a network for verification: a vision network's of four images, as small as it takes
// but 64 pixels wide at least.
RunOptions small_options(std::string_view network);

// How far one schedule is from the double-precision reference of the same step, as norm of the
// difference over norm of the reference. An error that is no number is infinite. Gradients are
// compared without their loss scale.
struct Verdict {
  std::string configuration, schedule, dtype;
  bool of_network = false;  // of vision: see tolerance_of()
  double loss_error = 0;
  double logits_error = 0;
  double gradient_error = 0;  // of the worst parameter
  std::string worst_parameter;
  std::vector<std::string> cut;  // parameters whose gradient is not there, not finite or wrongly 0
  double curve_error = 0;        // largest difference of losses to v1's over some steps
  std::string failure;           // why it failed, in words; empty: it is right
};

struct Tolerance {
  double loss, logits, gradient, curve;
};
// The limits for a RunOptions::dtype. Networks are deeper than the models above, and normalize by
// statistics of few values.
Tolerance tolerance_of(std::string_view dtype, bool of_network = false);

// What a device computes in, as RunOptions::dtype: tf32 on a GPU alone.
std::vector<std::string> verified_dtypes(const Device& device, Use use = Use::training);

// Those of some configurations that fp8 can train, with a third layer where there are only two.
std::vector<RunOptions> in_fp8(std::vector<RunOptions> configurations);

// `options` as verification runs them in a dtype. Under loss scaling the first step counts only if
// no gradient overflows, so that the scale begins lower than in training.
RunOptions verified_in(RunOptions options, std::string_view dtype);

// What the reference computes for the first step of a run; of inference, without gradients.
class Reference {
 public:
  // Builds v1 of `options` in fp32 and evaluates it in double precision.
  Reference(RunOptions options, Device& device);

  const RunOptions& options() const { return options_; }
  double loss = 0;
  std::vector<double> logits;
  std::vector<std::string> parameters;         // names
  std::vector<std::vector<double>> gradients;  // of the parameters

 private:
  RunOptions options_;
};

// Losses of the first `steps` steps.
std::vector<double> loss_curve(const RunOptions& options, Device& device, std::int64_t steps);

// What v1 does in a dtype: its losses over some steps, and how far it is from the reference. What a
// vision network of fresh weights makes of rounding to 16 bits depends on the network, so there a
// schedule is right if it is no further from the reference than three times what v1 is.
struct Baseline {
  std::vector<double> curve;
  double loss_error = 0, logits_error = 0, gradient_error = 0;
};
Baseline baseline_of(const Reference& reference, const std::string& dtype, Device& device,
                     std::int64_t steps);

// A defect put into the graph after it was built; for tests of the verification itself.
using Sabotage = std::function<void(Graph&)>;

// Runs one step of the schedule and, if the baseline's curve is not empty, as many steps as it has,
// and compares both.
Verdict verify(const Reference& reference, const VerifiedSchedule& schedule,
               const std::string& dtype, Device& device, const Baseline& baseline,
               const Sabotage& sabotage = {});

}  // namespace ridge
