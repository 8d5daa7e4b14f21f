#include "ridge/session/belief.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

namespace ridge {
namespace {

using Verdict = BeliefCheck::Verdict;
using ::testing::HasSubstr;

// Twelve steps of a tenth of a second after a slow one, on a quiet machine.
Record sound() {
  Record record{.steps = {}, .warmup_steps = 1};
  record.options.resolve();
  record.workload = workload_of(record.options).info;
  record.system.device = "cpu";
  for (std::int64_t i = 1; i <= 13; ++i)
    record.steps.push_back({.step = i,
                            .loss = 6.95 - 0.01 * static_cast<double>(i),
                            .seconds = i == 1 ? 0.3 : 0.1 + 0.0001 * static_cast<double>(i % 2),
                            .device_seconds = 0.09});
  record.busy_processors_of_others = 0.02;
  record.least_step_seconds = 0.04;
  return record;
}

std::map<std::string_view, Verdict> verdicts(const Record& record) {
  std::map<std::string_view, Verdict> found;
  for (const BeliefCheck& check : belief_of(record, summarize(record)).checks)
    found[check.name] = check.verdict;
  return found;
}

TEST(Belief, IsGivenToASoundRun) {
  const Record record = sound();
  const Belief belief = belief_of(record, summarize(record));
  EXPECT_EQ(belief.checks.size(), 7u);
  EXPECT_FALSE(belief.is_doubtful());
  for (const BeliefCheck& check : belief.checks)
    EXPECT_EQ(check.verdict, Verdict::good) << check.finding;
  const std::string text = belief_text(belief);
  EXPECT_THAT(text, HasSubstr("Is this run to be believed? Yes\n"));
  EXPECT_THAT(text, HasSubstr("The first step took 3.00 times the median"));
  EXPECT_THAT(text, HasSubstr("ln(1000) = 6.9078"));
  EXPECT_THAT(text, HasSubstr("2.5 times the 40.00 ms"));
}

// Each fault is seen by its own check, and by no other.
TEST(Belief, IsDeniedByEachFault) {
  const std::map<std::string_view, std::function<void(Record&)>> faults{
      {"enough", [](Record& r) { r.steps.resize(6); }},
      {"steady",
       [](Record& r) {
         for (std::size_t i = 3; i < 9; ++i) r.steps[i].device_seconds = 0.1;
       }},
      {"warm_up", [](Record& r) { r.steps[1].seconds = 0.127; }},
      {"quiet", [](Record& r) { r.busy_processors_of_others = 0.11; }},
      {"possible", [](Record& r) { r.least_step_seconds = 0.12; }},
      {"finite", [](Record& r) { r.steps[7].loss = std::numeric_limits<double>::quiet_NaN(); }},
      {"first_loss", [](Record& r) { r.steps[0].loss = 942; }}};
  for (const auto& [name, fault] : faults) {
    Record record = sound();
    fault(record);
    const auto found = verdicts(record);
    EXPECT_EQ(found.at(name), Verdict::doubtful) << name;
    EXPECT_EQ(
        std::ranges::count(found, Verdict::doubtful, [](const auto& one) { return one.second; }), 1)
        << name;
  }
}

TEST(Belief, SaysWhatItCannotKnow) {
  Record record = sound();
  record.busy_processors_of_others.reset();
  record.least_step_seconds = 0;
  EXPECT_EQ(verdicts(record).at("quiet"), Verdict::unknown);
  EXPECT_EQ(verdicts(record).at("possible"), Verdict::unknown);
  EXPECT_FALSE(belief_of(record, summarize(record)).is_doubtful());
  record.options.resume = "checkpoint";
  EXPECT_FALSE(verdicts(record).contains("first_loss")) << "of trained weights nothing is expected";
  record.steps.clear();
  EXPECT_TRUE(belief_of(record, summarize(record)).checks.empty());
  EXPECT_EQ(belief_text({}), "");
}

}  // namespace
}  // namespace ridge
