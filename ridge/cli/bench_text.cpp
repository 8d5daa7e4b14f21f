#include "ridge/cli/bench_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>

#include "ridge/analyze/tables.h"
#include "ridge/base/lines.h"
#include "ridge/base/units.h"
#include "ridge/cli/run_text.h"
#include "ridge/session/belief.h"

namespace ridge {
namespace {

// "parameters 44.7, inputs 19.3": what the sum of memory is made of, in MB.
std::string memory_by_use(const TensorBytes& use) {
  std::string text;
  for (const auto& [name, bytes] : use.parts())
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", name,
                        static_cast<double>(bytes) / 1e6);
  return text;
}

// Which use is the largest, and whether the run took what the plan says: to the byte, as it does
// wherever memory is only that of the step.
std::string memory_evidence(const Record& record) {
  const auto uses = record.at_peak.parts();
  if (uses.empty()) return "";
  const std::size_t planned = record.at_peak.total();
  const auto& [name, bytes] =
      *std::ranges::max_element(uses, {}, [](const auto& use) { return use.second; });
  return fmt::format(
      "largest is {}, {:.0f} %; {}", name,
      100 * static_cast<double>(bytes) / static_cast<double>(planned),
      planned == record.peak_tensor_bytes
          ? "measured and planned are equal to the byte"
          : fmt::format("the plan says {:.1f} MB", static_cast<double>(planned) / 1e6));
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

std::string rank_label(const Device& device, std::size_t rank) {
  if (device.ranks() == 1) return "";
  return fmt::format("[{} {}] ", device.is_gpu() ? "GPU" : "CPU", rank);
}

namespace {

// As the workshop has it of its ranks.
void print_ranks(Terminal& terminal, const RunOptions& o, const Device& device) {
  const auto ranks = static_cast<std::size_t>(device.ranks());
  terminal.line("Setting up process group...");
  for (std::size_t rank = 0; rank < ranks; ++rank)
    terminal.line(rank_label(device, rank) + "Initializing...");
  terminal.line("Process group initialized.");
  terminal.line("");
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string label = rank_label(device, rank);
    terminal.line(fmt::format("{}Using network: {}", label, o.network));
    terminal.line(fmt::format("{}Local batch size: {}", label, o.rank_batch_size()));
    terminal.line(fmt::format("{}Global batch size: {}", label, o.batch_size));
  }
  terminal.line("");
}

}  // namespace

void print_configuration(Terminal& terminal, const BenchRequest& request, const Device& device) {
  const RunOptions& o = request.options;
  if (device.ranks() > 1) print_ranks(terminal, o, device);
  const bool one_batch = request.batch_sizes.empty() && !request.find_max_batch;
  const bool is_table = !request.varied().empty() || request.find_max_batch;
  if (request.networks.empty())
    terminal.line(fmt::format("Using network: {}", o.network));
  else
    terminal.line(fmt::format("Using networks: {}", fmt::join(request.networks, ", ")));
  if (one_batch) terminal.line(fmt::format("Batch size: {}", o.batch_size));
  for (const RunOptions& network : request.of_networks)
    terminal.line(fmt::format("Model: {}", workload_of(network).info.description));
  terminal.line(fmt::format("Iterations: {}", o.num_steps));
  if (!is_table)
    terminal.line(fmt::format("FP16: {}", o.precision().compute == DType::f16 ? "True" : "False"));
  if (request.precisions.empty()) terminal.line(fmt::format("Precision: {}", o.dtype));
  terminal.line(fmt::format("Mode: {}", o.mode));
  if (request.modes.empty()) {
    if (schedule_row(o.version).passes.empty())
      terminal.line("Compile: off");
    else
      terminal.line(fmt::format("Compile: ENABLED (mode={})", o.version));
  }
  for (const std::string& note : request.notes) terminal.line("  " + note);
  terminal.line(fmt::format("Device: {}", device.description()));
  terminal.line("");
}

double joules_per_sample(const BenchCosts& costs, const Record& record, const Summary& summary) {
  return costs.watts * summary.device.mean / static_cast<double>(record.samples_per_step);
}

std::string bench_summary_text(const Record& record, const Summary& summary, bool on_gpu,
                               const BenchCosts& costs) {
  const RunOptions& options = record.options;
  const Statistics& time = summary.device;
  const std::string& sample = record.workload.sample;
  Lines line;
  const std::string_view processor = on_gpu ? "GPU" : "CPU";
  const bool shares = options.ranks > 1;
  line("{}\nPerformance Summary{}:\n{}", bench_rule,
       shares ? fmt::format(" ({} 0)", processor) : "", bench_rule);
  line("Network: {}", options.network);
  if (shares) {
    line("Global batch size: {}", options.batch_size);
    line("Local batch size: {}", options.rank_batch_size());
    line("World size: {}", options.ranks);
  } else {
    line("Batch size: {}", options.batch_size);
  }
  line("Iterations: {} (excluding warmup{})", time.count,
       summary.recorded_left_out > 0
           ? fmt::format(" and {} that were recorded", summary.recorded_left_out)
           : "");
  line("Precision: {}", upper_case(options.dtype));
  line("");
  line("Average time per iteration: {:.4f} seconds", time.mean);
  line("Standard deviation: {:.4f} seconds", time.std_dev);
  line("Throughput: {:.1f} samples/sec{}", summary.samples_per_second, shares ? " (global)" : "");
  if (shares)
    line("Per-{} throughput: {:.1f} samples/sec", processor,
         summary.samples_per_second / static_cast<double>(options.ranks));
  if (record.workload.tokens_per_sample > 0)
    line("Token rate: {:.0f} tokens/sec", summary.tokens_per_second);
  line("{} Memory Usage: {:.0f} MB", on_gpu ? "GPU" : "Tensor",
       static_cast<double>(record.peak_tensor_bytes) / 1e6);
  line("  in MB: {}", memory_by_use(record.at_peak));
  line("  {}", memory_evidence(record));
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
  if (costs.price_per_hour)
    line("Price of 1,000 {}s: {}, at {} an hour", sample,
         price_text(price_of_thousand(summary.samples_per_second, *costs.price_per_hour)),
         price_text(*costs.price_per_hour));
  if (costs.energy && costs.watts > 0)
    line("Energy of {} {}: {:.4g} J, at {:.0f} W on the average", article(sample), sample,
         joules_per_sample(costs, record, summary), costs.watts);
  else if (costs.energy)
    line("Energy of {} {}: not known, for the device does not tell its power", article(sample),
         sample);
  const auto lost = std::ranges::find_if_not(
      record.steps, [](const StepReport& step) { return std::isfinite(step.loss); });
  if (lost != record.steps.end())
    line("Warning: the loss is not finite from iteration {} on: {}",
         lost->step - options.warmup_steps - 1,
         options.use() == Use::training ? "lower --learning-rate"
                                        : "values went beyond the range of the precision");
  if (const std::string belief = belief_text(belief_of(record, summary)); !belief.empty())
    line.text += "\n" + belief;
  return line.text + std::string(bench_rule) + "\n";
}

}  // namespace ridge
