#include "ridge/profile/system_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridge/base/lines.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr int cores_shown = 16;  // of more only the busiest and the idlest are

// A mean over time. Of a total it is what it grew by, which no window smooths.
std::optional<SystemRow> row_of(const SystemSamples& samples, std::size_t s) {
  const std::vector<SystemPoint> points = points_of(samples, s);
  if (points.empty()) return std::nullopt;
  SystemRow row{.series = samples.series[s],
                .min = points.front().value,
                .max = points.front().value,
                .max_at_ns = points.front().begin_ns};
  double sum = 0, time = 0;
  for (const SystemPoint& point : points) {
    const auto lasted =
        static_cast<double>(std::max<std::int64_t>(point.end_ns - point.begin_ns, 1));
    sum += point.value * lasted;
    time += lasted;
    row.min = std::min(row.min, point.value);
    if (point.value <= row.max) continue;
    row.max = point.value;
    row.max_at_ns = point.begin_ns;
  }
  row.mean = std::clamp(sum / time, row.min, row.max);
  return row;
}

TextRow text_of(const SystemSamples& samples, const SystemRow& row, const std::string& name) {
  const SystemUnit unit = row.series.unit;
  return {name, value_text(unit, row.mean), value_text(unit, row.min), value_text(unit, row.max),
          when_text(samples, row.max_at_ns)};
}

bool is_of_cores(const SystemRow& row, SystemGroup group) {
  return row.series.core >= 0 && row.series.group == group;
}

// The rows that stand for so many cores that nobody would read all.
std::vector<TextRow> extremes_of_cores(const SystemSamples& samples, const SystemReport& report,
                                       SystemGroup group) {
  std::vector<const SystemRow*> cores;
  for (const SystemRow& row : report.rows)
    if (is_of_cores(row, group)) cores.push_back(&row);
  if (cores.empty()) return {};
  const auto by_mean = [](const SystemRow* row) { return row->mean; };
  const SystemRow& most = **std::ranges::max_element(cores, {}, by_mean);
  const SystemRow& least = **std::ranges::min_element(cores, {}, by_mean);
  return {text_of(samples, most, most.series.name + " (most)"),
          text_of(samples, least, least.series.name + " (least)")};
}

std::string table_text(const SystemSamples& samples, const SystemReport& report) {
  const TextColumn columns[] = {{"Counter", true}, {"Mean"}, {"Min"}, {"Max"}, {"Max at"}};
  const bool all_cores = samples.cores <= cores_shown;
  std::vector<TextRow> rows;
  std::string zeros;
  const auto append = [&](std::vector<TextRow> more) {
    if (!rows.empty() && !more.empty()) rows.push_back({});
    rows.insert(rows.end(), more.begin(), more.end());
  };
  for (int g = 0; g <= static_cast<int>(SystemGroup::power); ++g) {
    const auto group = static_cast<SystemGroup>(g);
    std::vector<TextRow> of_group;
    for (const SystemRow& row : report.rows) {
      if (row.series.group != group || (!all_cores && row.series.core >= 0)) continue;
      if (row.max == 0)
        zeros += fmt::format("{}{}", zeros.empty() ? "" : "; ", row.series.name);
      else
        of_group.push_back(text_of(samples, row, row.series.name));
    }
    if (!all_cores)
      for (TextRow& row : extremes_of_cores(samples, report, group))
        of_group.push_back(std::move(row));
    append(std::move(of_group));
  }
  std::string text = text_table(columns, rows);
  if (!zeros.empty())
    text += wrapped(fmt::format("0 all the time: {}", zeros), sentence_width, "  ") + "\n";
  return text;
}

std::string processes_text(const SystemSamples& samples) {
  constexpr std::size_t most = 20;
  const TextColumn columns[] = {{"Process", true}, {"Id"},        {"Seen from"},
                                {"for"},           {"Core time"}, {"Peak resident"}};
  std::vector<ProcessUse> busiest = samples.processes;
  std::ranges::stable_sort(busiest, std::greater{}, &ProcessUse::seconds);
  std::vector<TextRow> rows;
  for (const ProcessUse& process : busiest) {
    if (rows.size() == most) break;
    rows.push_back({process.name, fmt::format("{}", process.id),
                    when_text(samples, process.begin_ns),
                    format_duration(1e-9 * static_cast<double>(process.end_ns - process.begin_ns)),
                    format_duration(process.seconds), format_bytes(process.peak_bytes)});
  }
  if (rows.empty()) return "";
  std::string text = "\n" + text_table(columns, rows);
  if (busiest.size() > rows.size())
    text += fmt::format("and {} more processes\n", busiest.size() - rows.size());
  return text;
}

