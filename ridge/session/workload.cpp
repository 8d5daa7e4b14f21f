#include "ridge/session/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ridge/base/error.h"

namespace ridge {

std::span<const WorkloadFamily> workload_families() {
  static const std::array families{language_family, vision_family};
  return families;
}

namespace {

struct Found {
  const WorkloadFamily* family = nullptr;
  std::string_view name;
};

Found find_network(std::string_view called) {
  std::vector<std::string> names;
  for (const WorkloadFamily& family : workload_families())
    for (const NetworkName& network : family.networks()) {
      const std::vector<std::string_view>& aliases = network.aliases;
      if (network.name == called || std::ranges::find(aliases, called) != aliases.end())
        return {&family, network.name};
      names.emplace_back(network.name);
      names.insert(names.end(), aliases.begin(), aliases.end());
    }
  const std::string near = nearest_name(called, names);
  throw UsageError("there is no network '{}'; {}ridge bench --list names all", called,
                   near.empty() ? "" : fmt::format("did you mean {}? ", near));
}

}  // namespace

const WorkloadFamily& family_of(std::string_view network) { return *find_network(network).family; }

std::string_view network_named(std::string_view name_or_alias) {
  return find_network(name_or_alias).name;
}

std::vector<std::string_view> WorkloadInfo::sample_options() const {
  std::vector<std::string_view> names = work_options;
  std::erase_if(names, [this](std::string_view option) {
    return std::ranges::find(model_options, option) != model_options.end();
  });
  return names;
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
