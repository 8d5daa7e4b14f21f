#include "ridge/profile/trace_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ridge/base/units.h"
#include "ridge/base/utf8.h"
#include "ridge/profile/trace_facts.h"
#include "ridge/profile/trace_rules.h"

namespace ridge {
namespace {

using json = nlohmann::json;
using ordered_json = nlohmann::ordered_json;

// An event without its args, which would push its name out of sight.
std::string first_of(const json* event) {
  if (event == nullptr) return {};
  json shortened = *event;
  if (shortened.is_object()) shortened.erase("args");
  return shown(shortened.dump(-1, ' ', true, json::error_handler_t::replace));
}

std::vector<std::string> concerned(const TraceRule& rule) {
  std::vector<std::string> versions;
  for (const std::string_view version : trace_tools()[rule.tool].tried)
    if (version.find(rule.versions) != version.npos) versions.emplace_back(version);
  return versions;
}

TraceVerdict::Problem problem_of(const TraceRule& rule, const TraceRule::Finding& finding) {
  return {.rule = std::string(rule.name),
          .what = sentence_of(rule, finding),
          .fatal = rule.severity == TraceRule::Severity::refuses,
          .versions = concerned(rule),
          .count = finding.count,
          .first = first_of(finding.first)};
}

// What the rules of single events found, by the index of the rule.
class EventFindings {
 public:
  EventFindings() : found_(trace_rules().size()) {
    for (std::size_t i = 0; i < found_.size(); ++i)
      if (trace_rules()[i].of_event != nullptr)
        predicates_.emplace_back(trace_rules()[i].of_event, i);
  }

  void add(const TraceEvent& event) {
    for (const auto& [holds, rule] : predicates_)
      if (holds(event)) found_[rule].note(event.source);
  }

  const TraceTally& of(std::size_t rule) const { return found_[rule]; }

 private:
  std::vector<TraceTally> found_;
  std::vector<std::pair<bool (*)(const TraceEvent&), std::size_t>> predicates_;
};

std::string verdict_text(const TraceVerdict& verdict) {
  if (verdict.tried.empty()) return "not tried";
  const std::vector<std::string> refusing = verdict.refusing();
  if (refusing.empty()) return "accepts it";
  if (refusing.size() == verdict.tried.size()) return "REFUSES IT";
  return fmt::format("REFUSES IT if it is {}", fmt::join(refusing, " or "));
}

}  // namespace

std::vector<std::string> TraceVerdict::refusing() const {
  std::vector<std::string> versions;
  for (const std::string& version : tried)
    if (std::ranges::any_of(problems, [&](const Problem& problem) {
          return problem.fatal &&
                 std::ranges::find(problem.versions, version) != problem.versions.end();
        }))
      versions.push_back(version);
  return versions;
}

TraceCheck check_trace(std::string_view text, std::string_view file_name,
                       std::optional<bool> compressed) {
  TraceFile file{.name = file_name};
  file.compressed = compressed.value_or(file.said_to_be_compressed());
  const json events = parse_trace(text, file);
  TraceFacts facts(file);
  EventFindings findings;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TraceEvent event(events[i], i);
    facts.add(event);
    findings.add(event);
  }
  facts.finish();

  TraceCheck check{.events = facts.events, .slices = facts.slices, .verdicts = {}};
  for (const TraceTool& tool : trace_tools())
    check.verdicts.push_back({.consumer = std::string(tool.name),
                              .shown = std::string(tool.shown),
                              .tried = {tool.tried.begin(), tool.tried.end()},
                              .problems = {}});
  for (std::size_t i = 0; i < trace_rules().size(); ++i) {
    const TraceRule& rule = trace_rules()[i];
    const TraceTally& tally = findings.of(i);
    const TraceRule::Finding finding =
        rule.of_trace != nullptr
            ? rule.of_trace(facts)
            : TraceRule::Finding{.count = tally.count, .first = tally.first, .detail = {}};
    if (finding.count > 0) check.verdicts[rule.tool].problems.push_back(problem_of(rule, finding));
  }
  return check;
}

std::string trace_check_text(const TraceCheck& check) {
  std::string out =
      fmt::format("{} events, {} slices\n\n", format_count(static_cast<std::int64_t>(check.events)),
                  format_count(static_cast<std::int64_t>(check.slices)));
  for (const TraceVerdict& verdict : check.verdicts) {
    out += fmt::format("{:<40} {}\n", verdict.shown, verdict_text(verdict));
    for (const TraceVerdict::Problem& problem : verdict.problems) {
      out += fmt::format("  {}: {}", problem.fatal ? "error" : "note", problem.what);
      if (!problem.first.empty()) out += fmt::format(" (first: {})", problem.first);
      out += '\n';
    }
  }
  return out;
}

std::string trace_check_json(const TraceCheck& check) {
  ordered_json tools = ordered_json::array();
  for (const TraceVerdict& verdict : check.verdicts) {
    ordered_json problems = ordered_json::array();
    for (const TraceVerdict::Problem& problem : verdict.problems)
      problems.push_back({{"rule", problem.rule},
                          {"severity", problem.fatal ? "refuses" : "warns"},
                          {"versions", problem.versions},
                          {"count", problem.count},
                          {"message", problem.what},
                          {"first", problem.first}});
    tools.push_back({{"tool", verdict.consumer},
                     {"tried", verdict.tried},
                     {"refusing", verdict.refusing()},
                     {"problems", std::move(problems)}});
  }
  const ordered_json json = {
      {"events", check.events}, {"slices", check.slices}, {"tools", std::move(tools)}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
