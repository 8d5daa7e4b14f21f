#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/graph/op_rules.h"
#include "ridge/run/executor.h"
#include "ridge/session/workload.h"

namespace ridge {

class Autotuner;  // run/autotuner.h

// One step of a session: of training an optimizer step, of inference a forward pass. Seconds are
// the device's: of its clock's marks between the work. With accumulation the forward and backward
// times are sums.
struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over the accumulated batches, in nats
  double learning_rate = 0;
  std::optional<double> grad_norm;  // before clipping
  // With loss scaling: what the loss was multiplied by, and will be next. A step whose gradients
  // overflow is skipped: nothing is updated.
  std::optional<double> loss_scale, next_loss_scale;
  bool skipped = false;
  double seconds = 0;         // all of it, data included
  double device_seconds = 0;  // from the first kernel to the last
  // Where the phases of a step overlap, as they do where kernels run at the same time, there is no
  // time of each.
  bool has_phases = true;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  std::size_t live_bytes = 0;  // tensors alive when the step ended
};

// A workload's graph as a session runs it.
struct BuiltGraph {
  Schedule schedule;
  Model model;               // its logits with columns behind the classes, where a pass adds some
  std::int64_t classes = 0;  // along Model::class_dim of the logits
  std::int64_t parameters = 0;   // elements of all of the model's, before any is rewritten
  TrainingStep training;         // of training
  std::optional<Frozen> frozen;  // what is computed once, before the first step
};

// Callbacks to a device while a graph is built; a plan sets none.
struct BuildHooks {
  // Called with the forward graph before any pass: Workload::initialize.
  std::function<void(Graph&)> initialize = {};
  // See PassRun::calibrate; called with the model too.
  std::function<Int8Ranges(const Graph&, const Model&, std::span<const ValueId>)> calibrate = {};
  bool fixed_input = true;  // see PassRun::fixed_input
  std::int64_t rank = 0;    // of those that share each batch
};

// How the options sum a step's gradients.
Accumulation accumulation_of(const RunOptions& options);

// Appends the whole graph of a workload, as a schedule wants it.
BuiltGraph build_graph(Graph& graph, const Workload& workload, const Schedule& schedule,
                       const Accumulation& accumulation, const BuildHooks& hooks = {});
// The same of resolved options, on a device.
BuiltGraph build_graph(Graph& graph, const RunOptions& options, const Target& target = {});

// Callbacks of the caller while a session is prepared.
struct SessionHooks {
  std::function<void(Graph&)> initialize = {};  // in place of Workload::initialize
  std::function<void(Graph&)> rewrite = {};     // the finished graph, before anything is prepared
  // Called before a candidate for a kernel is timed for the first time: Autotuner::Options::trying.
  std::function<void(std::string_view work, std::size_t number, std::size_t of)> trying = {};
  // Whether inference runs on the first batch again and again, as benchmarks do; evaluate() and
  // infer() need other input.
  bool fixed_input = true;
};

// Loss and accuracy on samples that the model was not trained on.
struct Evaluation {
  double loss = 0;  // mean, in nats
  std::int64_t samples = 0;
  // Samples whose largest logit is their label's; empty without one label a sample.
  std::optional<std::int64_t> right;

  double accuracy() const {
    return samples > 0 ? static_cast<double>(right.value_or(0)) / static_cast<double>(samples) : 0;
  }
};

