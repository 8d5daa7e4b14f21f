#include "ridge/trace/critical_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "ridge/base/error.h"
#include "ridge/trace/replay.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

CriticalPath path_of(const MadeTrace& made) {
  const Trace trace = made.read();
  const HostNesting nesting(trace);
  return critical_path(trace, work_of(trace, nesting), nesting);
}

double us_of(const CriticalPath& path, PathKind kind, const std::string& name = "") {
  double us = 0;
  for (const PathShare& share : path.shares)
    if (share.kind == kind && (name.empty() || share.name == name)) us += share.us;
  return us;
}

double span_with(const CriticalPath& path, const std::string& change) {
  for (const WhatIf& one : path.what_ifs)
    if (one.change == change) return one.span_us;
  ADD_FAILURE() << "nothing is said of: " << change;
  return 0;
}

void expect_whole(const CriticalPath& path) {
  double sum = 0;
  for (const PathShare& share : path.shares) sum += share.us;
  EXPECT_NEAR(sum, path.span_us, 1e-3 * std::max(path.span_us, 1.0));
  std::vector<double> of_share(path.shares.size());
  for (std::size_t i = 0; i < path.pieces.size(); ++i) {
    const PathPiece& piece = path.pieces[i];
    of_share.at(piece.share) += static_cast<double>(piece.end_ns - piece.begin_ns) * 1e-3;
    EXPECT_LT(piece.begin_ns, piece.end_ns);
    if (i > 0) {
      EXPECT_EQ(path.pieces[i - 1].end_ns, piece.begin_ns);
    }
  }
  for (std::size_t i = 0; i < of_share.size(); ++i)
    EXPECT_NEAR(of_share[i], path.shares[i].us, 1e-6 * path.span_us) << path.shares[i].name;
}

// Kernels of 3 us launched every 20 us: the host is the path.
TEST(CriticalPath, IsTheHostsWhereItLaunchesTooLate) {
  MadeTrace made;
  for (int i = 0; i < 50; ++i) made.launched("tiny", i * 20, i * 20 + 4, 3);
  const CriticalPath path = path_of(made);
  expect_whole(path);
  EXPECT_DOUBLE_EQ(path.span_us, 49 * 20 + 7);
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::compute), 3) << "the last one";
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::host), 49 * 18);
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::call), 49 * 2);
  EXPECT_DOUBLE_EQ(span_with(path, "launches free"), 49 * 18 + 7);
  EXPECT_DOUBLE_EQ(span_with(path, "twice as fast: tiny"), 49 * 20 + 5.5);
}

// Everything is launched at once: the card is the path.
TEST(CriticalPath, IsTheCardsWhereItIsBusy) {
  MadeTrace made;
  for (int i = 0; i < 20; ++i) made.launched(i % 2 ? "small" : "large", i * 3, 10 + i * 51.0, 50);
  const CriticalPath path = path_of(made);
  expect_whole(path);
  EXPECT_DOUBLE_EQ(path.span_us, 10 + 19 * 51 + 50);
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::compute), 1000);
  EXPECT_EQ(path.work, 20U);
  EXPECT_DOUBLE_EQ(span_with(path, "twice as fast: large"), path.span_us - 250);
  EXPECT_DOUBLE_EQ(span_with(path, "launches free"), path.span_us)
      << "the first launch counts only";
}

// A collective on a stream of its own, for which the last kernel waits.
TEST(CriticalPath, GoesThroughOtherStreams) {
  const CriticalPath path = path_of(MadeTrace()
                                        .launched("gradient", 0, 10, 100)
                                        .launched("ncclDevKernel_AllReduce", 3, 112, 300, 20)
                                        .launched("other", 6, 111, 50)
                                        .launched("update", 9, 414, 40));
  expect_whole(path);
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::communication), 300);
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::compute), 140) << "not the one beside it";
  EXPECT_DOUBLE_EQ(span_with(path, "no time in communication"), 161 + 5 + 40)
      << "the last waits for the one beside it then";
}

