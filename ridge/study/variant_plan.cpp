#include "ridge/study/variant_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/session/devices.h"
#include "ridge/session/workload.h"
#include "ridge/study/run_row.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

// A device that is open, and its ceilings if they are known. Opening one takes a while.
struct OpenDevice {
  std::unique_ptr<Device> device;
  KeptRoof roof;
};

class Devices {
 public:
  OpenDevice& of(const RunOptions& options) {
    OpenDevice& open = open_[{options.device, options.threads, options.deterministic}];
    if (!open.device) {
      open.device = open_device(options);
      open.roof = kept_roof(open.device->name(), open.device->hardware(), open.device->threads());
    }
    check_device(options, *open.device);
    return open;
  }

 private:
  std::map<std::tuple<std::string, std::int64_t, bool>, OpenDevice> open_;
};

// Whether attention holds more than half of the peak; false where the length is refused.
bool attention_prevails(RunOptions options, std::int64_t seq_len, Device& device) {
  options.seq_len = seq_len;
  try {
    options.resolve();
    const StepPlan plan = plan_step(options, device);
    return 2 * plan.attention.bytes_at_peak > plan.memory.peak_bytes;
  } catch (const UsageError&) {
    return false;
  } catch (const ShapeError&) {
    return false;
  }
}

std::optional<std::int64_t> attention_passes_at(const RunOptions& options, Device& device) {
  constexpr std::int64_t shortest = 16;
  std::int64_t below = 0, above = 0;
  for (std::int64_t length = shortest; length <= longest_planned_sequence && above == 0;
       length *= 2)
    (attention_prevails(options, length, device) ? above : below) = length;
  if (above == 0) return std::nullopt;
  // Eighths of the lower bound: few products like other lengths.
  const std::int64_t unit = std::max<std::int64_t>(shortest / 8, below / 8);
  while (above - below > unit && below > 0) {
    const std::int64_t middle = below + std::max(unit, (above - below) / 2 / unit * unit);
    (attention_prevails(options, middle, device) ? above : below) = middle;
  }
  return above;
}

VariantPlan plan_of(const RunOptions& options, OpenDevice& open) {
  const WorkloadInfo workload = workload_of(options).info;
  Device& device = *open.device;
  const StepPlan plan = plan_step(options, device, open.roof.roof ? &*open.roof.roof : nullptr);
  const Cost cost = plan.cost.total();
  VariantPlan result{.parameters = plan.parameter_count,
                     .samples_per_step = options.samples_per_step(),
                     .tokens_per_sample = workload.tokens_per_sample,
                     .sample = workload.sample,
                     .parameter_bytes = plan.memory.at_most.parameters,
                     .peak_bytes = plan.memory.peak_bytes,
                     .mean_bytes = plan.memory.mean_bytes,
                     .needed_bytes = plan.device_bytes,
                     .available_bytes = device.available_memory(),
                     .flops = cost.flops,
                     .bytes = cost.bytes(),
                     .launches = plan.launches,
                     .attention_flops = plan.attention.flops,
                     .feed_forward_flops = plan.feed_forward.flops,
                     .attention_peak_bytes = plan.attention.bytes_at_peak,
                     .seconds_at_peak_rate = plan.seconds_at_peak_rate};
  if (plan.at_best) {
    result.computing_seconds = plan.at_best->computing;
    result.moving_seconds = plan.at_best->moving;
  }
  return result;
}

// How the peak grows with the length of the sequence; lengths may be refused as absurd.
void add_growth(VariantPlan& plan, const RunOptions& options, Device& device) {
  try {
    for (const GrowthLaw& law : growth_laws(options, device)) {
      if (law.of != "seq-len") continue;
      plan.fixed_bytes = law.fixed;
      plan.bytes_per_token = law.linear;
      plan.bytes_per_token_squared = law.quadratic;
    }
  } catch (const UsageError&) {
  }
}

