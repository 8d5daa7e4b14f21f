// Races of programs that nobody runs, on a machine whose clock is simulated.

#include "ridge/study/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/study/made_runs.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// A machine that is busy now and then, on which each process has luck of its own.
struct Machine {
  explicit Machine(std::uint32_t seed) : random(seed) {}
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random); }
  double normal() { return std::normal_distribution<double>()(random); }
  std::mt19937 random;
  double now = 0, busy = 1;
  double luck = 0.015;  // the deviation of a process
  double noise = 0.03;  // of a step
  double noise_of_every_second_pair = 0.03;
  double start = 0.3;   // seconds that a process takes to be ready
  double step = 0.05;   // seconds
  double slowdown = 1;  // of the candidate
  bool old_baseline = false;
  int started = 0, alive = 0, released = 0;
  std::vector<std::pair<Side, std::int64_t>> turns;
  std::int64_t memory[2] = {1000, 1000};
};

class FakeRacer final : public Racer {
 public:
  FakeRacer(Machine& machine, Side side, bool paced)
      : machine_(machine),
        side_(side),
        paced_(paced && !(machine.old_baseline && side == Side::baseline)),
        factor_(std::exp(machine.luck * machine.normal()) *
                (side == Side::candidate ? machine.slowdown : 1)) {
    pair_ = machine_.started++ / 2;
    ++machine_.alive;
  }
  ~FakeRacer() override { --machine_.alive; }
  bool ready() override {
    machine_.now += machine_.start;
    if (!paced_) machine_.now += 20 * machine_.step;
    return paced_;
  }
  PacedTurn take(std::int64_t timed, std::int64_t untimed) override {
    if (machine_.uniform() < 0.02)
      machine_.busy = machine_.uniform() < 0.5 ? 1 : 1 + machine_.uniform();
    const double seconds = step();
    machine_.now += seconds * static_cast<double>(timed + untimed);
    machine_.turns.emplace_back(side_, timed);
    return {.seconds = seconds, .loss = 1};
  }
  void release() override { ++machine_.released; }
  RunDocument finish() override {
    EXPECT_TRUE(!paced_ || machine_.released % 2 == 0) << "both end at the same time";
    testing::MadeRun run{.median_seconds = step(),
                         .peak_bytes = machine_.memory[side_ == Side::candidate ? 1 : 0]};
    return testing::document_of(run);
  }

 private:
  double step() {
    const double noise = pair_ % 2 == 0 ? machine_.noise : machine_.noise_of_every_second_pair;
    return machine_.step * factor_ * machine_.busy * std::exp(noise * machine_.normal());
  }
  Machine& machine_;
  Side side_;
  bool paced_;
  double factor_;
  int pair_ = 0;
};

CommandResult race_on(Machine& machine, RaceRules rules = {}) {
  if (rules.criteria.empty()) {
    const std::vector<std::string> names{"time"};
    rules.criteria = criteria_of(names, {});
  }
  return race(rules, {.start =
                          [&](Side side, bool paced) {
                            return std::make_unique<FakeRacer>(machine, side, paced);
                          },
                      .now = [&] { return machine.now; },
                      .stop = {}});
}

std::size_t count(double slowdown, GateVerdict verdict, std::uint32_t races) {
  std::size_t found = 0;
  for (std::uint32_t seed = 0; seed < races; ++seed) {
    Machine machine(seed);
    machine.slowdown = slowdown;
    const CommandResult result = race_on(machine, {.seed = seed});
    found += result.metrics.front().verdict == verdict ? 1 : 0;
    EXPECT_LE(result.seconds, 125);
  }
  return found;
}

// Processes of one program differ by 2 % from each other: steps of two of them are no evidence.
TEST(Race, RaisesFewFalseAlarmsWhereProcessesHaveLuck) {
  EXPECT_LE(count(1, GateVerdict::regression, 400), 4u);
}

TEST(Race, FindsSlowdownsWithinTheBudget) {
  EXPECT_GE(count(1.05, GateVerdict::regression, 100), 95u);
  EXPECT_EQ(count(1.2, GateVerdict::regression, 50), 50u);
}

TEST(Race, CallsTheSameAndTheFasterFine) {
  EXPECT_GE(count(1, GateVerdict::fine, 100), 50u);
  EXPECT_EQ(count(0.9, GateVerdict::fine, 50), 50u);
}

// Half of all pairs say little.
TEST(Race, HardlyCountsPairsThatWereMeasuredOnABusyMachine) {
  const auto pairs = [](double noise) {
    std::size_t sum = 0;
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
      Machine machine(seed);
      machine.slowdown = 1.05;
      machine.noise_of_every_second_pair = noise;
      sum += race_on(machine, {.seed = seed}).metrics.front().pairs;
    }
    return sum;
  };
  EXPECT_LT(pairs(0.4), 3 * pairs(0.03));  // 4.5 times as many if all pairs counted the same
}

// More steps of the same processes do not tell how lucky these were.
TEST(Race, MeasuresPairsNoLongerThanUntilTheirTurnsAgree) {
  const auto seconds = [](double noise) {
    double sum = 0;
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
      Machine machine(seed);
      machine.slowdown = 1.05;
      machine.step = 0.003;
      machine.start = 1.5;
      machine.noise = machine.noise_of_every_second_pair = noise;
      sum += race_on(machine, {.seed = seed}).seconds;
    }
    return sum / 40;
  };
  // Of nine pairs at least, each starts in 3 s and would be measured for 3 s more.
  EXPECT_LT(seconds(0.002), 45);
  EXPECT_GT(seconds(0.05), 60);
}

