#include "ridge/cli/bench_profiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/analyze/answers.h"
#include "ridge/analyze/machine_file.h"
#include "ridge/base/units.h"
#include "ridge/profile/chrome_trace.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/memory_report.h"
#include "ridge/profile/operator_memory.h"
#include "ridge/profile/operator_table.h"
#include "ridge/profile/perfetto.h"

namespace ridge {
namespace {

constexpr std::string_view rule = "========================================";
constexpr std::int64_t most_recorded = 5;
// Of each ceiling, where none are kept: rough, but at once.
constexpr std::chrono::milliseconds quick_measurement{30};

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

// What the peak is of: the precision of the products.
std::string_view precision_of(const BenchOptions& options) {
  if (options.dtype == "tf32") return "tf32";
  return options.dtype == "int8" ? name_of(DType::s8) : name_of(options.compute_dtype());
}

}  // namespace

std::filesystem::path trace_file(const BenchRequest& request) {
  if (!request.profile_file.empty()) return request.profile_file;
  return request.kineto ? request.bench.network + "_trace.json" : "";
}

BenchProfiling::BenchProfiling(const BenchRequest& request, BenchSession& session)
    : request_(request), session_(session) {
  if (!request.profiles()) return;
  const std::int64_t iterations = request.bench.iterations;
  if (request.records_operators()) {
    // The others say what recording costs.
    first_ = std::max(iterations - most_recorded, iterations / 2);
    last_ = iterations - 1;
    if (request.flops_prof_step) first_ = std::min(first_, *request.flops_prof_step);
  } else {
    first_ = last_ = *request.flops_prof_step;
  }
  if (Tracer* const tracer = session.executor().device().tracer()) {
    tracer->start();
    tracer->stop();
  }
}

void BenchProfiling::before(std::int64_t iteration) {
  if (!recorded(iteration)) return;
  if (iteration == first_) {
    recorder_.attach(session_.executor());
    card_ = std::make_unique<CardWatch>(session_.executor().device());
  }
  recorder_.begin_step(iteration);
}

void BenchProfiling::after(std::int64_t iteration, const BenchIteration& done) {
  if (!recorded(iteration)) {
    recorder_.recording().unrecorded_step_seconds.push_back(done.seconds);
    return;
  }
  recorder_.end_step(done.loss);
  if (iteration == last_) stop();
}

void BenchProfiling::stop() {
  if (!card_) return;
  recorder_.add_card(card_->stop());
  card_.reset();
  recorder_.detach(session_.executor());
}

// Those that ridge roofline has kept, or else some that are measured now.
Roof BenchProfiling::find_roof(Terminal& terminal) const {
  Device& device = session_.executor().device();
  Roof roof;
  if (auto kept = kept_roof(device.name(), device.hardware(), device.threads()); kept.roof) {
    roof = *std::move(kept.roof);
  } else {
    terminal.busy("Measuring this device's ceilings...");
    roof = roof_of(measure_ceilings(device, quick_measurement), device.threads());
    terminal.line(
        "The ceilings were measured just now, in a hurry; ridge roofline keeps better ones");
  }
  roof.tf32 = request_.bench.dtype == "tf32";
  return roof;
}

void BenchProfiling::print_operators(Terminal& terminal, const Recording& on_device) {
  const Recording& host = recorder_.recording();
  const std::optional<DeviceReport> device = device_report(on_device);
  print_title(terminal, fmt::format("Profiler Results (iterations {} to {}):",
                                    host.steps.front().step, host.steps.back().step));
  if (device) print_section(terminal, "CPU time, in which the host gives out the work:");
  terminal.lines(operator_table_text(operator_table(host), 10,
                                     device ? OperatorColumns::times : OperatorColumns::all));
  if (device) {
    print_section(terminal, "CUDA time, by operation:");
    terminal.lines(operator_table_text(operator_table(on_device)));
    print_section(terminal, "CUDA time, by kernel:");
    terminal.lines(device_report_text(on_device, *device));
  }
  print_section(terminal, device ? "CUDA memory, in one pass:" : "CPU memory, in one pass:");
  terminal.lines(operator_memory_text(on_device));
  const MemoryReport memory = memory_report(on_device);
  terminal.line(fmt::format("At the peak {:.1f} MB were held, when {} was allocated",
                            static_cast<double>(memory.peak) * 1e-6, memory.peak_owner));
  const ProfileAnswers answers = profile_answers(host, on_device);
  print_section(terminal, "Questions:");
  terminal.lines(answers_text(answers));
  if (const std::string warning = clock_warning(clock_report(host.card)); !warning.empty())
    terminal.lines(warning);
}

void BenchProfiling::print_flops(Terminal& terminal, const Recording& on_device) {
  const auto step = static_cast<std::int32_t>(*request_.flops_prof_step);
  const Roof roof = find_roof(terminal);
  const FlopsReport report = flops_report(on_device, step);
  terminal.line("");
  terminal.lines(flops_report_text(
      report, {.model = request_.bench.network, .samples_per_step = request_.bench.batch_size}));
  print_section(terminal, "Questions:");
  terminal.lines(answers_text(efficiency_answers(
      on_device, report, roof, precision_of(request_.bench), request_.bench.batch_size)));
}

void BenchProfiling::write_trace(Terminal& terminal) const {
  const std::filesystem::path path = trace_file(request_);
  if (path.empty()) return;
  const bool perfetto = path.extension() == ".pftrace";
  const TraceSize size = perfetto ? write_perfetto(path, recorder_.recording())
                                  : write_chrome_trace(path, recorder_.recording());
  terminal.line(fmt::format("Wrote {}, for ui.perfetto.dev{}", path.string(),
                            perfetto ? "" : " or chrome://tracing"));
  if (size.left_out > 0)
    terminal.line(fmt::format("{} events were left out beyond {}",
                              format_count(static_cast<std::int64_t>(size.left_out)),
                              format_bytes(size.bytes)));
}

void BenchProfiling::finish(Terminal& terminal) {
  if (!request_.profiles()) return;
  stop();
  if (recorder_.recording().steps.empty()) {
    terminal.line(fmt::format("Nothing was profiled: the run ended before iteration {}", first_));
    return;
  }
  const Recording on_device = device_time(recorder_.recording());
  nlohmann::ordered_json json;
  if (request_.autograd_profiler || request_.kineto) print_operators(terminal, on_device);
  if (request_.records_operators())
    json["operators"] =
        nlohmann::ordered_json::parse(operator_table_json(operator_table(on_device)));
  const auto& steps = recorder_.recording().steps;
  if (request_.flops_prof_step &&
      std::ranges::find(steps, *request_.flops_prof_step, &Recording::Step::step) != steps.end()) {
    print_flops(terminal, on_device);
    json["modules"] = nlohmann::ordered_json::parse(modules_json(
        flops_report(on_device, static_cast<std::int32_t>(*request_.flops_prof_step))));
  }
  json_ = json.dump();
  write_trace(terminal);
}

}  // namespace ridge
