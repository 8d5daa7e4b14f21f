#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "ridge/graph/op_rules.h"
#include "ridge/models/llama/llama.h"
#include "ridge/run/executor.h"
#include "ridge/session/optimizer.h"
#include "ridge/session/options.h"

namespace ridge {

class Autotuner;    // run/autotuner.h
class TokenSource;  // train/data.h
enum class Split : std::uint8_t;

// One optimizer step, in seconds of the device: of its clock's marks between the work. With
// accumulation the forward and backward times are sums.
struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over the accumulated batches, in nats
  double learning_rate = 0;
  std::optional<double> grad_norm;  // before clipping
  // With loss scaling: what the loss was multiplied by, and will be next. A step whose gradients
  // overflow is skipped: nothing is updated.
  std::optional<double> loss_scale, next_loss_scale;
  bool skipped = false;
  double seconds = 0;  // all of it, data included
  double forward_seconds = 0;
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  std::size_t live_bytes = 0;  // tensors alive when the step ended
};

// The values of a training graph, through which it is fed and read.
struct TrainingGraph {
  LanguageModel model;
  TrainingStep step;
};

// Appends the whole of a training run's graph, as `options`, which are resolved, describe it.
TrainingGraph build_training(Graph& graph, const TrainOptions& options);

// The last of it, for graphs that are built otherwise: with dtype fp8 products in 8 bits, with tf32
// where the schedule says so scaled ones in f16.
void narrow_products(Graph& graph, const TrainOptions& options);

// What a caller may have done on the way.
struct TrainerHooks {
  std::function<void(Graph&)> rewrite;  // the finished graph, before anything is prepared
  // Called before products are timed for the first time on this machine, with their description.
  std::function<void(std::string_view product, int number)> tuning;
};

// How training wants its kernels, without a tuner.
KernelChoice kernels_of(const TrainOptions& options);

// A language model in training: graph, executor, data and position. Throws before it allocates or
// writes anything if the options make no sense or the model does not fit in memory.
class Trainer {
 public:
  // `options` are resolved. The device outlives the trainer.
  Trainer(const TrainOptions& options, Device& device, const TrainerHooks& hooks = {});
  ~Trainer();

  StepReport step();

  // The two halves of step(). The first only enqueues on an asynchronous device; the second waits
  // and reports the oldest step begun. At most max_in_flight steps may be begun and not finished:
  // with two the device goes from step to step without waiting for the host.
  void begin_step();
  StepReport finish_step();
  static constexpr std::int64_t max_in_flight = 2;
  std::int64_t steps_in_flight() const { return steps_begun_ - steps_done_; }

  std::int64_t steps_done() const { return steps_done_; }

  // What the gradients on the device are multiplied by; 1 without loss scaling.
  float gradient_scale();

  // Mean loss over the first `batches` windows of the validation split, the same ones each time.
  double evaluate(std::int64_t batches);

  // See train/checkpoint.h, which has the format and the errors. Nothing is saved while a step is
  // in flight: UsageError.
  void save(const std::filesystem::path& path);
  void resume(const std::filesystem::path& path);

  const TrainOptions& options() const { return options_; }
  Graph& graph() { return *graph_; }
  Executor& executor() { return *executor_; }
  const LanguageModel& model() const { return model_; }
  const TrainingStep& training() const { return training_; }
  const TokenSource& data() const { return *data_; }
  const Autotuner* tuner() const { return tuner_.get(); }  // null if nothing is tuned

 private:
  // Where a step in flight leaves what its report needs.
  struct Flight {
    // In Device::allocate_host(): the loss of each batch, then the norm or UpdateLossScale's
    // report.
    float* results = nullptr;
    std::size_t first_mark = 0;
    std::size_t live_bytes = 0;
  };

  // Tokens and targets of a batch, and the optimizer's schedule if one is given.
  void feed(Split split, std::uint64_t batch, std::span<const float> schedule = {});
  void accumulate_batches(const Flight& flight, std::span<const float> schedule);
  std::size_t batches_per_step() const;
  // Its begin; then either the executor's marks or, with accumulation, one before each batch's
  // forward pass, one between its passes and one after it, and one after the optimizer; its end.
  std::size_t marks_per_step() const;

  TrainOptions options_;
  AdamWConfig adamw_;
  std::unique_ptr<TokenSource> data_;
  std::unique_ptr<Graph> graph_;
  LanguageModel model_;
  TrainingStep training_;
  std::unique_ptr<Autotuner> tuner_;  // of schedules that tune
  std::unique_ptr<Executor> executor_;
  std::int64_t steps_done_ = 0, steps_begun_ = 0;
  std::array<Flight, max_in_flight> flights_;  // by step
  std::vector<std::int32_t> window_, tokens_, targets_;
};

// The learning rate of step number `step` = 1, 2, ...: linear warm-up over lr_warmup_steps, then
// constant, or half a cosine down to min_learning_rate at num_steps.
double learning_rate_at(const TrainOptions& options, std::int64_t step);

// The exact work of one optimizer step, by phase, accumulation included.
struct StepCost {
  Cost forward, backward, optimizer;
  Cost total() const;
};
StepCost cost_of_step(const Graph& graph, std::int64_t accumulation_steps);

}  // namespace ridge
