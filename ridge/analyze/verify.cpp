#include "ridge/analyze/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/dist/local_ranks.h"
#include "ridge/ops/op.h"
#include "ridge/run/reference.h"
#include "ridge/session/devices.h"
#include "ridge/session/gradient_reader.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

// A right schedule may be this many times as far from v1 as some draws of rounding move v1 itself,
// and its losses more times, since every step amplifies what was before it.
constexpr double times_rounding = 4, times_rounding_of_curve = 16;
// The most that rounding may raise a limit to: a relative error, and a difference of losses.
constexpr double most_by_rounding = 0.1, most_of_curve_by_rounding = 0.5;

using Gradients = std::vector<std::vector<double>>;

// What a value of f32 or i32 holds.
std::vector<double> elements_of(Executor& executor, Value value) {
  const auto count = static_cast<std::size_t>(value.type().numel());
  if (value.dtype() == DType::i32) {
    std::vector<std::int32_t> integers(count);
    executor.read(value, std::span(integers));
    return {integers.begin(), integers.end()};
  }
  const std::vector<float> floats = executor.read_floats(value);
  return {floats.begin(), floats.end()};
}

// Reads what a step computes while its memory is still there: logits after the forward pass,
// gradients before the optimizer.
class StepReader final : public Observer {
 public:
  explicit StepReader(Session& session) : session_(session) { session.executor().observe(*this); }
  ~StepReader() override { session_.executor().forget(*this); }

  void on_phase(Phase phase, Clock::time_point, Clock::time_point) override {
    if (phase != Phase::forward) return;
    const std::vector<float> floats = session_.logits();
    logits.assign(floats.begin(), floats.end());
  }

  std::vector<double> logits;
  Gradients gradients;  // empty: one that no optimizer waits for

 private:
  void read_gradient(std::size_t parameter, Value value, float scale) {
    gradients.resize(session_.training().parameters.size());
    gradients[parameter] = read(session_.executor(), value);
    for (double& element : gradients[parameter]) element /= scale;
  }
  static std::vector<double> read(Executor& executor, Value gradient) {
    try {
      return elements_of(executor, gradient);
    } catch (const UsageError&) {
      return {};
    }
  }

  Session& session_;
  GradientReader reader_{session_, [this](std::size_t parameter, Value value, float scale) {
                           read_gradient(parameter, value, scale);
                         }};
};

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

// So that it is larger than any other error.
double infinite_if_nan(double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

// The norm of the difference over that of `want`, or over `least` if that is more.
double relative_error(const std::vector<double>& got, const std::vector<double>& want,
                      double least = 0) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = got[i] - want[i];
    sum += d * d;
  }
  const double size = std::max(norm(want), least);
  return infinite_if_nan(size > 0 ? std::sqrt(sum) / size : std::sqrt(sum));
}

bool is_cut(const std::vector<double>& got, const std::vector<double>& want) {
  const double have = norm(got);
  return got.empty() || !std::isfinite(have) || (have == 0 && norm(want) > 0);
}

// Why a schedule failed. Where rounding alone moves a result beyond all limits, the configuration
// proves nothing about it, and the failure says so.
std::string failure_of(const Verdict& v, const Distance& rounding) {
  const Tolerance& limit = v.limit;
  if (!v.cut.empty())
    return fmt::format("{} parameter{} without gradient, the first {}", v.cut.size(),
                       v.cut.size() == 1 ? "" : "s", v.cut.front());
  const auto beyond = [](std::string_view what, double error, double most, double by_rounding,
                         double times = times_rounding) {
    if (error <= most) return std::string();
    return fmt::format("{} off by {:.1e}, limit {:.0e}", what, error, most) +
           (times * by_rounding > most && std::isfinite(by_rounding)
                ? fmt::format("; rounding alone moves it by {:.0e}: try a larger batch or input",
                              by_rounding)
                : "");
  };
  for (const std::string& failure :
       {beyond("loss", v.loss_error, limit.loss, rounding.loss),
        beyond("logits", v.logits_error, limit.logits, rounding.logits),
        beyond("gradient of " + v.worst_parameter, v.gradient_error, limit.gradient,
               rounding.gradient),
        beyond("loss curve", v.curve_error, limit.curve, rounding.curve, times_rounding_of_curve)})
    if (!failure.empty()) return failure;
  return "";
}

