// Kernels that keep an input in an order of their own, and when the executor lets them.

#include "ridge/device/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/exercise/devices.h"
#include "ridge/ops/conv.h"
#include "ridge/ops/linear.h"
#include "ridge/ops/op.h"
#include "ridge/run/executor.h"
#include "ridge/run/reference.h"
#include "tests/base/message_of.h"
#include "tests/gpu/choose.h"
#include "tests/run/failing_devices.h"

namespace ridge {
namespace {

const TensorType image{DType::f32, {1, 6, 6, 16}};
const TensorType kernels{DType::f32, {48, 3, 3, 16}};

std::vector<float> ramp(const TensorType& type, float step) {
  std::vector<float> values(static_cast<std::size_t>(type.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = step * (static_cast<float>(i * 37 % 101) - 50.0f);
  return values;
}

Value convolved(Value x, Value weight) {
  return conv2d(x, weight, {}, {.padding = {1, 1}, .layout = ImageLayout::nhwc});
}

struct Convolution {
  Graph graph;
  Value x = graph.input("x", image);
  Value weight = graph.parameter("weight", kernels.shape, Init::zeros());
  Convolution() { graph.keep(convolved(x, weight), "y"); }
};

std::vector<double> expected(const std::vector<float>& xs, const std::vector<float>& ws) {
  Graph graph;
  const Value x = graph.input("x", image), weight = graph.input("weight", kernels);
  const Value y = convolved(x, weight);
  return evaluate_reference(graph,
                            {{x.id, {xs.begin(), xs.end()}}, {weight.id, {ws.begin(), ws.end()}}})
      .at(y.id);
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(actual[i], wanted[i], 1e-3);
}

// Counts how often kernels pack an input.
class CountingPacks final : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    PreparedKernel prepared = WrappedDevice::prepare(op, in, out, choice);
    if (dynamic_cast<PackingKernel*>(prepared.kernel.get()))
      prepared.kernel = std::make_unique<Counted>(std::move(prepared.kernel), packs);
    return prepared;
  }
  int packs = 0;

 private:
  class Counted final : public PackingKernel {
   public:
    Counted(KernelPtr inner, int& packs) : inner_(std::move(inner)), packs_(packs) {}
    Packed packed() const override { return packing().packed(); }
    void pack(const void* input, void* packed) override {
      ++packs_;
      packing().pack(input, packed);
    }
    void launch(const Launch& call) const override { inner_->launch(call); }

   private:
    PackingKernel& packing() const { return dynamic_cast<PackingKernel&>(*inner_); }
    KernelPtr inner_;
    int& packs_;
  };
};

class Packing : public ::testing::TestWithParam<bool> {
 protected:
  Execution execution() const { return {.planned = GetParam()}; }
};

TEST_P(Packing, FollowsWhatTheHostWrites) {
  Graph graph;
  const Value x = graph.input("x", image);
  const Value weight = graph.parameter("weight", kernels.shape, Init::normal(1.0f));
  const Value y = convolved(x, weight);
  graph.keep(y, "y");
  CpuDevice device(2);
  Executor executor(graph, device, execution());
  executor.initialize(1);
  const std::vector<float> xs = ramp(image, 0.01f);
  executor.write(x, std::span(xs));
  std::vector<float> ws(static_cast<std::size_t>(kernels.numel()));
  executor.read(weight, std::span(ws));
  executor.run();
  expect_near(executor.read_floats(y), expected(xs, ws));

  const std::vector<float> others = ramp(kernels, 0.02f);
  executor.write(weight, std::span(others));
  executor.run(Phase::forward);
  expect_near(executor.read_floats(y), expected(xs, others));

  executor.fill_zero(weight);
  executor.run();
  EXPECT_EQ(executor.read_floats(y),
            std::vector<float>(static_cast<std::size_t>(y.type().numel())));
}

TEST_P(Packing, IsPartOfThePlannedMemory) {
  Convolution model;
  CpuDevice device(1);
  const auto kernel = device.prepare(*model.graph.nodes()[0].op, std::vector{image, kernels},
                                     std::vector{TensorType{DType::f32, {1, 6, 6, 48}}});
  const auto* packing = dynamic_cast<const PackingKernel*>(kernel.kernel.get());
  ASSERT_NE(packing, nullptr);
  const PackingKernel::Packed packed = packing->packed();
  EXPECT_EQ(packed.input, 1u);
  ASSERT_GT(packed.bytes, 0u);
  EXPECT_LE(packed.workspace + packed.bytes, kernel.workspace);

  Executor executor(model.graph, device, execution());
  const std::size_t tensors = image.bytes() + kernels.bytes() + 36 * 48 * sizeof(float);
  EXPECT_EQ(executor.peak_bytes(), tensors + packed.bytes + packed.workspace);
  executor.initialize(1);
  executor.run();
  EXPECT_EQ(executor.memory().peak_live, executor.peak_bytes());
}

// The message tells that it was known before anything was allocated.
TEST_P(Packing, IsPartOfTheMemoryThatHasToBeThere) {
  Convolution model;
  CpuDevice device(1);
  const std::size_t needed = Executor(model.graph, device, execution()).peak_bytes();
  testing::SmallDevice large_enough(device, 2 * needed, 0);
  EXPECT_EQ(Executor(model.graph, large_enough, execution()).peak_bytes(), needed);
  testing::SmallDevice small(device, needed - 64, 0);
  EXPECT_THAT(message_of<OutOfMemoryError>([&] { Executor(model.graph, small, execution()); }),
              ::testing::HasSubstr("left of"));
}

// A run packs once; the host's writing of an input is no reason to pack weights again.
TEST_P(Packing, IsDoneAgainOnlyWhereWeightsChanged) {
  Convolution model;
  CpuDevice cpu(1);
  CountingPacks device(cpu);
  Executor executor(model.graph, device, execution());
  executor.initialize(1);
  const std::vector<float> xs = ramp(image, 0.01f), ws = ramp(kernels, 0.01f);
  for (int run = 0; run < 3; ++run) {
    executor.write(model.x, std::span(xs));
    executor.run();
  }
  EXPECT_EQ(device.packs, 1);
  executor.write(model.weight, std::span(ws));
  executor.run();
  EXPECT_EQ(device.packs, 2);
}

// Weights that are fed, or that the graph itself updates, are packed at each launch.
TEST_P(Packing, LeavesAloneWhatChanges) {
  for (const bool fed : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", image);
    const Value weight = fed ? graph.input("weight", kernels)
                             : graph.parameter("weight", kernels.shape, Init::zeros());
    const Value delta = graph.input("delta", kernels);
    const Value y = convolved(x, weight);
    graph.keep(y, "y");
    if (!fed) graph.apply1(Accumulate{}, {weight, delta});
    CpuDevice device(2);
    Executor executor(graph, device, execution());
    executor.initialize(1);
    const std::vector<float> xs = ramp(image, 0.01f), step = ramp(kernels, 0.01f);
    executor.write(x, std::span(xs));
    executor.write(delta, std::span(step));
    std::vector<float> ws(step.size(), 0.0f);
    for (int run = 0; run < 3; ++run) {
      if (fed) executor.write(weight, std::span<const float>(ws));
      executor.run();
      const std::vector<double> wanted = expected(xs, ws);
      expect_near(executor.read_floats(y), wanted);
      for (std::size_t i = 0; i < ws.size(); ++i) ws[i] += step[i];
    }
  }
}

// A layer that is computed as a convolution where its weights stay has the workspace of that, also
// where the convolution that was chosen, of all that may be, reads weights as they are.
TEST_P(Packing, OfALayerHasTheWorkspaceOfWhateverWasChosen) {
  const TensorType rows{DType::f32, {140, 64}}, weights{DType::f32, {1824, 64}};
  const std::vector<float> xs = ramp(rows, 0.01f), ws = ramp(weights, 0.02f);
  Graph exact;
  const Value exact_x = exact.input("x", rows), exact_weight = exact.input("weight", weights);
  const Value exact_y = exact.apply1(Linear{}, {exact_x, exact_weight});
  const std::vector<double> wanted =
      evaluate_reference(
          exact, {{exact_x.id, {xs.begin(), xs.end()}}, {exact_weight.id, {ws.begin(), ws.end()}}})
          .at(exact_y.id);
  for (std::size_t candidate = 0;; ++candidate) {
    Graph graph;
    const Value x = graph.input("x", rows);
    const Value weight = graph.parameter("weight", weights.shape, Init::zeros());
    const Value y = graph.apply1(Linear{}, {x, weight});
    graph.keep(y, "y");
    CpuDevice device(2);
    testing::Choose tuner(candidate);
    Execution chosen = execution();
    chosen.kernels = {
        .products = Products::tuned, .tuner = &tuner, .inference = true, .split_bf16 = true};
    Executor executor(graph, device, chosen);
    executor.initialize(1);
    executor.write(x, std::span(xs));
    executor.write(weight, std::span(ws));
    executor.run();
    SCOPED_TRACE(candidate);
    expect_near(executor.read_floats(y), wanted);
    EXPECT_EQ(executor.memory().peak_live, executor.peak_bytes());
    if (tuner.is_last()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Executions, Packing, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "planned" : "allocated"; });

}  // namespace
}  // namespace ridge
