// Each stage of the debugging exercise has the symptom that it is there for, and is otherwise what
// a sound run is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "ridge/analyze/verify.h"
#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/exercise/defects.h"
#include "ridge/exercise/devices.h"
#include "ridge/exercise/inspect.h"
#include "ridge/exercise/stage.h"
#include "ridge/graph/op_rules.h"
#include "tests/base/temporary_directory.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;

RunOptions small(const std::string& version = "v3") {
  RunOptions o = small_llama({.hidden_dim = 64, .intermediate_dim = 96, .seq_len = 20});
  o.version = version;
  o.num_steps = 4;
  o.warmup_steps = 0;
  o.threads = 2;
  o.resolve();
  return o;
}

RunFacts run_stage(std::int64_t number, const RunOptions& options, Device& device) {
  return observe_run(options, device, debug_stage(number).apply(options, device));
}

Verdict verify_stage(std::int64_t number, const RunOptions& options, Device& device) {
  const Defect defect = debug_stage(number).apply(options, device);
  return verify(Reference(options, device), {.name = options.version, .version = options.version},
                options.dtype, defect.device_or(device), {}, defect.hooks.rewrite);
}

std::vector<double> losses_of(const RunFacts& run) {
  std::vector<double> losses;
  for (const StepReport& step : run.record.steps) losses.push_back(step.loss);
  return losses;
}

void expect_same_losses(const RunFacts& a, const RunFacts& b, double tolerance) {
  EXPECT_THAT(losses_of(a), ::testing::Pointwise(::testing::DoubleNear(tolerance), losses_of(b)));
}

// How many nodes of each operator there are in the graph of a run.
std::map<std::string, std::size_t> operators_of(const RunOptions& options, Device& device,
                                                const SessionHooks& hooks = {}) {
  Session session(options, device, hooks);
  std::map<std::string, std::size_t> operators;
  for (const Node& node : session.graph().nodes()) ++operators[std::string(name_of(*node.op))];
  return operators;
}

TEST(DebugStages, AreNumberedAndExplained) {
  std::int64_t number = 0;
  for (const DebugStage& stage : debug_stages()) {
    EXPECT_EQ(stage.number, ++number);
    EXPECT_EQ(&debug_stage(number), &stage);
    for (const std::string_view text :
         {stage.title, stage.symptom, stage.hint, stage.cause, stage.evidence, stage.fix})
      EXPECT_FALSE(text.empty()) << number;
  }
  EXPECT_EQ(number, 5);
  EXPECT_THROW(debug_stage(0), UsageError);
  EXPECT_THROW(debug_stage(6), UsageError);
}

TEST(DebugStages, WeightsWithoutScaleGiveALossInTheHundreds) {
  CpuDevice device(2);
  const RunFacts bad = run_stage(1, small(), device), good = observe_run(small(), device, {});
  EXPECT_THAT(losses_of(bad), Each(::testing::Gt(100.0)));
  EXPECT_THAT(losses_of(good), Each(::testing::Lt(5.0)));
  // The table of parameters tells a matrix from a norm, which was never to be scaled.
  ASSERT_EQ(bad.parameters.size(), good.parameters.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < good.parameters.size(); ++i) {
    const bool is_norm = good.parameters[i].name.find("norm") != std::string::npos;
    EXPECT_NEAR(good.parameters[i].start, is_norm ? 1.0 : 0.02, is_norm ? 0 : 1e-3);
    EXPECT_EQ(bad.parameters[i].start > 100 * good.parameters[i].start, !is_norm)
        << good.parameters[i].name;
    wrong += !is_norm;
  }
  EXPECT_EQ(wrong, 9u);
  EXPECT_THAT(verify_stage(1, small(), device).failure, HasSubstr("loss off by"));
}

TEST(DebugStages, SequenceFirstIsRightAndMovesManyTimesTheBytes) {
  CpuDevice device(2);
  for (const char* version : {"v1", "v3", "v4"}) {
    RunOptions options = small(version);
    options.batch_size = 1;  // every token its own product
    for (const std::int64_t accumulation : {1, 2}) {
      options.gradient_accumulation_steps = accumulation;
      const RunFacts bad = run_stage(2, options, device), good = observe_run(options, device, {});
      expect_same_losses(bad, good, 1e-5);
      EXPECT_EQ(bad.record.cost->total().macs, good.record.cost->total().macs);
      EXPECT_GT(bad.record.cost->total().bytes(), 5 * good.record.cost->total().bytes());
      EXPECT_GT(bad.record.peak_tensor_bytes, good.record.peak_tensor_bytes);
    }
    EXPECT_THAT(verify_stage(2, small(version), device).failure, IsEmpty());
  }
  EXPECT_THAT(operators_of(small(), device), Not(Contains(Key("permute"))));
  const auto rewrite = [](Graph& graph) { EXPECT_EQ(put_sequence_first(graph), 3u * 9); };
  const auto operators = operators_of(small(), device, {.rewrite = rewrite});
  EXPECT_EQ(operators.at("permute"), 9u * (2 + 2 + 2));
  EXPECT_EQ(operators.at("mul"), 9u * 2);  // copies of weights
  EXPECT_EQ(operators.at("sum_to"), 9u);   // sums of copies of their gradients
  RunOptions one_token = small();
  one_token.seq_len = 1;
  EXPECT_THROW(run_stage(2, one_token, device), UsageError);
}

