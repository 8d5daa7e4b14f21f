#include "ridge/analyze/interleaved.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ridge/base/error.h"

namespace ridge {
namespace {

class Tournament {
 public:
  Tournament(const std::vector<Variant>& variants, Device& device, const Rounds& rounds,
             const TurnHooks& hooks)
      : device_(device),
        rounds_(rounds),
        hooks_(hooks),
        held_(variants.size()),
        results_(variants.size()) {
    for (std::size_t i = 0; i < variants.size(); ++i) {
      results_[i].variant = variants[i];
      results_[i].fault = variants[i].refusal;
      if (variants[i].refusal.empty()) all_ += rounds.steps_in_all();
    }
  }

  std::vector<TimedVariant> play() {
    interleave(results_.size(), rounds_.rounds, [this](std::size_t i, std::int64_t) {
      if (!stopped_ && results_[i].fault.empty()) turn(i);
    });
    return std::move(results_);
  }

 private:
  void turn(std::size_t i) {
    try {
      play_round(i);
    } catch (const OutOfMemoryError&) {
      // If memory is short, in place of all others.
      for (auto& held : held_) held.reset();
      try {
        play_round(i);
      } catch (const OutOfMemoryError& error) {
        held_[i].reset();
        results_[i].fault = error.what();
        results_[i].rounds.clear();
      }
    }
  }

  Session& session_of(std::size_t i) {
    if (held_[i]) return *held_[i];
    TimedVariant& result = results_[i];
    if (device_.available_memory() < device_.total_memory() / 2)
      for (auto& held : held_) held.reset();
    held_[i] = std::make_unique<Session>(result.variant.options, device_,
                                         SessionHooks{.trying = hooks_.trying});
    if (!result.measured()) describe(result, *held_[i]);
    return *held_[i];
  }

  void describe(TimedVariant& result, Session& session) const {
    const std::int64_t batches = result.variant.options.batches_per_step();
    const Executor& executor = session.executor();
    const auto launches = [&](Phase phase) {
      return static_cast<std::int64_t>(executor.launches(phase));
    };
    result.compile_seconds = session.compile_seconds();
    result.samples = result.variant.options.samples_per_step();
    result.at_peak = executor.memory_plan().at_peak;
    result.work = cost_of_step(session.graph(), batches).total();
    result.kernels = batches * (launches(Phase::forward) + launches(Phase::backward)) +
                     launches(Phase::optimizer);
    if (!hooks_.roof) return;
    const Roof roof = roof_for(*hooks_.roof, session.schedule());
    result.at_best = least_time_of_step(session.graph(), roof, session.schedule(), batches);
    const ProductKind products = session.schedule().precision.product_kind();
    result.peak_flops = roof.flops(products == ProductKind::f32 ? roof.f32_products() : products);
  }

  void play_round(std::size_t i) {
    TimedVariant& result = results_[i];
    const bool is_held = held_[i] != nullptr;
    Session& session = session_of(i);
    const std::int64_t warmup =
        is_held ? std::min<std::int64_t>(1, rounds_.warmup) : rounds_.warmup;
    for (std::int64_t k = 0; k < warmup && !stop(); ++k) session.step();
    std::vector<StepReport> steps;
    for (std::int64_t k = 0; k < rounds_.steps && !stop(); ++k) {
      steps.push_back(session.step());
      result.loss = steps.back().loss;
      if (hooks_.progress) hooks_.progress(++done_, all_);
    }
    if (steps.empty()) return;
    if (hooks_.keep_logits && result.logits.empty()) {
      result.logits = session.logits();
      const auto dims = session.model().logits.shape().dims();
      result.logits_shape.assign(dims.begin(), dims.end());
      result.class_dim = session.model().class_dim;
    }
    result.peak_tensor_bytes =
        std::max(result.peak_tensor_bytes, session.executor().memory().peak_live);
    result.rounds.push_back(std::move(steps));
    if (hooks_.after) hooks_.after(i, session);
    // Where memory lies decides some percent of a step's time: the next round draws it anew.
    if (result.variant.options.use() == Use::training) held_[i].reset();
  }

