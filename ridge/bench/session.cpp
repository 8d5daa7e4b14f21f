#include "ridge/bench/session.h"

#include <chrono>
#include <cstddef>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/bench/calibration.h"
#include "ridge/bench/schedule.h"
#include "ridge/bench/weights.h"
#include "ridge/graph/op_rules.h"
#include "ridge/passes/freeze.h"
#include "ridge/run/autotuner.h"

namespace ridge {
namespace {

// What a frozen graph's buffers hold, on the host: so that the device never has the memory of both
// graphs.
using Contents = std::vector<std::pair<ValueId, std::vector<std::byte>>>;

Contents computed_once(const Frozen& frozen, Device& device, Execution execution,
                       std::uint64_t seed, const std::function<void(Executor&)>& feed) {
  if (frozen.values.empty()) return {};
  execution.planned = false;
  execution.kernels.tuner = nullptr;
  Graph& setup = *frozen.setup;
  Executor executor(setup, device, execution);
  executor.initialize(seed);
  feed(executor);
  executor.run(Phase::forward);
  Contents contents;
  for (const ValueId id : frozen.values) {
    contents.emplace_back(id, setup.info(id).type.bytes());
    executor.read(setup.value(id), std::span(contents.back().second));
  }
  return contents;
}

}  // namespace

VisionOptions network_options(const BenchOptions& options, const VisionTraining* training,
                              const Device& device) {
  VisionOptions network = training ? training->network() : vision_options(options);
  if (options.dtype == int8_dtype) network.compute = beside_int8(device);
  return network;
}

// "auto" too means channels last: so oneDNN convolves resnet50 and mobilenet_v2 in about half the
// time, and so tensor cores want their operands.
void rewrite_for_benchmark(Graph& graph, const VisionModel& model, VisionTraining* training,
                           const BenchOptions& options, const Device& device) {
  const CompileMode mode = mode_of(options);
  const bool channels_last = options.channels_last != "off";
  // What becomes integers later has to be convolutions still.
  const bool for_gpu = device.asynchronous() && options.dtype != int8_dtype;
  if (!training) return rewrite_for_inference(graph, mode, channels_last, for_gpu);
  rewrite_for_training(graph, Stage::forward, mode, channels_last);
  training->append(model);
  rewrite_for_training(graph, Stage::step, mode, channels_last);
}

Execution execution_of(const BenchOptions& options) {
  Execution execution = execution_of(mode_of(options));
  execution.kernels.tf32 = options.dtype == "tf32";
  return execution;
}

BenchSession::BenchSession(const BenchOptions& options, Device& device, const BenchHooks& hooks)
    : graph_(std::make_unique<Graph>()) {
  check_precision(options, device);
  if (options.trains()) training_ = std::make_unique<VisionTraining>(options);
  const VisionOptions network = network_options(options, training_.get(), device);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  model_ = build_vision(*graph_, options.network, network);
  if (hooks.rewrite)
    hooks.rewrite(*graph_);
  else if (!options.weights.empty())
    load_weights(*graph_, options.network, options.weights);
  else if (!training_)
    settle_statistics(*graph_, options.network, network, seed, device);
  compile(options, device, hooks);
  if (training_) training_->start(*executor_);
}

BenchSession::~BenchSession() = default;

void BenchSession::compile(const BenchOptions& options, Device& device, const BenchHooks& hooks) {
  const auto start = std::chrono::steady_clock::now();
  const CompileMode mode = mode_of(options);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  Execution execution = execution_of(options);
  if (mode.tuned) {
    tuner_ = std::make_unique<Autotuner>(Autotuner::Options{
        .cache = default_tuning_cache(), .hardware = measured_on(device), .trying = hooks.trying});
    execution.kernels.tuner = tuner_.get();
  }
  rewrite_for_benchmark(*graph_, model_, training_.get(), options, device);
  const auto feeding = [&](Executor& executor) { feed(executor, seed); };
  if (options.dtype == int8_dtype) quantize(*graph_, device, seed, feeding);
  Contents frozen;
  if (mode.frozen && !training_)
    frozen =
        computed_once(freeze(*graph_, FrozenInputs::conversions), device, execution, seed, feeding);
  executor_ = std::make_unique<Executor>(*graph_, device, execution);
  executor_->initialize(seed);
  for (const auto& [id, bytes] : frozen)
    executor_->write(graph_->value(id), std::span<const std::byte>(bytes));
  feed(*executor_, seed);
  // The first run loads code; the second is captured. A step of training would change the weights.
  if (mode.captured && device.asynchronous() && !training_)
    for (int run = 0; run < 2; ++run) executor_->run(Phase::forward);
  device.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  compile_seconds_ = took.count();
}

// Draws images and targets from the seed and writes them to a graph with the session's values, as
// far as it has those.
void BenchSession::feed(Executor& executor, std::uint64_t seed) const {
  Graph& graph = executor.graph();
  if (graph.info(model_.images.id).persistent) {
    std::vector<float> images(static_cast<std::size_t>(model_.images.type().numel()));
    fill_normal(images, 1.0f, seed, stream_of("images"));
    executor.write(graph.value(model_.images.id), std::span<const float>(images));
  }
  if (!graph.info(model_.targets.id).persistent) return;
  const auto classes = static_cast<std::uint32_t>(model_.logits.shape()[1]);
  std::vector<std::int32_t> targets(static_cast<std::size_t>(model_.targets.type().numel()));
  const std::uint64_t stream = stream_of("targets");
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<std::int32_t>(uniform_integer(classes, seed, stream, i));
  executor.write(graph.value(model_.targets.id), std::span<const std::int32_t>(targets));
}

BenchIteration BenchSession::iterate() {
  Device& device = executor_->device();
  std::size_t end = 1;
  if (training_) {
    training_->next(*executor_);
    executor_->run(/*first_mark=*/0);
    end = Executor::phase_marks - 1;
  } else {
    device.mark(0);
    executor_->run(Phase::forward);
    device.mark(1);
  }
  device.wait(end);
  const double seconds = device.seconds_between(0, end);
  return {.loss = executor_->read_scalar(model_.loss), .seconds = seconds};
}

void check_precision(const BenchOptions& options, const Device& device) {
  if (options.compute_dtype() == DType::f16 && !device.multiplies_float16())
    throw UsageError(
        "--dtype fp16: this {} ({}) has no fp16 arithmetic; use bf16 or fp32, or a GPU",
        device.name(), device.hardware());
}

std::int64_t parameter_count(Graph& graph) {
  std::int64_t count = 0;
  for (const Value& parameter : graph.parameters()) count += parameter.type().numel();
  return count;
}

Cost total_cost(const Graph& graph) {
  Cost sum;
  for (const Node& node : graph.nodes()) sum += cost(graph, node);
  return sum;
}

}  // namespace ridge
