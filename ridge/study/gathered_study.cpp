#include "ridge/study/gathered_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/study/configuration.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

// Runs of equal configuration on one machine by one program.
struct Group {
  std::vector<RunRow> runs;       // the oldest first
  Json options = Json::object();  // those that decide what is measured, in their order
  const RunRow& newest() const { return runs.back(); }
};

std::string text_of_value(const Json& options, const std::string& name) {
  const auto value = options.find(name);
  if (value == options.end() || value->is_null()) return "none";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

// "0.1.0 at 3c7fe97a12": no number, whatever the digits of the commit.
std::string program_of(const RunRow& row) {
  if (row.commit.empty())
    return fmt::format("{} of digest {}", row.ridge_version, row.binary.substr(0, 8));
  return fmt::format("{} at {}", row.ridge_version, short_commit(row.commit));
}

std::string machine_of(const RunRow& row) {
  return hardware_of(row) + " (" + row.machine.substr(0, 4) + ")";
}

std::string program_key(const RunRow& row) {
  return fmt::format("{}\n{}\n{}\n{}", row.ridge_version, row.commit, row.binary, row.compiler);
}

// Whether runs that differ in an option measure the same: in the seed, in what they write, and in
// what they profile, whose steps are left out of averages.
bool is_no_difference(const std::string& name) {
  static const std::set<std::string> names = [] {
    std::set<std::string> found{"seed"};
    RunOptions options;
    for (const OptionInfo& option : options_of(options))
      if (!is_measured_option(option)) found.insert(std::string(option.name));
    return found;
  }();
  return names.contains(name);
}

Json compared_options(const std::string& text) {
  Json options = Json::object();
  const Json all = json_object(text, "the options of a run");
  for (const auto& [name, value] : all.items())
    if (!is_no_difference(name)) options[name] = value;
  return options;
}

std::vector<Group> groups_of(Store& store, std::vector<RunRow> runs, bool by_program) {
  std::ranges::stable_sort(runs, {}, [](const RunRow& r) { return std::pair(r.created, r.id); });
  std::vector<Group> groups;
  std::map<std::string, std::size_t> places;
  for (RunRow& run : runs) {
    Json options = compared_options(store.options_of_run(run.id));
    const std::string key = fmt::format("{}\n{}\n{}", configuration_of(one_line(options)),
                                        run.machine, by_program ? program_key(run) : "");
    const auto [place, is_new] = places.try_emplace(key, groups.size());
    if (is_new) {
      if (groups.size() == max_variants)
        throw UsageError("these runs have more than {} configurations: choose fewer", max_variants);
      groups.push_back({.runs = {}, .options = std::move(options)});
    }
    groups[place->second].runs.push_back(std::move(run));
  }
  return groups;
}

// What each of a group's options is where nobody gives it.
Json usual_options(const Json& options) {
  try {
    return Json::parse(to_json(default_options(text_of_value(options, "network"))));
  } catch (const Error&) {  // a workload that this program does not know
    return Json::object();
  }
}

// The options in which the groups differ, in the order of the options; but not those that are
// everywhere what the workload has by default, such as the learning rates of two networks.
std::vector<std::string> differing_options(const std::vector<Group>& groups) {
  std::vector<std::string> names;
  const auto consider = [&](const std::string& name) {
    if (std::ranges::find(names, name) != names.end()) return;
    const std::string first = text_of_value(groups.front().options, name);
    if (std::ranges::any_of(groups, [&](const Group& group) {
          return text_of_value(group.options, name) != first;
        }))
      names.push_back(name);
  };
  for (const Group& group : groups)
    for (const auto& [name, value] : group.options.items()) consider(name);
  std::vector<Json> usual;
  for (const Group& group : groups) usual.push_back(usual_options(group.options));
  std::erase_if(names, [&](const std::string& name) {
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (text_of_value(groups[g].options, name) != text_of_value(usual[g], name)) return false;
    return name != "network";
  });
  return names;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

std::vector<Settings> settings_of(const std::vector<Group>& groups, bool by_program) {
  std::vector<Settings> all(groups.size());
  const std::vector<std::string> names = differing_options(groups);
  std::set<std::string> machines, programs;
  for (const Group& group : groups) {
    machines.insert(group.newest().machine);
    programs.insert(program_key(group.newest()));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& name : names)
      all[g].emplace_back(name, text_of_value(groups[g].options, name));
    if (machines.size() > 1) all[g].emplace_back("machine", machine_of(groups[g].newest()));
    if (by_program && programs.size() > 1)
      all[g].emplace_back("program", program_of(groups[g].newest()));
  }
  return all;
}

StudyVariant variant_of(const Group& group, Settings settings) {
  StudyVariant variant{.size = {}, .settings = std::move(settings), .options = {}};
  try {
    apply_json(variant.options, group.options.dump());
  } catch (const Error&) {  // options of another version of the program
    variant.options = {};
  }
  variant.options.network = group.newest().workload;
  return variant;
}

std::int64_t integer_in(const Json& json, const char* name) {
  const auto value = json.find(name);
  return value != json.end() && value->is_number_integer() ? value->get<std::int64_t>() : 0;
}

// What the newest run tells of what would else be planned.
VariantPlan plan_of(Store& store, const Group& group) {
  const RunRow& row = group.newest();
  const Json record = json_object(store.document(row.id).record, "the record");
  VariantPlan plan;
  if (const auto config = record.find("config"); config != record.end() && config->is_object())
    plan.parameters = integer_in(*config, "total_parameters");
  plan.samples_per_step = integer_in(record, "samples_per_step");
  if (plan.samples_per_step == 0) plan.samples_per_step = row.batch_size.value_or(0);
  plan.tokens_per_sample = integer_in(record, "tokens_per_sample");
  plan.sample = text_of_value(record, "sample");
  plan.flops = row.flops.value_or(0);
  plan.launches = row.kernels.value_or(0);
  return plan;
}

MeasuredVariant result_of(const Group& group) {
  MeasuredVariant result;
  result.outcome = counted(std::ssize(group.runs), "run");
  result.is_done = true;
  for (const RunRow& run : group.runs) {
    if (run.outcome != "completed" && !run.outcome.empty())
      result.outcome += fmt::format("; run {} {}", run.id, run.outcome);
    if (!run.median_seconds) continue;
    result.runs.push_back(run);
    result.rounds.push_back(std::ssize(result.runs));
  }
  summarize(result);
  return result;
}

}  // namespace

