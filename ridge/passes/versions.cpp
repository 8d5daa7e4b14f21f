#include "ridge/passes/versions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// Each version has what the one before it has, and more.
constexpr std::string_view all_passes[] = {
    // v2
    "fuse-qkv",
    "swiglu",
    "fuse-gate-up",
    "residual-norm",
    "masked-softmax",
    "pointwise",
    "common-subexpressions",
    "dead-nodes",
    "f32-products",
    "fuse-optimizer",
    "rounded-weights",
    // v3
    "flash-attention",
    "fold-rope",
    "cross-entropy-in-place",
    "swiglu-in-place",
    // v4
    "norm-results",
    "gate-results",
    "recompute-light",
    "split-weights",
    "linear-swiglu",
    "linear-epilogues",
    "accumulating-products",
    planned_memory,
    concurrent_kernels,
    scaled_products,
    tuned_products,
    products_in_pieces,
};

constexpr std::span<const std::string_view> up_to(std::string_view last) {
  const auto* const end = std::ranges::find(all_passes, last);
  return {all_passes, static_cast<std::size_t>(end - all_passes) + 1};
}

std::vector<const Pass*> passes_in(std::string_view list) {
  std::vector<const Pass*> found;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    std::string name(list.substr(0, comma));
    std::ranges::replace(name, '_', '-');
    found.push_back(&pass_named(name));
    if (!is_for_training(found.back()->stage))
      throw UsageError("the pass {} is for networks that are not trained", name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return found;
}

// What versions leave out there.
std::vector<std::string_view> passes_not_on(bool gpu) {
  if (gpu) return {"recompute-light"};
  return {"linear-swiglu", scaled_products};
}

Recompute recompute_named(std::string_view name) {
  const std::size_t colon = name.find(':');
  for (Recompute r : {Recompute::none, Recompute::attention, Recompute::block}) {
    if (name_of(r) != name.substr(0, colon)) continue;
    if (colon == name.npos) return r;
    const std::string_view count = name.substr(colon + 1);
    const auto [end, fault] = std::from_chars(count.data(), count.data() + count.size(), r.blocks);
    if (r.part != Recompute::none && fault == std::errc() && end == count.data() + count.size() &&
        r.blocks > 0)
      return r;
  }
  throw UsageError(
      "--recompute is '{}'; choose one of none, attention, block, or of the first blocks alone "
      "attention:N, block:N",
      name);
}

}  // namespace

std::span<const Version> versions() {
  static constexpr Version table[] = {
      {"v1", "V1 - Baseline", "one kernel an operator, attention scores materialised", {}},
      {"v2", "V2 - Fused", "fused projections and pointwise operators", up_to("rounded-weights")},
      {"v3", "V3 - Kernels", "own flash attention, norms, rotary and cross-entropy",
       up_to("swiglu-in-place")},
      {
          "v4",
          "V4 - Ultra",
          "planned memory, tuned products and attention, prepared steps",
          up_to(products_in_pieces),
      },
  };
  return table;
}

const Version& version_named(std::string_view name) {
  const auto found = std::ranges::find(versions(), name, &Version::name);
  if (found != versions().end()) return *found;
  std::vector<std::string_view> names;
  for (const Version& version : versions()) names.push_back(version.name);
  throw UsageError("there is no version '{}': choose one of {}", name, fmt::join(names, ", "));
}

Schedule schedule_of(std::string_view version, std::string_view enable, std::string_view disable,
                     std::string_view recompute, bool on_gpu) {
  const Version& base = version_named(version);
  Schedule schedule{.passes = PassNames(base.passes.begin(), base.passes.end()),
                    .recompute = recompute_named(recompute)};
  for (const std::string_view pass : passes_not_on(on_gpu)) schedule.passes.erase(pass);
  PassNames disabled;
  for (const Pass* pass : passes_in(disable)) disabled.insert(pass->name);
  for (const Pass* pass : passes_in(enable)) {
    if (disabled.contains(pass->name))
      throw UsageError("the pass {} is both enabled and disabled", pass->name);
    for (std::string_view name = pass->name; !name.empty(); name = pass_named(name).needs) {
      if (disabled.contains(name))
        throw UsageError("the pass {} needs {}, which is disabled", pass->name, name);
      schedule.passes.insert(name);
    }
  }
  std::erase_if(schedule.passes, [&](std::string_view name) {
    return std::ranges::any_of(disabled, [&](std::string_view gone) { return needs(name, gone); });
  });
  return schedule;
}

}  // namespace ridge
