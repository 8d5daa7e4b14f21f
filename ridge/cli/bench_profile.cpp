#include "ridge/cli/bench_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/analyze/answers.h"
#include "ridge/analyze/bottlenecks.h"
#include "ridge/analyze/kernel_answers.h"
#include "ridge/analyze/machine_file.h"
#include "ridge/base/lines.h"
#include "ridge/base/units.h"
#include "ridge/cli/bench_text.h"
#include "ridge/cli/profiling.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/operator_memory.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/perfetto.h"

namespace ridge {
namespace {

void print_profile_title(Terminal& terminal, std::string_view title) {
  terminal.line("");
  terminal.line(bench_rule);
  terminal.line(terminal.bold(title));
  terminal.line(bench_rule);
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
  print_profile_title(terminal, fmt::format("Profiler Results (iterations {} to {}):",
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
  terminal.lines(answers_text(kernel_answers(on_device)));
  if (const std::string warning = clock_warning(clock_report(host.card)); !warning.empty())
    terminal.lines(warning);
}

void print_flops(Terminal& terminal, const ProfileContent& content, const Summary& summary,
                 const FlopsReport& report, const std::optional<Roof>& roof) {
  const Record& record = content.record;
  terminal.line("");
  terminal.lines(flops_report_text(
      report, {.model = record.options.network, .samples_per_step = record.samples_per_step}));
  if (!roof) return;
  print_section(terminal, "Questions:");
  terminal.lines(
      answers_text(efficiency_answers(content.recorder.on_device(), report, *roof,
                                      content.session.schedule().precision.product_kind(),
                                      record.samples_per_step, summary.device.median)));
}

// The ceilings of the device. They are measured for a report of efficiency; else those that are
// kept will do. Of a device that failed none can be measured.
std::optional<Roof> roof_of(const BenchRequest& request, const ProfileContent& content,
                            TerminalListener& listener) {
  if (content.record.outcome == Outcome::failed) return std::nullopt;
  if (request.flops_prof_step) return roof_of_session(content.session, listener);
  const Device& device = content.session.device();
  KeptRoof kept = kept_roof(device.name(), device.hardware(), device.threads());
  if (!kept.roof) return std::nullopt;
  return roof_for(*std::move(kept.roof), content.session.schedule());
}

// The suspects of a throughput that is too low, each with its evidence.
std::string suspects_text(const BottleneckReport& report, const Recording& on_device,
                          const Summary& summary) {
  const auto batch = std::ranges::find_if(report.findings, [](const Finding& finding) {
    return finding.kind == Finding::Kind::option && finding.name.starts_with("batch ");
  });
  const std::optional<DeviceReport> device = device_report(on_device);
  const double idle = device ? device->idle_fraction() : report.share(report.between_nodes);
  Lines line;
  line("  The pass: {}", primary_bottleneck(report));
  line("  The host: {} {} of the time", device ? "no kernel runs for" : "between operators lie",
       format_percent(idle));
  line("  The batch: {}", batch == report.findings.end()
                              ? "by their floors no others are faster; --batch-sizes measures"
                              : fmt::format("{} is worth {} of the time", batch->name,
                                            format_percent(report.share(batch->seconds_saved))));
  if (summary.device.count < 2)
    line("  Other load: one iteration does not say");
  else
    line("  Other load: {}, the times vary by {}", summary.unsteady() ? "likely" : "no sign of it",
         format_percent(summary.device.variation()));
  return line.text;
}

// What holds the pass back and what would help it, by its times, the ceilings, and the graphs that
// other passes and options make.
nlohmann::ordered_json print_findings(Terminal& terminal, const ProfileContent& content,
                                      const Summary& summary, const Roof& roof) {
  constexpr std::size_t most_findings = 8;
  Session& session = content.session;
  const Recording& on_device = content.recorder.on_device();
  terminal.busy("Looking for what would help...");
  const BottleneckReport report = analyze_bottlenecks(
      on_device, roof, alternatives_of(content.record.options, session.device(), session.graph()));
  print_section(terminal, "What holds it back?");
  terminal.lines(suspects_text(report, on_device, summary));
  print_section(terminal, "What would help it most?");
  terminal.lines(findings_text(report, most_findings));
  return nlohmann::ordered_json::parse(bottleneck_json(report)).at("findings");
}

void write_trace(Terminal& terminal, const BenchRequest& request, const StepRecorder& recorder) {
  const Recording& host = recorder.host();
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
  terminal.lines(trace_text(kernel_answers(recorder.on_device())));
}

}  // namespace

nlohmann::ordered_json print_bench_profile(const BenchRequest& request,
                                           const ProfileContent& content, const Summary& summary,
                                           TerminalListener& listener, Terminal& terminal) {
  const StepRecorder& recorder = content.recorder;
  const Recording &host = recorder.host(), &on_device = recorder.on_device();
  nlohmann::ordered_json json;
  if (request.autograd_profiler || request.kineto) print_operators(terminal, request, recorder);
  const std::optional<Roof> roof = roof_of(request, content, listener);
  if (request.records_operators()) {
    json["operators"] = json_of(operator_table(on_device));
    json["launches"] = json_of(kernel_answers(on_device));
  }
  if (request.flops_prof_step && std::ranges::find(host.steps, *request.flops_prof_step,
                                                   &Recording::Step::step) != host.steps.end()) {
    const FlopsReport report =
        flops_report(on_device, static_cast<std::int32_t>(*request.flops_prof_step));
    print_flops(terminal, content, summary, report, roof);
    json["modules"] = json_of(report);
  }
  const bool has_tables = request.autograd_profiler || request.kineto || request.flops_prof_step;
  if (has_tables && !request.options.profiling()) {  // whose own report has findings, too
    if (roof)
      json["findings"] = print_findings(terminal, content, summary, *roof);
    else if (content.record.outcome != Outcome::failed)
      terminal.line("What would help is not known: ridge roofline measures this machine, once");
  }
  write_trace(terminal, request, recorder);
  if (!request.options.profiling() && !request.rocm) {  // which records each step
    terminal.line("");
    terminal.line(overhead_text(host));
  }
  return json;
}

}  // namespace ridge
