#include "ridge/profile/memory_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/units.h"
#include "ridge/profile/memory_timeline.h"

namespace ridge {
namespace {

// By column of the drawing: the most bytes alive during its stretch of time.
std::vector<double> column_peaks(const MemoryTimeline& timeline, std::size_t width) {
  const double span =
      static_cast<double>(std::max<std::int64_t>(timeline.end_ns - timeline.begin_ns, 1));
  std::vector<double> columns(width, 0);
  const auto column = [&](std::int64_t ns) {
    const double at = static_cast<double>(ns - timeline.begin_ns) / span;
    return std::min(width - 1, static_cast<std::size_t>(at * static_cast<double>(width)));
  };
  for (std::size_t i = 0; i < timeline.points.size(); ++i) {
    const bool last = i + 1 == timeline.points.size();
    const std::size_t first = column(timeline.points[i].time_ns);
    const std::size_t end = column(last ? timeline.end_ns : timeline.points[i + 1].time_ns);
    for (std::size_t c = first; c <= end; ++c)
      columns[c] = std::max(columns[c], static_cast<double>(timeline.points[i].live));
  }
  return columns;
}

// What of a column, `level` eighths high with its lowest `base` alive throughout, one row shows.
std::string_view cell(double level, double base, double row) {
  constexpr std::string_view eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (base >= row + 0.5) return "░";
  // Less what rounding may have added: a level exactly at a row's edge shows nothing in it.
  const double filled = std::clamp((level - row) * 8 - 1e-6, 0.0, 8.0);
  return eighths[static_cast<int>(std::ceil(filled))];
}

// The marks below the axis: a bar where each phase begins, and its name where there is room.
std::string phase_marks(const Recording& recording, const PeakStep& step, std::size_t width) {
  std::string ticks(width, '-'), names(width, ' ');
  const auto column = [&](std::int64_t ns) {
    const double at = static_cast<double>(ns - step.begin_ns) /
                      static_cast<double>(std::max<std::int64_t>(step.end_ns - step.begin_ns, 1));
    return std::min(width - 1, static_cast<std::size_t>(at * static_cast<double>(width)));
  };
  std::size_t free_from = 0;
  for (const Recording::PhaseRun& run : recording.phases) {
    if (run.begin_ns < step.begin_ns || run.end_ns > step.end_ns) continue;
    const std::size_t begin = column(run.begin_ns), end = column(run.end_ns);
    ticks[begin] = '|';
    ticks[end] = '|';
    const std::string_view name = name_of(run.phase);
    const std::size_t center = (begin + end) / 2;
    for (const std::size_t length : {name.size(), std::size_t{3}}) {
      std::size_t first = center >= length / 2 ? center - length / 2 : 0;
      first = std::min(first, width - std::min(width, length));
      // A phase may be narrower than its short name, if nothing else is there.
      const bool fits = (length == 3 || length <= end - begin + 2) && first >= free_from &&
                        first + length <= width;
      if (!fits) continue;
      names.replace(first, length, name.substr(0, length));
      free_from = first + length + 1;
      break;
    }
  }
  names.erase(names.find_last_not_of(' ') + 1);
  return fmt::format("{:>9} +{}> Time\n{:>9}  {}\n", "", ticks, "", names);
}

}  // namespace

double tick_distance(double top, int ticks) {
  if (!(top > 0)) return 1;
  const double least = top / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

PeakStep peak_step(const Recording& recording) {
  const auto peak = std::ranges::max_element(recording.memory, {}, &Recording::MemoryChange::live);
  if (!recording.steps.empty() && peak != recording.memory.end()) {
    // A peak outside the steps, such as before the first, is nearest to the first that follows.
    auto step = std::ranges::find_if(
        recording.steps, [&](const Recording::Step& s) { return peak->time_ns <= s.end_ns; });
    if (step == recording.steps.end()) --step;
    return {step->step, step->begin_ns, step->end_ns};
  }
  const TimeSpan span = recorded_span(recording);
  return {0, span.begin_ns, span.end_ns};
}

std::string memory_timeline_text(const Recording& recording, std::size_t width) {
  if (recording.memory.empty()) return "no memory was recorded\n";
  width = std::max<std::size_t>(width, 16);
  const PeakStep step = peak_step(recording);
  const MemoryTimeline timeline = memory_timeline(recording, step.begin_ns, step.end_ns);
  const std::vector<double> columns = column_peaks(timeline, width);
  const auto [low, high] = std::ranges::minmax(timeline.points, {}, &MemoryPoint::live);
  const double tick = tick_distance(static_cast<double>(high.live) * 1e-6, 6);
  const int ticks =
      std::max(1, static_cast<int>(std::ceil(static_cast<double>(high.live) * 1e-6 / tick - 1e-9)));
  const int rows_per_tick = std::max(2, 12 / ticks), rows = rows_per_tick * ticks;
  const double rows_per_byte = rows_per_tick / (tick * 1e6);

  std::string text = "Memory (MB)";
  if (step.step > 0) text += fmt::format(" in step {}", step.step);
  text += "   ░ alive throughout   █ comes and goes\n";
  for (int row = rows; row-- > 0;) {
    // A row's label is the height of its upper edge.
    text += (row + 1) % rows_per_tick == 0
                ? fmt::format("{:>9.6g} |", tick * (row + 1) / rows_per_tick)
                : fmt::format("{:>9} |", "");
    std::string line;
    for (const double bytes : columns)
      line += cell(bytes * rows_per_byte, static_cast<double>(low.live) * rows_per_byte, row);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += phase_marks(recording, step, width);
  text += fmt::format("{:>9}  {:<{}}{:>12}\n", "", "0", width - 12,
                      format_duration(static_cast<double>(step.end_ns - step.begin_ns) * 1e-9));
  return text;
}

}  // namespace ridge