// What is found of losses is that of the pair of processes whose losses differ least.
TEST(Race, TakesAsManyStepsAsLossesAreCompared) {
  const auto steps_of_a_process = [](const std::vector<std::string>& names, double step) {
    Machine machine(1);
    machine.step = step;
    machine.start = 1.5;
    machine.noise = machine.noise_of_every_second_pair = 0.002;
    race_on(machine, {.criteria = criteria_of(names, {})});
    return machine.turns.size() / static_cast<std::size_t>(machine.started);
  };
  EXPECT_LT(steps_of_a_process({"time"}, 0.02), 30u);
  EXPECT_GE(steps_of_a_process({"time", "loss"}, 0.02), losses_compared);
  EXPECT_LT(steps_of_a_process({"time", "loss"}, 0.1), losses_compared) << "the time is over";
}

TEST(Race, TakesTurnsAndLeavesNobodyRunning) {
  Machine machine(1);
  const CommandResult result = race_on(machine);
  EXPECT_EQ(machine.alive, 0);
  EXPECT_GE(machine.started, 18) << "many processes";
  std::int64_t balance = 0;
  std::size_t candidate_first = 0;
  for (std::size_t i = 0; i < machine.turns.size(); ++i) {
    balance += machine.turns[i].first == Side::baseline ? 1 : -1;
    ASSERT_LE(std::abs(balance), 1) << "turn " << i;
    if (i % 2 == 0) candidate_first += machine.turns[i].first == Side::candidate ? 1 : 0;
  }
  EXPECT_EQ(balance, 0);
  EXPECT_GT(candidate_first, machine.turns.size() / 10);
  EXPECT_LT(candidate_first, machine.turns.size() * 4 / 10);
  EXPECT_EQ(result.metrics.front().pairs * 2, static_cast<std::size_t>(machine.started));
}

TEST(Race, IsTheSameWithTheSameSeed) {
  const auto sides = [](std::uint64_t seed) {
    Machine machine(1);
    race_on(machine, {.seed = seed});
    return machine.turns;
  };
  EXPECT_EQ(sides(7), sides(7));
  EXPECT_NE(sides(7), sides(8));
}

TEST(Race, MakesTurnsOfManyShortSteps) {
  Machine machine(1);
  machine.step = 0.0005;
  race_on(machine);
  EXPECT_GT(machine.turns.back().second, 20);
  Machine slow(1);
  race_on(slow);
  EXPECT_EQ(slow.turns.back().second, 1);
}

TEST(Race, RunsWholeProcessesOfAProgramThatKnowsNoPacing) {
  Machine machine(3);
  machine.old_baseline = true;
  machine.slowdown = 1.2;
  const CommandResult result = race_on(machine);
  EXPECT_EQ(result.metrics.front().verdict, GateVerdict::regression);
  ASSERT_THAT(result.notes, SizeIs(1));
  EXPECT_THAT(result.notes.front(), HasSubstr("whole runs take turns"));
  EXPECT_EQ(machine.alive, 0);
}

TEST(Race, SaysThatTheBudgetIsTooSmallForADecision) {
  Machine machine(1);
  machine.step = 2;
  const CommandResult result = race_on(machine, {.budget = 60});
  EXPECT_EQ(result.metrics.front().verdict, GateVerdict::undecided);
  EXPECT_THAT(result.metrics.front().note, HasSubstr("raise --budget"));
}

TEST(Race, LooksFirstWhereThereCanBeADecision) {
  EXPECT_EQ(pairs_of_first_look(0.05), 8u);
  EXPECT_EQ(pairs_of_first_look(0.005), 9u);    // 2^-9 < 0.0025 < 2^-8
  EXPECT_EQ(pairs_of_first_look(0.0005), 12u);  // of ten commands
}

TEST(Race, NeedsOnePairOfProcessesForWhatIsCounted) {
  Machine machine(1);
  machine.memory[1] = 1001;
  const std::vector<std::string> names{"memory", "kernels", "loss"};
  const CommandResult result = race_on(machine, {.criteria = criteria_of(names, {})});
  EXPECT_EQ(machine.started, 2);
  EXPECT_EQ(result.metrics[0].verdict, GateVerdict::regression);
  EXPECT_EQ(result.metrics[1].verdict, GateVerdict::fine);
  EXPECT_EQ(result.metrics[2].verdict, GateVerdict::fine);
}

TEST(Race, EndsWhenTheUserWantsIt) {
  Machine machine(1);
  const std::vector<std::string> names{"time"};
  const RaceRules rules{.criteria = criteria_of(names, {})};
  const RaceHooks hooks{
      .start = [&](Side side,
                   bool paced) { return std::make_unique<FakeRacer>(machine, side, paced); },
      .now = [&] { return machine.now; },
      .stop = [&] { return machine.now > 5; }};
  EXPECT_THROW(race(rules, hooks), GateInterrupted);
  EXPECT_EQ(machine.alive, 0);
}

}  // namespace
}  // namespace ridge
