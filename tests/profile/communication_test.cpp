// What ranks say to each other, from recordings whose times are made.

#include "ridge/profile/communication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ridge/ops/activation.h"
#include "ridge/ops/collective.h"
#include "tests/dist/ranks.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t elements = 1024;

// One step of 1000 ns: two all-reduces of 4 KiB over two ranks, and something else.
struct Made {
  Graph graph;
  Recording recording;
  NodeId first, second, other;

  Made() {
    const Value x = graph.input("x", {DType::f32, {elements}});
    const AllReduce op{.ranks = 2};
    const Value a = all_reduce({&x, 1}, op)[0];
    const Value b = activation(a, ActivationKind::sqrt);
    all_reduce({&b, 1}, op);
    for (NodeId n = 0; n < graph.nodes().size(); ++n)
      if (name_of(*graph.nodes()[n].op) != AllReduce::name) other = n;
    first = 0, second = static_cast<NodeId>(graph.nodes().size() - 1);
    recording.graph = &graph;
    recording.ranks = 2;
    recording.epoch_ns = 5'000'000;
    recording.steps = {{.step = 1, .begin_ns = 0, .end_ns = 1000, .loss = 0}};
    recording.activity_names = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "product", "copy"};
  }
  void run(NodeId node, std::int64_t begin_ns, std::int64_t end_ns) {
    recording.nodes.push_back({node, 1, begin_ns, end_ns});
  }
  void activity(Activity::Kind kind, std::uint32_t name, NodeId node, std::int64_t begin_ns,
                std::int64_t end_ns, std::uint32_t run = 0) {
    recording.activities.push_back({.kind = kind,
                                    .name = name,
                                    .node = node,
                                    .run = run,
                                    .begin_ns = begin_ns,
                                    .end_ns = end_ns});
  }
  CommunicationReport report() const { return communication_report(recording).value(); }
};

TEST(Communication, IsNoneWhereADeviceIsAlone) {
  Made made;
  made.run(made.other, 0, 10);
  EXPECT_FALSE(communication_report(made.recording));
}

TEST(Communication, OfAProcessorIsItsCollectives) {
  Made made;
  made.run(made.first, 100, 300);
  made.run(made.other, 300, 350);
  made.run(made.second, 400, 500);
  const CommunicationReport report = made.report();
  EXPECT_EQ(report.step_ns, 1000);
  EXPECT_EQ(report.communication_ns, 300);
  EXPECT_EQ(report.hidden_ns, 0);
  ASSERT_EQ(report.collectives.size(), 1u);
  EXPECT_EQ(report.collectives[0].op, "all_reduce");
  EXPECT_EQ(report.collectives[0].calls, 2);
  EXPECT_EQ(report.collectives[0].bytes, 2 * elements * 4) << "half, twice, of each";
  EXPECT_DOUBLE_EQ(report.collectives[0].bus_bandwidth(), 2 * elements * 4 / 300e-9);
  ASSERT_EQ(report.runs.size(), 2u);
  EXPECT_EQ(report.runs[1].begin_ns, 5'000'400);
}

// Times on a device: of the library's kernels and of a sender's copies, less what runs beside them.
TEST(Communication, OfACardIsHiddenBehindItsKernels) {
  Made made;
  made.run(made.first, 0, 0);
  made.run(made.second, 0, 0);
  made.activity(Activity::Kind::kernel, 1, made.other, 0, 150);
  made.activity(Activity::Kind::kernel, 0, made.first, 100, 300);
  made.activity(Activity::Kind::kernel, 1, made.other, 200, 220);
  made.activity(Activity::Kind::kernel, 1, made.second, 210, 250);  // a sender's own, no transport
  made.activity(Activity::Kind::copy, 2, made.second, 400, 500);
  made.activity(Activity::Kind::copy, 2, made.other, 420, 430);  // of no collective
  made.activity(Activity::Kind::kernel, 1, made.other, 490, 600);
  made.activity(Activity::Kind::copy, 2, made.second, 700, 710, Activity::no_run);  // a reader's
  const CommunicationReport report = made.report();
  EXPECT_EQ(report.communication_ns, 300);
  EXPECT_EQ(report.hidden_ns, 50 + 50 + 10);
  EXPECT_DOUBLE_EQ(report.hidden_fraction(), 110.0 / 300);
  EXPECT_EQ(report.collectives[0].ns, 300);
  const std::string text = communication_text(report);
  EXPECT_THAT(text, HasSubstr("0.3 µs of a step of 1.0 µs"));
  EXPECT_THAT(text, HasSubstr("0.2 µs a step is not"));
}

