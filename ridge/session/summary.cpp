#include "ridge/session/summary.h"

#include <nlohmann/json.hpp>

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr double bytes_per_mb = 1e6;

Statistics statistics_of(std::span<const StepReport> steps, double StepReport::*field) {
  std::vector<double> values;
  for (const StepReport& step : steps) values.push_back(step.*field);
  return ridge::statistics_of(values);
}

double megabytes(double bytes) { return bytes / bytes_per_mb; }

Json model_json(const TrainOptions& options) {
  const LlamaConfig model = options.model();
  return {{"vocab_size", model.vocab_size},
          {"hidden_dim", model.hidden_dim},
          {"n_layers", model.n_layers},
          {"n_heads", model.n_heads},
          {"n_kv_heads", model.n_kv_heads},
          {"intermediate_dim", model.intermediate_dim},
          {"norm_eps", options.norm_eps},
          {"rope_theta", options.rope_theta},
          {"tie_embeddings", model.tie_embeddings},
          {"total_parameters", model.parameter_count()}};
}

Json training_json(const TrainOptions& o) {
  return {{"batch_size", o.batch_size},
          {"seq_len", o.seq_len},
          {"num_steps", o.num_steps},
          {"gradient_accumulation_steps", o.gradient_accumulation_steps},
          {"learning_rate", o.learning_rate},
          {"lr_schedule", o.lr_schedule},
          {"lr_warmup_steps", o.lr_warmup_steps},
          {"min_learning_rate", o.min_learning_rate},
          {"weight_decay", o.weight_decay},
          {"beta1", o.beta1},
          {"beta2", o.beta2},
          {"adam_eps", o.adam_eps},
          {"max_grad_norm", o.max_grad_norm},
          {"dtype", o.dtype},
          {"seed", o.seed},
          {"data", o.data},
          {"warmup_steps", o.warmup_steps}};
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

Json losses_json(const RunRecord& record) {
  Json losses = Json::array();
  for (const StepReport& step : record.steps) losses.push_back(step.loss);
  return losses;
}

// Seconds of every step, those that the averages leave out too.
Json times_json(const RunRecord& record, double StepReport::*field) {
  Json times = Json::array();
  for (const StepReport& step : record.steps) times.push_back(step.*field);
  return times;
}

Json validation_json(const RunRecord& record) {
  Json losses = Json::array();
  for (const ValidationLoss& v : record.validation)
    losses.push_back({{"step", v.step}, {"loss", v.loss}});
  return losses;
}

Json summary_json(const RunRecord& record, const PerformanceSummary& s) {
  Json json = {{"outcome", name_of(record.outcome)},
               {"first_step", record.steps.empty() ? 0 : record.steps.front().step},
               {"last_step", record.steps.empty() ? 0 : record.steps.back().step},
               {"steps_left_out_of_averages", s.steps_left_out},
               {"total_samples", s.total_samples},
               {"total_seconds", record.seconds},
               {"avg_training_speed", s.samples_per_second},
               {"avg_tokens_per_second", s.tokens_per_second},
               {"avg_batch_time", s.step.mean},
               {"avg_forward_time", s.forward.mean},
               {"avg_backward_time", s.backward.mean},
               {"avg_optimizer_time", s.optimizer.mean},
               {"median_batch_time", s.step.median},
               {"std_batch_time", s.step.std_dev},
               {"min_batch_time", s.step.min},
               {"max_batch_time", s.step.max},
               {"peak_memory_mb", megabytes(static_cast<double>(record.peak_tensor_bytes))},
               {"peak_memory_bytes", record.peak_tensor_bytes},
               {"avg_memory_mb", megabytes(s.mean_live_bytes)},
               {"tensor_allocations", record.tensor_allocations},
               {"peak_resident_mb", megabytes(static_cast<double>(record.peak_resident_bytes))},
               {"peak_resident_bytes", record.peak_resident_bytes}};
  if (record.cost) {
    json["flops_per_step"] = flops_json(*record.cost);
    json["achieved_gflops"] = s.flops_per_second / 1e9;
    json["achieved_gflops_causal"] = s.causal_flops_per_second / 1e9;
  }
  json["final_loss"] = record.steps.empty() ? Json() : Json(record.steps.back().loss);
  if (!record.steps.empty() && record.steps.back().next_loss_scale) {
    json["final_loss_scale"] = *record.steps.back().next_loss_scale;
    json["skipped_steps"] = skipped_steps(record);
  }
  json["losses"] = losses_json(record);
  json["step_seconds"] = times_json(record, &StepReport::seconds);
  json["forward_seconds"] = times_json(record, &StepReport::forward_seconds);
  json["backward_seconds"] = times_json(record, &StepReport::backward_seconds);
  json["optimizer_seconds"] = times_json(record, &StepReport::optimizer_seconds);
  json["validation_losses"] = validation_json(record);
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
  switch (outcome) {
    case Outcome::completed:
      return "completed";
    case Outcome::interrupted:
      return "interrupted";
    case Outcome::diverged:
      return "diverged";
    case Outcome::failed:
      return "failed";
  }
  return "unknown";
}

std::int64_t skipped_steps(const RunRecord& record) {
  return std::ranges::count(record.steps, true, &StepReport::skipped);
}

PerformanceSummary summarize(const TrainOptions& options, const RunRecord& record) {
  PerformanceSummary s;
  const std::span<const StepReport> all(record.steps);
  s.steps = static_cast<std::int64_t>(all.size());
  s.steps_left_out = s.steps > options.warmup_steps ? options.warmup_steps : 0;
  const auto samples = options.batch_size * options.gradient_accumulation_steps;
  s.total_samples = s.steps * samples;
  if (all.empty()) return s;

  const auto measured = all.subspan(static_cast<std::size_t>(s.steps_left_out));
  s.step = statistics_of(measured, &StepReport::seconds);
  s.forward = statistics_of(measured, &StepReport::forward_seconds);
  s.backward = statistics_of(measured, &StepReport::backward_seconds);
  s.optimizer = statistics_of(measured, &StepReport::optimizer_seconds);
  for (const StepReport& step : all) s.mean_live_bytes += static_cast<double>(step.live_bytes);
  s.mean_live_bytes /= static_cast<double>(all.size());

  if (s.step.mean <= 0) return s;
  s.samples_per_second = static_cast<double>(samples) / s.step.mean;
  s.tokens_per_second = s.samples_per_second * static_cast<double>(options.seq_len);
  if (record.cost) {
    const Cost total = record.cost->total();
    s.flops_per_second = static_cast<double>(total.flops) / s.step.mean;
    s.causal_flops_per_second = static_cast<double>(total.causal_flops) / s.step.mean;
  }
  return s;
}

std::string performance_json(const TrainOptions& options, const RunRecord& record,
                             const PerformanceSummary& summary, const SystemInfo& system,
                             const std::string& timestamp) {
  const Json json = {{"version", options.version},
                     {"timestamp", timestamp},
                     {"config", model_json(options)},
                     {"training_params", training_json(options)},
                     {"performance_summary", summary_json(record, summary)},
                     {"system_info", system_json(system)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
