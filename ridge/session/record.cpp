#include "ridge/session/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ridge/base/system.h"
#include "ridge/base/thread_pool.h"
#include "ridge/base/version.h"
#include "ridge/session/belief.h"
#include "ridge/session/json.h"
#include "ridge/session/published.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr double bytes_per_mb = 1e6;

double megabytes(double bytes) { return bytes / bytes_per_mb; }
double megabytes(std::size_t bytes) { return megabytes(static_cast<double>(bytes)); }

bool is_recorded(const Record& record, std::size_t step) {
  return std::ranges::find(record.recorded, step) != record.recorded.end();
}

std::vector<StepReport> without(const Record& record, bool warmup, bool recorded) {
  std::vector<StepReport> steps;
  for (std::size_t i = 0; i < record.steps.size(); ++i)
    if (!(warmup && static_cast<std::int64_t>(i) < record.warmup_steps) &&
        !(recorded && is_recorded(record, i)))
      steps.push_back(record.steps[i]);
  return steps;
}

// The steps that averages are taken over.
std::vector<StepReport> counted_steps(const Record& record) {
  for (const auto& [warmup, recorded] : {std::pair{true, true}, {true, false}, {false, false}})
    if (auto steps = without(record, warmup, recorded); !steps.empty()) return steps;
  return {};
}

Statistics statistics_of(const std::vector<StepReport>& steps, double StepReport::*field) {
  std::vector<double> values;
  for (const StepReport& step : steps) values.push_back(step.*field);
  return ridge::statistics_of(values);
}

void summarize_phases(Summary& s, const Record& record, std::vector<StepReport> counted) {
  const auto known = [](std::vector<StepReport>& steps) {
    std::erase_if(steps, [](const StepReport& step) { return !step.has_phases; });
    return !steps.empty();
  };
  s.phases_apart = !known(counted);
  if (s.phases_apart) {
    // The first step loads code.
    counted.assign(record.steps.begin() + (record.steps.empty() ? 0 : 1), record.steps.end());
    if (!known(counted)) return;
  }
  s.phase_steps = std::ssize(counted);
  s.forward = statistics_of(counted, &StepReport::forward_seconds);
  s.backward = statistics_of(counted, &StepReport::backward_seconds);
  s.optimizer = statistics_of(counted, &StepReport::optimizer_seconds);
}

template <class T>
Json known(const std::optional<T>& x) {
  return x ? Json(*x) : Json();
}

Json config_json(const Record& record) {
  Json json = json_of(record.options, record.workload.model_options);
  json["total_parameters"] = record.parameters;
  return json;
}

Json flops_json(const StepCost& cost) {
  Json json = Json::object();
  const std::pair<const char*, Cost> parts[] = {{"forward", cost.forward},
                                                {"backward", cost.backward},
                                                {"optimizer", cost.optimizer},
                                                {"total", cost.total()}};
  for (const auto& [name, part] : parts) {
    json[name] = part.flops;
    json[std::string(name) + "_causal"] = part.causal_flops;
  }
  return json;
}

// A field of every step, also of those left out of averages.
Json series(const Record& record, double StepReport::*field, bool of_phases = false) {
  Json values = Json::array();
  for (const StepReport& step : record.steps)
    values.push_back(of_phases && !step.has_phases ? Json() : Json(step.*field));
  return values;
}

Json validation_json(const Record& record) {
  Json losses = Json::array();
  for (const Validation& v : record.validation) {
    Json& entry = losses.emplace_back();
    entry = {{"step", v.step}, {"loss", v.evaluation.loss}};
    if (v.evaluation.right) entry["accuracy"] = v.evaluation.accuracy();
  }
  return losses;
}

Json memory_json(const TensorBytes& use) {
  return {{"parameters", use.parameters},
          {"packed_weights", use.packed},
          {"gradients", use.gradients},
          {"optimizer_state", use.optimizer_state},
          {"intermediates", use.intermediates},
          {"workspace", use.workspace},
          {"inputs", use.inputs}};
}

