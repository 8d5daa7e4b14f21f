#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/ops/loss_scale.h"

namespace ridge {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double max_grad_norm = 0.0;  // 0: no clipping
  std::optional<LossScaling> loss_scaling{};
};

struct SgdConfig {
  double momentum = 0.9;
  double weight_decay = 0.0;
  bool nesterov = false;
  double max_grad_norm = 0.0;  // 0: no clipping
  std::optional<LossScaling> loss_scaling{};
};

using OptimizerConfig = std::variant<AdamWConfig, SgdConfig>;

// How the gradients of several batches become that of one step.
struct Accumulation {
  std::int64_t batches = 1;  // of a step, on this device
  // Those of all ranks, where each computes its part of one sum: the loss is divided by as many.
  // Otherwise what each has by itself is a mean.
  std::int64_t of_all = batches;
  // 0: one after the other. Otherwise pairwise (ops/pairwise_sum.h), so many in a row being a leaf.
  std::int64_t run = 0;
};

// The values through which a training step is fed and read.
struct TrainingStep {
  // Input, f32[3]: learning rate, 1 - beta1^t, 1 - beta2^t; see optimizer_schedule(). SGD uses
  // the first alone.
  Value schedule;
  Value grad_norm;  // f32 scalar, kept; no value without clipping
  std::vector<Value> parameters;
  std::vector<Value> gradients;     // of the parameters, in their order, as are:
  std::vector<Value> accumulators;  // their sums, persistent; empty without accumulation
  // Where these are summed pairwise: input, i32[], the number of a batch, counted from any multiple
  // of as many as a step has.
  Value batch;
  // With loss scaling: what gradients and accumulators are multiplied by, an f32 scalar,
  // persistent; and UpdateLossScale's report, kept.
  Value loss_scale, scale_report;
};

// Appends to a forward graph its backward pass, for every parameter, and the optimizer's update.
// With several batches the gradients, of the loss over their number, are added to persistent
// accumulators at the end of each backward phase; the caller zeroes these before the first, unless
// they are summed pairwise. The state of a parameter p is named "p.exp_avg" and "p.exp_avg_sq" by
// AdamW and "p.momentum_buffer" by SGD, its gradient "p.grad". With loss scaling its state is named
// "loss_scale" and "loss_scale.counters"; t in the schedule is then counted on the device, by
// updates that are not skipped. Packed parameters are updated as one; their gradients, accumulators
// and state are packed alike. UsageError if the loss reads a part of a packed parameter other than
// through that.
TrainingStep add_training_step(Value loss, const OptimizerConfig& config,
                               const Accumulation& accumulation = {});

// What to write to TrainingStep::schedule before update number t = 1, 2, ...
std::vector<float> optimizer_schedule(const OptimizerConfig& config, double learning_rate,
                                      std::int64_t t);

}  // namespace ridge
