#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ridge/bench/options.h"
#include "ridge/bench/training.h"
#include "ridge/graph/op_rules.h"
#include "ridge/models/vision/vision.h"
#include "ridge/run/executor.h"

namespace ridge {

class Autotuner;     // run/autotuner.h
struct CompileMode;  // bench/schedule.h

// One forward pass over the batch, or one step of training on it.
struct BenchIteration {
  double loss = 0;     // mean cross-entropy in nats
  double seconds = 0;  // of the device's clock, from the first kernel to the last
};

struct BenchHooks {
  // Called with the graph as it was built, before any pass, in place of what else gives weights and
  // statistics their initial values (Graph::set_init).
  std::function<void(Graph&)> rewrite = {};
  // Called before a kernel is timed for the first time: Autotuner::Options::trying.
  std::function<void(std::string_view work, std::size_t number, std::size_t of)> trying = {};
};

// What a benchmark builds its network by; `training` is null without any.
VisionOptions network_options(const BenchOptions& options, const VisionTraining* training,
                              const Device& device);

// Rewrites a network's graph as a benchmark runs it: by the passes of its compile mode and, where
// `training` is not null, with what that appends between them.
void rewrite_for_benchmark(Graph& graph, const VisionModel& model, VisionTraining* training,
                           const BenchOptions& options, const Device& device);

// How a benchmark runs it; the tuner, if the mode wants one, is set by who has it.
Execution execution_of(const BenchOptions& options);

// A network on a device, with one batch of images in its memory.
class BenchSession {
 public:
  // Weights are those of options.weights, or drawn as the network's authors initialise them; images
  // are drawn from N(0, 1) and targets uniformly, all from options.seed. The device outlives the
  // session. Errors are those of build_vision() and Executor.
  BenchSession(const BenchOptions& options, Device& device, const BenchHooks& hooks = {});
  ~BenchSession();

  BenchIteration iterate();

  // Of a network in training on data, on those held out; if it were quantised, too.
  std::optional<Accuracy> accuracy(bool int8 = false) {
    if (!training_ || !training_->has_data()) return std::nullopt;
    return training_->accuracy(*graph_, *executor_, int8);
  }

  // The graph that runs: what was computed once, and parameters that only that reads, take no
  // memory in it (passes/freeze.h).
  Graph& graph() { return *graph_; }
  Executor& executor() { return *executor_; }
  const VisionModel& model() const { return model_; }

  // What making the network ready took: passes, preparing and timing kernels, computing what is
  // frozen, and in inference the first runs, where a device has to capture one.
  double compile_seconds() const { return compile_seconds_; }
  const Autotuner* tuner() const { return tuner_.get(); }  // null unless the mode tunes

 private:
  void compile(const BenchOptions& options, Device& device, const BenchHooks& hooks);
  void feed(Executor& executor, std::uint64_t seed) const;

  std::unique_ptr<Graph> graph_;
  VisionModel model_;
  std::unique_ptr<VisionTraining> training_;  // null in inference
  std::unique_ptr<Autotuner> tuner_;
  std::unique_ptr<Executor> executor_;
  double compile_seconds_ = 0;
};

// UsageError for a precision that this device only imitates: its times would say nothing.
void check_precision(const BenchOptions& options, const Device& device);

// Elements of all parameters; buffers are none.
std::int64_t parameter_count(Graph& graph);
// Exact work of all nodes.
Cost total_cost(const Graph& graph);

}  // namespace ridge
