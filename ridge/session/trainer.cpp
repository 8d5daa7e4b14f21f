#include "ridge/session/trainer.h"

#include <cmath>
#include <numbers>

#include "ridge/base/error.h"
#include "ridge/passes/scaled_products.h"
#include "ridge/run/autotuner.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/data.h"

namespace ridge {
namespace {

AdamWConfig adamw_of(const TrainOptions& o) {
  AdamWConfig config{.beta1 = o.beta1,
                     .beta2 = o.beta2,
                     .eps = o.adam_eps,
                     .weight_decay = o.weight_decay,
                     .max_grad_norm = o.max_grad_norm};
  if (o.compute_dtype() == DType::f16)
    config.loss_scaling = {.initial = static_cast<float>(o.loss_scale),
                           .growth_interval = o.loss_scale_growth_interval};
  return config;
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

void narrow_products(Graph& graph, const TrainOptions& options) {
  if (options.dtype == "fp8") fp8_products(graph, inner_blocks(options.model()));
  if (options.schedule().has(scaled_products)) f16_products(graph);
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
  narrow_products(graph, options);
  return built;
}

KernelChoice kernels_of(const TrainOptions& options) {
  const Schedule schedule = options.schedule();
  KernelChoice choice{.tf32 = options.dtype == "tf32",
                      .in_pieces = schedule.has(products_in_pieces),
                      .scaled = schedule.has(scaled_products)};
  if (schedule.has(tuned_products))
    choice.products = Products::tuned;
  else if (schedule.has(packed_products))
    choice.products = Products::packed;
  return choice;
}

Trainer::Trainer(const TrainOptions& options, Device& device, const TrainerHooks& hooks)
    : options_(options), adamw_(adamw_of(options)), graph_(std::make_unique<Graph>()) {
  const TrainingGraph built = build_training(*graph_, options);
  model_ = built.model;
  training_ = built.step;
  if (hooks.rewrite) hooks.rewrite(*graph_);
  data_ = open_tokens(options);
  const Schedule schedule = options.schedule();
  Execution execution{.planned = schedule.has(planned_memory),
                      .concurrent = schedule.has(concurrent_kernels),
                      .kernels = kernels_of(options)};
  if (schedule.has(tuned_products)) {
    tuner_ = std::make_unique<Autotuner>(Autotuner::Options{
        .cache = default_tuning_cache(), .hardware = measured_on(device), .log = hooks.tuning});
    execution.kernels.tuner = tuner_.get();
  }
  executor_ = std::make_unique<Executor>(*graph_, device, execution);
  executor_->initialize(static_cast<std::uint64_t>(options.seed));
  const auto elements = static_cast<std::size_t>(options.batch_size * options.seq_len);
  const std::size_t results = batches_per_step() + 3;
  auto* memory = static_cast<float*>(device.allocate_host(max_in_flight * results * sizeof(float)));
  for (std::size_t i = 0; i < flights_.size(); ++i)
    flights_[i] = {.results = memory + i * results, .first_mark = i * marks_per_step()};
  window_.resize(elements + static_cast<std::size_t>(options.batch_size));
  tokens_.resize(elements);
  targets_.resize(elements);
}

Trainer::~Trainer() {
  settle(executor_->device());
  executor_->device().deallocate_host(flights_[0].results);
}

// A window of S + 1 tokens gives S inputs and, one further, S targets.
void Trainer::feed(Split split, std::uint64_t batch, std::span<const float> schedule) {
  const std::int64_t seq = options_.seq_len;
  data_->batch(split, batch, options_.batch_size, seq, window_);
  for (std::int64_t b = 0; b < options_.batch_size; ++b) {
    const std::int32_t* row = window_.data() + b * (seq + 1);
    std::copy(row, row + seq, tokens_.begin() + b * seq);
    std::copy(row + 1, row + 1 + seq, targets_.begin() + b * seq);
  }
  std::vector<Executor::Feed> feeds{{model_.tokens, std::as_bytes(std::span(tokens_))},
                                    {model_.targets, std::as_bytes(std::span(targets_))}};
  if (!schedule.empty()) feeds.push_back({training_.schedule, std::as_bytes(schedule)});
  executor_->write(feeds);
}

std::size_t Trainer::batches_per_step() const {
  return static_cast<std::size_t>(options_.gradient_accumulation_steps);
}

std::size_t Trainer::marks_per_step() const {
  const std::size_t batches = batches_per_step();
  return 2 + (batches == 1 ? Executor::phase_marks : 3 * batches + 1);
}

void Trainer::accumulate_batches(const Flight& flight, std::span<const float> schedule) {
  Device& device = executor_->device();
  std::size_t mark = flight.first_mark + 1;
  for (const Value& accumulator : training_.accumulators) executor_->fill_zero(accumulator);
  const std::size_t batches = batches_per_step();
  for (std::size_t batch = 0; batch < batches; ++batch) {
    feed(Split::train, static_cast<std::uint64_t>(steps_begun_) * batches + batch,
         batch == 0 ? schedule : std::span<const float>());
    device.mark(mark++);
    executor_->run(Phase::forward);
    executor_->read_later(model_.loss, flight.results + batch);
    device.mark(mark++);
    executor_->run(Phase::backward);
    device.mark(mark++);
  }
  executor_->run(Phase::optimizer);
  device.mark(mark);
}

void Trainer::begin_step() {
  if (steps_in_flight() == max_in_flight)
    throw UsageError("{} steps are in flight: finish one before the next", max_in_flight);
  Device& device = executor_->device();
  const std::int64_t step = steps_begun_ + 1;
  Flight& flight = flights_[static_cast<std::size_t>(steps_begun_ % max_in_flight)];
  device.mark(flight.first_mark);
  const double rate = learning_rate_at(options_, step);
  const std::vector<float> schedule = adamw_schedule(adamw_, rate, step);
  if (batches_per_step() > 1) {
    accumulate_batches(flight, schedule);
  } else {
    feed(Split::train, static_cast<std::uint64_t>(steps_begun_), schedule);
    executor_->run(flight.first_mark + 1);
    executor_->read_later(model_.loss, flight.results);
  }
  for (const Value& result : {training_.scale_report, training_.grad_norm}) {
    if (!result) continue;  // the report has the norm
    executor_->read_later(result, flight.results + batches_per_step());
    break;
  }
  device.mark(flight.first_mark + marks_per_step() - 1);
  flight.live_bytes = executor_->memory().live;
  ++steps_begun_;
}

StepReport Trainer::finish_step() {
  if (steps_in_flight() == 0) throw UsageError("no step is in flight: begin one first");
  const std::size_t batches = batches_per_step(), end = marks_per_step() - 1;
  const Flight& flight = flights_[static_cast<std::size_t>(steps_done_ % max_in_flight)];
  Device& device = executor_->device();
  device.wait(flight.first_mark + end);
  const auto seconds = [&](std::size_t from, std::size_t to) {
    return device.seconds_between(flight.first_mark + from, flight.first_mark + to);
  };
  StepReport report{.step = steps_done_ + 1, .seconds = seconds(0, end)};
  report.learning_rate = learning_rate_at(options_, report.step);
  const std::size_t stride = batches == 1 ? 0 : 3;  // marks from batch to batch
  for (std::size_t batch = 0; batch < batches; ++batch) {
    const std::size_t first = 1 + batch * stride;
    report.loss += static_cast<double>(flight.results[batch]) / static_cast<double>(batches);
    report.forward_seconds += seconds(first, first + 1);
    report.backward_seconds += seconds(first + 1, first + 2);
  }
  report.optimizer_seconds = seconds(end - 2, end - 1);
  const float* const after = flight.results + batches;
  if (training_.grad_norm) report.grad_norm = after[0];
  if (training_.scale_report) {
    report.skipped = !std::isfinite(after[0]);
    report.loss_scale = after[1];
    report.next_loss_scale = after[2];
  }
  report.live_bytes = flight.live_bytes;
  ++steps_done_;
  return report;
}

StepReport Trainer::step() {
  begin_step();
  return finish_step();
}

float Trainer::gradient_scale() {
  return training_.loss_scale ? executor_->read_scalar(training_.loss_scale) : 1.0f;
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
  if (steps_in_flight() != 0)
    throw UsageError("a step is in flight: finish it before a checkpoint is written");
  write_checkpoint(path, options_, steps_done_, *graph_, *executor_);
}

void Trainer::resume(const std::filesystem::path& path) {
  steps_done_ = steps_begun_ = read_checkpoint(path, options_, *graph_, *executor_);
}

}  // namespace ridge
