#include "ridge/trace/device_work.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

struct Done {
  Trace trace;
  HostNesting nesting;
  Work work;
  explicit Done(const MadeTrace& made)
      : trace(made.read()), nesting(trace), work(work_of(trace, nesting)) {}
  explicit Done(Trace read)
      : trace(std::move(read)), nesting(trace), work(work_of(trace, nesting)) {}
  TimeUse use() const { return time_use(trace, work); }
};

TEST(TraceTimeUse, CountsWhatOverlapsOnce) {
  const Done done(MadeTrace()
                      .launched("gemm", 0, 10, 30)                        // 10..40
                      .launched("gemm", 1, 20, 30, 8)                     // 20..50
                      .launched("ncclDevKernel_AllReduce", 2, 45, 20, 9)  // 45..65, exposed from 50
                      .launched("Memcpy HtoD", 3, 60, 10, 10, "gpu_memcpy")       // 60..70
                      .launched("Memset (Device)", 4, 80, 20, 7, "gpu_memset"));  // 80..100
  const TimeUse use = done.use();
  EXPECT_DOUBLE_EQ(use.span, 90);
  EXPECT_DOUBLE_EQ(use.busy, 80);
  EXPECT_DOUBLE_EQ(use.idle, 10);
  EXPECT_DOUBLE_EQ(use.compute, 40);
  EXPECT_DOUBLE_EQ(use.communication, 20);
  EXPECT_DOUBLE_EQ(use.exposed_communication, 15);
  EXPECT_DOUBLE_EQ(use.copy, 30);
  EXPECT_EQ(use.kernels, 3U);
}

// The definitions again, by a clock that ticks in microseconds.
TEST(TraceTimeUse, AgreesWithAClock) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    MadeTrace made;
    std::vector<int> kinds(400);
    int first = 400, last = 0;
    for (int i = 0; i < 30; ++i) {
      const int begin = static_cast<int>(random() % 380),
                length = 1 + static_cast<int>(random() % 19);
      const int kind = static_cast<int>(random() % 3);
      made.launched(kind == 1 ? "ncclKernel_Broadcast" : "k", 0, begin, length, i,
                    kind == 2 ? "gpu_memcpy" : "kernel");
      for (int at = begin; at < begin + length; ++at)
        kinds[static_cast<std::size_t>(at)] |= 1 << kind;
      first = std::min(first, begin);
      last = std::max(last, begin + length);
    }
    TimeUse clock;
    for (int at = first; at < last; ++at) {
      const int kind = kinds[static_cast<std::size_t>(at)];
      clock.span += 1;
      clock.busy += kind != 0;
      clock.compute += (kind & 1) != 0;
      clock.communication += (kind & 2) != 0;
      clock.exposed_communication += (kind & 3) == 2;
      clock.copy += (kind & 4) != 0;
    }
    const TimeUse use = Done(made).use();
    EXPECT_DOUBLE_EQ(use.span, clock.span);
    EXPECT_DOUBLE_EQ(use.busy, clock.busy);
    EXPECT_DOUBLE_EQ(use.idle, clock.span - clock.busy);
    EXPECT_DOUBLE_EQ(use.compute, clock.compute);
    EXPECT_DOUBLE_EQ(use.communication, clock.communication);
    EXPECT_DOUBLE_EQ(use.exposed_communication, clock.exposed_communication);
    EXPECT_DOUBLE_EQ(use.copy, clock.copy);
  }
}

// Work belongs to the step that launched it, however late it runs.
TEST(TraceSteps, HaveTheWorkThatTheyLaunched) {
  const Done done(MadeTrace()
                      .step(4, 0, 100)
                      .step(5, 100, 100)
                      .launched("a", 10, 150, 20)
                      .launched("b", 90, 180, 10)
                      .launched("c", 120, 200, 50)
                      .launched("after the loop", 250, 300, 10));
  const std::vector<StepUse> steps = time_use_of_steps(done.trace, done.work);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].number, 4);
  EXPECT_DOUBLE_EQ(steps[0].use.span, 50) << "up to the next step's first work";
  EXPECT_DOUBLE_EQ(steps[0].use.busy, 30);
  EXPECT_EQ(steps[0].use.kernels, 2U);
  EXPECT_EQ(steps[1].number, 5);
  EXPECT_DOUBLE_EQ(steps[1].use.span, 50);
  EXPECT_EQ(steps[1].use.kernels, 1U);
  EXPECT_EQ(done.use().kernels, 4U);
}

