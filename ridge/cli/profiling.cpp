#include "ridge/cli/profiling.h"

#include <fmt/format.h>

#include "ridge/analyze/flops_answers.h"
#include "ridge/analyze/speed_of_light.h"
#include "ridge/base/error.h"
#include "ridge/cli/interrupt.h"
#include "ridge/profile/communication.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/flops_report.h"
#include "ridge/profile/memory_plot.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/system_report.h"

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
  print(terminal, flops_report_text(flops_report(recording, step),
                                    {.model = record.workload.title,
                                     .samples_per_step = record.samples_per_step}));
  print(terminal, work_answers_text(work_answers(recording)));
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
  if (content.communication) {
    print(terminal, communication_text(*content.communication));
    print(terminal, ranks_text(content.ranks));
  }
  if (const std::string use = card_use_text(recording.card); !use.empty() && operators)
    print(terminal, use);
  if (const std::string warning = clock_warning(clock_report(recording.card)); !warning.empty())
    print(terminal, warning);
  if (const HardwareCounters* const counters = content.recorder.counters())
    print(terminal, counters_text(report_counters(content.session.graph(), *counters)));
  if (const auto report = content.recorder.device_counters())
    print(terminal, device_counters_text(*report));
  else if (const std::string fault = content.recorder.counters_fault(); !fault.empty())
    print(terminal, fault);
  if (const auto system = system_text(recording)) print(terminal, *system);
  if ((o.counters || o.enable_all_profiling) && content.bottlenecks)
    print(terminal, speed_of_light_text(speed_of_light(content.recorder, *content.bottlenecks)));
  print(terminal, overhead_text(recording));
}

}  // namespace

void TerminalListener::wrote(const std::filesystem::path& file) {
  terminal_.line(fmt::format("Wrote {}", file.string()));
}

void TerminalListener::analyzed(const ProfileContent& content) {
  print_reports(terminal_, content);
}

void TerminalListener::wrote_profile(const ProfileListing& listing) {
  terminal_.line("");
  if (listing.refused.empty()) terminal_.line("Profiling complete!");
  terminal_.line("Profile files generated:");
  for (const std::string& name : listing.written)
    terminal_.line(fmt::format("  - {}", (listing.directory / name).string()));
  terminal_.line(fmt::format("ridge report {} draws it", listing.directory.string()));
  if (listing.refused.size() == 1) throw IoError("{}", listing.refused.front());
  if (!listing.refused.empty())
    throw IoError("{}; {} files of the profile are missing", listing.refused.front(),
                  listing.refused.size());
}

int exit_code_of(const Record& record) {
  return record.outcome == Outcome::interrupted ? 128 + interrupt_noted() : 0;
}

}  // namespace ridge