// The root mean square of all elements of all gradients.
double gradient_rms(const Gradients& gradients) {
  double squares = 0, elements = 0;
  for (const std::vector<double>& gradient : gradients) {
    squares += norm(gradient) * norm(gradient);
    elements += static_cast<double>(gradient.size());
  }
  return elements > 0 ? std::sqrt(squares / elements) : 0;
}

// The relative error of each gradient. One that is 0 but for rounding, as that of a bias is which
// the next batch norm takes away again, is held against a fiftieth of what gradients are in the
// mean.
std::vector<double> gradient_errors(const Gradients& got, const Gradients& want) {
  const double least = gradient_rms(want) / 50;
  std::vector<double> errors;
  for (std::size_t i = 0; i < want.size(); ++i)
    errors.push_back(
        relative_error(got[i], want[i], least * std::sqrt(static_cast<double>(want[i].size()))));
  return errors;
}

void compare_gradients(const Reference& reference, const Gradients& got, Verdict& verdict) {
  const std::vector<double> errors = gradient_errors(got, reference.gradients);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (is_cut(got[i], reference.gradients[i])) verdict.cut.push_back(reference.parameters[i]);
    if (errors[i] <= verdict.gradient_error) continue;
    verdict.gradient_error = errors[i];
    verdict.worst_parameter = reference.parameters[i];
  }
}

double relative_difference(double got, double want) {
  return infinite_if_nan(std::abs(got - want) / std::abs(want));
}

double curve_difference(std::span<const double> got, std::span<const double> want) {
  double most = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    most = std::max(most, infinite_if_nan(std::abs(got[i] - want[i])));
  return most;
}

// See Baseline for what a schedule may be off by beyond the fixed tolerance. A v1 that diverges
// allows nothing: such a configuration proves nothing.
Tolerance limit_of(Tolerance limit, const Baseline& baseline) {
  const auto widen = [](double& most, double allowed) {
    if (std::isfinite(allowed)) most = std::max(most, allowed);
  };
  widen(limit.loss, limit.times_baseline * baseline.error.loss);
  widen(limit.logits, limit.times_baseline * baseline.error.logits);
  widen(limit.gradient, limit.times_baseline * baseline.error.gradient);
  const auto by_rounding = [&](double& most, double allowed, double at_most) {
    if (std::isfinite(allowed)) widen(most, std::min(allowed, at_most));
  };
  const Distance& moved = baseline.rounding;
  by_rounding(limit.loss, times_rounding * moved.loss, most_by_rounding);
  by_rounding(limit.logits, times_rounding * moved.logits, most_by_rounding);
  by_rounding(limit.gradient, times_rounding * moved.gradient, most_by_rounding);
  by_rounding(limit.curve, times_rounding_of_curve * moved.curve, most_of_curve_by_rounding);
  return limit;
}

// What verification looks at of some steps of a run.
struct Steps {
  std::vector<double> losses;
  std::vector<double> logits;  // of the first step
  Gradients gradients;         // of the first step
};

// The steps after the first run unobserved, as in training: prepared or captured where the schedule
// is.
Steps take_steps(Session& session, std::size_t count) {
  Steps steps;
  {
    StepReader reader(session);
    steps.losses.push_back(session.step().loss);
    steps.logits = std::move(reader.logits);
    steps.gradients = std::move(reader.gradients);
  }
  while (steps.losses.size() < count) steps.losses.push_back(session.step().loss);
  return steps;
}

Steps take_steps(const RunOptions& options, Device& device, std::size_t count,
                 const Sabotage& sabotage) {
  Session session(options, device, {.rewrite = sabotage});
  return take_steps(session, count);
}

