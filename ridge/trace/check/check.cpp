#include "ridge/trace/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "ridge/base/units.h"
#include "ridge/base/utf8.h"
#include "ridge/trace/check/gather.h"
#include "ridge/trace/check/rules.h"

namespace ridge::trace {
namespace {

using json = nlohmann::json;
using ordered_json = nlohmann::ordered_json;

// An event without its args, which would push its name out of sight.
std::string without_args(const std::string& event) {
  json shortened = json::parse(event, nullptr, false);
  if (shortened.is_object()) shortened.erase("args");
  return shown(shortened.dump(-1, ' ', true, json::error_handler_t::replace));
}

std::vector<std::string> concerned(const TraceRule& rule) {
  std::vector<std::string> versions;
  for (const std::string_view version : trace_tools()[rule.tool].tried)
    if (version.find(rule.versions) != version.npos) versions.emplace_back(version);
  return versions;
}

TraceRule::Finding finding_of(std::size_t rule, const TraceFacts& facts) {
  if (trace_rules()[rule].of_trace != nullptr) return trace_rules()[rule].of_trace(facts);
  if (rule >= facts.of_rules.size()) return {};
  return {.count = facts.of_rules[rule].count, .first = facts.of_rules[rule].first, .detail = {}};
}

// The events that findings show, by index.
template <class File>
std::map<std::uint32_t, std::string> shown_events(const File& file, const GatheredFacts& gathered,
                                                  const std::vector<TraceRule::Finding>& findings) {
  std::map<std::uint32_t, std::string> events;
  for (const TraceRule::Finding& finding : findings)
    if (finding.count > 0 && finding.first) events[*finding.first];
  std::vector<std::uint32_t> indices;
  for (const auto& [index, event] : events) indices.push_back(index);
  std::size_t next = 0;
  const std::vector<std::string> found = events_at(file, gathered, indices);
  for (auto& [index, event] : events) event = without_args(found.at(next++));
  return events;
}

template <class File>
TraceCheck check(const File& file, const GatheredFacts& gathered) {
  const TraceFacts& facts = gathered.facts;
  TraceCheck check{.events = facts.events, .slices = facts.slices, .verdicts = {}};
  for (const TraceTool& tool : trace_tools())
    check.verdicts.push_back({.consumer = std::string(tool.name),
                              .shown = std::string(tool.shown),
                              .tried = {tool.tried.begin(), tool.tried.end()},
                              .problems = {}});
  std::vector<TraceRule::Finding> findings;
  for (std::size_t i = 0; i < trace_rules().size(); ++i) findings.push_back(finding_of(i, facts));
  const std::map<std::uint32_t, std::string> events = shown_events(file, gathered, findings);
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const TraceRule& rule = trace_rules()[i];
    const TraceRule::Finding& finding = findings[i];
    if (finding.count == 0) continue;
    check.verdicts[rule.tool].problems.push_back(
        {.rule = std::string(rule.name),
         .what = sentence_of(rule, finding),
         .fatal = rule.severity == TraceRule::Severity::refuses,
         .versions = concerned(rule),
         .count = finding.count,
         .first = finding.first ? events.at(*finding.first) : ""});
  }
  return check;
}

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

TraceCheck check_trace(const std::filesystem::path& file, const ReadOptions& options) {
  return check(file, gather_facts(file, options));
}

TraceCheck check_trace(std::string_view file, std::string_view name, const ReadOptions& options) {
  return check(file, gather_facts(file, name, options));
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

}  // namespace ridge::trace