CommunicationReport of_rank(std::vector<CollectiveRun> runs) {
  return {.steps = 1, .step_ns = 100'000, .runs = std::move(runs)};
}

// The second rank's clock is a millisecond ahead; it comes late to the second collective.
TEST(RanksReport, KnowsWhoWaitedForWhom) {
  constexpr std::int64_t ahead = 1'000'000;
  const std::vector<CommunicationReport> reports{
      of_rank({{0, 10'000}, {20'000, 60'000}, {70'000, 80'000}}),
      of_rank({{500 + ahead, 10'000 + ahead},
               {50'000 + ahead, 60'000 + ahead},
               {69'500 + ahead, 80'000 + ahead}})};
  const RanksReport report = compare_ranks(reports, std::vector<std::uint64_t>{7, 9});
  EXPECT_EQ(report.arrivals.collectives, 3);
  EXPECT_EQ(report.arrivals.ranks[0].waited_ns, 500 + 30'000);
  EXPECT_EQ(report.arrivals.ranks[1].waited_ns, 500);
  EXPECT_EQ(report.arrivals.ranks[0].last, 0) << "half a microsecond is nothing";
  EXPECT_EQ(report.arrivals.ranks[1].last, 1);
  EXPECT_EQ(report.arrivals.ranks[1].caused_ns, 30'000);
  EXPECT_EQ(report.ranks[1].peak_bytes, 9u);
  EXPECT_THAT(ranks_text(report), HasSubstr("Rank 1 comes last to 33.3 % of the collectives"));
}

TEST(RanksReport, ComparesNothingThatIsNotTheSame) {
  const std::vector<CommunicationReport> reports{of_rank({{0, 1}}), of_rank({})};
  const RanksReport report = compare_ranks(reports, std::vector<std::uint64_t>{0, 0});
  EXPECT_EQ(report.arrivals.collectives, 0);
  EXPECT_THAT(ranks_text(report), HasSubstr("All ranks"));
}

TEST(RanksReport, IsTheSameOnAllRanks) {
  const RankFaults faults = on_communicators(3, [](Communicator& communicator) {
    const int rank = communicator.rank();
    CommunicationReport own = of_rank({{0, 10'000}, {20'000 + 5'000 * rank, 60'000}});
    own.step_ns += rank;
    const RanksReport report =
        compare_ranks(own, static_cast<std::uint64_t>(100 + rank), communicator);
    ASSERT_EQ(report.ranks.size(), 3u);
    EXPECT_EQ(report.arrivals.ranks[0].waited_ns, 10'000);
    EXPECT_EQ(report.ranks[1].step_ns, 100'001);
    EXPECT_EQ(report.arrivals.ranks[2].last, 1);
    EXPECT_EQ(report.ranks[2].peak_bytes, 102u);
    const auto json = nlohmann::json::parse(communication_json(own, report));
    EXPECT_EQ(json["ranks"].size(), 3u);
    EXPECT_EQ(json["ranks"][2]["others_waited_ns"], 10'000);
  });
  for (const auto& fault : faults) EXPECT_FALSE(fault) << message_in(fault);
}

}  // namespace
}  // namespace ridge