std::int64_t largest_batch_of(const RunOptions& options, Device& device) {
  try {
    return largest_batch(options, device, usable_memory(device, options)).size;
  } catch (const OutOfMemoryError&) {
    return 0;
  }
}

// All but the length of the sequence, which attention's crossing does not depend on.
std::string without_length(RunOptions options) {
  options.seq_len = 1;
  return to_json(options);
}

}  // namespace

std::vector<VariantPlan> plan_variants(std::span<const StudyVariant> variants,
                                       const std::function<void(std::int64_t)>& progress) {
  Devices devices;
  std::map<std::string, std::optional<std::int64_t>> crossings;
  std::vector<VariantPlan> plans;
  for (const StudyVariant& variant : variants) {
    try {
      OpenDevice& open = devices.of(variant.options);
      VariantPlan& plan = plans.emplace_back(plan_of(variant.options, open));
      if (plan.tokens_per_sample > 0) add_growth(plan, variant.options, *open.device);
      if (!variant.size.empty())
        plan.largest_batch = largest_batch_of(variant.options, *open.device);
      if (plan.tokens_per_sample > 0 && plan.attention_flops > 0) {
        const std::string rest = without_length(variant.options);
        const auto known = crossings.find(rest);
        plan.attention_passes_at =
            known != crossings.end()
                ? known->second
                : crossings.emplace(rest, attention_passes_at(variant.options, *open.device))
                      .first->second;
      }
    } catch (const UsageError& error) {
      throw UsageError("the variant \"{}\" cannot run: {}", name_of(variant), error.what());
    } catch (const ShapeError& error) {
      throw UsageError("the variant \"{}\" cannot run: {}", name_of(variant), error.what());
    }
    if (progress) progress(std::ssize(plans));
  }
  return plans;
}

namespace {

// No version or precision saves more than this, and to plan them of absurd sizes takes minutes.
constexpr std::size_t most_saved = 64;

bool within_reach(const RunOptions& options, Device& device, std::size_t budget) {
  return plan_step(options, device).device_bytes / most_saved <= std::max<std::size_t>(budget, 1);
}

}  // namespace

std::optional<MemoryPasses> memory_passes(const RunOptions& options, Device& device,
                                          std::size_t budget, std::span<const std::string> kept) {
  const auto may_change = [&](std::string_view option) {
    return std::ranges::find(kept, option) == kept.end();
  };
  if (!within_reach(options, device, budget)) return std::nullopt;
  std::vector<std::string> versions{options.version};
  if (may_change("version") && options.version.starts_with("v") && options.version != "v4")
    versions.push_back("v4");
  for (const std::string& version : versions) {
    MemoryPasses passes{.options = options, .flags = ""};
    passes.options.version = version;
    if (version != options.version) passes.flags = fmt::format("--version {}", version);
    try {
      passes.options.resolve();
      check_device(passes.options, device);
      if (may_change("recompute") && options.use() == Use::training) {
        const std::string least = least_recompute(passes.options, device, budget).recompute;
        passes.options.recompute = least;
        if (least != "none")
          passes.flags += fmt::format("{}--recompute {}", passes.flags.empty() ? "" : " ", least);
      } else if (plan_step(passes.options, device).device_bytes > budget) {
        continue;
      }
      return passes;
    } catch (const OutOfMemoryError&) {
      // Not even with all blocks computed again.
    } catch (const UsageError&) {
      // A version that this run or this device does not take is no help.
    }
  }
  return std::nullopt;
}