// What ranks do together: each has the logits of its own samples, and all the same of the rest.
// Where they do not, that is no number.
Steps take_steps_on_ranks(const RunOptions& options, const Device& like, std::size_t count,
                          const Sabotage& sabotage) {
  std::vector<Steps> all(static_cast<std::size_t>(options.ranks));
  const auto ranks = static_cast<int>(options.ranks);
  RunOptions each = options;
  each.device = like.is_gpu() ? gpu_name() : "cpu";
  each.threads = threads_of_rank(ranks);
  const auto open = [&](int rank) { return open_device(each, gpu_of_rank(each, rank)); };
  on_local_ranks(ranks, open, [&](Device& device) {
    all[static_cast<std::size_t>(device.rank())] = take_steps(options, device, count, sabotage);
  });
  Steps steps = all.front();
  steps.logits.clear();
  for (const Steps& rank : all) {
    steps.logits.insert(steps.logits.end(), rank.logits.begin(), rank.logits.end());
    if (rank.losses != steps.losses || rank.gradients != steps.gradients)
      steps.losses.assign(steps.losses.size(), std::nan(""));
  }
  return steps;
}

// With the curves of the first `steps`.
Distance distance(const Steps& got, const Steps& want, std::size_t steps) {
  Distance apart{.loss = relative_difference(got.losses[0], want.losses[0]),
                 .logits = relative_error(got.logits, want.logits),
                 .curve = curve_difference(std::span(got.losses).first(steps),
                                           std::span(want.losses).first(steps))};
  for (const double error : gradient_errors(got.gradients, want.gradients))
    apart.gradient = std::max(apart.gradient, error);
  return apart;
}

Distance most_of(const Distance& a, const Distance& b) {
  return {.loss = std::max(a.loss, b.loss),
          .logits = std::max(a.logits, b.logits),
          .gradient = std::max(a.gradient, b.gradient),
          .curve = std::max(a.curve, b.curve)};
}

// Of how many steps rounding leaves losses that can be compared: those up to a step before so many
// times what moves them is more than all that is allowed; at least two, of which the second is
// after an update. All, if v1 itself comes to no number: that is a failure.
std::size_t comparable_steps(const Steps& plain, const std::vector<Steps>& moved, double times) {
  const std::size_t all = std::min(plain.losses.size(), moved.front().losses.size()),
                    least = std::min<std::size_t>(2, all);
  if (!std::ranges::all_of(plain.losses, [](double loss) { return std::isfinite(loss); }))
    return all;
  for (std::size_t step = least; step < all; ++step)
    for (const Steps& other : moved)
      if (!(times * std::abs(other.losses[step] - plain.losses[step]) <= most_of_curve_by_rounding))
        return std::max(least, step - 1);
  return all;
}

// The scale below which an overflow is the model's own.
constexpr double least_loss_scale = 1;

bool overflows(const Gradients& gradients) {
  return std::ranges::any_of(gradients, [](const std::vector<double>& gradient) {
    return !std::isfinite(norm(gradient));
  });
}

// The distance from 1 to the next number.
double epsilon_of(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0x1p-23;
}

// Moves each weight up or down by such a part of itself, by draws of a seed.
void nudge_weights(Session& session, std::uint64_t seed, double part) {
  Graph& graph = session.graph();
  for (const Value& parameter : graph.parameters()) {
    std::vector<float> weights = session.executor().read_floats(parameter);
    const std::uint64_t stream = stream_of(graph.info(parameter.id).name);
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] *=
          static_cast<float>(1 + (uniform_integer(2, seed, stream, i) == 0 ? -part : part));
    session.executor().write(parameter, std::span<const float>(weights));
  }
}

}  // namespace

void VerifiedSchedule::apply_to(RunOptions& options) const {
  options.version = version;
  options.enable_pass = enable_pass;
  options.disable_pass = disable_pass;
  options.recompute = recompute;
}

VerifiedSchedule schedule_named(std::string_view name) {
  constexpr std::string_view recompute = "recompute ";
  const auto next_sign = [&](std::size_t from) {
    return std::min({name.find(" + ", from), name.find(" - ", from), name.size()});
  };
  std::size_t end = next_sign(0);
  VerifiedSchedule schedule{.name = std::string(name), .version = std::string(name.substr(0, end))};
  while (end < name.size()) {
    const bool added = name[end + 1] == '+';
    const std::size_t begin = end + 3;
    end = next_sign(begin);
    const std::string_view part = name.substr(begin, end - begin);
    if (added && part.starts_with(recompute)) {
      schedule.recompute = part.substr(recompute.size());
      continue;
    }
    std::string& passes = added ? schedule.enable_pass : schedule.disable_pass;
    passes += (passes.empty() ? "" : ",") + std::string(pass_named(part).name);
  }
  check({schedule.version, schedule.enable_pass, schedule.disable_pass, schedule.recompute});
  return schedule;
}

