#include "ridge/profile/system_samples.h"

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

// The growth of a total: from the last reading that is a window ago, or else the first.
std::vector<SystemPoint> growth_of(const SystemSamples& samples, const SystemSeries& series,
                                   const std::vector<std::size_t>& read, std::size_t of) {
  std::vector<SystemPoint> points;
  std::size_t from = 0;  // an index of `read`
  for (std::size_t i = 1; i < read.size(); ++i) {
    const std::int64_t now = samples.time_ns[read[i]];
    while (from + 1 < i && now - samples.time_ns[read[from + 1]] >= series.window_ns) ++from;
    const std::int64_t since = now - samples.time_ns[read[from]];
    if (since <= 0 || (since < series.window_ns && i + 1 < read.size() && points.empty())) continue;
    const double grown = samples.at(read[i], of) - samples.at(read[from], of);
    const double value = std::min(
        std::max(0.0, grown) / (1e-9 * static_cast<double>(since)) * series.scale, series.most);
    const std::int64_t begin = points.empty() ? samples.time_ns[read[0]] : points.back().end_ns;
    points.push_back({begin, now, value});
  }
  return points;
}

}  // namespace

std::string_view name_of(SystemUnit unit) {
  static constexpr std::string_view names[] = {"%",   "cores", "MHz", "B", "B/s",
                                               "1/s", "W",     "C",   ""};
  return names[static_cast<std::size_t>(unit)];
}

std::string_view name_of(SystemGroup group) {
  static constexpr std::string_view names[] = {"cores", "frequency", "memory", "faults",
                                               "disk",  "network",   "power"};
  return names[static_cast<std::size_t>(group)];
}

std::size_t SystemSamples::find(std::string_view name) const {
  return static_cast<std::size_t>(std::ranges::find(series, name, &SystemSeries::name) -
                                  series.begin());
}

void SystemSamples::shift(std::int64_t ns) {
  for (std::int64_t& time : time_ns) time += ns;
  for (Step& step : steps) step.begin_ns += ns, step.end_ns += ns;
  for (std::vector<ProcessUse>* const list : {&others, &processes})
    for (ProcessUse& process : *list) process.begin_ns += ns, process.end_ns += ns;
}

std::vector<SystemPoint> points_of(const SystemSamples& samples, std::size_t series) {
  std::vector<std::size_t> read;  // samples that have it
  for (std::size_t i = 0; i < samples.time_ns.size(); ++i)
    if (!std::isnan(samples.at(i, series))) read.push_back(i);
  const SystemSeries& of = samples.series[series];
  if (of.is_total) return growth_of(samples, of, read, series);
  std::vector<SystemPoint> points;
  for (std::size_t i = 0; i < read.size(); ++i) {
    const std::int64_t end =
        i + 1 < read.size() ? samples.time_ns[read[i + 1]] : samples.time_ns.back();
    points.push_back({samples.time_ns[read[i]], end, samples.at(read[i], series)});
  }
  return points;
}

}  // namespace ridge