std::vector<std::string> fitting_changes(const RunOptions& options, Device& device) {
  std::vector<std::string> found;
  const std::size_t budget = usable_memory(device, options);
  const auto attempt = [&](const std::string& flags, const auto& change) {
    RunOptions with = options;
    change(with);
    try {
      with.resolve();
      check_device(with, device);
      if (with == options || plan_step(with, device).device_bytes > budget) return;
      found.push_back(flags);
    } catch (const Error&) {
      // A version, a precision or a size that this run or this device does not take is no help.
    }
  };
  const bool reachable = within_reach(options, device, budget);
  const bool trains = options.use() == Use::training;
  for (const char* version : {"v3", "v4"})
    if (reachable && options.version.starts_with("v"))
      attempt(fmt::format("--version {}", version), [&](RunOptions& o) { o.version = version; });
  if (reachable && trains) {
    attempt("--recompute block", [](RunOptions& o) { o.recompute = "block"; });
    attempt("--version v4 --recompute block", [](RunOptions& o) {
      o.version = "v4";
      o.recompute = "block";
    });
  }
  if (reachable)
    attempt("--version v4 --dtype bf16", [](RunOptions& o) {
      o.version = "v4";
      o.dtype = "bf16";
    });
  try {
    const std::int64_t batch = largest_batch(options, device, budget).size;
    if (batch < options.batch_size) found.push_back(fmt::format("--batch-size {}", batch));
  } catch (const Error&) {
    // Not even one sample fits.
  }
  return found;
}

std::string shortage_text(const StudyVariant& variant, const VariantPlan& plan) {
  return fmt::format("needs {}, and the {} has {} left", format_bytes(plan.needed_bytes),
                     variant.options.device == gpu_name() ? "GPU" : "CPU",
                     format_bytes(plan.available_bytes));
}

namespace {

// One table for both directions: calls `field(name, member)` for each.
template <class Plan, class Field>
void each_field(Plan& plan, const Field& field) {
  field("parameters", plan.parameters);
  field("samples_per_step", plan.samples_per_step);
  field("tokens_per_sample", plan.tokens_per_sample);
  field("sample", plan.sample);
  field("parameter_bytes", plan.parameter_bytes);
  field("peak_bytes", plan.peak_bytes);
  field("needed_bytes", plan.needed_bytes);
  field("available_bytes", plan.available_bytes);
  field("flops", plan.flops);
  field("bytes", plan.bytes);
  field("launches", plan.launches);
  field("attention_flops", plan.attention_flops);
  field("feed_forward_flops", plan.feed_forward_flops);
  field("attention_peak_bytes", plan.attention_peak_bytes);
  field("fixed_bytes", plan.fixed_bytes);
  field("bytes_per_token", plan.bytes_per_token);
  field("bytes_per_token_squared", plan.bytes_per_token_squared);
  field("largest_batch", plan.largest_batch);
  field("computing_seconds", plan.computing_seconds);
  field("moving_seconds", plan.moving_seconds);
  field("seconds_at_peak_rate", plan.seconds_at_peak_rate);
}

}  // namespace

std::string to_json(std::span<const VariantPlan> plans) {
  Json all = Json::array();
  for (const VariantPlan& plan : plans) {
    Json& json = all.emplace_back(Json::object());
    each_field(plan, [&](const char* name, const auto& value) { json[name] = value; });
    json["mean_bytes"] = plan.mean_bytes;
    json["attention_passes_at"] =
        plan.attention_passes_at ? Json(*plan.attention_passes_at) : Json();
  }
  return one_line({{"plans", all}});
}

std::vector<VariantPlan> plans_from_json(std::string_view text, std::size_t count) {
  const Json json = json_object(text, "the plan of the study");
  try {
    std::vector<VariantPlan> plans;
    for (const Json& from : json.at("plans")) {
      VariantPlan& plan = plans.emplace_back();
      each_field(plan, [&](const char* name, auto& value) { from.at(name).get_to(value); });
      plan.mean_bytes = from.value("mean_bytes", 0.0);
      if (const Json& length = from.at("attention_passes_at"); !length.is_null())
        plan.attention_passes_at = length.get<std::int64_t>();
    }
    if (plans.size() != count)
      throw FormatError("the study has {} plans, not {}", plans.size(), count);
    return plans;
  } catch (const Json::exception&) {
    throw FormatError("the plan of the study is damaged, or of a newer program");
  }
}

}  // namespace ridge
