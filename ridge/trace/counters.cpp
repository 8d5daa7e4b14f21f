#include "ridge/trace/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

constexpr std::size_t most_cores = 16;

std::int64_t first_time(const Trace& trace) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t begin : trace.events.begin_ns) first = std::min(first, begin);
  for (const CounterPoint& point : trace.counters) first = std::min(first, point.time_ns);
  return first;
}

CounterSum sum_of(std::vector<CounterPoint>& points, std::int64_t zero_ns) {
  std::ranges::stable_sort(points, {}, &CounterPoint::time_ns);
  CounterSum sum{.points = points.size(),
                 .min = points.front().value,
                 .max = points.front().value,
                 .max_at_us = us(points.front().time_ns - zero_ns)};
  double weighted = 0, plain = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double value = points[i].value;
    if (i + 1 < points.size()) weighted += value * us(points[i + 1].time_ns - points[i].time_ns);
    plain += value;
    sum.min = std::min(sum.min, value);
    if (value <= sum.max) continue;
    sum.max = value;
    sum.max_at_us = us(points[i].time_ns - zero_ns);
  }
  const double span = us(points.back().time_ns - points.front().time_ns);
  sum.mean = std::clamp(span > 0 ? weighted / span : plain / static_cast<double>(points.size()),
                        sum.min, sum.max);
  return sum;
}

// "1.25 GiB" of a name that ends in "(B)", "1.25 GiB/s" in "(B/s)"; of others the number.
std::string value_text(std::string_view name, double value) {
  const bool rate = name.ends_with("(B/s)");
  if ((rate || name.ends_with("(B)")) && value >= 0 && value < 0x1p63)
    return format_bytes(static_cast<std::uint64_t>(value)) + (rate ? "/s" : "");
  constexpr double exact = 1e3, most = 1e15;  // from where digits behind the point say nothing
  if (value == std::round(value) || std::abs(value) >= exact)
    if (std::abs(value) < most) return format_count(std::llround(value));
  return fmt::format("{:.4g}", value);
}

bool is_of_core(const CounterSum& counter) {
  return counter.name.starts_with("core ") && counter.name.size() > 5 && counter.name[5] >= '0' &&
         counter.name[5] <= '9';
}

}  // namespace

std::string name_of(const Trace& trace, const CounterSeries& series) {
  const std::string &name = trace.texts[series.name], &argument = trace.texts[series.argument];
  return argument == "value" || argument == name ? name : fmt::format("{}: {}", name, argument);
}

std::vector<CounterSum> counter_sums(const Trace& trace) {
  std::vector<std::vector<CounterPoint>> points(trace.counter_series.size());
  for (const CounterPoint& point : trace.counters) points[point.series].push_back(point);
  const std::int64_t zero_ns = first_time(trace);
  std::vector<CounterSum> sums;
  for (std::size_t s = 0; s < points.size(); ++s) {
    const CounterSeries& series = trace.counter_series[s];
    const std::string& category = trace.texts[series.category];
    if (points[s].empty() || category == "memory") continue;
    CounterSum sum = sum_of(points[s], zero_ns);
    const auto process = trace.process_names.find(series.process);
    sum.process = process == trace.process_names.end() ? series.process : process->second;
    sum.name = name_of(trace, series);
    sum.category = category;
    sums.push_back(std::move(sum));
  }
  return sums;
}

std::string counters_text(const std::vector<CounterSum>& counters) {
  if (counters.empty()) return "";
  const auto cores = static_cast<std::size_t>(std::ranges::count_if(counters, is_of_core));
  std::set<std::string> processes;
  for (const CounterSum& counter : counters) processes.insert(counter.process);
  const TextColumn columns[] = {{"Counter", true, 60}, {"Mean"}, {"Min"}, {"Max"}, {"Max at"}};
  std::vector<TextRow> rows;
  std::string zeros;
  for (const CounterSum& counter : counters) {
    if (cores > 2 * most_cores && is_of_core(counter)) continue;
    const std::string name =
        processes.size() > 1 ? fmt::format("{}: {}", counter.process, counter.name) : counter.name;
    if (counter.min == 0 && counter.max == 0)
      zeros += fmt::format("{}{}", zeros.empty() ? "" : "; ", printable(name));
    else
      rows.push_back({name, value_text(counter.name, counter.mean),
                      value_text(counter.name, counter.min), value_text(counter.name, counter.max),
                      time(counter.max_at_us)});
  }
  std::string text = "\nThe system\n" + text_table(columns, rows);
  if (!zeros.empty()) text += wrapped("0 all the time: " + zeros, sentence_width, "  ") + "\n";
  if (cores > 2 * most_cores)
    text += fmt::format("{} counters of single cores are left out: --json has them.\n", cores);
  return text;
}

}  // namespace ridge::trace