// Each of its kernels takes at least so long.
class SlowDevice final : public WrappedDevice {
 public:
  static constexpr std::chrono::milliseconds each{4};

  using WrappedDevice::WrappedDevice;
  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    PreparedKernel prepared = WrappedDevice::prepare(op, in, out, choice);
    if (!prepared.kernel) return prepared;
    ++kernels;
    prepared.kernel = make_kernel(
        [inner = std::shared_ptr<Kernel>(std::move(prepared.kernel))](const Launch& call) {
          inner->launch(call);
          std::this_thread::sleep_for(each);
        });
    return prepared;
  }

  std::int64_t kernels = 0;
};

TEST(DebugStages, AStopwatchThatDoesNotWaitClaimsMoreThanTheDeviceCanDo) {
  RunOptions options = small();
  options.n_layers = 1;
  options.num_steps = 2;
  CpuDevice cpu(2);
  SlowDevice device(cpu);
  const RunFacts good = observe_run(options, device, {});
  const double possible =  // seconds of a step, at least
      static_cast<double>(device.kernels) * std::chrono::duration<double>(SlowDevice::each).count();
  EXPECT_GT(possible, 0.1);
  const RunFacts bad = run_stage(3, options, device);
  EXPECT_THAT(losses_of(bad), losses_of(good)) << "the work is done all the same";
  EXPECT_GE(good.summary.step.median, possible);
  EXPECT_LT(bad.summary.step.median, possible / 2);
  EXPECT_GT(bad.summary.flops_per_second,
            2 * static_cast<double>(bad.record.cost->total().flops) / possible)
      << "an utilization of more than 200 %";
  EXPECT_GE(bad.record.seconds, 2 * possible) << "by the clock on the wall";
  EXPECT_THAT(verify_stage(3, options, cpu).failure, IsEmpty());
}

TEST(DebugStages, LaunchesThatAreQueuedRunInOrderAndOnTheirOwnOperands) {
  CpuDevice device(2);
  for (const char* version : {"v1", "v4"}) {  // operands that change, and planned ones
    const RunOptions options = small(version);
    EXPECT_THAT(losses_of(run_stage(3, options, device)),
                losses_of(observe_run(options, device, {})))
        << version;
  }
}

TEST(DebugStages, ANaiveProductLeavesGraphAndResultsWhatTheyWere) {
  CpuDevice device(2);
  NaiveProductDevice naive(device, 2 * small().intermediate_dim);
  EXPECT_EQ(operators_of(small(), naive), operators_of(small(), device));
  EXPECT_EQ(naive.replaced(), 2u) << "the gate-and-up product of each layer, forward";
  for (const char* dtype : {"fp32", "bf16"}) {
    RunOptions options = small();
    options.dtype = dtype;
    const RunFacts bad = run_stage(4, options, device), good = observe_run(options, device, {});
    expect_same_losses(bad, good, options.dtype == "fp32" ? 1e-5 : 1e-2);
    EXPECT_EQ(bad.record.cost->total(), good.record.cost->total());
    EXPECT_THAT(verify_stage(4, options, device).failure, IsEmpty());
  }
  EXPECT_THROW(run_stage(4, small("v1"), device), UsageError) << "nothing is fused there";
}

TEST(DebugStages, ADetachedLossIsRightAtFirstAndDoesNotFall) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path / "sums.txt") << sums_text();
  CpuDevice device(2);
  for (const char* version : {"v1", "v3", "v4"}) {
    RunOptions options = small(version);
    options.vocab_size = 256;
    options.data = (directory.path / "sums.txt").string();
    options.learning_rate = 3e-3;
    options.num_steps = 12;
    options.max_grad_norm = 1;
    const RunFacts bad = run_stage(5, options, device), good = observe_run(options, device, {});
    EXPECT_EQ(losses_of(bad).front(), losses_of(good).front());
    EXPECT_LT(losses_of(good).back(), losses_of(good).front() - 1);
    EXPECT_GT(losses_of(bad).back(), losses_of(bad).front() - 0.2);
    EXPECT_EQ(good.without_gradient(), 0u);
    EXPECT_EQ(bad.without_gradient(), 2u * 9 + 3);
    EXPECT_EQ(bad.record.cost->backward.macs, 0) << "which is what makes it fast";
    const Verdict verdict = verify_stage(5, options, device);
    EXPECT_THAT(verdict.cut, SizeIs(2 * 9 + 3));
    EXPECT_THAT(verdict.cut, Contains("layers.1.feed_forward.down_proj.weight"));
    EXPECT_THAT(verdict.failure, HasSubstr("21 parameters without gradient"));
    options.gradient_accumulation_steps = 2;
    EXPECT_EQ(run_stage(5, options, device).without_gradient(), 2u * 9 + 3);
  }
}

}  // namespace
}  // namespace ridge
