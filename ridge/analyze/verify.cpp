#include "ridge/analyze/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/run/reference.h"
#include "ridge/session/devices.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

// Reads what a step computes while its memory is still there: logits after the forward pass,
// gradients before the optimizer.
class StepReader final : public Observer {
 public:
  explicit StepReader(Session& session) : session_(session) { session.executor().observe(*this); }
  ~StepReader() override { session_.executor().forget(*this); }

  void on_phase(Phase phase, Clock::time_point, Clock::time_point) override {
    Executor& executor = session_.executor();
    if (phase == Phase::forward) logits = executor.read_floats(session_.model().logits);
    if (phase != Phase::backward) return;
    const TrainingStep& step = session_.training();
    const float scale = session_.gradient_scale();
    gradients.clear();
    for (const Value& g : step.accumulators.empty() ? step.gradients : step.accumulators) {
      gradients.push_back(read(executor, g));
      for (float& element : gradients.back()) element /= scale;
    }
  }

  std::vector<float> logits;
  std::vector<std::vector<float>> gradients;  // empty: one that no optimizer waits for

 private:
  static std::vector<float> read(Executor& executor, Value gradient) {
    try {
      return executor.read_floats(gradient);
    } catch (const UsageError&) {
      return {};
    }
  }

  Session& session_;
};

template <class T>
double norm(const std::vector<T>& x) {
  double sum = 0;
  for (const T v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

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

// So that it is larger than any other error.
double infinite_if_nan(double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

// The norm of the difference over that of `want`, or over `least` if that is more.
double relative_error(const std::vector<float>& got, const std::vector<double>& want,
                      double least = 0) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - want[i];
    sum += d * d;
  }
  const double size = std::max(norm(want), least);
  return infinite_if_nan(size > 0 ? std::sqrt(sum) / size : std::sqrt(sum));
}

bool is_cut(const std::vector<float>& got, const std::vector<double>& want) {
  const double have = norm(got);
  return got.empty() || !std::isfinite(have) || (have == 0 && norm(want) > 0);
}

std::string failure_of(const Verdict& v) {
  const Tolerance& limit = v.limit;
  if (!v.cut.empty())
    return fmt::format("{} parameter{} without gradient, the first {}", v.cut.size(),
                       v.cut.size() == 1 ? "" : "s", v.cut.front());
  const auto beyond = [](std::string_view what, double error, double most) {
    return error <= most ? std::string()
                         : fmt::format("{} off by {:.1e}, limit {:.0e}", what, error, most);
  };
  for (const std::string& failure :
       {beyond("loss", v.loss_error, limit.loss), beyond("logits", v.logits_error, limit.logits),
        beyond("gradient of " + v.worst_parameter, v.gradient_error, limit.gradient),
        beyond("loss curve", v.curve_error, limit.curve)})
    if (!failure.empty()) return failure;
  return "";
}

// The root mean square of all elements of all gradients.
double gradient_rms(const Reference& reference) {
  double squares = 0, elements = 0;
  for (const std::vector<double>& gradient : reference.gradients) {
    squares += norm(gradient) * norm(gradient);
    elements += static_cast<double>(gradient.size());
  }
  return elements > 0 ? std::sqrt(squares / elements) : 0;
}

// A gradient that is 0 but for rounding, as that of a bias is which the next batch norm takes away
// again, is held against a fiftieth of what gradients are in the mean.
void compare_gradients(const Reference& reference, const StepReader& step, Verdict& verdict) {
  const double least = gradient_rms(reference) / 50;
  for (std::size_t i = 0; i < reference.gradients.size(); ++i) {
    if (is_cut(step.gradients[i], reference.gradients[i]))
      verdict.cut.push_back(reference.parameters[i]);
    const double error =
        relative_error(step.gradients[i], reference.gradients[i],
                       least * std::sqrt(static_cast<double>(reference.gradients[i].size())));
    if (error > verdict.gradient_error) {
      verdict.gradient_error = error;
      verdict.worst_parameter = reference.parameters[i];
    }
  }
}

double curve_difference(const std::vector<double>& got, const std::vector<double>& want) {
  double most = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    most = std::max(most, infinite_if_nan(std::abs(got[i] - want[i])));
  return most;
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

std::vector<VerifiedSchedule> verified_schedules(Use use) {
  std::vector<VerifiedSchedule> all;
  for (const ScheduleRow& row : schedules())
    if (&row == &schedules().front() || !row.passes.empty())
      all.push_back(schedule_named(row.name));
  const std::string_view baseline = schedules().front().name;
  for (const Pass& pass : passes())
    if (pass.chosen_by == ChosenBy::schedule && (!pass.use || *pass.use == use))
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

RunOptions verified_in(RunOptions options, std::string_view dtype) {
  options.dtype = dtype;
  options.loss_scale = 8192;
  return options;
}

Reference::Reference(RunOptions options, Device& device) : options_(options) {
  options_.gradient_accumulation_steps = options.gradient_accumulation_steps = 1;
  schedule_named(schedules().front().name).apply_to(options);
  options.dtype = "fp32";
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

std::vector<double> loss_curve(const RunOptions& options, Device& device, std::int64_t steps) {
  Session session(options, device);
  std::vector<double> losses;
  for (std::int64_t i = 0; i < steps; ++i) losses.push_back(session.step().loss);
  return losses;
}

Baseline baseline_of(const Reference& reference, const std::string& dtype, Device& device,
                     std::int64_t steps) {
  RunOptions options = verified_in(reference.options(), dtype);
  schedule_named(schedules().front().name).apply_to(options);
  Baseline baseline{.curve = loss_curve(options, device, steps)};
  const Tolerance limit = tolerance_of(options.network, options.precision());
  const std::string measured = limit.baseline.empty() ? dtype : std::string(limit.baseline);
  const Verdict v1 =
      verify(reference, schedule_named(schedules().front().name), measured, device, {});
  baseline.loss_error = v1.loss_error;
  baseline.logits_error = v1.logits_error;
  baseline.gradient_error = v1.gradient_error;
  return baseline;
}

Verdict verify(const Reference& reference, const VerifiedSchedule& schedule,
               const std::string& dtype, Device& device, const Baseline& baseline,
               const Sabotage& sabotage) {
  const std::vector<double>& curve = baseline.curve;
  RunOptions options = reference.options();
  schedule.apply_to(options);
  options = verified_in(options, dtype);
  Verdict verdict{.network = options.network,
                  .configuration = workload_of(options).info.description,
                  .schedule = schedule.name,
                  .dtype = options.dtype,
                  .limit = tolerance_of(options.network, options.precision())};
  Session session(options, device, {.rewrite = sabotage});
  std::vector<double> losses;
  {
    StepReader reader(session);
    losses.push_back(session.step().loss);
    verdict.logits_error = relative_error(reader.logits, reference.logits);
    compare_gradients(reference, reader, verdict);
  }
  verdict.loss_error =
      infinite_if_nan(std::abs(losses[0] - reference.loss) / std::abs(reference.loss));
  // The further steps run unobserved, as in training: prepared or captured where the schedule is.
  while (losses.size() < curve.size()) losses.push_back(session.step().loss);
  verdict.curve_error = curve_difference(losses, curve);
  Tolerance& limit = verdict.limit;
  limit.loss = std::max(limit.loss, limit.times_baseline * baseline.loss_error);
  limit.logits = std::max(limit.logits, limit.times_baseline * baseline.logits_error);
  limit.gradient = std::max(limit.gradient, limit.times_baseline * baseline.gradient_error);
  verdict.failure = failure_of(verdict);
  return verdict;
}

}  // namespace ridge
