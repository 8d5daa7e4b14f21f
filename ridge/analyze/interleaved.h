#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/device/device.h"
#include "ridge/session/trainer.h"

namespace ridge {

// How often training runs take turns.
struct Rounds {
  std::int64_t rounds = 16;
  std::int64_t steps = 3;   // timed of each run in a round
  std::int64_t warmup = 3;  // before these, not timed

  std::int64_t steps_of(std::size_t runs) const;  // in all, warm-up included
};

// UsageError unless there is something to time. `steps_in_all` are shared out among the rounds, so
// that each has at least one.
Rounds rounds_of(std::int64_t rounds, std::int64_t steps_in_all, std::int64_t warmup);

// Calls `turn` for each of so many runs, in each round: every other one backwards, so that a drift
// within rounds cancels out.
void take_turns(std::size_t runs, std::int64_t rounds,
                const std::function<void(std::size_t run, std::int64_t round)>& turn);

struct TimedRun {
  std::vector<std::vector<StepReport>> rounds;  // without the warm-up
  std::size_t peak_bytes = 0;                   // most that tensors took

  // Of each round, the median over its steps.
  std::vector<double> by_round(double StepReport::*field) const;
};

struct TurnTaking {
  std::function<void(std::int64_t done, std::int64_t all)> progress;  // steps
  std::function<void(std::string_view product, int number)> tuning;   // see TrainerHooks
  // Called when a run has had its steps in a round, which may make more of them.
  std::function<void(std::size_t run, Trainer& trainer)> after;
};

// Times training runs against each other in one process: in each round every run is set up, warmed
// up and timed, one after the other, so that slow changes of the machine meet all of them alike and
// round i of one can be paired with round i of another. No two runs hold memory at once. `runs` are
// resolved.
std::vector<TimedRun> time_in_turn(const std::vector<TrainOptions>& runs, Device& device,
                                   const Rounds& rounds, const TurnTaking& hooks = {});

// What an interval says of a ratio of times.
enum class Change : std::uint8_t { faster, slower, unclear, unknown };
Change change_of(const Ratio& ratio);
// "faster", "slower", "no clear change", "too few rounds"
std::string_view name_of(Change change);

}  // namespace ridge
