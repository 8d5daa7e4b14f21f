// Which work of a captured step may run at the same time.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/exercise/devices.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/activation.h"
#include "ridge/ops/collective.h"
#include "ridge/ops/op.h"
#include "ridge/run/executor.h"

namespace ridge {
namespace {

// Computes nothing, and remembers what was captured: names of operators, and what must be before.
class ListeningDevice final : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    PreparedKernel prepared = WrappedDevice::prepare(op, in, out, choice);
    prepared.kernel =
        make_kernel([this, name = std::string(name_of(op))](const Launch&) { launched_ = name; });
    return prepared;
  }
  KernelPtr capture(std::span<const DeviceWork> works) override {
    for (const DeviceWork& work : works) {
      work.enqueue();
      names.push_back(launched_);
      after.push_back(work.after);
    }
    return make_kernel([](const Launch&) {});
  }
  bool follows(std::size_t later, std::size_t earlier) const {
    return std::ranges::any_of(after[later],
                               [&](std::size_t i) { return i == earlier || follows(i, earlier); });
  }

  std::vector<std::string> names;
  std::vector<std::vector<std::size_t>> after;

 private:
  std::string launched_;
};

// All ranks must call each other in the same order, and a scalar is a call too.
TEST(CapturedOrder, KeepsCollectivesOneAfterTheOther) {
  Graph graph;
  const AllReduce over_two{.ranks = 2};
  const auto input = [&](const std::string& name, Shape shape) {
    return activation(graph.input(name, {DType::f32, std::move(shape)}), ActivationKind::sqrt);
  };
  for (const std::int64_t elements : {1, 1000, 1, 3}) {
    const std::string name = "x" + std::to_string(graph.value_count());
    const Value x = input(name, elements == 1 ? Shape{} : Shape{elements});
    graph.keep(all_reduce({&x, 1}, over_two)[0], name + ".sum");
  }
  CpuDevice cpu(1);
  ListeningDevice device(cpu);
  Executor executor(graph, device, {.planned = true, .captured = true, .concurrent = true});
  executor.initialize(1);
  for (int run = 0; run < 2; ++run) executor.run(Phase::forward);
  ASSERT_EQ(std::ranges::count(device.names, AllReduce::name), 4);
  for (std::size_t i = 0; i < device.names.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (device.names[i] != AllReduce::name || device.names[j] != AllReduce::name) continue;
      EXPECT_TRUE(device.follows(i, j) || device.follows(j, i));
    }
}

}  // namespace
}  // namespace ridge
