#include "ridge/cli/run_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/step_recorder.h"
#include "ridge/run/autotuner.h"
#include "ridge/session/belief.h"
#include "ridge/session/published.h"

namespace ridge {
namespace {

constexpr std::string_view rule = "==========================================";

void print_title(Terminal& terminal, std::string_view title) {
  terminal.line(rule);
  terminal.line(terminal.bold(title));
  terminal.line(rule);
}

void print_configuration(Terminal& terminal, const Session& session) {
  const RunOptions& o = session.options();
  const auto field = [&](std::string_view name, const auto& value) {
    terminal.line(fmt::format("  {}: {}", name, value));
  };
  terminal.line("Configuration:");
  field("Batch Size", o.batch_size);
  if (o.ranks > 1)
    field("Ranks", fmt::format("{}, with {} of each batch", o.ranks, o.rank_batch_size()));
  for (const auto& [name, value] : session.workload().info.settings) field(name, value);
  field("Number of Steps", o.num_steps);
  field("Precision", o.dtype);
  field("Optimizer", o.optimizer);
  field("Learning Rate", o.learning_rate);
  if (o.gradient_accumulation_steps > 1)
    field("Gradient Accumulation Steps", o.gradient_accumulation_steps);
  field("Seed", o.seed);
  field("Data", session.data().description());
}

std::string tuning_cache_text() {
  const std::filesystem::path file = default_tuning_cache();
  return file.empty() ? "kept nowhere: neither XDG_CACHE_HOME nor HOME is set"
                      : "see " + file.string();
}

void print_profiling(Terminal& terminal, const RunOptions& o) {
  if (!o.profiling()) return;
  terminal.line("");
  const ProfileWindow window = profile_window(o);
  terminal.line(fmt::format("Profiling enabled: Steps {}-{}", window.first, window.last));
  if (o.reports_memory()) terminal.line("Memory Profiling Enabled");
  terminal.line(fmt::format("Profile data will be saved to: {}", o.profile_dir));
}

void print_times(Terminal& terminal, const Record& record, const Summary& s) {
  const auto seconds = [&](std::string_view name, double value) {
    terminal.line(fmt::format("{}: {:.4f} seconds", name, value));
  };
  seconds("Average time per step", s.step.mean);
  seconds("Median time per step", s.step.median);
  seconds("Standard deviation", s.step.std_dev);
  terminal.line(fmt::format("Training speed: {:.1f} samples/sec", s.samples_per_second));
  terminal.line(fmt::format("Throughput: {:.1f} samples/sec", s.samples_per_second));
  if (record.workload.tokens_per_sample > 0)
    terminal.line(fmt::format("Token rate: {:.0f} tokens/sec", s.tokens_per_second));
}

void print_memory(Terminal& terminal, const Record& record) {
  terminal.line(fmt::format("Peak memory usage: {}",
                            format_megabytes(static_cast<double>(record.peak_tensor_bytes))));
  if (record.peak_resident_bytes > 0)
    terminal.line(fmt::format("Resident memory of the process: {} at its peak",
                              format_megabytes(static_cast<double>(record.peak_resident_bytes))));
}

// Phases that overlap have no time of their own, but in the steps that ran them one by one.
void print_phases(Terminal& terminal, const Record& record, const Summary& s) {
  if (s.phase_steps == 0) {
    terminal.line("Forward, backward and optimizer run at the same time: they have no times apart");
    return;
  }
  const auto line = [&](std::string_view name, const Statistics& phase) {
    terminal.line(fmt::format("Avg time per {}: {:.4f} seconds", name, phase.mean));
  };
  line("forward", s.forward);
  line("backward", s.backward);
  line("optimizer", s.optimizer);
  if (record.updates_in_backward)
    terminal.line("  without the parameters that the backward pass updates");
  if (s.phases_apart)
    terminal.line(
        fmt::format("  in {} that ran the phases one after the other; in the others they overlap",
                    s.phase_steps == 1 ? "a step" : fmt::format("{} steps", s.phase_steps)));
}

// What the averages above are averages of.
std::string coverage(const Record& record, const Summary& s) {
  const std::int64_t left_out = s.steps_left_out + s.recorded_left_out;
  if (left_out == 0) {
    const std::string all =
        s.steps == 1 ? "There is one step" : fmt::format("Averages are over all {} steps", s.steps);
    return record.warmup_steps > 0 ? all + ", warm-up included" : all;
  }
  std::string text = fmt::format("Averages are over {} steps, without", s.steps - left_out);
  if (s.steps_left_out > 0) text += fmt::format(" the first {} (warm-up)", s.steps_left_out);
  if (s.recorded_left_out > 0)
    text += fmt::format("{} {} that were recorded", s.steps_left_out > 0 ? " and" : "",
                        s.recorded_left_out);
  return text;
}

}  // namespace

void print_header(Terminal& terminal, const Session& session) {
  const RunOptions& options = session.options();
  const Device& device = session.device();
  print_title(terminal, fmt::format("{} {}{}", session.workload().info.title,
                                    schedule_row(options.version).title,
                                    options.profiling() ? " (Profiling Enabled)" : ""));
  print_configuration(terminal, session);
  const std::int64_t parameters = session.parameters();
  terminal.line("");
  terminal.line("Model Configuration:");
  terminal.line(fmt::format("  Total Parameters: {}", format_count(parameters)));
  terminal.line(fmt::format("  Model Size: {} (FP32)",
                            format_megabytes(4 * static_cast<double>(parameters))));
  terminal.line("");
  terminal.line(fmt::format("Using device: {}", device.name()));
  terminal.line(fmt::format("{}: {}", device.is_gpu() ? "GPU" : "CPU", device.description()));
  print_profiling(terminal, options);
}

void print_kernel_choices(Terminal& terminal, const Session& session) {
  for (const Schedule::LeftOut& left : session.schedule().left_out)
    if (left.asked)
      terminal.line(fmt::format("The pass {} is left out: it is {}", left.pass->name, left.why));
  if (const Autotuner* const tuner = session.tuner()) {
    for (const std::string& warning : tuner->warnings()) terminal.line(warning);
    terminal.line(fmt::format("Kernels chosen: {} by timing now, {} in earlier runs ({})",
                              tuner->searched(), tuner->remembered(), tuning_cache_text()));
    for (const auto& [work, choice] : tuner->told())
      terminal.line(fmt::format("Fastest {}: {}", work, choice));
  }
  for (const std::string& warning : session.device().tools().warnings()) terminal.line(warning);
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

std::string step_line(const RunOptions& options, const StepReport& report, std::size_t peak_bytes) {
  std::string line = fmt::format("Step {}/{}: Loss = {}, Time = {:.3f} seconds", report.step,
                                 options.num_steps, format_loss(report.loss), report.seconds);
  if (options.reports_memory())
    line += fmt::format(", Memory = {}", format_megabytes(static_cast<double>(peak_bytes)));
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

std::string validation_line(const WorkloadInfo& workload, const Validation& validation) {
  const Evaluation& found = validation.evaluation;
  std::string line =
      fmt::format("Validation after step {}: Loss = {}", validation.step, format_loss(found.loss));
  if (found.right)
    return line + fmt::format(", Accuracy = {:.2f} % of {}", 100 * found.accuracy(), found.samples);
  if (workload.tokens_per_sample == 0) return line;
  return line + fmt::format(", Perplexity = {:.2f}", std::exp(found.loss));
}

void print_summary(Terminal& terminal, const Record& record, const Summary& summary) {
  terminal.line("");
  print_title(terminal, "Performance Summary:");
  if (summary.steps == 0) {
    terminal.line("No step was finished.");
    terminal.line(rule);
    return;
  }
  print_times(terminal, record, summary);
  print_memory(terminal, record);
  print_phases(terminal, record, summary);
  if (record.options.reports_flops())
    terminal.line(fmt::format("Achieved: {:.1f} GFLOP/s, {:.1f} GFLOP/s counting causal attention",
                              summary.flops_per_second / 1e9,
                              summary.causal_flops_per_second / 1e9));
  terminal.line(fmt::format("Final loss: {}", format_loss(record.steps.back().loss)));
  if (!record.validation.empty() && record.validation.back().evaluation.right)
    terminal.line(fmt::format("Held-out accuracy: {:.2f} %",
                              100 * record.validation.back().evaluation.accuracy()));
  if (const auto scale = record.steps.back().next_loss_scale)
    terminal.line(fmt::format("Loss scale: {:g}, {} of {} steps skipped", *scale,
                              skipped_steps(record), record.steps.size()));
  terminal.line(coverage(record, summary));
  if (const auto published = published_run(record.options))
    terminal.lines(wrapped(comparison_text(*published, record, summary), sentence_width, "  "));
  terminal.line("");
  terminal.lines(belief_text(belief_of(record, summary)));
  terminal.line(rule);
}

}  // namespace ridge