StudyResult gather_study(Store& store, std::string name, std::vector<RunRow> runs) {
  if (runs.empty()) throw UsageError("there are no runs to report");
  StudyResult result;
  result.name = std::move(name);
  result.gathered = true;
  result.measured = std::ssize(runs);
  result.definition.rounds = 0;
  const bool by_program = result.name.empty();
  std::set<std::string> machines, programs;
  for (const RunRow& run : runs) {
    machines.insert(run.machine);
    programs.insert(program_key(run));
  }
  const std::vector<Group> groups = groups_of(store, std::move(runs), by_program);
  std::vector<Settings> settings = settings_of(groups, by_program);
  result.created = groups.front().runs.front().created;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    result.definition.variants.push_back(variant_of(groups[g], std::move(settings[g])));
    result.plans.push_back(plan_of(store, groups[g]));
    result.variants.push_back(result_of(groups[g]));
    result.definition.rounds = std::max(result.definition.rounds, std::ssize(groups[g].runs));
    result.created = std::min(result.created, groups[g].runs.front().created);
  }
  result.machines = std::ssize(machines);
  result.programs = std::ssize(programs);
  return result;
}

StudyResult find_study_result(Store& store, std::string_view name, std::int64_t most) {
  if (store.find_study(name)) return read_study(store, name);
  RunPage page = store.list({.filter = "study=" + filter_value(name), .limit = most});
  if (!page.runs.empty()) return gather_study(store, std::string(name), std::move(page.runs));
  store.study(name);  // which refuses it
  throw UsageError("there is no study of that name");
}

}  // namespace ridge
