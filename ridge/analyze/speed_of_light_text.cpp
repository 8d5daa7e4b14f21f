#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/analyze/speed_of_light.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

std::string percent_of(const LightRow& row, const std::string& unit) {
  const auto use = row.units.find(unit);
  if (use == row.units.end()) return "-";
  return fmt::format("{}{}", format_percent(use->second.part), use->second.counted ? "*" : "");
}

std::string bytes_text(double bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

// Rows of operators or of families of kernels.
std::string use_table(const SpeedOfLight& light, const std::vector<LightRow>& all,
                      const char* heading, std::size_t top) {
  std::vector<TextColumn> columns{{heading, true, 44}, {"Time"}, {"Share"}};
  for (const std::string& unit : light.units) columns.push_back({unit});
  const bool has_occupancy = light.all.occupancy > 0;
  if (has_occupancy) columns.push_back({"Occupancy"});
  columns.push_back({"Limit", true});
  std::vector<TextRow> rows;
  const auto add = [&](const LightRow& row) {
    TextRow cells{row.name, format_duration(row.seconds), format_percent(light.share(row))};
    for (const std::string& unit : light.units) cells.push_back(percent_of(row, unit));
    if (has_occupancy) cells.push_back(format_percent(row.occupancy) + "*");
    cells.push_back(row.limit);
    rows.push_back(std::move(cells));
  };
  for (const LightRow& row : std::span(all).first(std::min(top, all.size()))) add(row);
  if (all.size() > top) rows.push_back({fmt::format("{} more", all.size() - top)});
  rows.push_back({});
  add(light.all);
  return text_table(columns, rows);
}

std::string fits_table(const SpeedOfLight& light, std::size_t top) {
  const std::vector<TextColumn> columns{{"Kernel", true, 60}, {"Time"}, {"Block"}, {"Registers"},
                                        {"Shared"},           {"Fit"},  {"Waves"}, {"Occupancy"},
                                        {"Limit", true}};
  std::vector<TextRow> rows;
  std::string reasons;
  for (const KernelFit& fit : std::span(light.fits).first(std::min(top, light.fits.size()))) {
    const auto& block = fit.launch.block;
    rows.push_back({fit.name, format_duration(fit.seconds),
                    format_count(std::int64_t{block[0]} * block[1] * block[2]),
                    fmt::format("{}", fit.launch.registers),
                    bytes_text(double{static_cast<double>(fit.launch.static_shared)} +
                               fit.launch.dynamic_shared),
                    fmt::format("{}", fit.occupancy.blocks),
                    fmt::format("{:.1f}", fit.occupancy.waves), format_percent(fit.occupancy.part),
                    std::string(name_of(fit.occupancy.limit))});
    reasons += wrapped(fmt::format("  {}: {}\n", shortened(fit.name, 60), fit.why), sentence_width,
                       "    ");
  }
  return "Occupancy: thread blocks that fit into a multiprocessor, and the part of its warps\n" +
         text_table(columns, rows) + "Why no more fit:\n" + reasons;
}

std::string sources_text(const SpeedOfLight& light) {
  std::string text =
      light.counts()
          ? "* counted in hardware; what has no mark follows from each operator's FLOPs, "
            "from each operand moved once, the ceilings and the time."
          : "Nothing is counted: all follows from each operator's FLOPs, from each "
            "operand moved once, the ceilings and the time.";
  if (!light.fault.empty()) text += fmt::format(" Of hardware: {}.", light.fault);
  return wrapped(text + " Under Limit, latency: no unit is busy for 60 % of the time.\n",
                 sentence_width);
}

// The rows of two runs by name, in the order of the time of both.
struct RowPair {
  std::string name;
  const LightRow *before = nullptr, *after = nullptr;  // null: that run has no such operator

  double seconds() const { return (before ? before->seconds : 0) + (after ? after->seconds : 0); }
};
std::vector<RowPair> pairs_of(const SpeedOfLight& before, const SpeedOfLight& after) {
  std::vector<RowPair> pairs;
  for (const LightRow& row : before.operators) pairs.push_back({row.name, &row, nullptr});
  for (const LightRow& row : after.operators) {
    const auto found = std::ranges::find(pairs, row.name, &RowPair::name);
    if (found == pairs.end())
      pairs.push_back({row.name, nullptr, &row});
    else
      found->after = &row;
  }
  std::ranges::stable_sort(pairs, std::greater{}, &RowPair::seconds);
  return pairs;
}

std::vector<std::string> units_of_both(const SpeedOfLight& before, const SpeedOfLight& after) {
  std::vector<std::string> units = before.units;
  for (const std::string& unit : after.units)
    if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
  return units;
}

}  // namespace

