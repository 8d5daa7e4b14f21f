#pragma once

// Two programs that run the same command against each other.
//
// Every process has luck of its own for all its life: where its pages lie and how large they are,
// which cores it began on. It makes two processes of one program differ by a percent or two, and no
// number of steps averages that out. So processes come in pairs, both new, and what a pair of them
// says is one measurement: the center of many ratios of a step of the one to a step of the other,
// taken in turns. A coin decides which of both starts first, and which begins each turn. If both
// programs are the same, exchanging them changes nothing, so that the ratio of a pair is as likely
// above 1 as below, whatever else the machine does.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/session/pace.h"
#include "ridge/study/gate.h"

namespace ridge {

enum class Side : std::uint8_t { baseline, candidate };

// One process of a race.
class Racer {
 public:
  virtual ~Racer() = default;
  // Waits until it can take steps; false if it has ended instead, as a program does that does not
  // know how to be paced, or one that is not to be.
  virtual bool ready() = 0;
  // Takes steps and tells of those that are timed.
  virtual PacedTurn take(std::int64_t timed, std::int64_t untimed) = 0;
  // Lets it end and does not wait for that.
  virtual void release() = 0;
  // Waits until it has ended, released or not, and reads what it left.
  virtual RunDocument finish() = 0;
};

struct RaceHooks {
  // Starts a new process, to be paced or to run by itself to its end, and does not wait for it.
  std::function<std::unique_ptr<Racer>(Side side, bool paced)> start;
  std::function<double()> now;  // seconds, from any moment on
  std::function<bool()> stop;   // whether the user wants an end; may be null
  std::function<void(double part, std::size_t pairs)> progress = {};  // of the budget
};

struct RaceRules {
  std::vector<GateCriterion> criteria;
  double budget = 120;  // seconds
  // Of each timed metric; a part of the rate of the whole gate if there are many.
  double false_alarms = 0.005;
  std::uint64_t seed = 0;
  std::int64_t warmup_steps = 3;  // of each process
};

// The pairs of processes that a first look takes: with fewer, not even all of them in favor of the
// baseline would be a regression at that rate of false alarms; 8 at least.
std::size_t pairs_of_first_look(double false_alarms);

// Races until all metrics are decided, or until the budget does not allow for another pair of
// processes. Throws what the hooks throw; GateInterrupted if the user stopped it.
CommandResult race(const RaceRules& rules, const RaceHooks& hooks);

}  // namespace ridge
