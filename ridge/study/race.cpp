#include "ridge/study/race.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ridge/base/random.h"
#include "ridge/base/statistics.h"
#include "ridge/study/signed_rank.h"

namespace ridge {
namespace {

constexpr double short_step = 0.010;         // seconds: several of these make a turn
constexpr double turn_seconds = 0.020;       // at least, of short steps
constexpr std::int64_t most_steps = 10'000;  // of a turn
constexpr std::int64_t steps_per_untimed =
    8;  // caches are the other's at the first steps of a turn
constexpr std::size_t fewest_turns = 5, most_turns = 200;  // of each process
constexpr double least_measuring = 0.25;                   // seconds, of a pair of processes
// A pair of processes is measured for so many times as long as it takes to start them: more steps
// of the same processes say little (docs/log.md has what was measured).
constexpr double measuring_per_start = 1;
constexpr double most_of_budget = 0.05;  // of that measuring
// The part by which two processes of one program differ however long they are measured.
constexpr double luck_of_processes = 0.01;
// A pair whose turns agree so well is measured no longer: its uncertainty is that of the luck then.
constexpr double spread_of_enough = luck_of_processes / 4;
constexpr double one_deviation = 0.16;  // of a normal distribution lies beyond it on either side

template <class T>
using Both = std::pair<T, T>;  // of the baseline, of the candidate
using PairOfTurns = Both<std::vector<PacedTurn>>;

double seconds_of(const PacedTurn& turn, std::string_view metric) {
  return metric == "forward"     ? turn.forward
         : metric == "backward"  ? turn.backward
         : metric == "optimizer" ? turn.optimizer
                                 : turn.seconds;
}

double spread_of(const Center& center) {
  return center.interval ? (center.interval->high - center.interval->low) / 2 : 0;
}

// A timed metric on its way to a verdict.
class Contest {
 public:
  Contest(const GateCriterion& criterion, const RaceRules& rules)
      : criterion_(criterion),
        decision_({.least_effect = criterion.least_effect.value,
                   .false_alarms = rules.false_alarms,
                   .first_pairs = pairs_of_first_look(rules.false_alarms)}) {}

  const GateMetric& metric() const { return *criterion_.metric; }
  bool decided() const { return look_.verdict != GateVerdict::undecided; }
  std::size_t pairs() const { return decision_.pairs(); }

  // What a pair of processes said, by the turns of both, in order.
  void add(const PairOfTurns& turns) {
    const auto [baseline, ratio] = estimate(turns);
    if (!ratio) return;
    medians_.push_back(baseline);
    decision_.add(baseline, baseline * std::exp(ratio->value),
                  std::hypot(spread_of(*ratio), luck_of_processes));
  }
  // Whether further turns would add little. The answer is the same if both programs change places.
  bool has_enough(const PairOfTurns& turns) const {
    const std::optional<Center> ratio = estimate(turns).second;
    return !ratio || (ratio->interval && spread_of(*ratio) <= spread_of_enough);
  }
  void look(bool is_last) {
    if (decided() || pairs() == 0 ||
        !(decision_.look_is_due() || (is_last && pairs() != look_.pairs)))
      return;
    look_ = decision_.look();
  }
  MetricResult result(const RaceRules& rules) const {
    MetricResult result = result_of(criterion_);
    result.pairs = pairs();
    if (pairs() == 0) {
      result.note = "the command's steps do not tell";
      return result;
    }
    result.verdict = look_.verdict;
    result.baseline = percentile(medians_, 0.5);
    result.candidate = *result.baseline * (1 + look_.change);
    result.change = look_.change;
    result.interval = look_.interval;
    result.p_value = decision_.p_value();
    const std::size_t needed = pairs_of_first_look(rules.false_alarms);
    if (!decided() && pairs() < needed)
      result.note = fmt::format(
          "only {} of the {} pairs of processes that it takes fit into the "
          "budget: raise --budget",
          pairs(), needed);
    return result;
  }

