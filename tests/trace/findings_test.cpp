// Traces with one trouble each: idle time has its cause, and the first finding names it.

#include "ridge/trace/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/trace/report.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::HasSubstr;

Report report(const MadeTrace& made) { return report_of(made.read()); }

double idle_us(const Report& report, IdleCause cause) {
  return report.idle.by_cause[static_cast<std::size_t>(cause)].us;
}

std::string first_rule(const Report& report) {
  return report.findings.empty() ? "none" : report.findings.front().rule;
}

// Steps of 1,000 us whose kernels follow each other at 2 us, launched well before.
MadeTrace healthy(int steps = 3) {
  MadeTrace made;
  for (int step = 0; step < steps; ++step) {
    const double begin = step * 1000;
    made.step(step, begin, 990);
    for (int i = 0; i < 10; ++i) made.launched("gemm", begin + i * 20, begin + 500 + i * 100, 98);
  }
  return made;
}

TEST(TraceFindings, AreNoneInAHealthyTrace) {
  const Report healthy_report = report(healthy());
  EXPECT_EQ(first_rule(healthy_report), "none");
  EXPECT_DOUBLE_EQ(idle_us(healthy_report, IdleCause::kernel_boundary), 29 * 2);
}

TEST(TraceFindings, NameALateDataLoader) {
  MadeTrace made;
  for (int step = 0; step < 3; ++step) {
    const double begin = step * 1000;
    made.step(step, begin, 990)
        .annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, 600)
        .operation("aten::stack", begin + 100, 50)
        .launched("gemm", begin + 610, begin + 620, 370);
  }
  const Report found = report(made);
  EXPECT_EQ(first_rule(found), "data-loader");
  EXPECT_NEAR(found.findings.front().gain_us, 1200, 1) << "before the second and the third step";
  EXPECT_NEAR(idle_us(found, IdleCause::host_late), 1260, 1);
  EXPECT_EQ(found.idle.host.front().name,
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
}

// The host blocks until the card runs dry, and launches again some time later.
MadeTrace blocked(const std::string& operation, const std::string& call) {
  MadeTrace made;
  for (int step = 0; step < 5; ++step) {
    const double begin = step * 1000;
    made.step(step, begin, 990).launched("gemm", begin + 10, begin + 100, 600);
    if (!operation.empty()) made.operation(operation, begin + 50, 655);
    made.call(call, begin + 60, 642);
  }
  return made;
}

TEST(TraceFindings, NameWhatWaitsForTheCard) {
  const Report item = report(blocked("aten::item", "cudaStreamSynchronize"));
  EXPECT_EQ(first_rule(item), "synchronization-item");
  EXPECT_THAT(item.findings.front().what, HasSubstr(".item()"));
  EXPECT_DOUBLE_EQ(idle_us(item, IdleCause::synchronization), 4 * 400);
  EXPECT_EQ(first_rule(report(blocked("aten::_to_copy", "cudaStreamSynchronize"))),
            "synchronization-copy");
  EXPECT_EQ(first_rule(report(blocked("aten::nonzero", "hipMemcpyWithStream"))),
            "synchronization-nonzero");
  EXPECT_EQ(first_rule(report(blocked("", "cudaFree"))), "synchronization-allocator");
  const Report retried = report(blocked("aten::empty", "cudaFree"));
  EXPECT_EQ(first_rule(retried), "fragmentation") << "an operator asked, and there was no room";
  EXPECT_DOUBLE_EQ(retried.findings.front().gain_us, 4 * 400);
  EXPECT_EQ(first_rule(report(blocked("", "cudaDeviceSynchronize"))), "synchronization-call");
}

TEST(TraceFindings, NameAHostThatLaunchesTooLate) {
  MadeTrace made;
  for (int i = 0; i < 100; ++i) made.launched("tiny", i * 20, i * 20 + 4, 3);
  const Report found = report(made);
  EXPECT_EQ(first_rule(found), "launch-bound");
  EXPECT_THAT(found.findings.front().what, HasSubstr("100.0 % of the 100 kernels"));
  EXPECT_DOUBLE_EQ(idle_us(found, IdleCause::host_late), 99 * 17);
}

