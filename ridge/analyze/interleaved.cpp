#include "ridge/analyze/interleaved.h"

#include <algorithm>

#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"

namespace ridge {

std::int64_t Rounds::steps_of(std::size_t runs) const {
  return static_cast<std::int64_t>(runs) * rounds * (warmup + steps);
}

Rounds rounds_of(std::int64_t rounds, std::int64_t steps_in_all, std::int64_t warmup) {
  constexpr std::int64_t most = 100'000;
  if (rounds < 1 || rounds > most)
    throw UsageError("--rounds is {}; it must be from 1 to {}", rounds, most);
  return {rounds, std::max<std::int64_t>(1, steps_in_all / rounds), warmup};
}

std::vector<double> TimedRun::by_round(double StepReport::*field) const {
  std::vector<double> medians;
  for (const std::vector<StepReport>& steps : rounds) {
    std::vector<double> values;
    for (const StepReport& step : steps) values.push_back(step.*field);
    medians.push_back(percentile(values, 0.5));
  }
  return medians;
}

namespace {

void add_round(const TrainOptions& options, Device& device, const Rounds& rounds,
               const TurnTaking& hooks, const std::function<void()>& progress,
               const std::function<void(Trainer&)>& after, TimedRun& timed) {
  Trainer trainer(options, device, {.tuning = hooks.tuning});
  std::vector<StepReport>& steps = timed.rounds.emplace_back();
  for (std::int64_t step = 0; step < rounds.warmup + rounds.steps; ++step) {
    const StepReport report = trainer.step();
    if (step >= rounds.warmup) steps.push_back(report);
    progress();
  }
  timed.peak_bytes = std::max(timed.peak_bytes, trainer.executor().memory().peak_live);
  after(trainer);
}

}  // namespace

void take_turns(std::size_t runs, std::int64_t rounds,
                const std::function<void(std::size_t run, std::int64_t round)>& turn) {
  for (std::int64_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < runs; ++i) turn(round % 2 == 0 ? i : runs - 1 - i, round);
}

std::vector<TimedRun> time_in_turn(const std::vector<TrainOptions>& runs, Device& device,
                                   const Rounds& rounds, const TurnTaking& hooks) {
  std::vector<TimedRun> timed(runs.size());
  const std::int64_t all = rounds.steps_of(runs.size());
  std::int64_t done = 0;
  take_turns(runs.size(), rounds.rounds, [&](std::size_t r, std::int64_t) {
    const auto progress = [&] {
      if (hooks.progress) hooks.progress(++done, all);
    };
    const auto after = [&](Trainer& trainer) {
      if (hooks.after) hooks.after(r, trainer);
    };
    try {
      add_round(runs[r], device, rounds, hooks, progress, after, timed[r]);
    } catch (const OutOfMemoryError& error) {
      throw OutOfMemoryError("{}", with_batch_advice(error.what(), runs[r], device));
    }
  });
  return timed;
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
