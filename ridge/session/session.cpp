#include "ridge/session/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <numbers>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/device/gathered.h"
#include "ridge/run/autotuner.h"
#include "ridge/session/calibration.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/weights.h"

namespace ridge {
namespace {

// What the buffers of a frozen graph hold, on the host: so that the device never has the memory of
// both graphs.
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

// Adds the first rows of logits[labels, classes]: their losses, and whether their largest element
// is their label's.
void add_rows(Evaluation& sum, const std::vector<float>& logits,
              std::span<const std::int32_t> labels, std::int64_t rows) {
  const std::size_t classes = logits.size() / labels.size();
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
    const auto row = std::span(logits).subspan(i * classes, classes);
    const auto best = std::ranges::max_element(row);
    double exponentials = 0;
    for (const float x : row) exponentials += std::exp(static_cast<double>(x) - *best);
    const auto label = static_cast<std::size_t>(labels[i]);
    sum.loss += std::log(exponentials) + *best - row[label];
    *sum.right += best - row.begin() == labels[i];
  }
}

// To the sums over a rank's own samples, those over the others'. Added in the ranks' order, so that
// all have the same.
void add_other_ranks(Evaluation& sum, Communicator* communicator) {
  if (communicator == nullptr) return;
  struct Part {
    double loss;
    std::int64_t right;
  };
  const Part own{sum.loss, sum.right.value_or(0)};
  Part all{};
  for (const Part& part : gathered(*communicator, own))
    all.loss += part.loss, all.right += part.right;
  sum.loss = all.loss;
  if (sum.right) sum.right = all.right;
}

}  // namespace

