#include "ridge/train/trainer.h"

#include <cmath>
#include <numbers>

#include "ridge/base/error.h"
#include "ridge/run/autotuner.h"
#include "ridge/train/checkpoint.h"
#include "ridge/train/data.h"

namespace ridge {
namespace {

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

AdamWConfig adamw_of(const TrainOptions& o) {
  return {.beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.adam_eps,
          .weight_decay = o.weight_decay,
          .max_grad_norm = o.max_grad_norm};
}

}  // namespace

double learning_rate_at(const TrainOptions& o, std::int64_t step) {
  if (step <= o.lr_warmup_steps)
    return o.learning_rate * static_cast<double>(step) / static_cast<double>(o.lr_warmup_steps);
  if (o.lr_schedule == "constant") return o.learning_rate;
  const auto decay_steps = static_cast<double>(o.num_steps - o.lr_warmup_steps);
  const double done = std::min(1.0, static_cast<double>(step - o.lr_warmup_steps) / decay_steps);
  return o.min_learning_rate +
         (o.learning_rate - o.min_learning_rate) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

Cost StepCost::total() const {
  Cost sum = forward;
  sum += backward;
  sum += optimizer;
  return sum;
}

StepCost cost_of_step(const Graph& graph, std::int64_t accumulation_steps) {
  StepCost step;
  for (const Node& node : graph.nodes()) {
    const Cost once = cost(graph, node);
    if (node.phase == Phase::optimizer)
      step.optimizer += once;
    else
      (node.phase == Phase::forward ? step.forward : step.backward) += once * accumulation_steps;
  }
  return step;
}

TrainingGraph build_training(Graph& graph, const TrainOptions& options) {
  const Schedule schedule = options.schedule();
  TrainingGraph built;
  built.model = build_llama(graph, options.model(), options.batch_size, options.seq_len,
                            options.compute_dtype());
  run_passes(graph, Stage::forward, schedule.passes, schedule.recompute);
  built.step =
      add_training_step(built.model.loss, adamw_of(options), options.gradient_accumulation_steps);
  run_passes(graph, Stage::step, schedule.passes, schedule.recompute);
  return built;
}

KernelChoice kernels_of(const Schedule& schedule) {
  if (schedule.has(tuned_products)) return {.products = Products::tuned};
  if (schedule.has(packed_products)) return {.products = Products::packed};
  return {};
}

Trainer::Trainer(const TrainOptions& options, Device& device, const TrainerHooks& hooks)
    : options_(options),
      now_(hooks.clock ? hooks.clock : Clock::now),
      adamw_(adamw_of(options)),
      graph_(std::make_unique<Graph>()) {
  const TrainingGraph built = build_training(*graph_, options);
  model_ = built.model;
  training_ = built.step;
  if (hooks.rewrite) hooks.rewrite(*graph_);
  data_ = open_tokens(options);
  const Schedule schedule = options.schedule();
  Execution execution{.planned = schedule.has(planned_memory), .kernels = kernels_of(schedule)};
  if (schedule.has(tuned_products)) {
    tuner_ = std::make_unique<Autotuner>(Autotuner::Options{
        .cache = default_tuning_cache(), .hardware = device.hardware(), .log = hooks.tuning});
    execution.kernels.tuner = tuner_.get();
  }
  executor_ = std::make_unique<Executor>(*graph_, device, execution);
  executor_->initialize(static_cast<std::uint64_t>(options.seed));
  const auto elements = static_cast<std::size_t>(options.batch_size * options.seq_len);
  window_.resize(elements + static_cast<std::size_t>(options.batch_size));
  tokens_.resize(elements);
  targets_.resize(elements);
}

Trainer::~Trainer() = default;

// A window of S + 1 tokens gives S inputs and, one further, S targets.
void Trainer::feed(Split split, std::uint64_t batch) {
  const std::int64_t seq = options_.seq_len;
  data_->batch(split, batch, options_.batch_size, seq, window_);
  for (std::int64_t b = 0; b < options_.batch_size; ++b) {
    const std::int32_t* row = window_.data() + b * (seq + 1);
    std::copy(row, row + seq, tokens_.begin() + b * seq);
    std::copy(row + 1, row + 1 + seq, targets_.begin() + b * seq);
  }
  executor_->write(model_.tokens, std::span<const std::int32_t>(tokens_));
  executor_->write(model_.targets, std::span<const std::int32_t>(targets_));
}

StepReport Trainer::step() {
  const std::int64_t accumulation = options_.gradient_accumulation_steps;
  const auto begin = now_();
  StepReport report{.step = steps_done_ + 1};
  report.learning_rate = learning_rate_at(options_, report.step);
  executor_->write(training_.schedule, std::span<const float>(adamw_schedule(
                                           adamw_, report.learning_rate, report.step)));
  for (const Value& accumulator : training_.accumulators) executor_->fill_zero(accumulator);

  for (std::int64_t micro = 0; micro < accumulation; ++micro) {
    feed(Split::train, static_cast<std::uint64_t>(steps_done_ * accumulation + micro));
    const auto start = now_();
    executor_->run(Phase::forward);
    report.loss += executor_->read_scalar(model_.loss) / static_cast<double>(accumulation);
    const auto forward_end = now_();
    executor_->run(Phase::backward);
    executor_->device().synchronize();
    report.forward_seconds += seconds_between(start, forward_end);
    report.backward_seconds += seconds_between(forward_end, now_());
  }
  const auto start = now_();
  executor_->run(Phase::optimizer);
  executor_->device().synchronize();
  const auto end = now_();
  report.optimizer_seconds = seconds_between(start, end);
  report.seconds = seconds_between(begin, end);
  if (training_.grad_norm) report.grad_norm = executor_->read_scalar(training_.grad_norm);
  report.live_bytes = executor_->memory().live;
  ++steps_done_;
  return report;
}

double Trainer::evaluate(std::int64_t batches) {
  double sum = 0;
  for (std::int64_t i = 0; i < batches; ++i) {
    feed(Split::validation, static_cast<std::uint64_t>(i));
    executor_->run(Phase::forward);
    sum += executor_->read_scalar(model_.loss);
  }
  return sum / static_cast<double>(batches);
}

void Trainer::save(const std::filesystem::path& path) {
  write_checkpoint(path, options_, steps_done_, *graph_, *executor_);
}

void Trainer::resume(const std::filesystem::path& path) {
  steps_done_ = read_checkpoint(path, options_, *graph_, *executor_);
}

}  // namespace ridge
