#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// The rule of dynamic loss scaling (Micikevicius et al., "Mixed Precision Training", 2018), with
// the constants of PyTorch's GradScaler. The gradients of a loss times `scale` keep what f16 would
// lose below 6e-8. Where they overflow it, the step is skipped and the scale multiplied by
// `backoff`; after `growth_interval` steps without that, by `growth`, unless that is not finite.
struct LossScaling {
  float initial = 65536.0f;
  float growth = 2.0f;
  float backoff = 0.5f;
  std::int64_t growth_interval = 2000;
  bool operator==(const LossScaling&) const = default;
};

// Where loss scaling is decided, before the optimizer updates anything. Takes scale, a scalar;
// counters[2] = (good steps since the scale changed, updates t done so far); schedule[3], of which
// the learning rate, at 0, is used; and norm, the Euclidean norm of all gradients of the scaled
// loss: finite only if they are. All are f32. Gives scale and counters as they are from now on, in
// their memory; then
//   step[4] = (learning rate, 1 - beta1^t, 1 - beta2^t, 1 / scale): what AdamW takes if `scaled`. t
//     counts this update too, and not the steps that were skipped; 1 / scale is of the scale that
//     the gradients have, or 0 for a step to skip.
//   report[3] = (norm / scale, scale, scale from now on), with infinity for the norm of a step to
//     skip.
// A scale does not fall below the least normal float.
struct UpdateLossScale {
  static constexpr std::string_view name = "update_loss_scale";
  static constexpr DTypes dtypes = f32_only;

  LossScaling rule;
  double beta1 = 0.9;  // of AdamW
  double beta2 = 0.999;

  // Which operand is which.
  struct Operands {
    std::size_t scale = 0, counters = 1, schedule = 2, norm = 3, count = 4;
  };
  static constexpr Operands operands() { return {}; }

  RIDGE_OPERATOR(UpdateLossScale);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

}  // namespace ridge
