#include "ridge/trace/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/trace/report.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

// A rank that computes for so long before each all-reduce of 4 MiB, which ends for all at the same
// time, 100 us after the last has begun. Its clock is ahead by so much.
Report rank(int number, const std::vector<double>& computes, const std::vector<double>& slowest,
            double clock_us, const std::string& args = "") {
  MadeTrace made;
  double time = 1000;
  for (std::size_t i = 0; i < computes.size(); ++i) {
    made.launched("gemm", clock_us + time - 500, clock_us + time, computes[i]);
    const double begin = time + computes[i], end = time + slowest[i] + 100;
    made.event(fmt::format(
        R"({{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":{},)"
        R"("dur":{},"args":{{"device":0,"stream":20,"Collective name":"allreduce",)"
        R"("In msg nelems":1048576,"Out msg nelems":1048576,"dtype":"Float","Group size":2{}}}}})",
        clock_us + begin, end - begin, args));
    time = end + 10;
  }
  return report_of(read_text(made.text(fmt::format(R"("distributedInfo":{{"rank":{}}},)", number)),
                             "made.json"));
}

TEST(TraceRanks, TellWaitingFromTransferWhateverTheClocks) {
  const std::vector<double> fast = {200, 200, 200}, slow = {300, 260, 200};
  const RunReport run = report_ranks({rank(1, slow, slow, 77'000), rank(0, fast, slow, 0)});
  EXPECT_EQ(run.ranks.at(0).rank, 0) << "they come in order";
  ASSERT_TRUE(run.together);
  const Arrivals& arrivals = run.together->arrivals;
  EXPECT_EQ(arrivals.collectives, 3);
  EXPECT_EQ(arrivals.ahead_ns.at(1), 77'000'000);
  EXPECT_EQ(arrivals.ranks.at(0).waited_ns, 160'000);
  EXPECT_EQ(arrivals.ranks.at(1).waited_ns, 0);
  EXPECT_EQ(arrivals.ranks.at(1).last, 2);
  EXPECT_EQ(arrivals.ranks.at(1).caused_ns, 160'000);
  ASSERT_EQ(run.together->collectives.size(), 1U);
  const RanksTogether::Collective& all_reduce = run.together->collectives.front();
  EXPECT_EQ(all_reduce.name, "allreduce");
  EXPECT_EQ(all_reduce.bytes, 4 << 20);
  EXPECT_DOUBLE_EQ(all_reduce.median_us, 100);
  EXPECT_NEAR(all_reduce.bus_bandwidth, (4 << 20) / 100e-6, 1) << "2 (n - 1) / n = 1 of two ranks";
  EXPECT_DOUBLE_EQ(all_reduce.waited_us, 160);
}

TEST(TraceRanks, NameTheLateOneFirst) {
  const std::vector<double> fast(20, 200), slow(20, 600);
  const RunReport run = report_ranks({rank(0, fast, slow, 0), rank(1, slow, slow, 5)});
  ASSERT_FALSE(run.ranks[0].findings.empty());
  EXPECT_EQ(run.ranks[0].findings.front().rule, "late-rank");
  EXPECT_NEAR(run.ranks[0].findings.front().gain_us, 20 * 400, 1);
  EXPECT_THAT(run.ranks[0].findings.front().what, ::testing::HasSubstr("rank 1"));
  EXPECT_EQ(run.ranks[0].findings.at(1).rule, "exposed-communication");
  EXPECT_NEAR(run.ranks[0].findings.at(1).gain_us, 20 * 100, 1) << "without the waiting";
  EXPECT_EQ(run.ranks[1].findings.front().rule, "late-rank");
  EXPECT_THAT(run.ranks[1].findings.front().what, ::testing::HasSubstr("This rank comes last"));
  const std::string text = report_text(run, 10);
  EXPECT_THAT(text, ::testing::HasSubstr("Rank 1 comes last to 100.0 % of the collectives"));
}

TEST(TraceRanks, LeaveOutWhatNotAllHave) {
  const std::vector<double> times(3, 100);
  Report more = rank(1, {100, 100, 100, 100}, {100, 100, 100, 100}, 0);
  const RunReport run = report_ranks({rank(0, times, times, 0), more});
  EXPECT_FALSE(run.together) << "one rank has three, the other four";
  const RunReport groups = report_ranks({rank(0, times, times, 0, R"(,"Process Group Name":"1")"),
                                         rank(1, times, times, 0, R"(,"Process Group Name":"2")")});
  EXPECT_FALSE(groups.together) << "they are of two groups";
  EXPECT_FALSE(report_ranks({rank(0, times, times, 0)}).together);
}

}  // namespace
}  // namespace ridge::trace