  bool stop() {
    if (hooks_.stop && hooks_.stop()) stopped_ = true;
    return stopped_;
  }

  Device& device_;
  const Rounds& rounds_;
  const TurnHooks& hooks_;
  std::vector<std::unique_ptr<Session>> held_;  // by variant; null if there was no memory
  std::vector<TimedVariant> results_;
  std::int64_t done_ = 0, all_ = 0;
  bool stopped_ = false;
};

}  // namespace

Rounds rounds_of(std::int64_t rounds, std::int64_t steps_in_all, std::int64_t warmup) {
  constexpr std::int64_t most = 100'000;
  if (rounds < 1 || rounds > most)
    throw UsageError("--rounds is {}; it must be from 1 to {}", rounds, most);
  return {rounds, std::max<std::int64_t>(1, steps_in_all / rounds), warmup};
}

void interleave(std::size_t runs, std::int64_t rounds,
                const std::function<void(std::size_t run, std::int64_t round)>& turn) {
  for (std::int64_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < runs; ++i) turn(round % 2 == 0 ? i : runs - 1 - i, round);
}

std::vector<StepReport> TimedVariant::steps() const {
  std::vector<StepReport> all;
  for (const std::vector<StepReport>& round : rounds)
    all.insert(all.end(), round.begin(), round.end());
  return all;
}

std::vector<double> TimedVariant::seconds() const {
  std::vector<double> all;
  for (const StepReport& step : steps()) all.push_back(seconds_of(step));
  return all;
}

std::vector<double> TimedVariant::by_round() const {
  std::vector<double> medians;
  for (const std::vector<StepReport>& round : rounds) {
    std::vector<double> values;
    for (const StepReport& step : round) values.push_back(seconds_of(step));
    medians.push_back(percentile(values, 0.5));
  }
  return medians;
}

double TimedVariant::seconds_of(const StepReport& step) const {
  return variant.options.use() == Use::training ? step.seconds : step.device_seconds;
}

double TimedVariant::samples_per_second() const {
  const double median = measured() ? median_seconds() : 0;
  return median > 0 ? static_cast<double>(samples) / median : 0;
}

double TimedVariant::samples_per_second_per_gb() const {
  return peak_tensor_bytes > 0
             ? samples_per_second() / (static_cast<double>(peak_tensor_bytes) * 1e-9)
             : 0;
}

double TimedVariant::flops_per_second() const {
  const double median = measured() ? median_seconds() : 0;
  return median > 0 ? static_cast<double>(work.flops) / median : 0;
}

double TimedVariant::efficiency() const {
  return peak_flops > 0 ? flops_per_second() / peak_flops : 0;
}

std::vector<TimedVariant> time_interleaved(const std::vector<Variant>& variants, Device& device,
                                           const Rounds& rounds, const TurnHooks& hooks) {
  return Tournament(variants, device, rounds, hooks).play();
}

Ratio speedup_over(const TimedVariant& first, const TimedVariant& result) {
  if (!first.measured() || !result.measured()) return {};
  std::vector<double> a = first.by_round(), b = result.by_round();
  const std::size_t rounds = std::min(a.size(), b.size());  // they differ if it was interrupted
  a.resize(rounds);
  b.resize(rounds);
  return paired_ratio(a, b);
}

Change change_of(const Ratio& ratio) {
  if (!ratio.interval) return Change::unknown;
  if (ratio.interval->high < 1) return Change::faster;
  if (ratio.interval->low > 1) return Change::slower;
  return Change::unclear;
}

std::string_view name_of(Change change) {
  constexpr std::string_view names[] = {"faster", "slower", "no clear change", "too few rounds"};
  return names[static_cast<int>(change)];
}

}  // namespace ridge
