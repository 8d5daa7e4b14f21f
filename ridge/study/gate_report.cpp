#include "ridge/study/gate_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "ridge/base/markdown.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(double change) {
  return std::abs(change) < 1e-4 && change != 0 ? fmt::format("{:+.1e} %", 100 * change)
                                                : fmt::format("{:+.2f} %", 100 * change);
}

std::string value_text(const MetricResult& metric, const std::optional<double>& value) {
  if (!value) return "";
  if (metric.unit == "s") return format_duration(*value);
  if (metric.metric == "loss") return format_loss(*value);
  return format_count(std::llround(*value));
}

// "+5.12 % [+4.80, +5.44]"
std::string change_text(const MetricResult& metric) {
  if (!metric.change) return "";
  if (metric.metric == "loss")
    return *metric.change == 0 ? "0" : fmt::format("{:.2g}", *metric.change);
  if (!metric.interval) return percent(*metric.change);
  return fmt::format("{} [{:+.2f}, {:+.2f}]", percent(*metric.change), 100 * metric.interval->low,
                     100 * metric.interval->high);
}

std::string basis_text(const MetricResult& metric) {
  std::string text;
  if (metric.p_value) text = fmt::format("{} pairs of processes", metric.pairs);
  if (!metric.note.empty()) text += (text.empty() ? "" : "; ") + metric.note;
  return text;
}

std::string verdict_text(GateVerdict verdict) {
  return verdict == GateVerdict::regression ? "REGRESSION" : std::string(name_of(verdict));
}

// "3 regressions"
std::size_t count(const GateResult& result, GateVerdict verdict) {
  std::size_t found = 0;
  for (const CommandResult& command : result.commands)
    for (const MetricResult& metric : command.metrics) found += metric.verdict == verdict ? 1 : 0;
  return found;
}

std::string outcome_line(const GateResult& result) {
  switch (result.outcome()) {
    case GateResult::Outcome::fine:
      return "Fine: no regression";
    case GateResult::Outcome::regression:
      return fmt::format("Regression: {} of {} metrics", count(result, GateVerdict::regression),
                         count(result, GateVerdict::regression) + count(result, GateVerdict::fine) +
                             count(result, GateVerdict::undecided));
    case GateResult::Outcome::undecided:
      return fmt::format("Undecided: {} metrics; a larger --budget may decide them",
                         count(result, GateVerdict::undecided));
    case GateResult::Outcome::failed:
      return "Failed: a command could not be measured";
  }
  return {};
}

Json known(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

Json metric_json(const MetricResult& metric) {
  Json json{{"metric", metric.metric},
            {"unit", metric.unit},
            {"verdict", name_of(metric.verdict)},
            {"baseline", known(metric.baseline)},
            {"candidate", known(metric.candidate)},
            {"change", known(metric.change)},
            {"interval", Json()},
            {"least_effect", metric.least_effect},
            {"p_value", known(metric.p_value)},
            {"pairs", metric.pairs},
            {"note", metric.note}};
  if (metric.interval) json["interval"] = {metric.interval->low, metric.interval->high};
  return json;
}

std::string summary_of(const MetricResult& metric) {
  std::string text = fmt::format("{}: {} to {}", metric.metric, value_text(metric, metric.baseline),
                                 value_text(metric, metric.candidate));
  if (metric.change) text += fmt::format(", {}", change_text(metric));
  text += fmt::format("; the least effect is {}", metric.least_effect);
  if (const std::string basis = basis_text(metric); !basis.empty()) text += "; " + basis;
  return text;
}

const TextColumn gate_columns[] = {{"Metric", true},   {"Baseline"},     {"Candidate"},
                                   {"Change"},         {"Least effect"}, {"Verdict", true},
                                   {"Basis", true, 90}};

TextRow row_of(const MetricResult& metric) {
  return {metric.metric,
          value_text(metric, metric.baseline),
          value_text(metric, metric.candidate),
          change_text(metric),
          metric.least_effect,
          verdict_text(metric.verdict),
          basis_text(metric)};
}

}  // namespace

