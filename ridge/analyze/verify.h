#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/session/options.h"

namespace ridge {

// One way to run a model: a version, with passes added or left out, or a recomputation added.
struct VerifiedSchedule {
  std::string name;  // "v3", "v1 + swiglu", "v4 - tuned-products", "v1 + recompute block"
  std::string version, enable_pass, disable_pass, recompute = "none";

  void apply_to(TrainOptions& options) const;
};

// All versions, every pass alone, and both recomputations.
std::vector<VerifiedSchedule> verified_schedules();

// The schedule that a name as above describes; throws UsageError if a part of it is not known.
VerifiedSchedule schedule_named(std::string_view name);

// Resolved options of small models, odd ones among them: sequences of 1, 17 and 1023 tokens, one
// key head and as many as query heads, heads of 6 to 256, a vocabulary of 7, clipping, tied
// embeddings.
std::vector<TrainOptions> verified_configurations();

// How far one schedule is from the double-precision reference of the same step, as norm of the
// difference over norm of the reference. An error that is no number is infinite. Gradients are
// compared without their loss scale.
struct Verdict {
  std::string configuration, schedule, dtype;
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
Tolerance tolerance_of(std::string_view dtype);  // of TrainOptions::dtype

// What a device computes in, as TrainOptions::dtype: tf32 and fp16 on a GPU alone.
std::vector<std::string> verified_dtypes(const Device& device);

// Those of some configurations that fp8 can train, with a third layer where there are only two.
std::vector<TrainOptions> in_fp8(std::vector<TrainOptions> configurations);

// `options` as verification runs them in a dtype. Under loss scaling the first step counts only if
// no gradient overflows, so that the scale begins lower than in training.
TrainOptions verified_in(TrainOptions options, std::string_view dtype);

// What the reference computes for the first step of a run.
class Reference {
 public:
  // Builds v1 of `options` in fp32 and evaluates it in double precision.
  Reference(TrainOptions options, Device& device);

  const TrainOptions& options() const { return options_; }
  double loss = 0;
  std::vector<double> logits;
  std::vector<std::string> parameters;         // names
  std::vector<std::vector<double>> gradients;  // of the parameters

 private:
  TrainOptions options_;
};

// Losses of the first `steps` steps.
std::vector<double> loss_curve(const TrainOptions& options, Device& device, std::int64_t steps);

// A defect put into the graph after it was built; for tests of the verification itself.
using Sabotage = std::function<void(Graph&)>;

// Runs one step of the schedule and, if `curve` is not empty, as many steps as it has, and compares
// both.
Verdict verify(const Reference& reference, const VerifiedSchedule& schedule,
               const std::string& dtype, Device& device, const std::vector<double>& curve,
               const Sabotage& sabotage = {});

// "hidden 64, 2 layers, 4/2 heads of 16, vocabulary 7, batch 2 of 17"
std::string describe(const TrainOptions& options);

}  // namespace ridge
