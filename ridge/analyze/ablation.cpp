#include "ridge/analyze/ablation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/ops/op.h"
#include "ridge/passes/schedules.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(const std::string& list, std::string_view name) {
  return list.empty() ? std::string(name) : fmt::format("{},{}", list, name);
}

bool is_same(const Graph& a, const Graph& b) {
  const auto alike = [](const Node& x, const Node& y) {
    return x.op->variant() == y.op->variant() && x.inputs == y.inputs && x.outputs == y.outputs &&
           x.phase == y.phase;
  };
  if (!std::ranges::equal(a.nodes(), b.nodes(), alike) || a.value_count() != b.value_count())
    return false;
  for (ValueId id = 0; id < a.value_count(); ++id)
    if (a.info(id).persistent != b.info(id).persistent) return false;
  return true;
}

// Names each schedule at the row of its last pass.
void name_schedules(std::vector<AblationStep>& steps, const ScheduleRow& from,
                    const ScheduleRow& to) {
  steps.front().version = from.name;
  for (const ScheduleRow& row : schedules()) {
    if (row.kind != to.kind || row.passes.size() <= from.passes.size() ||
        row.passes.size() > to.passes.size())
      continue;
    for (std::size_t i = steps.size(); i-- > 0;)
      if (i == 0 || std::ranges::find(row.passes, steps[i].pass) != row.passes.end()) {
        if (i > 0) steps[i].version = row.name;
        break;
      }
    if (row.name == to.name) return;  // rows behind it may have as few passes
  }
}

std::string ratio_text(const Ratio& ratio) {
  if (!ratio.interval) return fmt::format("{:.3f}", ratio.value);
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio.value, ratio.interval->low,
                     ratio.interval->high);
}

Json ratio_json(const Ratio& ratio) {
  Json json{{"ratio", ratio.value}, {"low", nullptr}, {"high", nullptr}};
  if (ratio.interval) json["low"] = ratio.interval->low, json["high"] = ratio.interval->high;
  json["change"] = name_of(change_of(ratio));
  return json;
}

// The cells of a row after its names, as text.
TextRow figures_of(const AblationRow& row, bool first) {
  return {fmt::format("{:.3f}", row.seconds * 1e3),
          first ? "" : ratio_text(row.to_before),
          first ? "" : std::string(name_of(change_of(row.to_before))),
          first ? "" : ratio_text(row.to_first),
          fmt::format("{:.1f}", static_cast<double>(row.peak_bytes) / 1e6),
          format_count(row.kernels),
          fmt::format("{:.1f}", static_cast<double>(row.bytes) / 1e6),
          fmt::format("{:.3f}", static_cast<double>(row.flops) / 1e9)};
}

std::vector<TextColumn> columns_of(const Ablation& ablation) {
  return {{"Pass", true}, {"Version", true},
          {"ms/step"},    {"To the row before"},
          {"", true},     {"To " + ablation.rows.front().version},
          {"Peak MB"},    {"Kernels"},
          {"MB moved"},   {"GFLOP"}};
}

TextRow cells_of(const Ablation& ablation, const AblationRow& row) {
  const bool first = &row == &ablation.rows.front();
  TextRow cells{first ? "(none)" : row.pass, row.version};
  for (std::string& cell : figures_of(row, first)) cells.push_back(std::move(cell));
  return cells;
}

// What the figures mean.
std::string legend(const Ablation& ablation) {
  const Rounds& r = ablation.rounds;
  std::string text = fmt::format(
      "Each row has its pass and all above it. Times: median over {} rounds of {} steps after {} "
      "to "
      "warm up; in a round all rows take turns. Ratios: median of those within each round, which "
      "need not be the ratio of the medians, with their 95 % interval; where that contains 1 there "
      "is no clear change.",
      r.rounds, r.steps, r.warmup);
  if (!ablation.rows.front().to_first.interval) text += " Fewer than 6 rounds give no interval.";
  return text +
         " Memory, kernels, bytes (each operand of each kernel once) and FLOPs (attention in full) "
         "are read off the graph.";
}