std::vector<VerifiedSchedule> verified_schedules(Use use, std::int64_t ranks) {
  std::vector<VerifiedSchedule> all;
  for (const ScheduleRow& row : schedules())
    if (&row == &schedules().front() || !row.passes.empty())
      all.push_back(schedule_named(row.name));
  const std::string_view baseline = schedules().front().name;
  for (const Pass& pass : passes())
    if (pass.chosen_by == ChosenBy::schedule && (!pass.use || *pass.use == use) &&
        (!pass.of_ranks || ranks > 1))
      all.push_back(schedule_named(fmt::format("{} + {}", baseline, pass.name)));
  if (use == Use::inference) return all;
  for (const char* recompute : {"attention", "block"})
    for (const std::string_view row : {baseline, std::string_view("v3")})
      all.push_back(schedule_named(fmt::format("{} + recompute {}", row, recompute)));
  return all;
}

RunOptions small_options(std::string_view network) {
  RunOptions options = default_options(network);
  const WorkloadFamily& family = family_of(network);
  if (family.shrink) family.shrink(options);
  return options;
}

Tolerance tolerance_of(std::string_view network, const Precision& precision) {
  return family_of(network).tolerance(precision);
}

std::vector<std::string> verified_dtypes(const Device& device, Use use) {
  std::vector<std::string> dtypes;
  for (const Precision& precision : precisions()) {
    if (precision.products == Precision::Products::tf32 && !device.is_gpu()) continue;
    RunOptions options;
    options.mode = name_of(use);
    options.dtype = precision.name;
    try {
      check_device(options, device);
      dtypes.emplace_back(precision.name);
    } catch (const UsageError&) {  // not on this device, or not for this use
    }
  }
  return dtypes;
}

std::vector<RunOptions> taken_in(std::string_view dtype, std::vector<RunOptions> models) {
  std::erase_if(models, [&](RunOptions& options) {
    const std::string before = std::exchange(options.dtype, dtype);
    const WorkloadFamily& family = family_of(options.network);
    if (family.adapt) family.adapt(options);
    try {
      options.resolve();
    } catch (const UsageError&) {
      return true;
    }
    options.dtype = before;
    return false;
  });
  return models;
}

RunOptions shared_by_ranks(RunOptions options, const RunOptions& as) {
  options.ranks = as.ranks;
  options.gpus = as.gpus;
  options.ranks_per_gpu = as.ranks_per_gpu;
  options.zero = as.zero;
  options.sync_batch_norm = as.sync_batch_norm;
  options.batch_size = (options.batch_size + as.ranks - 1) / as.ranks * as.ranks;
  options.resolve();
  return options;
}

bool normalizes_by_batch(const RunOptions& options) {
  Graph graph;
  workload_of(options).build(graph, options.precision());
  return std::ranges::any_of(graph.nodes(), [](const Node& node) {
    return std::holds_alternative<BatchNormTrain>(node.op->variant());
  });
}

RunOptions verified_in(RunOptions options, std::string_view dtype, double loss_scale) {
  options.dtype = dtype;
  options.loss_scale = loss_scale;
  return options;
}

Reference::Reference(RunOptions options, Device& device) : options_(options) {
  options_.gradient_accumulation_steps = options.gradient_accumulation_steps = 1;
  schedule_named(schedules().front().name).apply_to(options);
  options.dtype = "fp32";
  options.ranks = 1, options.gpus = 0;
  Session session(options, device);
  Graph& graph = session.graph();
  ReferenceValues fed;
  // Parameters and buffers before the step, and what it is fed after.
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    if (!info.persistent || (info.role != Role::parameter && info.role != Role::buffer)) continue;
    fed[id] = elements_of(session.executor(), graph.value(id));
  }
  for (const Value& p : graph.parameters()) parameters.push_back(graph.info(p.id).name);
  session.step();
  const Model& model = session.model();
  for (const Value& input : {model.input, model.targets, model.step})
    if (input) fed[input.id] = elements_of(session.executor(), input);
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent && !fed.contains(id))
      fed[id].assign(static_cast<std::size_t>(graph.info(id).type.numel()), 1.0);
  ReferenceValues computed = evaluate_reference(graph, std::move(fed));
  loss = computed.at(model.loss.id).front();
  logits = std::move(computed.at(model.logits.id));
  for (const Value& g : session.training().gradients)
    gradients.push_back(std::move(computed.at(g.id)));
}

