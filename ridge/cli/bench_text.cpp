#include "ridge/cli/bench_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>

#include "ridge/base/lines.h"
#include "ridge/base/units.h"
#include "ridge/cli/run_text.h"

namespace ridge {
namespace {

constexpr std::string_view rule = "========================================";

// "with 44.7 MB of packed weights": what the sum of memory is made of.
std::string memory_by_use(const TensorBytes& use) {
  std::string text;
  for (const auto& [name, bytes] : use.parts())
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", name,
                        static_cast<double>(bytes) / 1e6);
  return text;
}

// "Sequence" of "sequence".
std::string capitalized(std::string word) {
  word.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(word.front())));
  return word;
}
std::string_view article(std::string_view noun) {
  return std::string_view("aeiou").find(noun.front()) == std::string_view::npos ? "a" : "an";
}

}  // namespace

std::string upper_case(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper;
}

void print_configuration(Terminal& terminal, const BenchRequest& request, const Device& device,
                         std::string_view varied) {
  const RunOptions& o = request.options;
  terminal.line(fmt::format("Using network: {}", o.network));
  if (varied != "batch size") terminal.line(fmt::format("Batch size: {}", o.batch_size));
  terminal.line(fmt::format("Model: {}", workload_of(o).info.description));
  terminal.line(fmt::format("Iterations: {}", o.num_steps));
  if (varied != "precision") {
    if (varied.empty())
      terminal.line(
          fmt::format("FP16: {}", o.precision().compute == DType::f16 ? "True" : "False"));
    terminal.line(fmt::format("Precision: {}", o.dtype));
  }
  terminal.line(fmt::format("Mode: {}", o.mode));
  if (varied != "compile mode") {
    if (schedule_row(o.version).passes.empty())
      terminal.line("Compile: off");
    else
      terminal.line(fmt::format("Compile: ENABLED (mode={})", o.version));
  }
  for (const std::string& note : request.notes) terminal.line("  " + note);
  terminal.line(fmt::format("Device: {}", device.description()));
  terminal.line("");
}

std::string bench_summary_text(const Record& record, const Summary& summary, bool on_gpu) {
  const RunOptions& options = record.options;
  const Statistics& time = summary.device;
  const std::string& sample = record.workload.sample;
  Lines line;
  line("{}\nPerformance Summary:\n{}", rule, rule);
  line("Network: {}", options.network);
  line("Batch size: {}", options.batch_size);
  line("Iterations: {} (excluding warmup{})", time.count,
       summary.recorded_left_out > 0
           ? fmt::format(" and {} that were recorded", summary.recorded_left_out)
           : "");
  line("Precision: {}", upper_case(options.dtype));
  line("");
  line("Average time per iteration: {:.4f} seconds", time.mean);
  line("Standard deviation: {:.4f} seconds", time.std_dev);
  line("Throughput: {:.1f} samples/sec", summary.samples_per_second);
  if (record.workload.tokens_per_sample > 0)
    line("Token rate: {:.0f} tokens/sec", summary.tokens_per_second);
  line("{} Memory Usage: {:.0f} MB", on_gpu ? "GPU" : "Tensor",
       static_cast<double>(record.peak_tensor_bytes) / 1e6);
  line("  in MB: {}", memory_by_use(record.at_peak));
  line("");
  line("{}s per second: {:.1f}", capitalized(sample), summary.samples_per_second);
  line("Milliseconds per batch: {:.3f}", 1e3 * time.mean);
  line("Microseconds per sample: {:.1f}",
       1e6 * time.mean / static_cast<double>(record.samples_per_step));
  line("Median: {:.3f} ms, fastest {:.3f}, slowest {:.3f}", 1e3 * time.median, 1e3 * time.min,
       1e3 * time.max);
  const auto tail = [&](std::string_view name, const std::optional<double>& seconds) {
    if (seconds) line("{}: {:.3f} ms", name, 1e3 * *seconds);
  };
  tail("p90", summary.p90);
  tail("p95", summary.p95);
  tail("p99", summary.p99);
  if (record.cost)
    line("Products: {:.2f} GMACs {} {}, {:.2f} TFLOP/s",
         static_cast<double>(record.cost->total().macs) /
             static_cast<double>(record.samples_per_step) / 1e9,
         article(sample), sample, 2 * summary.macs_per_second / 1e12);
  if (!schedule_row(options.version).passes.empty())
    line("Compilation time: {} (mode={})", format_duration(record.compile_seconds),
         options.version);
  const auto lost = std::ranges::find_if_not(
      record.steps, [](const StepReport& step) { return std::isfinite(step.loss); });
  if (lost != record.steps.end())
    line("Warning: the loss is not finite from iteration {} on: {}",
         lost->step - options.warmup_steps - 1,
         options.use() == Use::training ? "lower --learning-rate"
                                        : "values went beyond the range of the precision");
  if (const std::string warning = variation_warning(summary); !warning.empty()) line("{}", warning);
  return line.text + std::string(rule) + "\n";
}

}  // namespace ridge