// Four digits are more than a sampler knows.
Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0 || std::abs(value) >= 1e4) return std::round(value);
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3);
  return std::strtod(fmt::format("{:.6g}", std::round(value / unit) * unit).c_str(), nullptr);
}

// The means of equal stretches of time; null where there is no point.
Json bins_of(const std::vector<SystemPoint>& points, std::int64_t begin_ns, double bin_ns,
             std::size_t bins) {
  std::vector<double> sum(bins, 0), time(bins, 0);
  for (const SystemPoint& point : points) {
    const double from = static_cast<double>(point.begin_ns - begin_ns) / bin_ns;
    const double to = std::max(static_cast<double>(point.end_ns - begin_ns) / bin_ns, from + 1e-6);
    const auto last = static_cast<double>(bins);
    for (double at = std::clamp(from, 0.0, last); at < std::min(to, last);) {
      const auto bin = static_cast<std::size_t>(at);
      const double end = std::min(static_cast<double>(bin + 1), to);
      sum[bin] += point.value * (end - at);
      time[bin] += end - at;
      at = end;
    }
  }
  Json values = Json::array();
  for (std::size_t i = 0; i < bins; ++i)
    values.push_back(time[i] > 0 ? short_number(sum[i] / time[i]) : Json(nullptr));
  return values;
}

Json json_of(const ProcessUse& process, std::int64_t zero_ns) {
  Json json = {{"id", process.id}, {"name", process.name}, {"core_seconds", process.seconds}};
  if (process.end_ns == 0) return json;  // nobody looked when it began
  json["begin_ns"] = process.begin_ns - zero_ns;
  json["end_ns"] = process.end_ns - zero_ns;
  json["peak_resident_bytes"] = process.peak_bytes;
  return json;
}

}  // namespace

SystemSamples samples_of_card(std::span<const CardState> states, const std::string& card) {
  SystemSamples samples;
  if (states.empty()) return samples;
  const auto add = [&](std::string_view name, SystemUnit unit) {
    samples.series.push_back(
        {.name = fmt::format("{} {}", card, name), .group = SystemGroup::power, .unit = unit});
  };
  add("busy", SystemUnit::percent);
  add("SM clock", SystemUnit::megahertz);
  add("memory clock", SystemUnit::megahertz);
  add("power", SystemUnit::watts);
  add("temperature", SystemUnit::celsius);
  for (const CardState& state : states) {
    samples.time_ns.push_back(state.time_ns);
    for (const double value :
         {double(state.busy_percent), double(state.sm_mhz), double(state.memory_mhz), state.power_w,
          double(state.temperature_c)})
      samples.values.push_back(value);
  }
  return samples;
}

std::vector<SystemRow> system_rows(const SystemSamples& samples) {
  std::vector<SystemRow> rows;
  for (std::size_t s = 0; s < samples.series.size(); ++s)
    if (auto row = row_of(samples, s)) rows.push_back(std::move(*row));
  return rows;
}

SystemReport report_system(const SystemSamples& samples, std::span<const SystemSamples> cards) {
  SystemReport report{.rows = system_rows(samples), .findings = system_findings(samples)};
  for (const SystemSamples& card : cards)
    for (SystemRow& row : system_rows(card)) report.rows.push_back(std::move(row));
  return report;
}

std::string when_text(const SystemSamples& samples, std::int64_t time_ns) {
  for (const SystemSamples::Step& step : samples.steps)
    if (step.begin_ns <= time_ns && time_ns < step.end_ns) return fmt::format("step {}", step.step);
  const std::int64_t since = samples.time_ns.empty() ? 0 : time_ns - samples.time_ns.front();
  return since <= 0 ? "the start" : format_duration(1e-9 * static_cast<double>(since));
}

std::string value_text(SystemUnit unit, double value) {
  const auto bytes = static_cast<std::uint64_t>(std::max(value, 0.0));
  switch (unit) {
    case SystemUnit::percent:
      return fmt::format("{:.1f} %", value);
    case SystemUnit::cores:
      return fmt::format("{:.2f} cores", value);
    case SystemUnit::megahertz:
      return fmt::format("{:.0f} MHz", value);
    case SystemUnit::bytes:
      return format_bytes(bytes);
    case SystemUnit::bytes_per_second:
      return format_bytes(bytes) + "/s";
    case SystemUnit::per_second:
      return value < 10 ? fmt::format("{:.1f} /s", value)
                        : fmt::format("{} /s", format_count(std::llround(value)));
    case SystemUnit::watts:
      return fmt::format("{:.1f} W", value);
    case SystemUnit::celsius:
      return fmt::format("{:.0f} C", value);
    case SystemUnit::count:
      break;
  }
  return fmt::format("{:.4g}", value);
}

