#include "ridge/analyze/plan_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/session/workload.h"

namespace ridge {
namespace {

// Networks see images of whole strides, the largest of which is this.
constexpr std::int64_t image_unit = 32;
// Shorter sequences are not shown.
constexpr std::int64_t first_length = 32;

RunOptions with_size(RunOptions options, std::string_view name, std::int64_t size) {
  integer_option(options, name) = size;
  options.resolve();
  return options;
}

// Searches the multiples of `unit` for the largest value of the option `of` that fits.
SizeLimit largest_value(RunOptions options, Device& device, std::string_view of, std::int64_t unit,
                        std::size_t budget) {
  return largest_size(
      [&](std::int64_t size) {
        integer_option(options, of) = size;
        return bytes_needed(options, device);
      },
      budget, fmt::format("a --{}", of), "use a smaller model, or more memory", unit);
}

PlannedSize planned(const RunOptions& options, std::int64_t size, Device& device,
                    const Roof* roof) {
  return {.size = size,
          .plan = plan_step(options, device, roof),
          .samples = static_cast<double>(options.samples_per_step()),
          .against = {}};
}

void add_sizes(PlanSearch& search, const RunOptions& options, Device& device, const Roof* roof,
               const RunOptions* against) {
  const std::int64_t least =
      std::max(search.limit.least, search.of == "seq-len" ? first_length : 1);
  std::vector<std::int64_t> values;
  for (std::int64_t value = least; value < search.limit.size; value *= 2) values.push_back(value);
  values.push_back(search.limit.size);
  for (const std::int64_t value : values) {
    try {
      PlannedSize one = planned(with_size(options, search.of, value), value, device, roof);
      if (against) one.against = plan_step(with_size(*against, search.of, value), device, roof);
      search.sizes.push_back(std::move(one));
    } catch (const UsageError&) {  // a size between others that the model refuses
    } catch (const ShapeError&) {
    }
  }
}

PlanSearch search_models(const RunOptions& options, Device& device, std::size_t budget,
                         const Roof* roof) {
  std::vector<RunOptions> models = family_of(options.network).scaled(options);
  std::erase_if(models, [](RunOptions model) {
    try {
      model.resolve();
      return false;
    } catch (const UsageError&) {
      return true;
    }
  });
  if (models.empty()) throw UsageError("no model of these proportions is accepted");
  const SizeLimit at = largest_size(
      [&](std::int64_t i) -> std::optional<std::size_t> {
        if (i > std::ssize(models)) return std::nullopt;
        return bytes_needed(models[static_cast<std::size_t>(i - 1)], device);
      },
      budget, "model", "use a smaller batch or sample, or more memory");
  PlanSearch search{.of = "model", .budget = budget, .limit = at};
  for (const std::int64_t i : {at.size, at.size + 1}) {
    if (i > std::ssize(models)) continue;
    const RunOptions& model = models[static_cast<std::size_t>(i - 1)];
    PlannedSize one = planned(model, 0, device, roof);
    one.size = one.plan.parameter_count;
    search.sizes.push_back(std::move(one));
    (i == at.size ? search.model : search.next_model) = model;
  }
  search.limit.size = search.sizes.front().size;
  return search;
}

// The least size from which on all hold.
template <class Holds>
const PlannedSize* from_which_on(const PlanSearch& search, const Holds& holds) {
  const PlannedSize* from = nullptr;
  for (const PlannedSize& one : search.sizes) {
    if (!holds(one))
      from = nullptr;
    else if (!from)
      from = &one;
  }
  return from;
}

}  // namespace

double PlannedSize::samples_per_second() const {
  return plan.at_best && plan.at_best->total() > 0 ? samples / plan.at_best->total() : 0;
}

std::vector<std::string> searchable(const RunOptions& options) {
  std::vector<std::string> names{"batch-size"};
  const WorkloadInfo info = workload_of(options).info;
  for (const std::string_view name : info.sample_options()) names.emplace_back(name);
  // The size of an image defines a vision network as well, and is none of those.
  if (std::ranges::find(info.work_options, "image-size") != info.work_options.end())
    names.emplace_back("image-size");
  if (family_of(options.network).scaled) names.emplace_back("model");
  return names;
}

PlanSearch search_plans(const RunOptions& options, Device& device, std::string_view of,
                        std::size_t budget, const Roof* roof, const RunOptions* against) {
  const std::vector<std::string> names = searchable(options);
  if (std::ranges::find(names, of) == names.end())
    throw UsageError("--search {}: of this run there are {} to search over", of,
                     fmt::join(names, ", "));
  if (of == "model") return search_models(options, device, budget, roof);
  PlanSearch search{.of = std::string(of), .budget = budget};
  const std::int64_t least_batch = batch_unit(options);
  const std::int64_t unit = of == "image-size" ? image_unit : of == "batch-size" ? least_batch : 1;
  search.limit = largest_value(options, device, of, unit, budget);
  if (of != "batch-size" && options.batch_size > 1 && least_batch == 1)
    search.alone = largest_value(with_size(options, "batch-size", 1), device, of, unit, budget);
  add_sizes(search, options, device, roof, against);
  return search;
}

const PlannedSize* best_batch(const PlanSearch& search) {
  const auto& sizes = search.sizes;
  const PlannedSize* best = nullptr;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    // The last one may be less than twice the one before: it is held to as much less.
    const double doublings =
        std::log2(static_cast<double>(sizes[i + 1].size) / static_cast<double>(sizes[i].size));
    const double gain = sizes[i].samples_per_second() > 0
                            ? sizes[i + 1].samples_per_second() / sizes[i].samples_per_second() - 1
                            : 1;
    if (gain > worthwhile_gain * doublings)
      best = nullptr;
    else if (!best)
      best = &sizes[i];
  }
  return best;
}

