#include "ridge/bench/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ridge/base/units.h"

namespace ridge {
namespace {

constexpr std::string_view rule = "========================================";

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

bool is_recorded(const BenchRecord& record, std::size_t iteration) {
  return std::ranges::find(record.recorded, iteration) != record.recorded.end();
}

std::vector<double> counted_seconds(const BenchRecord& record) {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < record.seconds.size(); ++i)
    if (!is_recorded(record, i)) seconds.push_back(record.seconds[i]);
  return seconds.empty() ? record.seconds : seconds;
}

double megabytes(std::size_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

BenchSummary summarize(const BenchOptions& options, const BenchRecord& record) {
  const std::vector<double> seconds = counted_seconds(record);
  BenchSummary summary{.iteration = statistics_of(seconds),
                       .left_out = record.seconds.size() - seconds.size()};
  summary.p90 = tail_percentile(seconds, 0.90);
  summary.p95 = tail_percentile(seconds, 0.95);
  summary.p99 = tail_percentile(seconds, 0.99);
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const auto samples =
      static_cast<double>(options.batch_size) * static_cast<double>(seconds.size());
  if (total > 0) {
    summary.samples_per_second = samples / total;
    summary.flops_per_second = 2.0 * static_cast<double>(record.macs) * samples / total;
  }
  return summary;
}

std::string summary_text(const BenchOptions& options, const BenchRecord& record,
                         const BenchSummary& summary, bool on_gpu) {
  const Statistics& time = summary.iteration;
  std::string text;
  const auto line = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... arguments) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(arguments)...);
    text += '\n';
  };
  line("{}\nPerformance Summary:\n{}", rule, rule);
  line("Network: {}", options.network);
  line("Batch size: {}", options.batch_size);
  line("Iterations: {} (excluding warmup{})", time.count,
       summary.left_out > 0 ? fmt::format(" and {} that were recorded", summary.left_out) : "");
  line("Precision: {}", upper(options.dtype));
  line("");
  line("Average time per iteration: {:.4f} seconds", time.mean);
  line("Standard deviation: {:.4f} seconds", time.std_dev);
  line("Throughput: {:.1f} samples/sec", summary.samples_per_second);
  line("{} Memory Usage: {:.0f} MB", on_gpu ? "GPU" : "Tensor",
       megabytes(record.peak_tensor_bytes));
  line("");
  line("Images per second: {:.1f}", summary.samples_per_second);
  line("Milliseconds per batch: {:.3f}", 1e3 * time.mean);
  line("Microseconds per sample: {:.1f}",
       1e6 * time.mean / static_cast<double>(options.batch_size));
  line("Median: {:.3f} ms, fastest {:.3f}, slowest {:.3f}", 1e3 * time.median, 1e3 * time.min,
       1e3 * time.max);
  const auto tail = [&](std::string_view name, const std::optional<double>& seconds) {
    if (seconds) line("{}: {:.3f} ms", name, 1e3 * *seconds);
  };
  tail("p90", summary.p90);
  tail("p95", summary.p95);
  tail("p99", summary.p99);
  line("Products: {:.2f} GMACs an image, {:.2f} TFLOP/s", static_cast<double>(record.macs) / 1e9,
       summary.flops_per_second / 1e12);
  if (options.compile != "none")
    line("Compilation time: {} (mode={})", format_duration(record.compile_seconds),
         options.compile);
  const auto lost =
      std::ranges::find_if_not(record.losses, [](double loss) { return std::isfinite(loss); });
  if (lost != record.losses.end())
    line("Warning: the loss is not finite from iteration {} on: {}", lost - record.losses.begin(),
         options.trains() ? "lower --learning-rate"
                          : "values went beyond the range of the precision");
  if (summary.unsteady())
    line(
        "Warning: the times vary by {:.1f} % (standard deviation over mean; more than {:.1f} % is "
        "much): was the machine busy?",
        100 * time.variation(), 100 * BenchSummary::unsteady_variation);
  text += rule;
  return text;
}

std::string bench_json(const BenchOptions& options, const BenchRecord& record,
                       const BenchSummary& summary, const SystemInfo& system,
                       const std::string& timestamp, const std::string& profile) {
  using nlohmann::ordered_json;
  const auto optional = [](const std::optional<double>& x) {
    return x ? ordered_json(*x) : ordered_json(nullptr);
  };
  const Statistics& time = summary.iteration;
  ordered_json json{
      {"network", options.network},
      {"batch_size", options.batch_size},
      {"iterations", options.iterations},
      {"warmup", options.warmup},
      {"image_size", options.image_size},
      {"dtype", options.dtype},
      {"mode", options.mode},
      {"compile", options.compile},
      {"compile_seconds", record.compile_seconds},
      {"channels_last", options.channels_last},
      {"seed", options.seed},
      {"parameters", record.parameters},
      {"macs", record.macs},
      {"loss", record.losses.empty() ? ordered_json(nullptr) : ordered_json(record.losses.back())},
      {"seconds",
       {{"mean", time.mean},
        {"std_dev", time.std_dev},
        {"variation", time.variation()},
        {"median", time.median},
        {"min", time.min},
        {"max", time.max},
        {"p90", optional(summary.p90)},
        {"p95", optional(summary.p95)},
        {"p99", optional(summary.p99)},
        {"all", record.seconds},
        {"recorded", record.recorded}}},
      {"samples_per_second", summary.samples_per_second},
      {"flops_per_second", summary.flops_per_second},
      {"peak_memory_mb", megabytes(record.peak_tensor_bytes)},
      {"reserved_memory_mb", megabytes(record.reserved_bytes)},
      {"system",
       {{"host", system.host},
        {"os", system.os},
        {"cpu", system.cpu},
        {"device", system.device},
        {"threads", system.threads},
        {"ridge_version", system.ridge_version}}},
      {"timestamp", timestamp},
  };
  if (!profile.empty()) json["profile"] = ordered_json::parse(profile);
  return json.dump(2) + "\n";
}

std::string times_csv(const BenchRecord& record) {
  std::string csv = "iteration,loss,seconds,recorded\n";
  for (std::size_t i = 0; i < record.seconds.size(); ++i)
    fmt::format_to(std::back_inserter(csv), "{},{},{},{}\n", i, record.losses[i], record.seconds[i],
                   is_recorded(record, i) ? 1 : 0);
  return csv;
}

}  // namespace ridge