constexpr std::string_view page_start = R"(<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Ablation</title>
<style>
:root { color-scheme:light dark }
body { font:14px/1.5 system-ui,sans-serif; max-width:1100px; margin:2em auto; padding:0 1em;
  background:#fff; color:#1f2328 }
svg { width:100%; height:auto }
.wide { overflow-x:auto }
table { border-collapse:collapse; font-size:13px; font-variant-numeric:tabular-nums }
th, td { padding:.25em .7em; text-align:right; border-bottom:1px solid #8884; white-space:nowrap }
th:nth-child(-n+2), td:nth-child(-n+2), td:nth-child(5) { text-align:left }
.faster { color:#1a7f37 } .slower { color:#cf222e } .quiet { color:#6b7280 }
@media (prefers-color-scheme:dark) {
  body { background:#15171a; color:#ddd }
  .faster { color:#4ac26b } .slower { color:#ff8182 } .quiet { color:#9198a1 }
}
</style>
)";

}  // namespace

std::vector<AblationStep> ablation_steps(const RunOptions& options, Device& device,
                                         std::string_view from, std::string_view to) {
  const ScheduleRow& first = schedule_row(from);
  const ScheduleRow& last = schedule_row(to);
  RunOptions now = options, then = options;
  now.version = from;
  then.version = to;
  const Schedule has = now.schedule(device.target()), wants = then.schedule(device.target());
  std::vector<AblationStep> steps{{"", std::string(first.description), "", now}};
  auto graph = std::make_unique<Graph>();
  build_graph(*graph, now, device.target());
  for (const std::string_view pass : last.passes) {
    if (has.has(pass) || !wants.has(pass)) continue;
    now.enable_pass = joined(now.enable_pass, pass);
    if (pass_named(pass).stage != Stage::run) {
      auto after = std::make_unique<Graph>();
      build_graph(*after, now, device.target());
      if (is_same(*graph, *after)) continue;  // it found nothing; what comes may need it
      graph = std::move(after);
    }
    steps.push_back({std::string(pass), std::string(pass_named(pass).description), "", now});
  }
  if (steps.size() == 1)
    throw UsageError("{} adds no pass to {}: let --from be before --to", to, from);
  name_schedules(steps, first, last);
  return steps;
}

AblationRow ablation_row(const AblationStep& step, const TimedVariant& timed,
                         const StepPlan& plan) {
  const Cost work = plan.cost.total();
  return {.pass = step.pass,
          .description = step.description,
          .version = step.version,
          .round_seconds = timed.by_round(),
          .peak_bytes = plan.memory.peak_bytes,
          .kernels = plan.launches,
          .bytes = work.bytes(),
          .flops = work.flops};
}

void compare_rows(std::vector<AblationRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    AblationRow& row = rows[i];
    const AblationRow& before = rows[i == 0 ? 0 : i - 1];
    row.seconds = percentile(row.round_seconds, 0.5);
    row.to_before = paired_ratio(row.round_seconds, before.round_seconds);
    row.to_first = paired_ratio(row.round_seconds, rows.front().round_seconds);
  }
}

std::string ablation_text(const Ablation& ablation) {
  std::vector<TextRow> cells;
  for (const AblationRow& row : ablation.rows) {
    cells.push_back(cells_of(ablation, row));
    if (!row.version.empty() && &row != &ablation.rows.back()) cells.emplace_back();
  }
  return fmt::format("{}\non {}\n\n{}\n{}\n", ablation.model, ablation.device,
                     text_table(columns_of(ablation), cells),
                     wrapped(legend(ablation), sentence_width));
}

std::string ablation_json(const Ablation& ablation) {
  Json rows = Json::array();
  for (const AblationRow& row : ablation.rows) {
    const bool first = &row == &ablation.rows.front();
    rows.push_back({{"pass", first ? Json() : Json(row.pass)},
                    {"version", row.version.empty() ? Json() : Json(row.version)},
                    {"description", row.description},
                    {"seconds", row.seconds},
                    {"to_row_before", first ? Json() : ratio_json(row.to_before)},
                    {"to_first", first ? Json() : ratio_json(row.to_first)},
                    {"peak_bytes", row.peak_bytes},
                    {"kernels", row.kernels},
                    {"bytes", row.bytes},
                    {"flops", row.flops},
                    {"round_seconds", row.round_seconds}});
  }
  return text_of({{"model", ablation.model},
                  {"device", ablation.device},
                  {"rounds", ablation.rounds.rounds},
                  {"steps_per_round", ablation.rounds.steps},
                  {"warmup_steps_per_round", ablation.rounds.warmup},
                  {"options", json_of(ablation.options)},
                  {"rows", rows}});
}

std::string ablation_html(const Ablation& ablation) {
  std::string page = std::string(page_start) +
                     fmt::format("<p>{}<br><span class=\"quiet\">{}</span></p>\n",
                                 xml_escaped(ablation.model), xml_escaped(ablation.device)) +
                     ablation_svg(ablation) + "<div class=\"wide\"><table>\n<tr>";
  for (const TextColumn& column : columns_of(ablation))
    page += fmt::format("<th>{}</th>", xml_escaped(column.header));
  page += "</tr>\n";
  for (const AblationRow& row : ablation.rows) {
    const bool first = &row == &ablation.rows.front();
    const Change change = first ? Change::unclear : change_of(row.to_before);
    const std::string_view css = change == Change::faster || change == Change::slower
                                     ? name_of(change)
                                     : std::string_view("quiet");
    page += fmt::format("<tr title=\"{}\">", xml_escaped(row.description));
    const TextRow cells = cells_of(ablation, row);
    for (std::size_t c = 0; c < cells.size(); ++c)
      page += fmt::format("<td{}>{}</td>", c == 4 ? fmt::format(" class=\"{}\"", css) : "",
                          xml_escaped(cells[c]));
    page += "</tr>\n";
  }
  return page + fmt::format("</table></div>\n<p class=\"quiet\">{}</p>\n</html>\n",
                            xml_escaped(legend(ablation)));
}

}  // namespace ridge