 private:
  // Seconds of the baseline, and the logarithm of the candidate's part of them.
  std::pair<double, std::optional<Center>> estimate(const PairOfTurns& turns) const {
    std::vector<double> baseline, ratios;
    for (std::size_t i = 0; i < turns.first.size(); ++i) {
      const double before = seconds_of(turns.first[i], metric().name);
      const double after = seconds_of(turns.second[i], metric().name);
      baseline.push_back(before);
      if (before > 0 && after > 0) ratios.push_back(std::log(after / before));
    }
    if (ratios.empty()) return {};
    return {percentile(baseline, 0.5), center_of(ratios, one_deviation)};
  }

  GateCriterion criterion_;
  SequentialDecision decision_;
  Look look_;
  std::vector<double> medians_;
};

class Race {
 public:
  Race(const RaceRules& rules, const RaceHooks& hooks) : rules_(rules), hooks_(hooks) {
    for (const GateCriterion& criterion : rules.criteria) {
      if (criterion.is_timed()) contests_.emplace_back(criterion, rules);
      if (criterion.metric->kind == GateMetric::Kind::loss) fewest_steps_ = losses_compared;
    }
  }

  CommandResult run() {
    const double begin = hooks_.now();
    double longest = 0;
    do {
      const double before = hooks_.now();
      if (paced_ && !run_paced_pair()) {
        paced_ = false;
        notes_.emplace_back(
            "a program does not know how to be paced: whole runs take turns, and each gives its "
            "median step");
      }
      if (!paced_) run_whole_pair();
      // The first pair may be slower than all others, since it finds nothing in caches.
      longest = std::max(pairs_done_ > 2 ? longest : 0, hooks_.now() - before);
      for (Contest& contest : contests_) contest.look(false);
      report(begin);
    } while (!all_decided() && hooks_.now() - begin + longest <= rules_.budget);
    for (Contest& contest : contests_) contest.look(true);
    CommandResult result{.command = {}, .metrics = {}, .notes = notes_, .fault = {}};
    for (const GateCriterion& criterion : rules_.criteria)
      result.metrics.push_back(metric(criterion));
    result.seconds = hooks_.now() - begin;
    return result;
  }

 private:
  bool coin() { return uniform_integer(2, rules_.seed, stream_of("coin"), tosses_++) == 0; }
  void check_stop() const {
    if (hooks_.stop && hooks_.stop()) throw GateInterrupted();
  }
  bool all_decided() const { return std::ranges::all_of(contests_, &Contest::decided); }
  void report(double begin) const {
    if (hooks_.progress)
      hooks_.progress(std::min(1.0, (hooks_.now() - begin) / rules_.budget), pairs_done_);
  }

  Both<std::unique_ptr<Racer>> start_both() {
    const Side first = coin() ? Side::baseline : Side::candidate;
    const Side second = first == Side::baseline ? Side::candidate : Side::baseline;
    auto one = hooks_.start(first, true);
    // The first processes may time kernels, and keep what they found for those after them.
    if (pairs_done_ == 0 && !one->ready()) return {};
    auto other = hooks_.start(second, true);
    if ((pairs_done_ > 0 && !one->ready()) || !other->ready()) return {};
    if (first == Side::candidate) std::swap(one, other);
    return {std::move(one), std::move(other)};
  }

  // Warms both up, in turns, and learns at the first time how many steps make a turn.
  void warm_up(Racer& baseline, Racer& candidate) {
    double seconds = 0;
    for (std::int64_t step = 0; step < std::max<std::int64_t>(1, rules_.warmup_steps); ++step)
      for (Racer* racer : {&baseline, &candidate}) {
        check_stop();
        seconds = racer->take(1, 0).seconds;
      }
    if (steps_ > 0) return;
    steps_ =
        seconds >= short_step
            ? 1
            : std::min(most_steps, static_cast<std::int64_t>(std::ceil(turn_seconds / seconds)));
  }

