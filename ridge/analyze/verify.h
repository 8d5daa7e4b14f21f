#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/session/options.h"
#include "ridge/session/workload.h"

namespace ridge {

// A schedule under verification: a version, with passes or a recomputation added or left out.
struct VerifiedSchedule {
  std::string name;  // "v3", "v1 + swiglu", "v4 - tuned-products", "v1 + recompute block"
  std::string version, enable_pass, disable_pass, recompute = "none";

  void apply_to(RunOptions& options) const;
};

// All rows of the table of schedules, of those without passes the first alone; every pass of a use
// by itself; and in training recomputations.
std::vector<VerifiedSchedule> verified_schedules(Use use, std::int64_t ranks = 1);

// The schedule that a name as above describes; throws UsageError if a part of it is not known.
VerifiedSchedule schedule_named(std::string_view name);

// Defaults of a network for verification: small enough for the reference.
RunOptions small_options(std::string_view network);

// How far one schedule is from the double-precision reference of the same step, as norm of the
// difference over norm of the reference. An error that is no number is infinite. Gradients are
// compared without their loss scale.
struct Verdict {
  std::string network, configuration, schedule, dtype;
  double loss_error = 0;
  double logits_error = 0;
  double gradient_error = 0;  // of the worst parameter
  std::string worst_parameter;
  std::vector<std::string> cut;  // parameters whose gradient is not there, not finite or wrongly 0
  double curve_error = 0;        // largest difference of losses to the baseline's over some steps
  std::int64_t curve_steps = 0;  // how many
  std::vector<double> losses, baseline_losses;  // of these steps
  Tolerance limit;                              // that it was held to
  std::string failure;                          // why it failed, in words; empty: it is right
};

// The limits for a network in a precision.
Tolerance tolerance_of(std::string_view network, const Precision& precision);

// The precisions to verify, by name: those in which a device computes a workload so used and which
// are not, on this device, another one (tf32 is fp32 where products are not rounded).
std::vector<std::string> verified_dtypes(const Device& device, Use use = Use::training);

// Those of some models that a precision takes, each changed as its family says to be taken. Their
// own dtype stays: a model has one reference, whatever it is verified in.
std::vector<RunOptions> taken_in(std::string_view dtype, std::vector<RunOptions> models);

// The same run on as many ranks as another one, with samples for each, who share out what those do.
RunOptions shared_by_ranks(RunOptions options, const RunOptions& as);

// Whether it normalizes by the statistics of a batch, of which each rank takes those of its part:
// then ranks do not compute what one does.
bool normalizes_by_batch(const RunOptions& options);

// `options` as verification runs them in a dtype, with this loss scale where there is one.
RunOptions verified_in(RunOptions options, std::string_view dtype, double loss_scale);

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

// How far two runs of the same steps are apart: loss, logits and worst gradient of the first step
// relatively, losses of all steps in the unit of the loss.
struct Distance {
  double loss = 0, logits = 0, gradient = 0, curve = 0;
};

// What v1 does: its losses over some steps in a dtype; how far it is from the reference in the
// precision that Tolerance::times_baseline is about; and how far it comes from itself, at most of
// some draws, where each weight is moved by a unit in the last place of f32. Two right ways to
// compute a step differ by as much: in most networks that is far below every tolerance, and much
// where a ReLU's input lies at 0 or a batch norm has few values. A schedule may be off by the fixed
// tolerance, by that factor times `error` or by some times `rounding`, whichever is most. Rounding
// is measured between runs of v1, so that a v1 that computes something wrong gains nothing by it,
// and allows a tenth at most.
//
// Training may amplify rounding from step to step until nothing can be compared: the curve ends
// before that, but not before an update of the weights.
struct Baseline {
  std::vector<double> curve;
  Distance error, rounding;
  double loss_scale = 8192;  // with which no gradient overflows in the first step
};
Baseline baseline_of(const Reference& reference, const std::string& dtype, Device& device,
                     std::int64_t steps);

// A defect put into the graph after it was built; for tests of the verification itself.
using Sabotage = std::function<void(Graph&)>;

// On ranks, where the options have several, as threads of this process. Runs one step of the
// schedule and, if the baseline's curve is not empty, as many steps as it has, and compares both.
Verdict verify(const Reference& reference, const VerifiedSchedule& schedule,
               const std::string& dtype, Device& device, const Baseline& baseline,
               const Sabotage& sabotage = {});

}  // namespace ridge