Baseline baseline_of(const Reference& reference, const std::string& dtype, Device& device,
                     std::int64_t steps) {
  Baseline baseline;
  RunOptions options = verified_in(reference.options(), dtype, baseline.loss_scale);
  schedule_named(schedules().front().name).apply_to(options);
  options.ranks = 1, options.gpus = 0;
  const auto run = [&](std::int64_t count, std::uint64_t seed = 0, DType place = DType::f32) {
    Session session(options, device);
    if (seed > 0) nudge_weights(session, seed, epsilon_of(place));
    return take_steps(session, static_cast<std::size_t>(count));
  };
  const auto moved_by = [&](DType place, std::size_t count) {
    std::vector<Steps> moved;
    for (std::uint64_t draw = 1; draw <= 3; ++draw)
      moved.push_back(run(static_cast<std::int64_t>(count), draw, place));
    return moved;
  };
  if (options.use() == Use::training && options.precision().loss_scaling) {
    while (options.loss_scale > least_loss_scale && overflows(run(1).gradients))
      options.loss_scale /= 2;
    // Others than v1 may come a little further.
    if (options.loss_scale < baseline.loss_scale) options.loss_scale /= 2;
    baseline.loss_scale = options.loss_scale;
  }
  const Steps plain = run(steps);
  baseline.curve = plain.losses;
  // Of inference the results are continuous in the weights, which may be stored as integers there.
  if (options.use() == Use::training) {
    const std::vector<Steps> moved = moved_by(DType::f32, plain.losses.size());
    baseline.curve.resize(comparable_steps(plain, moved, times_rounding_of_curve));
    // Schedules round to 16 bits in other places. Where that alone decides, no loss tells anything.
    // Moved by units of 16 bits, weights go about as far as a right schedule.
    if (const DType compute = options.precision().compute; compute != DType::f32)
      baseline.curve.resize(std::min(
          baseline.curve.size(),
          comparable_steps(plain, moved_by(compute, baseline.curve.size()), times_rounding)));
    for (const Steps& other : moved)
      baseline.rounding = most_of(baseline.rounding, distance(other, plain, baseline.curve.size()));
  }
  const std::string_view other = tolerance_of(options.network, options.precision()).baseline;
  if (!other.empty()) options.dtype = other;
  baseline.error = distance(other.empty() ? plain : run(1),
                            {{reference.loss}, reference.logits, reference.gradients}, 1);
  return baseline;
}

Verdict verify(const Reference& reference, const VerifiedSchedule& schedule,
               const std::string& dtype, Device& device, const Baseline& baseline,
               const Sabotage& sabotage) {
  RunOptions options = reference.options();
  schedule.apply_to(options);
  options = verified_in(options, dtype, baseline.loss_scale);
  Verdict verdict{.network = options.network,
                  .configuration = workload_of(options).info.description,
                  .schedule = schedule.name,
                  .dtype = options.dtype,
                  .curve_steps = static_cast<std::int64_t>(baseline.curve.size())};
  const Steps steps = options.ranks == 1
                          ? take_steps(options, device, baseline.curve.size(), sabotage)
                          : take_steps_on_ranks(options, device, baseline.curve.size(), sabotage);
  verdict.loss_error = relative_difference(steps.losses[0], reference.loss);
  verdict.logits_error = relative_error(steps.logits, reference.logits);
  compare_gradients(reference, steps.gradients, verdict);
  verdict.curve_error = curve_difference(steps.losses, baseline.curve);
  verdict.losses = steps.losses;
  verdict.baseline_losses = baseline.curve;
  verdict.limit = limit_of(tolerance_of(options.network, options.precision()), baseline);
  verdict.failure = failure_of(verdict, baseline.rounding);
  return verdict;
}

}  // namespace ridge
