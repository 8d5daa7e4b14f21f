#include "ridge/session/workload.h"

#include <array>

#include "ridge/models/vision/vision.h"

namespace ridge {

std::span<const WorkloadFamily> workload_families() {
  static const std::array families{language_family, vision_family};
  return families;
}

const WorkloadFamily& family_of(std::string_view network) {
  for (const WorkloadFamily& family : workload_families())
    if (family.has(network)) return family;
  vision_network(network);  // throws, naming the nearest
  return vision_family;
}

Workload workload_of(const RunOptions& options) { return family_of(options.network).make(options); }

OptimizerConfig optimizer_config(const RunOptions& o) {
  std::optional<LossScaling> scaling;
  if (o.precision().loss_scaling)
    scaling = LossScaling{.initial = static_cast<float>(o.loss_scale),
                          .growth_interval = o.loss_scale_growth_interval};
  if (o.optimizer == "sgd")
    return SgdConfig{.momentum = o.momentum,
                     .weight_decay = o.weight_decay,
                     .max_grad_norm = o.max_grad_norm,
                     .loss_scaling = scaling};
  return AdamWConfig{.beta1 = o.beta1,
                     .beta2 = o.beta2,
                     .eps = o.adam_eps,
                     .weight_decay = o.weight_decay,
                     .max_grad_norm = o.max_grad_norm,
                     .loss_scaling = scaling};
}

}  // namespace ridge