TEST(TraceFindings, NamePageableCopies) {
  MadeTrace made = healthy();
  made.launched("Memcpy HtoD (Pageable -> Device)", 2100, 3500, 400, 7, "gpu_memcpy", 1 << 20);
  EXPECT_EQ(first_rule(report(made)), "pageable-copies");
  MadeTrace hidden = healthy();
  hidden.launched("Memcpy HtoD (Pageable -> Device)", 10, 600, 400, 9, "gpu_memcpy", 1 << 20);
  EXPECT_LT(report(hidden).findings.size(), 1U) << "it ran beside kernels";
}

TEST(TraceFindings, NameCommunicationThatNothingHides) {
  MadeTrace made = healthy();
  made.launched("ncclDevKernel_AllReduce", 2100, 3498, 500, 20);
  const Report found = report(made);
  EXPECT_EQ(first_rule(found), "exposed-communication");
  EXPECT_DOUBLE_EQ(found.findings.front().gain_us, 500);
  MadeTrace hidden = healthy();
  hidden.launched("ncclDevKernel_AllReduce", 10, 600, 90, 20);
  EXPECT_EQ(first_rule(report(hidden)), "none");
}

TEST(TraceFindings, NameChangesOfLayout) {
  MadeTrace made = healthy();
  made.launched("void cudnn::ops::nchwToNhwcKernel<float>(...)", 2100, 3498, 100);
  EXPECT_EQ(first_rule(report(made)), "channels-last");
}

TEST(TraceFindings, NameAnOptimizerOfManyKernels) {
  MadeTrace made;
  for (int step = 0; step < 2; ++step) {
    const double begin = step * 3000;
    made.step(step, begin, 2900).annotation("Optimizer.step#AdamW.step", begin + 100, 1500);
    for (int i = 0; i < 200; ++i)
      made.launched("elementwise", begin + 101 + i * 5, begin + 1700 + i * 6, 5);
  }
  const Report found = report(made);
  ASSERT_FALSE(found.findings.empty());
  EXPECT_TRUE(std::ranges::any_of(found.findings, [](const Finding& one) {
    return one.rule == "unfused-optimizer" &&
           one.what.find("200 kernels a step") != std::string::npos;
  }));
}

TEST(TraceIdleTime, TellsStreamsFromBoundariesAndFromWhatTheTraceDoesNotShow) {
  const Report found = report(MadeTrace()
                                  .launched("a", 0, 100, 50)
                                  .launched("b", 1, 155, 45)      // 5 us on the same stream
                                  .launched("c", 2, 210, 40, 8)   // 10 us, another stream
                                  .launched("d", 3, 500, 50, 8)   // 250 us, nothing to see
                                  .kernel("e", 560, 10, 77, 8));  // no call
  EXPECT_DOUBLE_EQ(idle_us(found, IdleCause::kernel_boundary), 5);
  EXPECT_DOUBLE_EQ(idle_us(found, IdleCause::stream_dependency), 10);
  EXPECT_DOUBLE_EQ(idle_us(found, IdleCause::unknown), 260);
  EXPECT_DOUBLE_EQ(found.use.idle, 275);
}

TEST(TraceIdleTime, TellsTheEndOfAStep) {
  MadeTrace made;
  made.step(0, 0, 500).step(1, 500, 500);
  made.launched("a", 10, 100, 200).launched("b", 700, 710, 100);
  const Report found = report(made);
  EXPECT_DOUBLE_EQ(idle_us(found, IdleCause::step_end), 410);
  EXPECT_EQ(found.idle.host.front().name, "") << "outside of all that has a name";
}

}  // namespace
}  // namespace ridge::trace