// The host is two steps ahead when the card has done what it had to do before the trace began.
TEST(TraceSteps, AreNotThoseOfWorkFromBeforeTheTrace) {
  MadeTrace made;
  made.step(3, 0, 100).step(4, 100, 100);
  made.kernel("before", 5, 90, 71).kernel("before", 100, 100, 72);  // no launch of either
  made.launched("a", 10, 205, 100).launched("b", 110, 310, 100);
  const Done done(made);
  const std::vector<StepUse> steps = time_use_of_steps(done.trace, done.work);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_DOUBLE_EQ(steps[0].use.span, 305) << "to the begin of the next step's own work";
  EXPECT_EQ(steps[0].use.kernels, 3U);
  EXPECT_DOUBLE_EQ(steps[1].use.span, 100);
  EXPECT_EQ(steps[1].use.kernels, 1U);
}

TEST(TraceWork, IsTheHostsWhereThereIsNoCard) {
  const Done done(MadeTrace()
                      .operation("aten::linear", 0, 50)
                      .operation("aten::addmm", 10, 30)
                      .operation("gloo:all_reduce", 60, 10, "[]", 101)
                      .operation("aten::relu", 65, 15));
  EXPECT_TRUE(done.work.of_host);
  const TimeUse use = done.use();
  EXPECT_EQ(use.kernels, 3U) << "those that stand in no other";
  EXPECT_DOUBLE_EQ(use.span, 80);
  EXPECT_DOUBLE_EQ(use.busy, 70);
  EXPECT_DOUBLE_EQ(use.communication, 10);
  EXPECT_DOUBLE_EQ(use.exposed_communication, 5);
}

// What is around a collective is not its time.
TEST(TraceWork, OfAHostOpensOperatorsThatCommunicateWithin) {
  const Done done(
      MadeTrace()
          .operation("autograd::engine::evaluate_function: AllReduce", 0, 50)
          .slice("cpu_op", "ridge::all_reduce", 10, 30, R"({"Collective name":"all_reduce"})")
          .operation("aten::add", 42, 5)
          .operation("aten::mul", 60, 10));
  const TimeUse use = done.use();
  EXPECT_EQ(use.kernels, 3U);
  EXPECT_DOUBLE_EQ(use.communication, 30);
  EXPECT_DOUBLE_EQ(use.compute, 15);
}

TEST(HostNesting, FindsOperatorsAroundCallsAndTheirOwnTime) {
  MadeTrace made;
  made.operation("aten::linear", 0, 100)   // row 0
      .operation("aten::addmm", 10, 60)    // row 1
      .call("cudaLaunchKernel", 20, 5, 1)  // row 2
      .slice("python_function", "forward", 0, 200)
      .call("cudaDeviceSynchronize", 150, 10)      // row 4
      .operation("aten::other", 20, 30, "[]", 7);  // row 5, of another thread
  const Trace trace = made.read();
  const HostNesting nesting(trace);
  EXPECT_EQ(nesting.operation_of(2), 1U);
  EXPECT_EQ(nesting.operation_of(1), 1U);
  EXPECT_EQ(nesting.parent_of(1), 0U);
  EXPECT_EQ(nesting.parent_of(0), no_row) << "Python's functions do not count";
  EXPECT_EQ(nesting.operation_of(4), no_row);
  EXPECT_EQ(nesting.self_ns(0), 40'000);
  EXPECT_EQ(nesting.self_ns(1), 55'000);
  EXPECT_EQ(nesting.self_ns(5), 30'000);
}

TEST(TraceWork, KnowsCommunicationByItsName) {
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclKernel_SendRecv",
        "void vllm::cross_device_reduce_1stage<float, 8>", "nccl:all_reduce", "c10d::allreduce_"})
    EXPECT_TRUE(is_communication(name)) << name;
  for (const char* name : {"gemm", "aten::add", "void reduce_kernel<512>"})
    EXPECT_FALSE(is_communication(name)) << name;
}

}  // namespace
}  // namespace ridge::trace