  bool all_have_enough(const PairOfTurns& turns) const {
    return !contests_.empty() && std::ranges::all_of(contests_, [&](const Contest& contest) {
      return contest.has_enough(turns);
    });
  }
  // How many there are in that time if so many were taken in another.
  static std::size_t turns_until(double seconds, double taken, std::size_t turns) {
    const double count = std::round(static_cast<double>(turns) * std::max(1.0, seconds / taken));
    return static_cast<std::size_t>(std::min(count, static_cast<double>(most_turns)));
  }

  // False if one of both cannot be paced.
  bool run_paced_pair() {
    const double begin = hooks_.now();
    auto [baseline, candidate] = start_both();
    if (!baseline) return false;
    warm_up(*baseline, *candidate);
    const double start = hooks_.now();
    const double until =
        start + std::max(least_measuring, std::min(measuring_per_start * (start - begin),
                                                   most_of_budget * rules_.budget));
    const std::int64_t untimed =
        steps_ > 1 ? (steps_ + steps_per_untimed - 1) / steps_per_untimed : 0;
    PairOfTurns turns;
    auto& [before, after] = turns;
    while (before.size() < fewest_turns ||
           (turns_ > 0 ? before.size() < turns_
                       : before.size() < most_turns && hooks_.now() < until)) {
      check_stop();
      if (coin()) {
        before.push_back(baseline->take(steps_, untimed));
        after.push_back(candidate->take(steps_, untimed));
      } else {
        after.push_back(candidate->take(steps_, untimed));
        before.push_back(baseline->take(steps_, untimed));
      }
      const std::size_t steps = before.size() * static_cast<std::size_t>(steps_ + untimed);
      if (before.size() % fewest_turns == 0 && hooks_.now() - start >= least_measuring &&
          steps >= fewest_steps_ && all_have_enough(turns))
        break;
    }
    if (pairs_done_ > 0 && turns_ == 0)
      turns_ = turns_until(until - start, hooks_.now() - start, before.size());
    for (Contest& contest : contests_) contest.add(turns);
    baseline->release();
    candidate->release();
    keep(baseline->finish(), candidate->finish());
    return true;
  }

  void run_whole_pair() {
    const auto run = [this](Side side) {
      check_stop();
      const auto racer = hooks_.start(side, false);
      racer->ready();
      return racer->finish();
    };
    RunDocument before, after;
    if (coin()) {
      before = run(Side::baseline);
      after = run(Side::candidate);
    } else {
      after = run(Side::candidate);
      before = run(Side::baseline);
    }
    keep(before, after);
    for (Contest& contest : contests_)
      if (contest.metric().name == "time")
        contest.add({{{.seconds = baseline_.back().row.median_seconds.value_or(0)}},
                     {{.seconds = candidate_.back().row.median_seconds.value_or(0)}}});
  }

  void keep(const RunDocument& before, const RunDocument& after) {
    baseline_.push_back(gated_run(before));
    candidate_.push_back(gated_run(after));
    ++pairs_done_;
  }

  MetricResult metric(const GateCriterion& criterion) const {
    if (!criterion.is_timed()) return compare_counted(criterion, baseline_, candidate_);
    return std::ranges::find_if(
               contests_,
               [&](const Contest& contest) { return &contest.metric() == criterion.metric; })
        ->result(rules_);
  }

  const RaceRules& rules_;
  const RaceHooks& hooks_;
  std::vector<Contest> contests_;
  std::vector<GatedRun> baseline_, candidate_;
  std::vector<std::string> notes_;
  bool paced_ = true;
  std::uint64_t tosses_ = 0;
  std::size_t pairs_done_ = 0;    // of processes
  std::int64_t steps_ = 0;        // of a turn
  std::size_t fewest_steps_ = 0;  // of a process, unless its time is over before
  std::size_t turns_ = 0;         // of a process
};

}  // namespace

// The first look has half of the rate; n pairs lie all on one side with probability 2^-n.
std::size_t pairs_of_first_look(double false_alarms) {
  constexpr double fewest = 8;
  return static_cast<std::size_t>(std::max(fewest, std::ceil(std::log2(2 / false_alarms))));
}

CommandResult race(const RaceRules& rules, const RaceHooks& hooks) {
  return Race(rules, hooks).run();
}

}  // namespace ridge
