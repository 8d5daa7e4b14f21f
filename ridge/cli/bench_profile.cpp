#include "ridge/cli/bench_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/analyze/answers.h"
#include "ridge/base/units.h"
#include "ridge/cli/profiling.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/operator_memory.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/perfetto.h"

namespace ridge {
namespace {

constexpr std::string_view rule = "========================================";

void print_title(Terminal& terminal, std::string_view title) {
  terminal.line("");
  terminal.line(rule);
  terminal.line(terminal.bold(title));
  terminal.line(rule);
}

void print_section(Terminal& terminal, std::string_view title) {
  terminal.line("");
  terminal.line(terminal.bold(title));
}

void print_host_times(Terminal& terminal, const Recording& host, bool device_runs_apart) {
  const std::string times =
      host_times_text(host, device_runs_apart ? OperatorColumns::times : OperatorColumns::all);
  if (times.empty()) {
    print_section(terminal, "CPU time: the pass is captured, and the host launches it as one");
    return;
  }
  if (device_runs_apart) print_section(terminal, "CPU time to launch the work:");
  terminal.lines(times);
}

void print_operators(Terminal& terminal, const BenchRequest& request,
                     const StepRecorder& recorder) {
  const Recording &host = recorder.host(), &on_device = recorder.on_device();
  const std::optional<DeviceReport> device = device_report(on_device);
  print_title(terminal, fmt::format("Profiler Results (iterations {} to {}):",
                                    host.steps.front().step, host.steps.back().step));
  print_host_times(terminal, host, device.has_value());
  if (device) {
    print_section(terminal, "CUDA time, by operation:");
    terminal.lines(operator_table_text(operator_table(on_device)));
    print_section(terminal, "CUDA time, by kernel:");
    terminal.lines(device_report_text(on_device, *device));
  }
  print_section(terminal, fmt::format("{} memory, in one {}:", device ? "CUDA" : "CPU",
                                      request.options.use() == Use::training ? "step" : "pass"));
  terminal.lines(operator_memory_text(on_device));
  const MemoryReport memory = memory_report(on_device);
  terminal.line(fmt::format("At the peak {:.1f} MB were held, when {} was allocated",
                            static_cast<double>(memory.peak) * 1e-6, memory.peak_owner));
  print_section(terminal, "Questions:");
  terminal.lines(answers_text(profile_answers(host, on_device)));
  if (const std::string warning = clock_warning(clock_report(host.card)); !warning.empty())
    terminal.lines(warning);
}

// Of a device that failed no ceilings can be measured.
void print_flops(Terminal& terminal, const ProfileContent& content, const Summary& summary,
                 const FlopsReport& report, TerminalListener& listener) {
  const Record& record = content.record;
  terminal.line("");
  terminal.lines(flops_report_text(
      report, {.model = record.options.network, .samples_per_step = record.samples_per_step}));
  if (record.outcome == Outcome::failed) return;
  const auto roof = roof_of_session(content.session, listener);
  if (!roof) return;
  print_section(terminal, "Questions:");
  terminal.lines(
      answers_text(efficiency_answers(content.recorder.on_device(), report, *roof,
                                      content.session.schedule().precision.product_kind(),
                                      record.samples_per_step, summary.device.median)));
}

void write_trace(Terminal& terminal, const BenchRequest& request, const Recording& host) {
  const std::filesystem::path path = request.trace_file();
  if (path.empty()) return;
  const bool perfetto = path.extension() == ".pftrace";
  const TraceSize size = perfetto ? write_perfetto(path, host) : write_chrome_trace(path, host);
  terminal.line(fmt::format("Wrote {}, for ui.perfetto.dev{}", path.string(),
                            perfetto ? "" : " or chrome://tracing"));
  if (size.left_out > 0)
    terminal.line(fmt::format("{} events were left out beyond {}",
                              format_count(static_cast<std::int64_t>(size.left_out)),
                              format_bytes(size.bytes)));
}

}  // namespace

nlohmann::ordered_json print_bench_profile(const BenchRequest& request,
                                           const ProfileContent& content, const Summary& summary,
                                           TerminalListener& listener, Terminal& terminal) {
  const StepRecorder& recorder = content.recorder;
  const Recording &host = recorder.host(), &on_device = recorder.on_device();
  nlohmann::ordered_json json;
  if (request.autograd_profiler || request.kineto) print_operators(terminal, request, recorder);
  if (request.records_operators()) json["operators"] = json_of(operator_table(on_device));
  if (request.flops_prof_step && std::ranges::find(host.steps, *request.flops_prof_step,
                                                   &Recording::Step::step) != host.steps.end()) {
    const FlopsReport report =
        flops_report(on_device, static_cast<std::int32_t>(*request.flops_prof_step));
    print_flops(terminal, content, summary, report, listener);
    json["modules"] = json_of(report);
  }
  write_trace(terminal, request, host);
  if (!request.options.profiling()) {
    terminal.line("");
    terminal.line(overhead_text(host));
  }
  return json;
}

}  // namespace ridge
