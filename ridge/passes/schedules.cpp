#include "ridge/passes/schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// The passes that each schedule adds to the one before, in the order of an ablation.
constexpr std::array fused = std::to_array<std::string_view>({
    "fold-batch-norm",  "unread-rows",           "fuse-qkv",
    "swiglu",           "fuse-gate-up",          "residual-norm",
    "masked-softmax",   "batch-norm-epilogues",  "batch-norm-gradients",
    "conv-epilogues",   "norm-activations",      "squeeze-excitation",
    "pointwise",        "common-subexpressions", "dead-nodes",
    "f32-products",     "fuse-optimizer",        "rounded-gradients",
    "bucket-gradients", "rounded-weights",
});
constexpr std::array own_kernels = std::to_array<std::string_view>({
    "flash-attention",
    "fold-rope",
    channels_last_pass,
    "residual-bottlenecks",
    "cross-entropy-in-place",
    "swiglu-in-place",
});
constexpr std::array ultra = std::to_array<std::string_view>({
    "aligned-rows",
    "norm-results",
    "gate-results",
    "recompute-light",
    "split-weights",
    "linear-swiglu",
    "linear-epilogues",
    "accumulating-products",
    "early-updates",
    frozen_weights,
    planned_memory,
    captured_launches,
    concurrent_kernels,
    scaled_products,
    tuned_products,
    split_bf16_products,
});
constexpr std::array compiled = std::to_array<std::string_view>({
    "aligned-rows",
    "linear-epilogues",
    "linear-swiglu",
    "accumulating-products",
    "early-updates",
    frozen_weights,
    planned_memory,
});
constexpr std::array captured = std::to_array<std::string_view>({
    captured_launches,
    concurrent_kernels,
});
constexpr std::array tuned = std::to_array<std::string_view>({
    tuned_products,
    split_bf16_products,
    scaled_products,
});

template <std::size_t... N>
constexpr auto joined(const std::array<std::string_view, N>&... parts) {
  std::array<std::string_view, (N + ...)> all{};
  auto* end = all.begin();
  ((end = std::copy(parts.begin(), parts.end(), end)), ...);
  return all;
}

constexpr std::array version_passes = joined(fused, own_kernels, ultra);
constexpr std::array mode_passes = joined(fused, own_kernels, compiled, captured, tuned);

// The first so many names of a list.
template <std::size_t N>
constexpr std::span<const std::string_view> first(const std::array<std::string_view, N>& list,
                                                  std::size_t count) {
  return std::span(list).first(count);
}

