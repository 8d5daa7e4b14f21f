#pragma once

// Runs as a store keeps them, without running anything: of the shape and the size of real ones.

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "ridge/study/run_row.h"
#include "ridge/study/utc.h"

namespace ridge::testing {

struct MadeRun {
  std::string workload = "tiny_llama", mode = "training", version = "v1", dtype = "fp32";
  std::string device = "cpu", gpu = {}, commit = "c0ffee", outcome = "completed", host = "h";
  std::int64_t created = 1'790'000'000;  // 2026-09-21T14:13:20Z
  std::int64_t batch_size = 8, seq_len = 128, image_size = 0, hidden_dim = 256, seed = 42;
  double median_seconds = 0.1;
  std::int64_t peak_bytes = 1'000'000;
  std::size_t steps = 4;
  bool diverged = false;
};

inline nlohmann::ordered_json record_of(const MadeRun& run) {
  using Json = nlohmann::ordered_json;
  const bool network = run.image_size > 0;
  const double samples = static_cast<double>(run.batch_size) / run.median_seconds;
  Json losses = Json::array(), seconds = Json::array();
  for (std::size_t step = 0; step < run.steps; ++step) {
    losses.push_back(7.0 - 0.0078125 * static_cast<double>(step));
    seconds.push_back(run.median_seconds * (1 + 0.001 * static_cast<double>(step % 7)));
  }
  Json summary{{"outcome", run.outcome},
               {"samples_per_second", samples},
               {"avg_tokens_per_second", network ? 0 : samples * static_cast<double>(run.seq_len)},
               {"median_batch_time", run.median_seconds},
               {"min_batch_time", 0.9 * run.median_seconds},
               {"max_batch_time", 1.1 * run.median_seconds},
               {"variation", 0.01},
               {"peak_memory_bytes", run.peak_bytes},
               {"flops_per_step", {{"total", 1'000'000 * run.batch_size}}},
               {"final_loss", run.diverged ? Json() : Json(6.5)},
               {"losses", losses},
               {"step_seconds", seconds},
               {"device_seconds", seconds}};
  Json config{{"total_parameters", 2'873'600}};
  if (network)
    config["image_size"] = run.image_size;
  else
    config["hidden_dim"] = run.hidden_dim;
  return {{"schema", "ridge-record-1"},
          {"version", run.version},
          {"workload", run.workload},
          {"timestamp", utc_text(run.created)},
          {"config", config},
          {"training_params",
           {{"mode", run.mode},
            {"batch_size", run.batch_size},
            {"seq_len", run.seq_len},
            {"dtype", run.dtype},
            {"data", ""}}},
          {"performance_summary", summary},
          {"options",
           {{"network", run.workload},
            {"mode", run.mode},
            {"batch-size", run.batch_size},
            {"seq-len", run.seq_len},
            {"dtype", run.dtype},
            {"version", run.version},
            {"seed", run.seed},
            {"deterministic", false},
            {"hidden-dim", run.hidden_dim},
            {"learning-rate", 1e-4}}},
          {"system_info",
           {{"host", run.host},
            {"os", "Linux"},
            {"cpu", "AMD EPYC"},
            {"device", run.device},
            {"threads", 2},
            {"compiler", "gcc 12.2.0"},
            {"ridge_version", "0.1.0"}}}};
}

inline RunDocument document_of(const MadeRun& run, std::vector<std::string> tags = {}) {
  nlohmann::ordered_json context{
      {"machine", {{"cpu", "AMD EPYC"}, {"cores", 2}, {"libraries", {{"oneDNN", "3.7.0"}}}}},
      {"program", {{"version", "0.1.0"}, {"commit", run.commit}, {"binary", "0123456789abcdef"}}},
      {"kernels_per_step", 293}};
  if (!run.gpu.empty()) {
    context["machine"]["gpu"] = run.gpu;
    context["machine"]["gpu_uuid"] = "GPU-1";
    context["machine"]["driver"] = "580.1";
  }
  return {.tags = std::move(tags), .record = record_of(run).dump(2), .context = context.dump()};
}

// The least profile of a run that a page can be made of, with one operator of a name.
inline std::string profile_of_nothing(const std::string& name) {
  const nlohmann::ordered_json work{
      {"calls", 1}, {"time_ns", 5e5}, {"flops", 10}, {"bytes_read", 8}, {"bytes_written", 8}};
  nlohmann::ordered_json profile{{"profile", name},
                                 {"operators",
                                  {{"steps", 1},
                                   {"first_step", 1},
                                   {"last_step", 1},
                                   {"step_time_ns", 1e6},
                                   {"between_operators_ns", 0},
                                   {"outside_phases_ns", 0},
                                   {"rows", {{{"name", name}, {"total", work}}}}}},
                                 {"roof", nullptr}};
  for (const char* file : {"nodes", "modules", "memory", "memory_timeline", "bottlenecks",
                           "performance_summary", "config"})
    profile[file] = nullptr;
  return profile.dump();
}

}  // namespace ridge::testing
