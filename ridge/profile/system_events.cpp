#include "ridge/profile/system_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "ridge/profile/event_list.h"

namespace ridge {
namespace {

constexpr std::int64_t system_process = 1, command_process = 2;

std::string microseconds(std::int64_t ns) {
  std::string text;
  append(std::back_inserter(text), Microseconds{ns});
  return text;
}

void emit_process_name(std::int64_t process, std::string_view name, const EmitEvent& emit) {
  emit(fmt::format(
      R"({{"ph": "M", "name": "process_name", "pid": {}, "tid": 0, "ts": 0.000, "args": {{"name": {}}}}})",
      process, json_string(name)));
}

void emit_slice(std::string_view category, std::string_view name, std::int64_t thread,
                std::int64_t begin_ns, std::int64_t end_ns, std::string_view args,
                const EmitEvent& emit) {
  emit(fmt::format(
      R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
      category, json_string(name), command_process, thread, microseconds(begin_ns),
      microseconds(std::max<std::int64_t>(end_ns - begin_ns, 0)), args));
}

void emit_command(const SystemSamples& samples, const RecordedCommand& command,
                  const EmitEvent& emit) {
  emit_process_name(command_process, "the command", emit);
  emit_slice("user_annotation", command.line, 0, command.begin_ns, command.end_ns, "", emit);
  for (const ProcessUse& process : samples.processes)
    emit_slice("process", fmt::format("{} ({})", process.name, process.id), process.id,
               process.begin_ns, process.end_ns,
               fmt::format(R"("core seconds": {:.2f}, "peak resident bytes": {})", process.seconds,
                           process.peak_bytes),
               emit);
}

}  // namespace

std::string counter_name(const SystemSeries& series) {
  const std::string_view unit = name_of(series.unit);
  return unit.empty() ? series.name : fmt::format("{} ({})", series.name, unit);
}

void emit_system_counters(const SystemSamples& samples, const ShownCounters& shown,
                          const EmitEvent& emit) {
  for (std::size_t s = 0; s < samples.series.size(); ++s) {
    const std::string begin =
        fmt::format(R"({{"ph": "C", "cat": "system", "name": {}, "pid": {}, "tid": 0, "ts": )",
                    json_string(counter_name(samples.series[s])), shown.process);
    double before = std::numeric_limits<double>::quiet_NaN();
    const std::vector<SystemPoint> points = points_of(samples, s);
    for (const SystemPoint& point : points) {
      if (point.end_ns < shown.begin_ns || point.begin_ns > shown.end_ns) continue;
      const bool last = &point == &points.back();
      if (point.value == before && !last) continue;
      before = point.value;
      emit(fmt::format(R"({}{}, "args": {{"value": {:.6g}}}}})", begin,
                       microseconds(std::max(point.begin_ns, shown.begin_ns) - shown.zero_ns),
                       point.value));
    }
  }
}

TraceSize write_system_trace(const std::filesystem::path& path, const SystemSamples& samples,
                             std::span<const SystemSamples> cards, const RecordedCommand& command,
                             const TraceOptions& options) {
  EventList events(path);
  events.allow(options.max_bytes);
  events.text(fmt::format(
      "{{\n\"schemaVersion\": 1,\n\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": {},\n"
      "\"traceName\": {},\n\"traceEvents\": [",
      command.epoch_ns, json_string(path.filename().string())));
  const EmitEvent emit = [&](std::string_view event) { events.event(event); };
  emit_command(samples, command, emit);
  emit_process_name(system_process, "the system", emit);
  const ShownCounters all{.process = system_process,
                          .begin_ns = std::numeric_limits<std::int64_t>::min(),
                          .end_ns = std::numeric_limits<std::int64_t>::max()};
  emit_system_counters(samples, all, emit);
  for (const SystemSamples& card : cards) emit_system_counters(card, all, emit);
  events.text(fmt::format(
      "\n],\n\"ridge\": {{\"events\": {}, \"events_left_out\": {}, \"records_dropped\": 0}}\n}}\n",
      events.size().events, events.size().left_out));
  events.commit();
  return events.size();
}

}  // namespace ridge
