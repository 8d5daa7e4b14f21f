#include "ridge/trace/phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/trace/report.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;

auto phase(Phase phase, double busy, std::uint64_t kernels, std::int64_t peak = 0) {
  return AllOf(Field(&PhaseUse::phase, phase), Field(&PhaseUse::busy_us, busy),
               Field(&PhaseUse::kernels, kernels), Field(&PhaseUse::peak_allocated, peak));
}

std::string memory(double at, int allocated) {
  return fmt::format(
      R"({{"ph":"i","name":"[memory]","ts":{},"pid":1,"tid":1,"args":{{"Bytes":512,)"
      R"("Total Allocated":{},"Total Reserved":4096,"Device Type":1,"Device Id":0}}}})",
      at, allocated);
}

TEST(TracePhases, AreToldByWhatStandsAroundALaunch) {
  MadeTrace made;
  made.operation("aten::mm", 0, 20).launched("forward_a", 5, 100, 30);
  made.launched("forward_b", 30, 120, 20);  // overlaps with the one before for 10 us
  made.operation("autograd::engine::evaluate_function: MmBackward0", 40, 20, "[]", 101)
      .call("cudaLaunchKernel", 45, 2, 7, 101)
      .kernel("backward", 200, 70, 7);
  made.annotation("Optimizer.step#AdamW.step", 70, 20).launched("adam", 75, 300, 5);
  made.call("cudaGraphLaunch", 95, 2, 8).kernel("captured", 400, 11, 8);
  made.kernel("nobody", 500, 3, 99);
  made.event(memory(10, 100)).event(memory(50, 300)).event(memory(75, 200));
  EXPECT_THAT(report_of(made.read()).phases,
              ElementsAre(phase(Phase::forward, 40, 2, 100), phase(Phase::backward, 70, 1, 300),
                          phase(Phase::optimizer, 5, 1, 200), phase(Phase::graphs, 11, 1),
                          phase(Phase::unknown, 3, 1)));
}

TEST(TracePhases, AreNoneWhereThereIsOneAlone) {
  MadeTrace made;
  made.operation("aten::mm", 0, 20).launched("forward", 5, 100, 30);
  EXPECT_TRUE(report_of(made.read()).phases.empty());
}

TEST(TraceModules, StandInATreeWithTheWorkOfTheirCalls) {
  MadeTrace made;
  const auto module = [&](const char* name, double begin, double duration) {
    made.slice("python_function", std::string("nn.Module: ") + name, begin, duration);
  };
  for (const double begin : {0.0, 1000.0}) {
    module("Net_0", begin, 100);
    module("Linear_0", begin + 10, 30);
    made.launched("a", begin + 15, begin + 200, 40);
    module("ReLU_0", begin + 50, 20);
    made.launched("b", begin + 55, begin + 250, 7);
    made.launched("c", begin + 80, begin + 260, 3);   // of Net_0 itself
    made.launched("d", begin + 150, begin + 270, 5);  // of none
  }
  const std::vector<ModuleUse> modules = report_of(made.read()).modules;
  ASSERT_EQ(modules.size(), 3U);
  const auto is = [](const ModuleUse& one, const char* name, std::size_t depth, double host,
                     double device, std::uint64_t kernels) {
    EXPECT_EQ(one.name, name);
    EXPECT_EQ(one.depth, depth);
    EXPECT_EQ(one.calls, 2U);
    EXPECT_DOUBLE_EQ(one.host_us, host);
    EXPECT_DOUBLE_EQ(one.device_us, device);
    EXPECT_EQ(one.kernels, kernels);
  };
  is(modules[0], "Net_0", 0, 200, 100, 6);
  is(modules[1], "Linear_0", 1, 60, 80, 2);
  is(modules[2], "ReLU_0", 1, 40, 14, 2);
}

}  // namespace
}  // namespace ridge::trace
