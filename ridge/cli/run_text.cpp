#include "ridge/cli/run_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/units.h"
#include "ridge/cli/profiling.h"
#include "ridge/passes/versions.h"

namespace ridge {
namespace {

constexpr std::string_view rule = "==========================================";

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes / 1e6); }

void print_title(Terminal& terminal, std::string_view title) {
  terminal.line(rule);
  terminal.line(terminal.bold(title));
  terminal.line(rule);
}

void print_configuration(Terminal& terminal, const TrainOptions& o, const std::string& data) {
  const auto field = [&](std::string_view name, const auto& value) {
    terminal.line(fmt::format("  {}: {}", name, value));
  };
  terminal.line("Configuration:");
  field("Batch Size", o.batch_size);
  field("Sequence Length", o.seq_len);
  field("Number of Steps", o.num_steps);
  field("Hidden Dim", o.hidden_dim);
  field("Num Layers", o.n_layers);
  field("Num Heads", o.n_heads);
  field("Num KV Heads", o.n_kv_heads);
  field("Intermediate Dim", o.intermediate_dim);
  field("Vocabulary Size", o.vocab_size);
  field("Precision", o.dtype);
  field("Learning Rate", o.learning_rate);
  if (o.gradient_accumulation_steps > 1)
    field("Gradient Accumulation Steps", o.gradient_accumulation_steps);
  field("Seed", o.seed);
  field("Data", data);
}

void print_profiling(Terminal& terminal, const TrainOptions& o) {
  if (!o.profiling()) return;
  terminal.line("");
  const ProfileWindow window = profile_window(o);
  terminal.line(fmt::format("Profiling enabled: Steps {}-{}", window.first, window.last));
  if (o.reports_memory()) terminal.line("Memory Profiling Enabled");
  terminal.line(fmt::format("Profile data will be saved to: {}", o.profile_dir));
}

void print_times(Terminal& terminal, const PerformanceSummary& s) {
  const auto seconds = [&](std::string_view name, double value) {
    terminal.line(fmt::format("{}: {:.4f} seconds", name, value));
  };
  seconds("Average time per step", s.step.mean);
  seconds("Median time per step", s.step.median);
  seconds("Standard deviation", s.step.std_dev);
  terminal.line(fmt::format("Training speed: {:.1f} samples/sec", s.samples_per_second));
  terminal.line(fmt::format("Throughput: {:.1f} samples/sec", s.samples_per_second));
  terminal.line(fmt::format("Token rate: {:.0f} tokens/sec", s.tokens_per_second));
}

void print_memory(Terminal& terminal, const RunRecord& record) {
  terminal.line(fmt::format("Peak memory usage: {}",
                            megabytes(static_cast<double>(record.peak_tensor_bytes))));
  if (record.peak_resident_bytes > 0)
    terminal.line(fmt::format("Resident memory of the process: {} at its peak",
                              megabytes(static_cast<double>(record.peak_resident_bytes))));
}

void print_phases(Terminal& terminal, const PerformanceSummary& s) {
  terminal.line(fmt::format("Avg time per forward: {:.4f} seconds", s.forward.mean));
  terminal.line(fmt::format("Avg time per backward: {:.4f} seconds", s.backward.mean));
  terminal.line(fmt::format("Avg time per optimizer: {:.4f} seconds", s.optimizer.mean));
}

// What the averages above are averages of.
std::string coverage(const TrainOptions& o, const PerformanceSummary& s) {
  if (s.steps_left_out > 0)
    return fmt::format("Averages are over {} steps, without the first {} (warm-up)",
                       s.steps - s.steps_left_out, s.steps_left_out);
  if (o.warmup_steps > 0)
    return fmt::format("Averages are over all {} steps, warm-up included: there were no others",
                       s.steps);
  return fmt::format("Averages are over all {} steps", s.steps);
}

}  // namespace

void print_header(Terminal& terminal, const TrainOptions& options, const std::string& data,
                  const Device& device) {
  print_title(terminal, fmt::format("Tiny LLaMA {}{}", version_named(options.version).title,
                                    options.profiling() ? " (Profiling Enabled)" : ""));
  print_configuration(terminal, options, data);
  const std::int64_t parameters = options.model().parameter_count();
  terminal.line("");
  terminal.line("Model Configuration:");
  terminal.line(fmt::format("  Total Parameters: {}", format_count(parameters)));
  terminal.line(
      fmt::format("  Model Size: {} (FP32)", megabytes(4 * static_cast<double>(parameters))));
  terminal.line("");
  terminal.line(fmt::format("Using device: {}", device.name()));
  terminal.line(
      fmt::format("{}: {}", device.name() == "cpu" ? "CPU" : "GPU", device.description()));
  print_profiling(terminal, options);
}

void print_flops(Terminal& terminal, const StepCost& cost) {
  const auto row = [&](std::string_view name, const Cost& part) {
    terminal.line(fmt::format("  {:<10}{:>26}{:>26}", name, format_count(part.flops),
                              format_count(part.causal_flops)));
  };
  terminal.line("");
  terminal.line("FLOPs of one step:");
  terminal.line(fmt::format("  {:<10}{:>26}{:>26}", "", "full attention", "causal attention"));
  row("Forward", cost.forward);
  row("Backward", cost.backward);
  row("Optimizer", cost.optimizer);
  row("Total", cost.total());
}

std::string step_line(const TrainOptions& options, const StepReport& report,
                      std::size_t peak_bytes) {
  std::string line = fmt::format("Step {}/{}: Loss = {}, Time = {:.3f} seconds", report.step,
                                 options.num_steps, format_loss(report.loss), report.seconds);
  if (options.reports_memory())
    line += fmt::format(", Memory = {}", megabytes(static_cast<double>(peak_bytes)));
  if (options.profiling() && profile_window(options).contains(report.step)) line += " [PROFILING]";
  return line;
}

std::string loss_scale_line(const StepReport& report) {
  if (report.skipped)
    return fmt::format(
        "Step {} is skipped: gradients overflow with loss scale {:g}; {:g} from now on",
        report.step, *report.loss_scale, *report.next_loss_scale);
  if (report.loss_scale == report.next_loss_scale) return "";
  return fmt::format("Loss scale {:g} after step {}", *report.next_loss_scale, report.step);
}

std::string validation_line(const ValidationLoss& validation) {
  return fmt::format("Validation after step {}: Loss = {}, Perplexity = {:.2f}", validation.step,
                     format_loss(validation.loss), std::exp(validation.loss));
}

void print_summary(Terminal& terminal, const TrainOptions& options, const RunRecord& record,
                   const PerformanceSummary& summary) {
  terminal.line("");
  print_title(terminal, "Performance Summary:");
  if (summary.steps == 0) {
    terminal.line("No step was finished.");
    terminal.line(rule);
    return;
  }
  print_times(terminal, summary);
  print_memory(terminal, record);
  print_phases(terminal, summary);
  if (options.reports_flops())
    terminal.line(fmt::format("Achieved: {:.1f} GFLOP/s, {:.1f} GFLOP/s counting causal attention",
                              summary.flops_per_second / 1e9,
                              summary.causal_flops_per_second / 1e9));
  terminal.line(fmt::format("Final loss: {}", format_loss(record.steps.back().loss)));
  if (const auto scale = record.steps.back().next_loss_scale)
    terminal.line(fmt::format("Loss scale: {:g}, {} of {} steps skipped", *scale,
                              skipped_steps(record), record.steps.size()));
  terminal.line(coverage(options, summary));
  terminal.line(rule);
}

}  // namespace ridge