const PlannedSize* saves_memory_from(const PlanSearch& search) {
  return from_which_on(search, [](const PlannedSize& one) {
    return one.against && static_cast<double>(one.against->device_bytes) <=
                              (1 - worthwhile_saving) * static_cast<double>(one.plan.device_bytes);
  });
}

const PlannedSize* saves_time_from(const PlanSearch& search) {
  return from_which_on(search, [](const PlannedSize& one) {
    return one.against && one.plan.at_best && one.against->at_best &&
           one.against->at_best->total() <= (1 - worthwhile_saving) * one.plan.at_best->total();
  });
}

std::vector<std::pair<std::string_view, double>> peak_by_component(const StepPlan& plan) {
  const TensorBytes& at = plan.memory.at_peak;
  const auto fixed =
      static_cast<double>(at.parameters + at.gradients + at.optimizer_state + at.packed);
  const auto attention = static_cast<double>(plan.attention.bytes_at_peak);
  const double rest = static_cast<double>(plan.memory.peak_bytes) - fixed - attention;
  return {{"parameters, gradients, optimizer", fixed},
          {"attention", attention},
          {"other activations", std::max(0.0, rest)}};
}

RunOptions changed_options(const RunOptions& options, std::span<const std::string> changes) {
  RunOptions changed = options;
  for (const std::string& change : changes) {
    const std::size_t equals = change.find('=');
    if (equals == std::string::npos)
      throw UsageError("--against {}: write it as NAME=VALUE, such as recompute=block", change);
    const std::string name = change.substr(0, equals);
    const std::vector<OptionInfo> fields = options_of(changed);
    const OptionInfo* const field = find_option(fields, name);
    if (!field) {
      std::vector<std::string> names;
      for (const OptionInfo& one : fields) names.push_back(one.name);
      const std::string near = nearest_name(name, names);
      throw UsageError("--against {}: there is no such option{}", name,
                       near.empty() ? "" : "; did you mean " + near + "?");
    }
    set_from_text(*field, change.substr(equals + 1));
  }
  changed.resolve();
  return changed;
}

PlanDifference plan_difference(const RunOptions& options, std::span<const std::string> changes,
                               Device& device, std::size_t budget, const Roof* roof) {
  PlanDifference difference{.options = changed_options(options, changes), .budget = budget};
  std::vector<std::string> flags;
  for (std::string change : changes) {
    change[change.find('=')] = ' ';
    flags.push_back("--" + change);
  }
  difference.changes = fmt::format("{}", fmt::join(flags, " "));
  difference.from = plan_step(options, device, roof);
  difference.to = plan_step(difference.options, device, roof);
  const auto most = [&](const RunOptions& run) {
    try {
      return largest_batch(run, device, budget);
    } catch (const OutOfMemoryError&) {
      return SizeLimit{};
    }
  };
  difference.from_batch = most(options);
  difference.to_batch = most(difference.options);
  return difference;
}

}  // namespace ridge