// Were the collective hidden, the kernel beside it would be the path.
TEST(CriticalPath, ChangesWithWhatIsFaster) {
  const CriticalPath path = path_of(MadeTrace()
                                        .launched("ncclDevKernel_AllReduce", 0, 10, 300, 20)
                                        .launched("other", 3, 10, 250)
                                        .launched("update", 6, 312, 40));
  EXPECT_NEAR(span_with(path, "no time in communication"), 10 + 250 + 5 + 40, 0.001)
      << "no work follows another by more than 5 us without a reason";
}

// The host waits for the card, and then launches the next step late.
TEST(CriticalPath, GoesThroughCallsThatWait) {
  MadeTrace made;
  for (int step = 0; step < 4; ++step) {
    const double begin = step * 1000;
    made.launched("gemm", begin, begin + 10, 600)
        .operation("aten::item", begin + 20, 600)
        .call("cudaStreamSynchronize", begin + 30, 585);
  }
  const CriticalPath path = path_of(made);
  expect_whole(path);
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::compute), 4 * 600);
  EXPECT_DOUBLE_EQ(us_of(path, PathKind::call, "cudaStreamSynchronize"), 3 * 5);
  EXPECT_LT(span_with(path, "no call waiting for the card"), path.span_us - 500);
}

TEST(CriticalPath, KnowsTheDataLoader) {
  MadeTrace made;
  for (int step = 0; step < 3; ++step) {
    const double begin = step * 1000;
    made.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, 600)
        .launched("gemm", begin + 610, begin + 620, 370);
  }
  const CriticalPath path = path_of(made);
  expect_whole(path);
  EXPECT_NEAR(
      us_of(path, PathKind::host, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
      1200, 1);
  EXPECT_NEAR(span_with(path, "no time in the data loader"), 2 * 400 + 10 + 370, 1);
}

// A replay without a change has the times of the trace, whatever that is.
TEST(Replay, IsTheTraceWithoutAChange) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    MadeTrace made;
    for (int i = 0; i < 60; ++i) {
      const double launch = i * 13 + static_cast<double>(random() % 9);
      made.launched("k" + std::to_string(random() % 4), launch,
                    launch + 2 + static_cast<double>(random() % 60),
                    static_cast<double>(random() % 40), static_cast<int>(random() % 3));
      if (random() % 8 == 0)
        made.call("cudaDeviceSynchronize", launch + 5, static_cast<double>(random() % 50));
      if (random() % 9 == 0)
        made.call("cudaLaunchKernel", launch, 3, 500 + i, 7)
            .kernel("from another thread", launch + 9, 4, 500 + i, 2);
    }
    const Trace trace = made.read();
    const HostNesting nesting(trace);
    const Work work = work_of(trace, nesting);
    const Replay replay(trace, work);
    const std::vector<ReplayTime> times = replay.times({});
    for (std::size_t i = 0; i < times.size(); ++i) {
      EXPECT_EQ(times[i].begin_ns, replay.items()[i].begin_ns) << i;
      EXPECT_EQ(times[i].end_ns, replay.items()[i].end_ns) << i;
    }
    expect_whole(critical_path(trace, work, nesting));
  }
}

TEST(CriticalPath, IsToldAsTextAndJson) {
  MadeTrace made;
  for (int i = 0; i < 50; ++i) made.launched("tiny", i * 20, i * 20 + 4, 3);
  const CriticalPath path = path_of(made);
  const std::string text = critical_path_text(path, 5);
  EXPECT_THAT(text, ::testing::HasSubstr("The critical path of 987.0 µs"));
  EXPECT_THAT(text, ::testing::HasSubstr("These would save nothing: no call waiting for the card"));
  const auto json = nlohmann::json::parse(critical_path_json(path));
  EXPECT_EQ(json["span_us"], 987);
  EXPECT_EQ(json["us_by_kind"]["compute"], 3);
  EXPECT_THROW(path_of(MadeTrace().operation("aten::add", 0, 5)), FormatError);
}

}  // namespace
}  // namespace ridge::trace