std::vector<const Pass*> passes_in(std::string_view list) {
  std::vector<const Pass*> found;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    std::string name(list.substr(0, comma));
    std::ranges::replace(name, '_', '-');
    const Pass& pass = pass_named(name);
    if (pass.chosen_by == ChosenBy::precision)
      throw UsageError("the pass {} comes with --dtype, and cannot be switched by itself", name);
    if (pass.chosen_by == ChosenBy::recompute)
      throw UsageError("the pass {} comes with --recompute, which says what", name);
    if (pass.chosen_by == ChosenBy::sync_batch_norm)
      throw UsageError("the pass {0} comes with --{0}, and cannot be switched by itself", name);
    if (pass.chosen_by == ChosenBy::ranks)
      throw UsageError("the pass {} comes with --{}, and cannot be switched by itself", name,
                       pass.zero > 0 ? "zero" : "ranks");
    found.push_back(&pass);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return found;
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

std::string_view phrase_of(Use use) {
  return use == Use::training ? "for training" : "for inference";
}
std::string_view phrase_of(DeviceKind kind) {
  return kind == DeviceKind::gpu ? "for a GPU" : "for a CPU";
}

void check_precision(const Precision& precision, const Target& target, Use use) {
  using Products = Precision::Products;
  if (precision.products == Products::int8 && use == Use::training)
    throw UsageError("--dtype int8 is quantized after training: it is for inference");
  if (precision.products == Products::fp8 && !target.multiplies_float8)
    throw UsageError(
        "--dtype fp8 needs a GPU that multiplies 8-bit floats (compute capability 8.9 or later); "
        "this would run on {}: use --dtype bf16",
        target.description);
}

// Collects the passes of a request by name.
class Resolver {
 public:
  Resolver(Schedule& schedule) : schedule_(schedule) {}

  void add_of_row(const Pass& pass) {
    if (suits(pass, pass.where)) names_.insert(pass.name);
  }
  // With what it needs, unless that is disabled.
  void add_with_needs(const Pass& pass, const std::set<std::string_view>& disabled) {
    for (const std::string_view name : pass.needs)
      if (disabled.contains(name))
        throw UsageError("the pass {} needs {}, which is disabled", pass.name, name);
    if (!suits(pass, pass.stage == Stage::run ? pass.where : std::nullopt)) return;
    for (const std::string_view name : pass.needs)
      if (!name.empty()) add_with_needs(pass_named(name), disabled);
    names_.insert(pass.name);
  }
  void remove(const std::set<std::string_view>& disabled) {
    std::erase_if(names_, [&](std::string_view name) {
      return std::ranges::any_of(
          disabled, [&](std::string_view gone) { return needs(pass_named(name), gone); });
    });
  }
  // Those that another one excludes leave.
  void finish() {
    std::set<std::string_view> excluded;
    for (const std::string_view name : names_)
      for (const std::string_view other : pass_named(name).excludes)
        if (!other.empty() && names_.contains(other) && excluded.insert(other).second)
          leave_out(pass_named(other), fmt::format("excluded by {}", name));
    remove(excluded);
    for (const Pass& pass : passes())
      if (names_.contains(pass.name)) schedule_.passes.push_back(&pass);
    // A pass that the row brings on the other kind of device alone, and the user on this one.
    std::erase_if(schedule_.left_out, [this](const Schedule::LeftOut& left) {
      return names_.contains(left.pass->name);
    });
  }

 private:
  // Whether the use, the precision and the device allow a pass, which is left out where they do
  // not.
  bool suits(const Pass& pass, std::optional<DeviceKind> where) {
    std::string why;
    if (pass.use && *pass.use != schedule_.use)
      why = phrase_of(*pass.use);
    else if (pass.of_ranks && schedule_.ranks == 1)
      why = "for several ranks";
    else if (!pass.precisions.contains(schedule_.precision))
      why = "for another precision";
    else if (where && *where != schedule_.target.kind)
      why = phrase_of(*where);
    if (why.empty()) return true;
    leave_out(pass, std::move(why));
    return false;
  }
  void leave_out(const Pass& pass, std::string why) {
    if (std::ranges::find(schedule_.left_out, &pass, &Schedule::LeftOut::pass) ==
        schedule_.left_out.end())
      schedule_.left_out.push_back({&pass, std::move(why)});
  }

  Schedule& schedule_;
  std::set<std::string_view> names_;
};

}  // namespace

std::span<const ScheduleRow> schedules() {
  using Kind = ScheduleRow::Kind;
  constexpr std::size_t v2 = fused.size(), v3 = v2 + own_kernels.size();
  constexpr std::size_t plain_mode = v3 + compiled.size();
  static constexpr ScheduleRow table[] = {
      {Kind::version,
       "v1",
       "V1 - Baseline",
       "one kernel an operator, attention scores materialized",
       {}},
      {Kind::version, "v2", "V2 - Fused", "fused projections and pointwise operators",
       first(version_passes, v2)},
      {Kind::version, "v3", "V3 - Kernels", "own flash attention, norms, rotary and cross-entropy",
       first(version_passes, v3)},
      {Kind::version, "v4", "V4 - Ultra",
       "planned memory, tuned products and attention, prepared steps", version_passes},
      {Kind::compile_mode,
       "none",
       "none",
       "operator by operator, in memory that comes and goes",
       {}},
      {Kind::compile_mode, "default", "default",
       "folded and fused operators, weights prepared once, memory planned",
       first(mode_passes, plain_mode)},
      {Kind::compile_mode, "reduce-overhead", "reduce-overhead",
       "and the whole pass captured and replayed, where a GPU can",
       first(mode_passes, plain_mode + captured.size())},
      {Kind::compile_mode, "max-autotune", "max-autotune",
       "and each kernel the one that measures fastest", mode_passes},
  };
  return table;
}