std::string system_text(const SystemSamples& samples, const SystemReport& report) {
  Lines line;
  const double seconds = std::max(samples.seconds(), 1e-9);
  const std::size_t count = samples.time_ns.size();
  line("The system: {} in {}, one in {} ({} asked for); the sampler took {:.2g} % of a core",
       counted(static_cast<std::int64_t>(count), "sample"), format_duration(seconds),
       format_duration(seconds / static_cast<double>(std::max<std::size_t>(count, 2) - 1)),
       format_duration(samples.interval_seconds), 100 * samples.sampling_seconds / seconds);
  std::string text = line.text + table_text(samples, report) + processes_text(samples);
  text += report.findings.empty() ? "Beside the program: nothing that this report looks for\n"
                                  : "Beside the program:\n";
  std::size_t number = 0;
  for (const SystemFinding& finding : report.findings)
    text +=
        wrapped(fmt::format("{}. {} {} [{}]", ++number, finding.what, finding.remedy, finding.rule),
                sentence_width, "   ") +
        "\n";
  if (!samples.missing.empty()) text += "Not known here:\n";
  for (const std::string& missing : samples.missing)
    text += wrapped("- " + missing, sentence_width, "  ") + "\n";
  return text;
}

std::string system_json(const SystemSamples& samples, std::span<const SystemSamples> cards,
                        const SystemReport& report, std::size_t most_bins) {
  const std::int64_t zero = samples.time_ns.empty() ? 0 : samples.time_ns.front();
  const double duration_ns = std::max(1.0, 1e9 * samples.seconds());
  const std::size_t bins = std::clamp<std::size_t>(samples.time_ns.size() - 1, 1, most_bins);
  const double bin_ns = duration_ns / static_cast<double>(bins);
  Json series = Json::array();
  auto row = report.rows.begin();
  const auto add = [&](const SystemSamples& part) {
    for (std::size_t s = 0; s < part.series.size() && row != report.rows.end(); ++s) {
      if (row->series.name != part.series[s].name) continue;
      Json one = {{"name", row->series.name},
                  {"group", name_of(row->series.group)},
                  {"unit", name_of(row->series.unit)}};
      if (row->series.core >= 0) one["core"] = row->series.core;
      one["mean"] = row->mean;
      one["min"] = row->min;
      one["max"] = row->max;
      one["max_at_ns"] = row->max_at_ns - zero;
      one["values"] = bins_of(points_of(part, s), zero, bin_ns, bins);
      series.push_back(std::move(one));
      ++row;
    }
  };
  add(samples);
  for (const SystemSamples& card : cards) add(card);
  Json steps = Json::array(), others = Json::array(), processes = Json::array(),
       findings = Json::array();
  for (const SystemSamples::Step& step : samples.steps)
    steps.push_back(
        {{"step", step.step}, {"begin_ns", step.begin_ns - zero}, {"end_ns", step.end_ns - zero}});
  for (const ProcessUse& process : samples.others) others.push_back(json_of(process, zero));
  for (const ProcessUse& process : samples.processes) processes.push_back(json_of(process, zero));
  for (const SystemFinding& finding : report.findings)
    findings.push_back(
        {{"rule", finding.rule}, {"what", finding.what}, {"remedy", finding.remedy}});
  const Json json = {{"schema", "ridge-system/1"},
                     {"duration_ns", std::llround(duration_ns)},
                     {"samples", samples.time_ns.size()},
                     {"interval_seconds", samples.interval_seconds},
                     {"sampler_core_share", samples.sampling_seconds / (1e-9 * duration_ns)},
                     {"cores", samples.cores},
                     {"memory_bytes", samples.memory_bytes},
                     {"other_processes_cores", short_number(samples.others_cores)},
                     {"bin_ns", bin_ns},
                     {"series", std::move(series)},
                     {"steps", std::move(steps)},
                     {"others", std::move(others)},
                     {"processes", std::move(processes)},
                     {"findings", std::move(findings)},
                     {"missing", samples.missing}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

// The card of a recording, if there is one.
std::vector<SystemSamples> cards_of(const Recording& recording) {
  if (recording.card.empty()) return {};
  return {samples_of_card(recording.card)};
}

}  // namespace

std::optional<std::string> system_text(const Recording& recording) {
  if (!recording.system) return std::nullopt;
  return system_text(*recording.system, report_system(*recording.system, cards_of(recording)));
}

std::optional<std::string> system_json(const Recording& recording) {
  if (!recording.system) return std::nullopt;
  const std::vector<SystemSamples> cards = cards_of(recording);
  return system_json(*recording.system, cards, report_system(*recording.system, cards));
}

}  // namespace ridge
