#include "ridge/cli/profiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/flops_report.h"
#include "ridge/profile/memory_plot.h"
#include "ridge/profile/memory_report.h"
#include "ridge/report/profile_directory.h"

namespace ridge {
namespace {

bool wants_operators(const RunOptions& o) {
  return o.enable_pytorch_profiler || o.profile_operators || o.enable_all_profiling;
}

void print(Terminal& terminal, const std::string& text) {
  terminal.line("");
  terminal.lines(text);
}

void print_flops_report(Terminal& terminal, const Recording& recording, const Record& record) {
  const std::int64_t asked = record.options.flops_profile_step;
  std::optional<std::int32_t> step;
  if (asked >= recording.steps.front().step && asked <= recording.steps.back().step)
    step = static_cast<std::int32_t>(asked);
  print(terminal,
        flops_report_text(flops_report(recording, step),
                          {.model = record.title, .samples_per_step = record.samples_per_step}));
}

void print_reports(Terminal& terminal, const ProfileContent& content) {
  const Recording& recording = content.recorder.on_device();
  const RunOptions& o = content.record.options;
  const bool operators = wants_operators(o);
  if (operators)
    print(terminal,
          operator_table_text(operator_table(recording, content.group_by, content.sort_by)));
  if (o.profile_operators || o.enable_all_profiling)
    print(terminal, operator_table_text(operator_table(recording, GroupBy::module)));
  if (o.reports_memory()) {
    print(terminal, memory_report_text(memory_report(recording)));
    print(terminal, memory_timeline_text(recording));
  }
  if (o.enable_deepspeed_flops || o.enable_all_profiling)
    print_flops_report(terminal, recording, content.record);
  if (operators && content.bottlenecks) print(terminal, bottleneck_text(*content.bottlenecks));
  if (const auto report = device_report(recording); report && operators)
    print(terminal, device_report_text(recording, *report));
  if (const std::string warning = clock_warning(clock_report(recording.card)); !warning.empty())
    print(terminal, warning);
  if (const HardwareCounters* const counters = content.recorder.counters())
    print(terminal, counters_text(report_counters(content.session.graph(), *counters)));
  if (const auto report = content.recorder.device_counters())
    print(terminal, device_counters_text(*report));
  else if (const std::string fault = content.recorder.counters_fault(); !fault.empty())
    print(terminal, fault);
  print(terminal, overhead_text(recording));
}

// Says what there is, then throws if that is not all.
void print_listing(Terminal& terminal, const std::filesystem::path& directory,
                   const ProfileListing& listing) {
  terminal.line("");
  if (listing.refused.empty()) terminal.line("Profiling complete!");
  terminal.line("Profile files generated:");
  for (const std::string& name : listing.written)
    terminal.line(fmt::format("  - {}", (directory / name).string()));
  terminal.line(fmt::format("ridge report {} draws it", directory.string()));
  if (listing.refused.size() == 1) throw IoError("{}", listing.refused.front());
  if (!listing.refused.empty())
    throw IoError("{}; {} files of the profile are missing", listing.refused.front(),
                  listing.refused.size());
}

}  // namespace

StepRecorder::Config recorder_config(const RunOptions& options) {
  return {.window = profile_window(options),
          .counters = options.counters || options.enable_all_profiling,
          .warmup_steps = options.warmup_steps};
}

std::unique_ptr<StepRecorder> recorder_of(Session& session, const StepRecorder::Config& config,
                                          Terminal& terminal) {
  auto recorder = std::make_unique<StepRecorder>(session, config);
  if (const std::string fault = recorder->counters_fault();
      !fault.empty() && !session.device().is_gpu())
    terminal.line(fault);
  return recorder;
}

std::optional<Roof> roof_of_session(Session& session, Terminal& terminal) {
  KeptRoof found = roof_of_device(session.device(), [&] {
    terminal.busy(fmt::format("Measuring the ceilings of {}...", session.device().description()));
  });
  if (!found.roof) {
    terminal.line(fmt::format("No ceilings to compare with: {}", found.source));
    return std::nullopt;
  }
  return roof_for(*std::move(found.roof), session.schedule());
}

void finish_profile(StepRecorder& recorder, Session& session, const Record& record,
                    Terminal& terminal) {
  const RunOptions& options = record.options;
  if (!recorder.finish()) {
    terminal.line(
        fmt::format("Nothing was profiled: the run ended before step {}", recorder.window().first));
    return;
  }
  terminal.busy("Analyzing the profile...");
  ProfileContent content{.recorder = recorder,
                         .session = session,
                         .record = record,
                         .bottlenecks = {},
                         .group_by = group_by_named(options.group_by),
                         .sort_by = sort_by_named(options.sort_by),
                         .compress_traces = options.compress_traces};
  if (const auto roof = roof_of_session(session, terminal))
    content.bottlenecks = analyze_bottlenecks(
        recorder.on_device(), *roof, alternatives_of(options, session.device(), session.graph()));
  print_reports(terminal, content);
  terminal.busy("Writing the profile...");
  print_listing(terminal, options.profile_dir,
                write_profile(options.profile_dir, content,
                              [&](const std::string& line) { terminal.line(line); }));
}

}  // namespace ridge
