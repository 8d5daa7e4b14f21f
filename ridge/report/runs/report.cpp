#include "ridge/report/runs/report.h"

#include <fmt/format.h>

#include <chrono>

#include "ridge/base/units.h"
#include "ridge/report/runs/sections.h"
#include "ridge/session/json.h"
#include "ridge/study/run_exchange.h"
#include "ridge/study/study_text.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

std::string title_of(const ReportFacts& facts) {
  if (!facts.result.gathered) return fmt::format("Study {}", facts.result.name);
  if (!facts.result.name.empty()) return fmt::format("Runs of the study {}", facts.result.name);
  return fmt::format("Report of {}", counted(facts.runs, "run"));
}

std::string now() {
  std::string text =
      utc_text(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()))
          .substr(0, 16);
  text[10] = ' ';
  return text + " UTC";
}

Json places_json(const std::vector<RunPlace>& places) {
  Json list = Json::array();
  for (const RunPlace& place : places)
    list.push_back({{"runs", place.runs}, {"run", Json::parse(row_json(place.row))}});
  return list;
}

Json comparisons_json(const ReportFacts& facts) {
  constexpr std::string_view bases[] = {"rounds", "runs", "steps"};
  Json list = Json::array();
  for (const StudyComparison& comparison : facts.comparisons) {
    Json& json = list.emplace_back();
    json = {{"variant", comparison.after},
            {"against", comparison.before},
            {"time_ratio", comparison.time.value},
            {"interval", nullptr},
            {"basis", bases[static_cast<int>(comparison.basis)]},
            {"counts", {comparison.count_after, comparison.count_before}},
            {"peak_memory_ratio", nullptr}};
    if (comparison.time.interval)
      json["interval"] = {comparison.time.interval->low, comparison.time.interval->high};
    if (comparison.memory) json["peak_memory_ratio"] = *comparison.memory;
  }
  return list;
}

Json findings_json(const ReportFacts& facts) {
  Json list = Json::array();
  for (const ReportFinding& finding : findings_of(facts))
    list.push_back({{"statement", finding.statement}, {"evidence", finding.evidence}});
  return list;
}

Json commands_json(const ReportSection& section) {
  Json list = Json::array();
  for (const ReportBlock& block : section.blocks)
    if (const auto* commands = std::get_if<ReportCommands>(&block))
      for (const std::string& line : commands->lines) list.push_back(line);
  return list;
}

}  // namespace

RunsReport report_runs(Store& store, StudyResult result, const std::vector<std::string>& command) {
  const ReportFacts facts = facts_of(store, std::move(result));
  const std::vector<std::string> summary = summary_of(facts);
  RunsReport report;
  report.document.title = title_of(facts);
  report.document.subtitle =
      fmt::format("{} of {}, reported {}", counted(facts.runs, "run"),
                  counted(std::ssize(facts.result.variants), "variant"), now());
  std::string paragraph;
  for (const std::string& sentence : summary)
    paragraph += (paragraph.empty() ? "" : " ") + sentence;
  ReportSection commands = commands_section(facts, command);
  const Json all_commands = commands_json(commands);
  report.document.sections = {{.heading = "Summary", .blocks = {ReportText{paragraph}}},
                              method_section(facts),
                              results_section(facts),
                              findings_section(facts),
                              std::move(commands)};
  report.json = text_of({{"schema", "ridge-report-1"},
                         {"title", report.document.title},
                         {"summary", summary},
                         {"method", method_of(facts)},
                         {"machines", places_json(facts.machines)},
                         {"programs", places_json(facts.programs)},
                         {"study", Json::parse(study_json(facts.result))},
                         {"comparisons", comparisons_json(facts)},
                         {"findings", findings_json(facts)},
                         {"commands", all_commands}});
  return report;
}

}  // namespace ridge
