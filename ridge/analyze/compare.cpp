#include "ridge/analyze/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/ops/op.h"
#include "ridge/profile/node_stats.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t max_file_bytes = std::size_t{256} << 20;

// Reads members of a file, and names the file and the member when it cannot.
class Members {
 public:
  Members(const std::string& source, Json json) : source_(source), json_(std::move(json)) {}

  const Json& at(const char* pointer) const {
    const Json::json_pointer place(pointer);
    if (!json_.contains(place)) refuse(pointer);
    return json_.at(place);
  }
  bool has(const char* pointer) const { return json_.contains(Json::json_pointer(pointer)); }
  double number(const char* pointer) const {
    const Json& json = at(pointer);
    if (!json.is_number()) refuse(pointer);
    return json.get<double>();
  }
  std::string text(const char* pointer) const { return text(at(pointer), pointer); }
  // The members of an object of values, by name, in its order.
  std::vector<std::pair<std::string, std::string>> texts(const char* pointer) const {
    const Json& json = at(pointer);
    if (!json.is_object()) refuse(pointer);
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [name, value] : json.items())
      all.emplace_back(name, text(value, fmt::format("{}/{}", pointer, name)));
    return all;
  }
  [[noreturn]] void refuse(std::string_view pointer) const {
    throw FormatError("{} is not as ridge writes it, at {}: run again with this version of ridge",
                      source_, pointer.substr(1));
  }

 private:
  std::string text(const Json& json, std::string_view pointer) const {
    if (json.is_string()) return json.get<std::string>();
    if (!json.is_primitive()) refuse(pointer);
    return json.dump();
  }

  const std::string& source_;
  Json json_;
};

Json parsed(const std::string& source, std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception&) {
    throw FormatError("{} is no JSON: it is damaged, or no file of ridge", source);
  }
}

// The times of a step, less those at the start that are left out of averages; without those that
// were not known.
std::vector<double> times(const Members& summary, const char* pointer) {
  const Json& json = summary.at(pointer);
  const double left_out = summary.number("/performance_summary/steps_left_out_of_averages");
  if (!json.is_array() || !(left_out >= 0 && left_out <= static_cast<double>(json.size())))
    summary.refuse(pointer);
  std::vector<double> all;
  for (std::size_t i = static_cast<std::size_t>(left_out); i < json.size(); ++i) {
    if (json[i].is_null()) continue;
    if (!json[i].is_number()) summary.refuse(pointer);
    all.push_back(json[i]);
    if (!(all.back() >= 0 && std::isfinite(all.back()))) summary.refuse(pointer);
  }
  return all;
}

// What the workload is called beside the settings, and among those of some.
constexpr std::string_view workload_setting = "network";

// Those of all steps; one that is no number is NaN.
std::vector<double> losses(const Members& summary) {
  const Json& json = summary.at("/performance_summary/losses");
  if (!json.is_array()) summary.refuse("/performance_summary/losses");
  std::vector<double> all;
  for (const Json& loss : json) all.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  return all;
}

// How, and where, the work of a step is done.
constexpr std::pair<const char*, const char*> place_settings[] = {
    {"dtype", "/training_params/dtype"},
    {"device", "/system_info/device"},
    {"cpu", "/system_info/cpu"},
    {"threads", "/system_info/threads"},
    {"ridge_version", "/system_info/ridge_version"},
};

void read_operators(ComparedRun& run, const Members& members) {
  const double steps = members.number("/steps");
  const Json& rows = members.at("/rows");
  if (!(steps > 0) || !rows.is_array()) members.refuse("/rows");
  if (members.text("/group_by") != "operator") members.refuse("/group_by");
  std::map<std::string, OperatorUse> uses;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto member = [&](const char* name) { return fmt::format("/rows/{}/{}", i, name); };
    OperatorUse& use = uses[members.text(member("name").c_str())];
    use.seconds += members.number(member("total/time_ns").c_str()) * 1e-9 / steps;
    use.calls += members.number(member("total/calls").c_str()) / steps;
    use.bytes += (members.number(member("total/bytes_read").c_str()) +
                  members.number(member("total/bytes_written").c_str())) /
                 steps;
  }
  run.operators.assign(uses.begin(), uses.end());
  run.has_operators = true;
}