std::string memory_levels_text(const SpeedOfLight& light, const LightRow& row) {
  constexpr std::size_t width = 16;
  const std::string border = "+" + std::string(width, '-') + "+\n";
  const auto box = [&](const std::string& name) {
    return border + fmt::format("|{:^{}}|\n", shortened(name, width), width) + border;
  };
  std::string text = box("registers");
  for (const std::string& level : light.units) {
    const auto traffic = row.levels.find(level);
    if (traffic == row.levels.end()) continue;
    const double rate = row.seconds > 0 ? traffic->second.bytes / row.seconds : 0;
    std::string line = fmt::format("{:>{}}  {}{} a step, {}B/s", "||", width / 2 + 2,
                                   bytes_text(traffic->second.bytes),
                                   traffic->second.counted ? "*" : "", format_si(rate));
    const auto known = std::ranges::find(light.roof.levels, level, &Roof::Level::name);
    if (known != light.roof.levels.end())
      line +=
          fmt::format(": {} of {}B/s", percent_of(row, level), format_si(known->bytes_per_second));
    std::string name = level;
    if (known != light.roof.levels.end() && known->capacity > 0)
      name += " " + format_bytes(known->capacity);
    text += line + "\n" + box(name);
  }
  return text;
}

std::string speed_of_light_text(const SpeedOfLight& light, std::size_t top) {
  std::string text = "Speed of light: how busy each unit is, of what it could do in the time\n" +
                     use_table(light, light.operators, "Operator", top);
  if (!light.kernels.empty())
    text +=
        "\nThe same by families of kernels, which share what their operators do by their time\n" +
        use_table(light, light.kernels, "Kernels", top);
  text += sources_text(light);
  if (!light.fits.empty()) text += "\n" + fits_table(light, top);
  return text + "\nBetween the levels of memory, in a step of all operators\n" +
         memory_levels_text(light, light.all);
}

std::string compared_light_text(const SpeedOfLight& before, const SpeedOfLight& after,
                                std::size_t top) {
  const std::vector<std::string> units = units_of_both(before, after);
  std::vector<TextColumn> columns{{"Operator", true, 44}, {"Time"}};
  for (const std::string& unit : units) columns.push_back({unit});
  columns.push_back({"Limit", true});
  std::vector<TextRow> rows;
  const auto both = [](const std::string& a, const std::string& b) {
    return a == b ? a : a + " > " + b;
  };
  const auto add = [&](const std::string& name, const LightRow* a, const LightRow* b) {
    const auto cell = [&](const auto& of) { return both(a ? of(*a) : "-", b ? of(*b) : "-"); };
    TextRow cells{name, cell([](const LightRow& row) { return format_duration(row.seconds); })};
    for (const std::string& unit : units)
      cells.push_back(cell([&](const LightRow& row) { return percent_of(row, unit); }));
    cells.push_back(cell([](const LightRow& row) { return row.limit; }));
    rows.push_back(std::move(cells));
  };
  const std::vector<RowPair> pairs = pairs_of(before, after);
  for (const RowPair& pair : std::span(pairs).first(std::min(top, pairs.size())))
    add(pair.name, pair.before, pair.after);
  if (pairs.size() > top) rows.push_back({fmt::format("{} more", pairs.size() - top)});
  rows.push_back({});
  add("all", &before.all, &after.all);
  std::string text = "Speed of light, before > after: a step of each\n" + text_table(columns, rows);
  if (before.roof.hardware != after.roof.hardware || before.roof.threads != after.roof.threads)
    text += wrapped(fmt::format("The machines differ: each run is held against its own, {} with "
                                "{} threads and {} with {}.\n",
                                before.roof.hardware, before.roof.threads, after.roof.hardware,
                                after.roof.threads),
                    sentence_width);
  return text;
}

std::string compared_light_json(const SpeedOfLight& before, const SpeedOfLight& after) {
  using Json = nlohmann::ordered_json;
  const auto json_of_row = [](const LightRow* row) {
    if (row == nullptr) return Json();
    Json units = Json::object();
    for (const auto& [unit, use] : row->units) units[unit] = use.part;
    return Json{{"seconds", row->seconds}, {"limit", row->limit}, {"units", std::move(units)}};
  };
  Json rows = Json::array();
  const auto add = [&](const std::string& name, const LightRow* a, const LightRow* b) {
    rows.push_back({{"name", name}, {"before", json_of_row(a)}, {"after", json_of_row(b)}});
  };
  for (const RowPair& pair : pairs_of(before, after)) add(pair.name, pair.before, pair.after);
  add("all", &before.all, &after.all);
  return Json{{"operators", std::move(rows)}}.dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace ridge