Json summary_json(const Record& record, const Summary& s) {
  const auto of_phase = [&](double seconds) { return s.phase_steps > 0 ? Json(seconds) : Json(); };
  Json json = {{"outcome", name_of(record.outcome)},
               {"first_step", record.steps.empty() ? 0 : record.steps.front().step},
               {"last_step", record.steps.empty() ? 0 : record.steps.back().step},
               {"steps_left_out_of_averages", s.steps_left_out},
               {"recorded_steps_left_out", s.recorded_left_out},
               {"total_samples", s.total_samples},
               {"total_seconds", record.seconds},
               {"compile_seconds", record.compile_seconds},
               {"avg_training_speed", s.samples_per_second},
               {"samples_per_second", s.samples_per_second},
               {"avg_batch_time", s.step.mean},
               {"avg_device_time", s.device.mean},
               {"avg_forward_time", of_phase(s.forward.mean)},
               {"avg_backward_time", of_phase(s.backward.mean)},
               {"avg_optimizer_time", of_phase(s.optimizer.mean)},
               {"phases_timed_one_after_the_other", s.phases_apart},
               {"updates_in_backward", record.updates_in_backward},
               {"median_batch_time", s.step.median},
               {"std_batch_time", s.step.std_dev},
               {"variation", s.device.variation()},
               {"min_batch_time", s.step.min},
               {"max_batch_time", s.step.max},
               {"p90_device_time", known(s.p90)},
               {"p95_device_time", known(s.p95)},
               {"p99_device_time", known(s.p99)},
               {"peak_memory_mb", megabytes(record.peak_tensor_bytes)},
               {"peak_memory_bytes", record.peak_tensor_bytes},
               {"avg_memory_mb", megabytes(record.mean_tensor_bytes)},
               {"memory_at_peak_bytes", memory_json(record.at_peak)},
               {"reserved_memory_bytes", record.reserved_bytes},
               {"tensor_allocations", record.tensor_allocations},
               {"peak_resident_mb", megabytes(static_cast<double>(record.peak_resident_bytes))},
               {"peak_resident_bytes", record.peak_resident_bytes}};
  if (record.workload.tokens_per_sample > 0) json["avg_tokens_per_second"] = s.tokens_per_second;
  if (record.cost) {
    json["flops_per_step"] = flops_json(*record.cost);
    json["macs_per_step"] = record.cost->total().macs;
    json["achieved_gflops"] = s.flops_per_second / 1e9;
    json["achieved_gflops_causal"] = s.causal_flops_per_second / 1e9;
  }
  json["final_loss"] = record.steps.empty() ? Json() : Json(record.steps.back().loss);
  if (!record.steps.empty() && record.steps.back().next_loss_scale) {
    json["final_loss_scale"] = *record.steps.back().next_loss_scale;
    json["skipped_steps"] = skipped_steps(record);
  }
  json["losses"] = series(record, &StepReport::loss);
  json["step_seconds"] = series(record, &StepReport::seconds);
  json["device_seconds"] = series(record, &StepReport::device_seconds);
  json["forward_seconds"] = series(record, &StepReport::forward_seconds, true);
  json["backward_seconds"] = series(record, &StepReport::backward_seconds, true);
  json["optimizer_seconds"] = series(record, &StepReport::optimizer_seconds, true);
  json["recorded_steps"] = record.recorded;
  json["validation_losses"] = validation_json(record);
  return json;
}

// What the workshop's files have, and the sizes of this workload's samples.
Json training_json(const Record& record) {
  constexpr std::string_view names[] = {"mode",
                                        "batch-size",
                                        "num-steps",
                                        "gradient-accumulation-steps",
                                        "optimizer",
                                        "learning-rate",
                                        "lr-schedule",
                                        "lr-warmup-steps",
                                        "min-learning-rate",
                                        "weight-decay",
                                        "beta1",
                                        "beta2",
                                        "adam-eps",
                                        "momentum",
                                        "max-grad-norm",
                                        "dtype",
                                        "seed",
                                        "data",
                                        "warmup-steps"};
  Json json = json_of(record.options, names);
  json.update(json_of(record.options, record.workload.sample_options()));
  return json;
}

// What a comparison holds one step against another by: {"hidden_dim": 256, .., "batch_size": 8}.
Json work_json(const Record& record) {
  constexpr std::string_view names[] = {"batch-size", "gradient-accumulation-steps", "mode"};
  Json json = json_of(record.options, record.workload.work_options);
  json.update(json_of(record.options, names));
  return json;
}

Json system_json(const SystemInfo& system) {
  return {{"host", system.host},         {"os", system.os},
          {"cpu", system.cpu},           {"device", system.device},
          {"threads", system.threads},   {"memory_bytes", system.memory_bytes},
          {"compiler", system.compiler}, {"ridge_version", system.ridge_version}};
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  constexpr std::string_view names[] = {"completed", "interrupted", "diverged", "failed"};
  return names[static_cast<int>(outcome)];
}