double learning_rate_at(const RunOptions& o, std::int64_t step) {
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

std::int64_t parameter_count(Graph& graph) {
  std::int64_t count = 0;
  for (const Value& parameter : graph.parameters()) count += parameter.type().numel();
  return count;
}

BuiltGraph build_graph(Graph& graph, const Workload& workload, const Schedule& schedule,
                       const Accumulation& accumulation, const BuildHooks& hooks) {
  BuiltGraph built;
  built.schedule = schedule;
  built.model = workload.build(graph, schedule.precision);
  built.parameters = parameter_count(graph);
  if (hooks.initialize) hooks.initialize(graph);
  PassRun run{.schedule = built.schedule,
              .fixed_input = hooks.fixed_input,
              .rank = hooks.rank,
              .loss = built.model.loss,
              .logits = built.model.logits};
  if (hooks.calibrate)
    run.calibrate = [&](const Graph& g, std::span<const ValueId> values) {
      return hooks.calibrate(g, built.model, values);
    };
  built.classes = built.model.logits.shape()[static_cast<int>(built.model.class_dim)];
  apply_passes(graph, Stage::forward, run);
  built.model.logits = run.logits;
  if (workload.use == Use::training)
    built.training = add_training_step(built.model.loss, workload.optimizer, accumulation);
  apply_passes(graph, Stage::step, run);
  built.frozen = std::move(run.frozen);
  return built;
}

Accumulation accumulation_of(const RunOptions& options) {
  const std::int64_t batches = options.batches_per_step();
  if (!options.sums_pairwise()) return {batches};
  return {batches, batches * options.ranks, options.gradient_accumulation_steps};
}

BuiltGraph build_graph(Graph& graph, const RunOptions& options, const Target& target) {
  return build_graph(graph, workload_of(options), options.schedule(target),
                     accumulation_of(options));
}

Session::Session(const RunOptions& options, Device& device, const SessionHooks& hooks)
    : Session(workload_of(options), options, device, hooks) {}

Session::Session(Workload workload, const RunOptions& options, Device& device,
                 const SessionHooks& hooks)
    : options_(options),
      workload_(std::move(workload)),
      device_(device),
      graph_(std::make_unique<Graph>()) {
  if (options.ranks != device.ranks())
    throw UsageError(
        "--ranks {} needs as many processes, and this is one of {}: ridge train, bench and verify "
        "start them",
        options.ranks, device.ranks());
  built_.schedule = options.schedule(device.target());
  build(hooks);
  prepare(hooks);
  const std::size_t results = batches_per_step() + 3;
  auto* memory = static_cast<float*>(device.allocate_host(max_in_flight * results * sizeof(float)));
  for (std::size_t i = 0; i < flights_.size(); ++i)
    flights_[i] = {.results = memory + i * results, .first_mark = i * marks_per_step()};
}

Session::~Session() {
  settle(device_);
  device_.deallocate_host(flights_[0].results);
}

void Session::build(const SessionHooks& hooks) {
  BuildHooks build_hooks{.initialize = hooks.initialize};
  if (!hooks.initialize && workload_.initialize)
    build_hooks.initialize = [this](Graph& graph) { workload_.initialize(graph, device_); };
  build_hooks.calibrate = [this](const Graph& graph, const Model& model,
                                 std::span<const ValueId> values) {
    built_.model = model;
    return calibrate(graph, values, device_, static_cast<std::uint64_t>(options_.seed),
                     [this](Executor& executor) { feed(executor, Split::train, 0); });
  };
  // Data are opened when the model is known to be sound, and before anything is prepared.
  const auto open = [&](Graph& graph) {
    data_ = workload_.open();
    if (device_.ranks() > 1) data_ = std::make_unique<BatchesOfRank>(std::move(data_), share());
    if (build_hooks.initialize) build_hooks.initialize(graph);
  };
  built_ = build_graph(*graph_, workload_, built_.schedule, accumulation_of(options_),
                       {.initialize = open,
                        .calibrate = build_hooks.calibrate,
                        .fixed_input = hooks.fixed_input,
                        .rank = device_.rank()});
  if (hooks.rewrite) hooks.rewrite(*graph_);
}

void Session::prepare(const SessionHooks& hooks) {
  const auto start = std::chrono::steady_clock::now();
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  Execution execution = execution_of(built_.schedule);
  if (built_.schedule.has(tuned_products)) {
    tuner_ = std::make_unique<Autotuner>(Autotuner::Options{
        .cache = default_tuning_cache(), .hardware = measured_on(device_), .trying = hooks.trying});
    execution.kernels.tuner = tuner_.get();
  }
  // What is evaluated need not leave anything to train on, nor the reverse.
  const bool evaluates = !trains() && !hooks.fixed_input && data_->validation_samples() != 0;
  const auto feed_first = [&](Executor& executor) {
    feed(executor, evaluates ? Split::validation : Split::train, 0);
  };
  Contents once;
  if (built_.frozen) once = computed_once(*built_.frozen, device_, execution, seed, feed_first);
  built_.frozen.reset();
  executor_ = std::make_unique<Executor>(*graph_, device_, execution);
  executor_->initialize(seed);
  // What parameters were given is on the device now; the host need not hold it too.
  for (const Value& parameter : graph_->parameters())
    if (graph_->info(parameter.id).init.kind == Init::Kind::values)
      graph_->set_init(parameter, Init::zeros());
  for (const auto& [id, bytes] : once)
    executor_->write(graph_->value(id), std::span<const std::byte>(bytes));
  if (!trains()) {
    feed_first(*executor_);
    fed_ = true;
    // The first run loads code; the second is captured. A step of training would change the
    // weights.
    if (built_.schedule.has(captured_launches))
      for (int run = 0; run < 2; ++run) executor_->run(Phase::forward);
  }
  device_.synchronize();
  if (device_.communicator()) device_.communicator()->wait_for_all();
  compile_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Session::feed(Executor& executor, Split split, std::uint64_t batch) {
  const Graph& graph = executor.graph();
  const auto bytes = [&](const Value& value) { return graph.info(value.id).type.bytes(); };
  input_.resize(bytes(built_.model.input));
  targets_.resize(bytes(built_.model.targets));
  data_->fill(split, batch, input_, targets_);
  std::vector<Executor::Feed> feeds;
  const auto add = [&](const Value& value, const std::vector<std::byte>& data) {
    if (graph.info(value.id).persistent) feeds.push_back({executor.graph().value(value.id), data});
  };
  add(built_.model.input, input_);
  add(built_.model.targets, targets_);
  executor.write(feeds);
}

void Session::feed_step(Split split, std::uint64_t batch, std::span<const float> schedule) {
  std::vector<Executor::Feed> feeds;
  if (!fed_) {
    input_.resize(built_.model.input.type().bytes());
    targets_.resize(built_.model.targets.type().bytes());
    data_->fill(split, batch, input_, targets_);
    feeds.push_back({built_.model.input, input_});
    feeds.push_back({built_.model.targets, targets_});
    fed_ = data_->always_same();
  }
  const auto number =
      static_cast<std::int32_t>(options_.sums_pairwise() ? share().number_of(batch) : batch);
  for (const Value& value : {built_.model.step, built_.training.batch})
    if (value) feeds.push_back({value, std::as_bytes(std::span(&number, 1))});
  if (!schedule.empty()) feeds.push_back({built_.training.schedule, std::as_bytes(schedule)});
  if (!feeds.empty()) executor_->write(feeds);
}

std::size_t Session::batches_per_step() const {
  return static_cast<std::size_t>(options_.batches_per_step());
}

ShareOfRank Session::share() const {
  return {.rank = static_cast<std::uint64_t>(device_.rank()),
          .ranks = static_cast<std::uint64_t>(device_.ranks()),
          .in_a_row = options_.sums_pairwise() ? batches_per_step() : 1};
}

std::size_t Session::marks_per_step() const {
  const std::size_t batches = batches_per_step();
  return 2 + (batches == 1 ? Executor::phase_marks : 3 * batches + 1);
}

bool Session::phases_overlap() const { return built_.schedule.has(concurrent_kernels); }

void Session::accumulate_batches(const Flight& flight, std::span<const float> schedule) {
  std::size_t mark = flight.first_mark + 1;
  if (!options_.sums_pairwise())
    for (const Value& accumulator : built_.training.accumulators) executor_->fill_zero(accumulator);
  const std::size_t batches = batches_per_step();
  for (std::size_t batch = 0; batch < batches; ++batch) {
    feed_step(Split::train, static_cast<std::uint64_t>(steps_begun_) * batches + batch,
              batch == 0 ? schedule : std::span<const float>());
    device_.mark(mark++);
    executor_->run(Phase::forward);
    executor_->read_later(built_.model.loss, flight.results + batch);
    device_.mark(mark++);
    executor_->run(Phase::backward);
    device_.mark(mark++);
  }
  executor_->run(Phase::optimizer);
  device_.mark(mark);
}

// The phases one after the other, so that the time of each can be told where they would overlap.
void Session::run_phases_apart(const Flight& flight) {
  std::size_t mark = flight.first_mark + 1;
  device_.mark(mark);
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    executor_->run(phase);
    device_.mark(++mark);
  }
}

void Session::begin_step() {
  if (steps_in_flight() == max_in_flight)
    throw UsageError("{} steps are in flight: finish one before the next", max_in_flight);
  const std::int64_t step = steps_begun_ + 1;
  Flight& flight = flights_[static_cast<std::size_t>(steps_begun_ % max_in_flight)];
  flight.has_phases = true;
  device_.mark(flight.first_mark);
  std::vector<float> schedule;
  if (trains())
    schedule = optimizer_schedule(workload_.optimizer, learning_rate_at(options_, step), step);
  if (batches_per_step() > 1) {
    accumulate_batches(flight, schedule);
  } else {
    feed_step(Split::train, static_cast<std::uint64_t>(steps_begun_), schedule);
    // In the second and third step the phases are told apart, and what later ones launch is
    // captured; both are among those that warm up.
    const std::int64_t since_start = step - first_step_;
    if (!trains()) {
      device_.mark(flight.first_mark + 1);
      executor_->run(Phase::forward);
      for (std::size_t mark = 2; mark <= Executor::phase_marks; ++mark)
        device_.mark(flight.first_mark + mark);
    } else if (phases_overlap() && since_start > 1 && since_start <= 3 &&
               options_.warmup_steps >= 3) {
      run_phases_apart(flight);
      flight.has_phases = since_start == 3;  // the second step's are not captured yet
    } else {
      executor_->run(flight.first_mark + 1);
      flight.has_phases = !phases_overlap();
    }
    if (trains() && since_start == 2)  // both sets of marks have been used once
      for (const Flight& any : flights_) executor_->capture(any.first_mark + 1);
    executor_->read_later(built_.model.loss, flight.results);
  }
  for (const Value& result : {built_.training.scale_report, built_.training.grad_norm}) {
    if (!result) continue;  // the report has the norm
    executor_->read_later(result, flight.results + batches_per_step());
    break;
  }
  device_.mark(flight.first_mark + marks_per_step() - 1);
  flight.live_bytes = executor_->memory().live;
  ++steps_begun_;
}

// Each rank has the mean of all already, unless it computes as if there were no others. Then all
// add the same numbers in one order.
double Session::mean_loss(const Flight& flight) const {
  const std::span own(flight.results, batches_per_step());
  std::vector<float> losses(own.begin(), own.end());
  if (options_.sums_pairwise() && device_.communicator()) {
    losses.resize(own.size() * static_cast<std::size_t>(device_.ranks()));
    device_.communicator()->all_gather(std::as_bytes(own),
                                       std::as_writable_bytes(std::span(losses)));
  }
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum / static_cast<double>(losses.size());
}

StepReport Session::finish_step() {
  if (steps_in_flight() == 0) throw UsageError("no step is in flight: begin one first");
  const std::size_t batches = batches_per_step(), end = marks_per_step() - 1;
  const Flight& flight = flights_[static_cast<std::size_t>(steps_done_ % max_in_flight)];
  device_.wait(flight.first_mark + end);
  const auto seconds = [&](std::size_t from, std::size_t to) {
    return device_.seconds_between(flight.first_mark + from, flight.first_mark + to);
  };
  StepReport report{.step = steps_done_ + 1,
                    .seconds = seconds(0, end),
                    .device_seconds = seconds(1, end - 1),
                    .has_phases = flight.has_phases};
  report.loss = mean_loss(flight);
  if (trains()) report.learning_rate = learning_rate_at(options_, report.step);
  const std::size_t stride = batches == 1 ? 0 : 3;  // marks from batch to batch
  for (std::size_t batch = 0; batch < batches; ++batch) {
    const std::size_t first = 1 + batch * stride;
    if (!report.has_phases) continue;
    report.forward_seconds += seconds(first, first + 1);
    report.backward_seconds += seconds(first + 1, first + 2);
  }
  if (report.has_phases) report.optimizer_seconds = seconds(end - 2, end - 1);
  const float* const after = flight.results + batches;
  if (built_.training.grad_norm) report.grad_norm = after[0];
  if (built_.training.scale_report) {
    report.skipped = !std::isfinite(after[0]);
    report.loss_scale = after[1];
    report.next_loss_scale = after[2];
  }
  report.live_bytes = flight.live_bytes;
  ++steps_done_;
  return report;
}

StepReport Session::step() {
  begin_step();
  return finish_step();
}

bool Session::on_any_rank(bool condition) const {
  return ridge::on_any_rank(device_.communicator(), condition);
}

float Session::gradient_scale() {
  return built_.training.loss_scale ? executor_->read_scalar(built_.training.loss_scale) : 1.0f;
}

double Session::infer(std::span<const std::byte> input, std::span<const std::byte> targets) {
  executor_->write(std::array{Executor::Feed{built_.model.input, input},
                              Executor::Feed{built_.model.targets, targets}});
  executor_->run(Phase::forward);
  return executor_->read_scalar(built_.model.loss);
}

std::vector<float> Session::logits() {
  std::vector<float> rows = executor_->read_floats(built_.model.logits);
  const Shape& shape = built_.model.logits.shape();
  const auto columns = static_cast<std::size_t>(shape[-1]);
  const auto classes = static_cast<std::size_t>(built_.classes);
  if (built_.model.class_dim + 1 < shape.rank() || classes == columns) return rows;
  const std::size_t count = rows.size() / columns;
  for (std::size_t r = 1; r < count; ++r)
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(r * columns), classes,
                rows.begin() + static_cast<std::ptrdiff_t>(r * classes));
  rows.resize(count * classes);
  return rows;
}

