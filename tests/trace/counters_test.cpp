#include "ridge/trace/counters.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/trace/read.h"
#include "ridge/trace/report.h"

namespace ridge::trace {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string counter(const std::string& name, double time, const std::string& args,
                    const std::string& process = "1") {
  return fmt::format(
      R"({{"ph": "C", "cat": "system", "name": "{}", "pid": {}, "tid": 0, "ts": {}, "args": {}}})",
      name, process, time, args);
}

std::string list(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& event : events) text += (text.empty() ? "[" : ",\n") + event;
  return text + "]";
}

std::vector<CounterSum> sums_of(const std::vector<std::string>& events, ReadOptions options = {}) {
  return counter_sums(read_text(list(events), "made.json", options));
}

TEST(Counters, AreMeansOverTime) {
  const auto sums = sums_of({counter("power (W)", 100, R"({"value": 10})"),
                             counter("power (W)", 400, R"({"value": -2.5e1})"),
                             counter("power (W)", 200, R"({"value": 40})")});
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].name, "power (W)");
  EXPECT_EQ(sums[0].category, "system");
  EXPECT_EQ(sums[0].points, 3u);
  EXPECT_THAT(sums[0].mean, DoubleEq((10 * 100 + 40 * 200) / 300.0))
      << "by time, not in the file's order";
  EXPECT_EQ(sums[0].min, -25);
  EXPECT_EQ(sums[0].max, 40);
  EXPECT_EQ(sums[0].max_at_us, 100) << "since the first event";
}

TEST(Counters, AreOneForEachArgumentAndProcess) {
  const auto sums = sums_of({counter("memory", 1, R"({"used": 10, "free": 5, "who": "me"})"),
                             counter("memory", 2, R"({"free": 6, "used": 9})"),
                             counter("memory", 3, R"({"used": 1})", "2"),
                             counter("bytes", 3, R"({"bytes": 77})", "2")});
  ASSERT_EQ(sums.size(), 4u);
  EXPECT_EQ(sums[0].name, "memory: used");
  EXPECT_EQ(sums[1].name, "memory: free");
  EXPECT_EQ(sums[1].points, 2u);
  EXPECT_EQ(sums[2].process, "2");
  EXPECT_EQ(sums[3].name, "bytes") << "an argument that is read for other events too";
  EXPECT_EQ(sums[3].max, 77);
}

TEST(Counters, AreReadHoweverTheyAreWritten) {
  // Arguments before the phase, as Chromium's own tracing has them, escapes, and what is no number.
  const auto sums = sums_of(
      {R"({"args": {"a \"b\"": 3, "text": "4", "list": [5], "true": true}, "cat": "x", "name": "n", )"
       R"("ph": "C", "pid": 1, "ts": 5})",
       R"({"args": {"bytes": 3}, "name": "slice", "ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 1})",
       R"({"ph": "C", "name": "none", "pid": 1, "ts": 5})",
       R"({"ph": "C", "name": "none", "pid": 1, "ts": 5, "args": 7})",
       R"({"ph": "C", "name": "none", "pid": 1, "args": {"value": 7}})"});
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].name, "n: a \"b\"");
}

TEST(Counters, AreTheSameInPieces) {
  std::vector<std::string> events;
  for (int i = 0; i < 200; ++i)
    events.push_back(counter(fmt::format("c{}", i % 3), i, fmt::format(R"({{"value": {}}})", i)));
  const auto whole = sums_of(events), pieces = sums_of(events, {.threads = 3, .piece_bytes = 300});
  ASSERT_EQ(whole.size(), 3u);
  ASSERT_EQ(pieces.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pieces[i].name, whole[i].name);
    EXPECT_EQ(pieces[i].mean, whole[i].mean);
    EXPECT_EQ(pieces[i].points, whole[i].points);
  }
}

TEST(Counters, StandInTheReport) {
  const std::string text = list(
      {R"({"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "the system"}})",
       counter("core 0 busy (%)", 0, R"({"value": 98.25})"),
       counter("swapped in (B/s)", 0, R"({"value": 0})"),
       counter("machine, used (B)", 0, R"({"value": 1073741824})"),
       R"({"ph": "C", "cat": "memory", "name": "memory", "pid": 1, "ts": 1, "args": {"live": 4}})"});
  const RunReport run = report_ranks({report_of(read_text(text, "made.json"))});
  EXPECT_THAT(report_text(run, 10),
              AllOf(HasSubstr("so there are counters alone"), HasSubstr("\nThe system\nCounter"),
                    HasSubstr("98.25"), HasSubstr("1.00 GiB"),
                    HasSubstr("0 all the time: swapped in (B/s)"),
                    Not(HasSubstr("What would help")), Not(HasSubstr("live"))));
  const auto json = nlohmann::json::parse(report_json(run));
  EXPECT_EQ(json["ranks"][0]["counters"].size(), 3u);
  EXPECT_EQ(json["ranks"][0]["counters"][0]["process"], "the system");
}

TEST(Counters, OfManyCoresStandInJsonAlone) {
  std::vector<std::string> events;
  for (int core = 0; core < 40; ++core)
    events.push_back(counter(fmt::format("core {} busy (%)", core), 0, R"({"value": 5})"));
  events.push_back(counter("received (B/s)", 0, R"({"value": 5})"));
  const std::string text = counters_text(sums_of(events));
  EXPECT_THAT(text, AllOf(HasSubstr("received"), Not(HasSubstr("core 7 busy")),
                          HasSubstr("40 counters of single cores are left out")));
  EXPECT_THAT(counters_text({}), IsEmpty());
}

}  // namespace
}  // namespace ridge::trace