ComparedRun run_from(const Members& members, const std::string& name) {
  ComparedRun run{.name = name,
                  .version = members.text("/version"),
                  .workload = members.text("/workload"),
                  .trains = members.text("/training_params/mode") == ridge::name_of(Use::training),
                  .setting = members.texts("/work"),
                  .samples = members.number("/samples_per_step")};
  run.work_settings = run.setting.size();
  for (const auto& [setting, pointer] : place_settings)
    run.setting.emplace_back(setting, members.text(pointer));
  if (members.has("/tokens_per_sample"))
    run.tokens = run.samples * members.number("/tokens_per_sample");
  run.step = times(members, run.trains ? "/performance_summary/step_seconds"
                                       : "/performance_summary/device_seconds");
  if (run.step.empty()) members.refuse("/performance_summary/step_seconds");
  run.forward = times(members, "/performance_summary/forward_seconds");
  run.backward = times(members, "/performance_summary/backward_seconds");
  run.optimizer = times(members, "/performance_summary/optimizer_seconds");
  run.peak_bytes = members.number("/performance_summary/peak_memory_bytes");
  if (const char* const resident = "/performance_summary/peak_resident_bytes";
      members.has(resident))
    run.resident_bytes = members.number(resident);
  if (members.has("/performance_summary/losses")) run.losses = losses(members);
  if (members.has("/training_params/seed")) run.seed = members.text("/training_params/seed");
  return run;
}

}  // namespace

double ComparedRun::kernels() const {
  double calls = 0;
  for (const auto& [operator_name, use] : operators) calls += use.calls;
  return calls;
}

double ComparedRun::samples_per_second() const {
  const double seconds = percentile(step, 0.5);
  return seconds > 0 ? samples / seconds : 0;
}

std::string ComparedRun::value_of(std::string_view wanted) const {
  if (wanted == workload_setting) return workload;
  const auto found =
      std::ranges::find(setting, wanted, &std::pair<std::string, std::string>::first);
  return found == setting.end() ? "" : found->second;
}

std::vector<std::string> differing_settings(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> names{std::string(workload_setting)};
  for (const auto& [name, value] : runs.front().setting)
    if (name != workload_setting) names.push_back(name);
  const ComparedRun& first = runs.front();
  std::erase_if(names, [&](const std::string& name) {
    const auto is_like_first = [&](const ComparedRun& run) {
      return run.value_of(name) == first.value_of(name);
    };
    const auto lacks_it = [&](const ComparedRun& run) { return run.value_of(name).empty(); };
    return std::ranges::all_of(runs, is_like_first) || std::ranges::any_of(runs, lacks_it);
  });
  return names;
}

ComparedRun run_of(const Record& record, const std::string& name) {
  return run_from(Members(name, json_of(record, summarize(record))), name);
}

ComparedRun parse_run(const std::string& name, const std::string& source, std::string_view summary,
                      std::string_view operators) {
  const std::string summary_source = source + "/performance_summary.json";
  ComparedRun run = run_from(Members(summary_source, parsed(summary_source, summary)), name);
  if (operators.empty()) return run;
  const std::string operators_source = source + "/operators.json";
  read_operators(run, Members(operators_source, parsed(operators_source, operators)));
  return run;
}