// A workload on a device: its graph, executor, data and position. Throws before it allocates or
// writes anything if the options make no sense or the model does not fit in memory.
class Session {
 public:
  // `options` are resolved. The device outlives the session.
  Session(const RunOptions& options, Device& device, const SessionHooks& hooks = {});
  // A workload of one's own, scheduled as the options say.
  Session(Workload workload, const RunOptions& options, Device& device,
          const SessionHooks& hooks = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  StepReport step();

  // The two halves of step(). On a GPU the first only enqueues; the second waits and reports the
  // oldest step begun. At most max_in_flight steps may be begun and not finished: with two the
  // device goes from step to step without waiting for the host.
  void begin_step();
  StepReport finish_step();
  static constexpr std::int64_t max_in_flight = 2;
  std::int64_t steps_in_flight() const { return steps_begun_ - steps_done_; }
  std::int64_t steps_done() const { return steps_done_; }

  // Whether a condition holds on any of the ranks that share the batch, which all have to ask.
  bool on_any_rank(bool condition) const;
  // What the gradients on the device are multiplied by; 1 without loss scaling.
  float gradient_scale();

  // The model as it is now, over the first `batches` batches of the validation split, the same ones
  // each time; all of it, once, if that is 0. UsageError if the split is empty, or never ends.
  Evaluation evaluate(std::int64_t batches);
  // Over so many samples from batch number `first_batch` on; `seen` is told of each batch, with its
  // input. Samples of one label each need not fill their last batch.
  using BatchSeen = std::function<void(std::int64_t batch, std::span<const std::byte> input)>;
  Evaluation evaluate_samples(std::int64_t first_batch, std::int64_t samples,
                              const BatchSeen& seen = {});
  // The same in another precision, by a session of its own. Of a workload in training alone.
  Evaluation evaluate_in(std::string_view dtype, std::int64_t batches);
  // One forward pass over what the caller gives, in inference: the loss.
  double infer(std::span<const std::byte> input, std::span<const std::byte> targets);
  // Of the classes, in the last pass; in training before the backward pass, which may overwrite
  // them.
  std::vector<float> logits();

  // See session/checkpoint.h, which has the format and the errors. Nothing is saved while a step is
  // in flight: UsageError.
  void save(const std::filesystem::path& path);
  void resume(const std::filesystem::path& path);

  const RunOptions& options() const { return options_; }
  const Workload& workload() const { return workload_; }
  const Schedule& schedule() const { return built_.schedule; }
  // The graph that runs: what was computed once, and parameters that only that reads, take no
  // memory in it (passes/freeze.h).
  Graph& graph() { return *graph_; }
  Executor& executor() { return *executor_; }
  const Executor& executor() const { return *executor_; }
  Device& device() const { return device_; }
  std::int64_t parameters() const { return built_.parameters; }
  const Model& model() const { return built_.model; }
  const TrainingStep& training() const { return built_.training; }
  const Batches& data() const { return *data_; }
  const Autotuner* tuner() const { return tuner_.get(); }  // null if nothing is tuned
  // What making the graph ready took: passes, preparing and timing kernels, computing what is
  // frozen, and in inference the first runs, where a device has to capture one.
  double compile_seconds() const { return compile_seconds_; }

 private:
  // Where a step in flight leaves what its report needs.
  struct Flight {
    // In Device::allocate_host(): the loss of each batch, then the norm or UpdateLossScale's
    // report.
    float* results = nullptr;
    std::size_t first_mark = 0;
    std::size_t live_bytes = 0;
    bool has_phases = true;
  };

  void build(const SessionHooks& hooks);
  void prepare(const SessionHooks& hooks);
  bool trains() const { return workload_.use == Use::training; }
  // Reads a batch and writes what of it the executor's graph takes.
  void feed(Executor& executor, Split split, std::uint64_t batch);
  void feed_step(Split split, std::uint64_t batch, std::span<const float> schedule = {});
  void accumulate_batches(const Flight& flight, std::span<const float> schedule);
  void run_phases_apart(const Flight& flight);
  bool phases_overlap() const;
  std::size_t batches_per_step() const;
  ShareOfRank share() const;  // of the batches of a step
  double mean_loss(const Flight& flight) const;
  // Its begin; then either the executor's marks or, with accumulation, one before each batch's
  // forward pass, one between its passes and one after it, and one after the optimizer; its end.
  std::size_t marks_per_step() const;

  RunOptions options_;
  Workload workload_;
  Device& device_;
  std::unique_ptr<Batches> data_;
  std::unique_ptr<Graph> graph_;
  BuiltGraph built_;
  std::unique_ptr<Autotuner> tuner_;  // of schedules that tune
  std::unique_ptr<Executor> executor_;
  double compile_seconds_ = 0;
  std::int64_t steps_done_ = 0, steps_begun_ = 0;
  std::int64_t first_step_ = 0;                // steps done when this session began
  bool fed_ = false;                           // the one batch that there is has been written
  std::array<Flight, max_in_flight> flights_;  // by step
  std::vector<std::byte> input_, targets_;     // of a batch
};

// The learning rate of step number `step` = 1, 2, ...: linear warm-up over lr_warmup_steps, then
// constant, or half a cosine down to min_learning_rate at num_steps.
double learning_rate_at(const RunOptions& options, std::int64_t step);

// The exact work of one step, by phase, accumulation included.
struct StepCost {
  Cost forward, backward, optimizer;
  Cost total() const;
};
StepCost cost_of_step(const Graph& graph, std::int64_t accumulation_steps);

// Elements of all parameters; buffers are none.
std::int64_t parameter_count(Graph& graph);

}  // namespace ridge