SystemInfo system_info(const Device& device, const RunOptions& options) {
  return {.host = host_name(),
          .os = system_name(),
          .cpu = processor_name(),
          .device = device.name(),
          .compiler = compiler_name(),
          .ridge_version = std::string(version()),
          .threads = options.threads > 0 ? options.threads : available_processors(),
          .memory_bytes = device.total_memory()};
}

Record new_record(Session& session) {
  const RunOptions& o = session.options();
  Record record{.options = o,
                .system = system_info(session.device(), o),
                .timestamp = utc_timestamp(),
                .workload = session.workload().info,
                .parameters = session.parameters(),
                .samples_per_step = o.samples_per_step(),
                .cost = cost_of_step(session.graph(), o.batches_per_step() * o.ranks),
                .compile_seconds = session.compile_seconds(),
                .updates_in_backward = session.executor().updates_in_backward(),
                .warmup_steps = o.warmup_steps};
  note_memory(record, session);
  return record;
}

void note_memory(Record& record, const Session& session) {
  const Executor& executor = session.executor();
  record.peak_tensor_bytes = std::max(record.peak_tensor_bytes, executor.memory().peak_live);
  record.mean_tensor_bytes = executor.memory_plan().mean_bytes;
  record.at_peak = executor.memory_plan().at_peak;
  record.reserved_bytes = executor.memory().reserved;
  record.tensor_allocations = executor.memory().allocations;
  record.peak_resident_bytes = peak_resident_bytes();
}

std::int64_t skipped_steps(const Record& record) {
  return std::ranges::count(record.steps, true, &StepReport::skipped);
}

Summary summarize(const Record& record) {
  Summary s;
  s.steps = std::ssize(record.steps);
  s.total_samples = s.steps * record.samples_per_step;
  const std::vector<StepReport> counted = counted_steps(record);
  if (counted.empty()) return s;
  s.steps_left_out = s.steps > record.warmup_steps ? record.warmup_steps : 0;
  s.recorded_left_out = s.steps - s.steps_left_out - std::ssize(counted);
  s.step = statistics_of(counted, &StepReport::seconds);
  s.device = statistics_of(counted, &StepReport::device_seconds);
  summarize_phases(s, record, counted);
  std::vector<double> device;
  for (const StepReport& step : counted) device.push_back(step.device_seconds);
  s.p90 = tail_percentile(device, 0.90);
  s.p95 = tail_percentile(device, 0.95);
  s.p99 = tail_percentile(device, 0.99);
  const double mean = record.by_device ? s.device.mean : s.step.mean;
  if (mean <= 0) return s;
  s.samples_per_second = static_cast<double>(record.samples_per_step) / mean;
  s.tokens_per_second =
      s.samples_per_second * static_cast<double>(record.workload.tokens_per_sample);
  if (record.cost) {
    const Cost total = record.cost->total();
    s.flops_per_second = static_cast<double>(total.flops) / mean;
    s.causal_flops_per_second = static_cast<double>(total.causal_flops) / mean;
    s.macs_per_second = static_cast<double>(total.macs) / mean;
  }
  return s;
}

Json json_of(const Record& record, const Summary& summary) {
  const WorkloadInfo& workload = record.workload;
  Json json = {{"schema", "ridge-record-1"},
               {"version", record.options.version},
               {"workload", workload.name},
               {"title", workload.title},
               {"description", workload.description},
               {"sample", workload.sample},
               {"samples_per_step", record.samples_per_step},
               {"timestamp", record.timestamp},
               {"config", config_json(record)},
               {"training_params", training_json(record)},
               {"work", work_json(record)},
               {"performance_summary", summary_json(record, summary)},
               {"options", json_of(record.options)},
               {"system_info", system_json(record.system)}};
  const auto published = published_run(record.options);
  json["published"] = published ? json_of(*published) : Json();
  json["belief"] = json_of(belief_of(record, summary));
  if (workload.tokens_per_sample > 0) json["tokens_per_sample"] = workload.tokens_per_sample;
  return json;
}

std::string record_json(const Record& record, const Summary& summary) {
  return text_of(json_of(record, summary));
}

std::string times_csv(const Record& record) {
  std::string csv = "step,loss,seconds,recorded\n";
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    if (static_cast<std::int64_t>(i) < record.warmup_steps) continue;
    const StepReport& step = record.steps[i];
    fmt::format_to(std::back_inserter(csv), "{},{},{},{}\n", step.step, step.loss,
                   step.device_seconds, is_recorded(record, i) ? 1 : 0);
  }
  return csv;
}

}  // namespace ridge