std::string schedule_names(ScheduleRow::Kind kind) {
  std::vector<std::string_view> names;
  for (const ScheduleRow& row : schedules())
    if (row.kind == kind) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const ScheduleRow& schedule_row(std::string_view name) {
  const auto found = std::ranges::find(schedules(), name, &ScheduleRow::name);
  if (found != schedules().end()) return *found;
  throw UsageError("there is no version '{}': choose one of {}, or of the compile modes {}", name,
                   schedule_names(ScheduleRow::Kind::version),
                   schedule_names(ScheduleRow::Kind::compile_mode));
}

bool Schedule::has(std::string_view pass) const {
  return std::ranges::any_of(passes, [&](const Pass* p) { return p->name == pass; });
}

Schedule resolve(const ScheduleRequest& request, const Precision& precision, const Target& target,
                 Use use) {
  check_precision(precision, target, use);
  Schedule schedule{.row = request.row,
                    .use = use,
                    .precision = precision,
                    .target = target,
                    .recompute = recompute_named(request.recompute),
                    .ranks = request.ranks,
                    .pairwise_sums = request.pairwise_sums,
                    .zero = request.zero};
  if (precision.products == Precision::Products::int8)
    schedule.precision.compute = target.is_gpu() ? DType::f16 : DType::f32;
  std::set<std::string_view> disabled;
  for (const Pass* pass : passes_in(request.disable)) disabled.insert(pass->name);
  Resolver resolver(schedule);
  for (const std::string_view name : schedule_row(request.row).passes)
    resolver.add_of_row(pass_named(name));
  resolver.remove(disabled);
  const std::vector<const Pass*> enabled = passes_in(request.enable);
  for (const Pass* pass : enabled) {
    if (disabled.contains(pass->name))
      throw UsageError("the pass {} is both enabled and disabled", pass->name);
    if (pass->use && *pass->use != use)
      throw UsageError("the pass {} is {}, and this is {}", pass->name, phrase_of(*pass->use),
                       name_of(use));
    resolver.add_with_needs(*pass, disabled);
  }
  for (const Pass& pass : passes()) {
    const bool recomputes = pass.chosen_by == ChosenBy::recompute &&
                            schedule.recompute != Recompute::none && use == Use::training;
    const bool narrows =
        pass.chosen_by == ChosenBy::precision && pass.precisions.contains(precision);
    const bool shares = pass.chosen_by == ChosenBy::ranks && schedule.ranks > 1 &&
                        (pass.zero == 0 || (pass.zero <= schedule.zero && use == Use::training));
    const bool syncs = pass.chosen_by == ChosenBy::sync_batch_norm && request.sync_batch_norm &&
                       schedule.ranks > 1 && use == Use::training;
    if (recomputes || narrows || shares || syncs) resolver.add_with_needs(pass, disabled);
  }
  resolver.finish();
  for (Schedule::LeftOut& left : schedule.left_out)
    left.asked = std::ranges::find(enabled, left.pass) != enabled.end();
  return schedule;
}

void check(const ScheduleRequest& request) {
  const Target any{.multiplies_float8 = true};
  Use use = Use::training;
  for (const Pass* pass : passes_in(request.enable)) use = pass->use.value_or(use);
  resolve(request, precision_named("fp32"), any, use);
}

}  // namespace ridge