ComparedRun read_run(const fs::path& path) {
  std::error_code ignored;
  const std::string name = path.string();
  if (fs::is_regular_file(path, ignored))
    return run_from(Members(name, parsed(name, read_text_file(path, max_file_bytes))), name);
  if (!fs::is_directory(path, ignored))
    throw IoError(
        "{} is neither a version, nor a compile mode, nor a directory: give v1, v2, .., none, "
        "default, .., the --output-dir or --profile-dir of a run, or the --export-json of a "
        "benchmark",
        path.string());
  const fs::path summary = path / "performance_summary.json";
  if (!fs::exists(summary, ignored))
    throw IoError(
        "{} has no performance_summary.json: is it the --output-dir or --profile-dir of "
        "a run that came to its end?",
        path.string());
  const fs::path operators = path / "operators.json";
  return parse_run(
      path.string(), path.string(), read_text_file(summary, max_file_bytes),
      fs::exists(operators, ignored) ? read_text_file(operators, max_file_bytes) : std::string());
}

OperatorUses operator_uses(const Recording& recording) {
  const double share = 1 / static_cast<double>(recording.steps.size());
  const Graph& graph = *recording.graph;
  std::map<std::string, OperatorUse> uses;
  for (const NodeStats& stats : node_stats(recording)) {
    OperatorUse& use = uses[std::string(name_of(*graph.nodes()[stats.node].op))];
    const auto calls = static_cast<double>(stats.calls) * share;
    use.seconds += static_cast<double>(stats.total_ns) * 1e-9 * share;
    use.calls += calls;
    use.bytes += static_cast<double>(stats.cost.bytes()) * calls;
  }
  return {uses.begin(), uses.end()};
}

OperatorUses typical_uses(const std::vector<OperatorUses>& recorded) {
  OperatorUses uses = recorded.empty() ? OperatorUses{} : recorded.front();
  for (std::size_t i = 0; i < uses.size(); ++i) {
    std::vector<double> seconds;
    for (const OperatorUses& one : recorded) seconds.push_back(one.at(i).second.seconds);
    uses[i].second.seconds = percentile(seconds, 0.5);
  }
  return uses;
}

Ratio speedup_of(const ComparedRun& first, const ComparedRun& run) {
  if (!first.round_seconds.empty() && !run.round_seconds.empty())
    return paired_ratio(first.round_seconds, run.round_seconds);
  return ratio_of_medians(first.step, run.step);
}

bool same_work(const ComparedRun& a, const ComparedRun& b) {
  if (a.work_settings != b.work_settings) return false;
  return std::equal(a.setting.begin(),
                    a.setting.begin() + static_cast<std::ptrdiff_t>(a.work_settings),
                    b.setting.begin());
}

std::string first_difference(const ComparedRun& a, const ComparedRun& b) {
  if (a.workload != b.workload)
    return fmt::format("the workload is {} in {} and {} in {}", a.workload, a.name, b.workload,
                       b.name);
  for (std::size_t i = 0; i < std::min(a.setting.size(), b.setting.size()); ++i)
    if (a.setting[i] != b.setting[i])
      return fmt::format("{} is {} in {} and {} in {}", a.setting[i].first, a.setting[i].second,
                         a.name, b.setting[i].second, b.name);
  return "";
}

std::string_view name_of(OperatorFate fate) {
  constexpr std::string_view names[] = {"appeared", "vanished", "changed", "same"};
  return names[static_cast<int>(fate)];
}

double OperatorChange::seconds() const {
  return (after ? after->seconds : 0) - (before ? before->seconds : 0);
}

std::vector<OperatorChange> operator_changes(const ComparedRun& before, const ComparedRun& after) {
  std::map<std::string, OperatorChange> changes;
  for (const auto& [name, use] : before.operators) changes[name].before = use;
  for (const auto& [name, use] : after.operators) changes[name].after = use;
  std::vector<OperatorChange> sorted;
  for (auto& [name, change] : changes) {
    change.name = name;
    const auto& [a, b] = std::pair(change.before, change.after);
    if (!a)
      change.fate = OperatorFate::appeared;
    else if (!b)
      change.fate = OperatorFate::vanished;
    else if (a->calls != b->calls || a->bytes != b->bytes)
      change.fate = OperatorFate::changed;
    sorted.push_back(change);
  }
  std::ranges::stable_sort(sorted, std::greater{},
                           [](const OperatorChange& c) { return std::abs(c.seconds()); });
  return sorted;
}

}  // namespace ridge
