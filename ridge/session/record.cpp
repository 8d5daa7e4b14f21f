#include "ridge/session/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ridge/base/system.h"
#include "ridge/base/thread_pool.h"
#include "ridge/base/version.h"
#include "ridge/session/language.h"

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
  const RunOptions& o = record.options;
  if (record.tokens_per_sample == 0)
    return {{"network", record.workload},
            {"image_size", o.image_size},
            {"total_parameters", record.parameters}};
  const LlamaConfig model = llama_config(o);
  return {{"vocab_size", model.vocab_size},
          {"hidden_dim", model.hidden_dim},
          {"n_layers", model.n_layers},
          {"n_heads", model.n_heads},
          {"n_kv_heads", model.n_kv_heads},
          {"intermediate_dim", model.intermediate_dim},
          {"norm_eps", o.norm_eps},
          {"rope_theta", o.rope_theta},
          {"tie_embeddings", model.tie_embeddings},
          {"total_parameters", record.parameters}};
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
               {"avg_tokens_per_second", s.tokens_per_second},
               {"avg_batch_time", s.step.mean},
               {"avg_device_time", s.device.mean},
               {"avg_forward_time", of_phase(s.forward.mean)},
               {"avg_backward_time", of_phase(s.backward.mean)},
               {"avg_optimizer_time", of_phase(s.optimizer.mean)},
               {"phases_timed_one_after_the_other", s.phases_apart},
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

Json training_json(const RunOptions& o) {
  return {{"mode", o.mode},
          {"batch_size", o.batch_size},
          {"seq_len", o.seq_len},
          {"num_steps", o.num_steps},
          {"gradient_accumulation_steps", o.gradient_accumulation_steps},
          {"optimizer", o.optimizer},
          {"learning_rate", o.learning_rate},
          {"lr_schedule", o.lr_schedule},
          {"lr_warmup_steps", o.lr_warmup_steps},
          {"min_learning_rate", o.min_learning_rate},
          {"weight_decay", o.weight_decay},
          {"beta1", o.beta1},
          {"beta2", o.beta2},
          {"adam_eps", o.adam_eps},
          {"momentum", o.momentum},
          {"max_grad_norm", o.max_grad_norm},
          {"dtype", o.dtype},
          {"seed", o.seed},
          {"data", o.data},
          {"warmup_steps", o.warmup_steps}};
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
  const std::int64_t batches =
      o.use() == Use::training ? o.gradient_accumulation_steps : std::int64_t{1};
  Record record{.options = o,
                .system = system_info(session.device(), o),
                .timestamp = utc_timestamp(),
                .workload = session.workload().name,
                .title = session.workload().title,
                .parameters = session.parameters(),
                .samples_per_step = session.workload().batch_size * batches,
                .tokens_per_sample = session.workload().tokens_per_sample,
                .cost = cost_of_step(session.graph(), batches),
                .compile_seconds = session.compile_seconds(),
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
  s.tokens_per_second = s.samples_per_second * static_cast<double>(record.tokens_per_sample);
  if (record.cost) {
    const Cost total = record.cost->total();
    s.flops_per_second = static_cast<double>(total.flops) / mean;
    s.causal_flops_per_second = static_cast<double>(total.causal_flops) / mean;
    s.macs_per_second = static_cast<double>(total.macs) / mean;
  }
  return s;
}

std::string record_json(const Record& record, const Summary& summary, const std::string& profile) {
  Json json = {{"schema", "ridge-record-1"},
               {"version", record.options.version},
               {"workload", record.workload},
               {"timestamp", record.timestamp},
               {"config", config_json(record)},
               {"training_params", training_json(record.options)},
               {"performance_summary", summary_json(record, summary)},
               {"options", Json::parse(to_json(record.options))},
               {"system_info", system_json(record.system)}};
  if (!profile.empty()) json["profile"] = Json::parse(profile);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
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