std::string gate_text(const GateResult& result) {
  std::string text = fmt::format("Baseline:  {}\nCandidate: {}\n", printable(result.baseline),
                                 printable(result.candidate));
  for (const CommandResult& command : result.commands) {
    text +=
        fmt::format("\n{} ({})\n", printable(command.command), format_duration(command.seconds));
    if (!command.fault.empty()) {
      text += printable(command.fault) + "\n";
      continue;
    }
    std::vector<TextRow> rows;
    for (const MetricResult& metric : command.metrics) rows.push_back(row_of(metric));
    text += text_table(gate_columns, rows);
    for (const std::string& note : command.notes) text += printable(note) + "\n";
  }
  return text + "\n" + outcome_line(result) + "\n";
}

std::string gate_json(const GateResult& result) {
  Json json{{"schema", "ridge-gate-1"},
            {"outcome", name_of(result.outcome())},
            {"baseline", result.baseline},
            {"candidate", result.candidate},
            {"false_alarms", result.false_alarms},
            {"commands", Json::array()}};
  for (const CommandResult& command : result.commands) {
    Json metrics = Json::array();
    for (const MetricResult& metric : command.metrics) metrics.push_back(metric_json(metric));
    json["commands"].push_back({{"command", command.command},
                                {"seconds", command.seconds},
                                {"fault", command.fault},
                                {"notes", command.notes},
                                {"metrics", metrics}});
  }
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

// What is undecided is skipped: it is neither a success nor a failure.
std::string gate_junit(const GateResult& result) {
  std::size_t tests = 0, errors = 0;
  std::string suites;
  for (const CommandResult& command : result.commands) {
    const std::string name = xml_escaped("ridge gate " + command.command);
    std::string cases;
    std::size_t failures = 0, skipped = 0;
    for (const MetricResult& metric : command.metrics) {
      const std::string summary = xml_escaped(summary_of(metric));
      std::string inside = fmt::format("<system-out>{}</system-out>", summary);
      if (metric.verdict == GateVerdict::regression) {
        ++failures;
        inside = fmt::format("<failure type=\"regression\" message=\"{}\"/>", summary);
      } else if (metric.verdict == GateVerdict::undecided) {
        ++skipped;
        inside = fmt::format("<skipped message=\"undecided: {}\"/>", summary);
      }
      cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\">{}</testcase>\n", name,
                           xml_escaped(metric.metric), inside);
    }
    const bool failed = !command.fault.empty();
    if (failed)
      cases += fmt::format(
          "    <testcase classname=\"{0}\" name=\"run\"><error message=\"{1}\"/></testcase>\n",
          name, xml_escaped(command.fault));
    const std::size_t all = command.metrics.size() + (failed ? 1 : 0);
    tests += all;
    errors += failed ? 1 : 0;
    suites += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" "
        "time=\"{:.3f}\">\n{}  </testsuite>\n",
        name, all, failures, failed ? 1 : 0, skipped, command.seconds, cases);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ridge gate\" tests=\"{}\" "
      "failures=\"{}\" errors=\"{}\">\n{}</testsuites>\n",
      tests, count(result, GateVerdict::regression), errors, suites);
}

std::string gate_markdown(const GateResult& result) {
  std::string text =
      fmt::format("### {}\n\nBaseline {}, candidate {}\n", outcome_line(result),
                  markdown_escaped(result.baseline), markdown_escaped(result.candidate));
  for (const CommandResult& command : result.commands) {
    text += fmt::format("\n**{}**\n\n", markdown_escaped(command.command));
    if (!command.fault.empty()) {
      text += markdown_escaped(command.fault) + "\n";
      continue;
    }
    std::vector<TextRow> rows;
    for (const MetricResult& metric : command.metrics) rows.push_back(row_of(metric));
    text += markdown_table(gate_columns, rows);
    for (const std::string& note : command.notes) text += "\n" + markdown_escaped(note) + "\n";
  }
  return text;
}

}  // namespace ridge