Evaluation Session::evaluate(std::int64_t batches) {
  if (trains() && workload_.in_use) return evaluate_in(options_.dtype, batches);
  const std::optional<std::int64_t> all = data_->validation_samples();
  if (all == 0) throw UsageError("{}: nothing of it is held out for validation", options_.data);
  if (batches == 0 && !all)
    throw UsageError("{} never end: say how many batches, by --eval-batches", data_->description());
  const std::int64_t size = workload_.batch_size;
  std::int64_t samples = batches == 0 ? *all : batches * size;
  // Windows of tokens come again after the last, and are whole batches.
  if (data_->has_labels())
    samples = std::min(samples, *all);
  else
    samples = std::max<std::int64_t>(1, samples / size) * size;
  return evaluate_samples(0, samples);
}

Evaluation Session::evaluate_samples(std::int64_t first_batch, std::int64_t samples,
                                     const BatchSeen& seen) {
  Evaluation found{.samples = samples};
  if (data_->has_labels()) found.right = 0;
  const std::int64_t own = options_.rank_batch_size(), size = own * device_.ranks();
  const bool each_alone = data_->has_labels() || options_.sums_pairwise();
  for (std::int64_t done = 0, batch = first_batch; done < samples; done += size, ++batch) {
    fed_ = false;
    feed_step(Split::validation, static_cast<std::uint64_t>(batch));
    executor_->run(Phase::forward);
    if (data_->has_labels()) {
      const std::span labels(reinterpret_cast<const std::int32_t*>(targets_.data()),
                             targets_.size() / sizeof(std::int32_t));
      const std::int64_t rows = std::min(size, samples - done) - device_.rank() * own;
      add_rows(found, logits(), labels, std::clamp<std::int64_t>(rows, 0, own));
    } else {
      found.loss +=
          executor_->read_scalar(built_.model.loss) * static_cast<double>(each_alone ? own : size);
    }
    if (seen) seen(batch, input_);
  }
  if (each_alone) add_other_ranks(found, device_.communicator());
  found.loss /= static_cast<double>(samples);
  fed_ = false;
  return found;
}

Evaluation Session::evaluate_in(std::string_view dtype, std::int64_t batches) {
  if (!workload_.in_use)
    throw UsageError("{} is evaluated as it is trained, in {}", workload_.info.title,
                     options_.dtype);
  RunOptions in_use = without_schedule(options_in_use(options_));
  in_use.dtype = dtype;
  const auto copy = [this](Graph& graph) { copy_weights(*graph_, *executor_, graph); };
  Session session(workload_.in_use(), in_use, device_, {.initialize = copy, .fixed_input = false});
  return session.evaluate(batches);
}

void Session::save(const std::filesystem::path& path) {
  if (steps_in_flight() != 0)
    throw UsageError("a step is in flight: finish it before a checkpoint is written");
  write_checkpoint(path, options_, steps_done_, *graph_, *executor_, device_.communicator());
}

void Session::resume(const std::filesystem::path& path) {
  first_step_ = steps_done_ = steps_begun_ = read_checkpoint(path, options_, *graph_, *executor_);
}

}  // namespace ridge
