// How a report's runs were measured, where, and the commands that make its figures again.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "ridge/base/child_process.h"
#include "ridge/base/units.h"
#include "ridge/report/runs/sections.h"
#include "ridge/study/configuration.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

// What a command line of today's program does not have, or what says where a run wrote.
constexpr std::string_view options_left_out[] = {"output-dir", "profile-dir", "log-interval",
                                                 "resume",     "save-every",  "flops"};

bool is_left_out(std::string_view name) {
  return std::ranges::find(options_left_out, name) != std::end(options_left_out);
}

const Json& options_in(const Json& record) {
  static const Json none = Json::object();
  const auto found = record.find("options");
  return found != record.end() && found->is_object() ? *found : none;
}

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void add_flag(std::vector<std::string>& words, const std::string& name, const std::string& value) {
  if (value == "true")
    words.push_back("--" + name);
  else if (value == "false")
    words.push_back("--" + name + "=false");
  else
    words.insert(words.end(), {"--" + name, value});
}

// The options that differ from the defaults of a run's workload, as words of a command line; the
// numbers of steps always, whose defaults depend on the command.
std::vector<std::string> flags_of(const Json& record, const std::set<std::string>& without = {}) {
  std::vector<std::string> words;
  std::set<std::string> done = without;
  const Json& options = options_in(record);
  for (const char* name : {"network", "num-steps", "warmup-steps"})
    if (options.contains(name) && !done.contains(name)) {
      const std::string value = value_text(options[name]);
      if (std::string_view(name) != "network" || value != RunOptions{}.network)
        add_flag(words, name, value);
      done.insert(name);
    }
  for (const auto& [name, value] : given_options(record))
    if (!done.contains(name) && !is_left_out(name)) add_flag(words, name, value);
  return words;
}

const Json& first_record(const ReportFacts& facts) {
  return facts.newest[facts.measured().front()]->record;
}

// Options that vary, under their names.
std::vector<std::string> axes_of(const ReportFacts& facts) {
  std::vector<std::string> axes;
  for (const auto& [name, value] : facts.result.definition.variants.front().settings)
    axes.push_back(name);
  return axes;
}

std::string sentence_of_steps(const ReportFacts& facts) {
  std::set<std::string> steps, warmup;
  for (const std::size_t v : facts.measured()) {
    const Json& options = options_in(facts.newest[v]->record);
    if (options.contains("num-steps")) steps.insert(value_text(options["num-steps"]));
    if (options.contains("warmup-steps")) warmup.insert(value_text(options["warmup-steps"]));
  }
  if (steps.empty()) return "";
  std::string text = fmt::format("A run has {} steps", fmt::join(steps, " or "));
  if (!warmup.empty())
    text += fmt::format(", and its averages leave out the first {} to warm up",
                        fmt::join(warmup, " or "));
  return text + ".";
}

// "CPU and cores" of the columns in which rows of places differ.
std::string differing(const std::vector<RunPlace>& places,
                      const std::vector<std::pair<const char*, std::string RunRow::*>>& columns,
                      bool with_cores) {
  std::vector<std::string> names;
  for (const auto& [name, field] : columns)
    if (std::ranges::any_of(places, [&](const RunPlace& place) {
          return place.row.*field != places.front().row.*field;
        }))
      names.emplace_back(name);
  if (with_cores && std::ranges::any_of(places, [&](const RunPlace& place) {
        return place.row.cores != places.front().row.cores;
      }))
    names.emplace_back("cores");
  if (names.empty()) return "";
  std::string text = names.front();
  for (std::size_t i = 1; i < names.size(); ++i)
    text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

using Columns = std::vector<std::pair<const char*, std::string RunRow::*>>;

const Columns machine_columns{{"CPU", &RunRow::cpu},
                              {"GPU", &RunRow::gpu},
                              {"GPU UUID", &RunRow::gpu_uuid},
                              {"driver", &RunRow::driver},
                              {"libraries", &RunRow::libraries}};
const Columns program_columns{{"Ridge", &RunRow::ridge_version},
                              {"commit", &RunRow::commit},
                              {"binary", &RunRow::binary},
                              {"compiler", &RunRow::compiler}};

void add_places(ReportTable& table, const std::vector<RunPlace>& places, const Columns& columns) {
  for (const auto& [name, field] : columns) {
    const bool is_known = std::ranges::any_of(
        places, [&](const RunPlace& place) { return !(place.row.*field).empty(); });
    if (!is_known) continue;
    std::string header = name;
    header.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(header.front())));
    table.columns.push_back({.header = header, .left = true});
    for (std::size_t i = 0; i < places.size(); ++i) table.rows[i].push_back(places[i].row.*field);
  }
  table.columns.push_back({.header = "Runs"});
  for (std::size_t i = 0; i < places.size(); ++i)
    table.rows[i].push_back(format_count(places[i].runs));
}

ReportTable machines_table(const ReportFacts& facts) {
  ReportTable table{.caption = "The machine, as a digest of all that is known of it, and its parts",
                    .columns = {{.header = "Digest", .left = true}, {.header = "Cores used"}},
                    .rows = {}};
  for (const RunPlace& place : facts.machines)
    table.rows.push_back({place.row.machine, format_count(place.row.cores)});
  add_places(table, facts.machines, machine_columns);
  return table;
}

ReportTable programs_table(const ReportFacts& facts) {
  ReportTable table{.caption = "The program", .columns = {}, .rows = {}};
  table.rows.resize(facts.programs.size());
  add_places(table, facts.programs, program_columns);
  return table;
}

std::string range_text(const SeenRange& range) {
  const std::string least = fmt::format("{:.1f}", range.least),
                    largest = fmt::format("{:.1f}", range.largest);
  return least == largest ? least : fmt::format("{} to {}", least, largest);
}

std::string conditions_of(const ReportFacts& facts) {
  std::vector<std::string> parts;
  if (facts.load.runs > 0)
    parts.push_back(
        fmt::format("the load average of the minute before a run was {}", range_text(facts.load)));
  if (facts.busy_cores.runs > 0)
    parts.push_back(fmt::format("other processes kept {} cores busy while one went",
                                range_text(facts.busy_cores)));
  if (parts.empty()) return "";
  std::string text = fmt::format("{}.", fmt::join(parts, ", and "));
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::string order_of(const ReportFacts& facts) {
  const StudyDefinition& definition = facts.result.definition;
  if (facts.result.gathered)
    return "The runs were made one by one, each when somebody wanted it, and did not take turns: "
           "what disturbed the machine while one went is in its figures alone. Runs of equal "
           "options (whatever their seeds, and what of them was profiled), on one machine and by "
           "one "
           "program, count as the rounds of one configuration.";
  return fmt::format(
      "Each measurement was a process of its own. The variants took turns in {}, in an order that "
      "the seed {} shuffles anew in each, so that what disturbed the machine for a while disturbed "
      "all of them.",
      counted(definition.rounds, "round"), definition.seed);
}

std::string intervals_of(const ReportFacts& facts) {
  std::string text =
      "The time of a variant is the median over its rounds of the median of a run's steps. Its "
      "interval holds with 95 % whatever the distribution (sign test), which takes six rounds; "
      "with "
      "fewer the least and the largest round stand there.";
  const auto has = [&](ComparisonBasis basis) {
    return std::ranges::any_of(facts.comparisons, [&](const StudyComparison& comparison) {
      return comparison.basis == basis;
    });
  };
  if (facts.comparisons.empty()) return text;
  text +=
      " Variants whose steps do the same work are compared by the ratio of their times, each by "
      "itself, with at least 95 %:";
  std::vector<std::string> ways;
  if (has(ComparisonBasis::rounds)) ways.emplace_back("over rounds in pairs by signed ranks");
  if (has(ComparisonBasis::runs))
    ways.emplace_back("over the runs of both by rank sums, which take four runs of each");
  if (has(ComparisonBasis::steps))
    ways.emplace_back(
        "over the steps of one run each by bootstrap, in which there is nothing of how far one run "
        "differs from the next");
  return text + fmt::format(" {}.", fmt::join(ways, "; "));
}

std::string places_of(const ReportFacts& facts) {
  std::string text;
  if (facts.machines.size() > 1) {
    const std::string parts = differing(facts.machines, machine_columns, true);
    text = fmt::format(
        "The runs are of {} machines, or settings of one, which differ in {}: a difference between "
        "runs of two of them may be one of the machines.",
        facts.machines.size(), parts.empty() ? "what their digests are of" : parts);
  }
  if (facts.programs.size() > 1) {
    const std::string parts = differing(facts.programs, program_columns, false);
    text += fmt::format("{}They are of {} builds of the program, which differ in {}.",
                        text.empty() ? "" : " ", facts.programs.size(), parts);
  }
  return text;
}

// With what `ridge study` measures the same again; empty for runs that no study made.
std::vector<std::string> study_command(const ReportFacts& facts) {
  if (facts.result.gathered) return {};
  const StudyDefinition& definition = facts.result.definition;
  std::vector<std::string> words{"ridge", "study"};
  std::set<std::string> without{"seed"};
  std::vector<std::string> sizes;
  for (const StudyVariant& variant : definition.variants)
    if (!variant.size.empty() && std::ranges::find(sizes, variant.size) == sizes.end())
      sizes.push_back(variant.size);
  words.insert(words.end(), sizes.begin(), sizes.end());
  if (!sizes.empty())
    for (const auto& [name, value] : settings_of(study_size(sizes.front()))) without.insert(name);
  std::vector<std::string> vary;
  for (const std::string& axis : axes_of(facts)) {
    std::vector<std::string> values;
    for (const StudyVariant& variant : definition.variants)
      for (const auto& [name, value] : variant.settings)
        if (name == axis && std::ranges::find(values, value) == values.end())
          values.push_back(value);
    vary.insert(vary.end(), {"--vary", fmt::format("{}={}", axis, fmt::join(values, ","))});
    without.insert(axis);
  }
  words.insert(words.end(), vary.begin(), vary.end());
  const std::vector<std::string> flags = flags_of(first_record(facts), without);
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(),
               {"--seed", std::to_string(definition.seed), "--rounds",
                std::to_string(definition.rounds), "--name", facts.result.name + "-again"});
  return words;
}

// The options that all runs have alike and that are not the defaults, as flags.
std::vector<std::string> common_flags(const ReportFacts& facts) {
  std::set<std::string> without;
  for (const std::size_t v : facts.measured()) {
    const Json &options = options_in(facts.newest[v]->record),
               &first = options_in(first_record(facts));
    for (const auto& [name, value] : first.items())
      if (!options.contains(name) || options[name] != value) without.insert(name);
  }
  return flags_of(first_record(facts), without);
}

}  // namespace

std::vector<std::string> method_of(const ReportFacts& facts) {
  std::vector<std::string> sentences;
  for (std::string text : {order_of(facts), sentence_of_steps(facts), intervals_of(facts),
                           places_of(facts), conditions_of(facts)})
    if (!text.empty()) sentences.push_back(std::move(text));
  return sentences;
}

ReportSection method_section(const ReportFacts& facts) {
  ReportSection section{.heading = "Method and machine", .blocks = {}};
  for (std::string& text : method_of(facts))
    section.blocks.emplace_back(ReportText{std::move(text)});
  section.blocks.emplace_back(machines_table(facts));
  section.blocks.emplace_back(programs_table(facts));
  if (const std::vector<std::string> flags = common_flags(facts); !flags.empty()) {
    section.blocks.emplace_back(ReportText{
        "These options, which are not the defaults of the workload, all runs have alike:"});
    section.blocks.emplace_back(ReportCommands{{shell_line(flags)}});
  }
  return section;
}

ReportSection commands_section(const ReportFacts& facts, const std::vector<std::string>& command) {
  ReportSection section{.heading = "Appendix: commands", .blocks = {}};
  const auto add = [&](std::string text, std::vector<std::string> lines) {
    section.blocks.emplace_back(ReportText{std::move(text)});
    section.blocks.emplace_back(ReportCommands{std::move(lines)});
  };
  add("This report, with all its tables and pictures, is made again from the store by:",
      {shell_line(command)});
  if (const std::vector<std::string> words = study_command(facts); !words.empty()) {
    add("All variants are measured again, in turns, by:", {shell_line(words)});
    add("The tables and laws alone are printed by:",
        {shell_line({"ridge", "study", "show", facts.result.name})});
  }
  std::vector<std::string> runs, shows;
  for (const std::size_t v : facts.measured()) {
    const NewestRun& newest = *facts.newest[v];
    const RunRow& row = facts.result.variants[v].runs.back();
    std::vector<std::string> words{"ridge", row.mode == "training" ? "train" : "bench"};
    const std::vector<std::string> flags = flags_of(newest.record);
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("--record");
    std::string what = facts.name_of_variant(v);
    if (facts.programs.size() > 1 && !row.commit.empty())
      what += fmt::format("; by Ridge of commit {}", row.commit);
    runs.push_back(fmt::format("# {}", what));
    runs.push_back(shell_line(words));
    std::vector<std::string> ids;
    for (const RunRow& run : facts.result.variants[v].runs) ids.push_back(std::to_string(run.id));
    shows.push_back(fmt::format("# {}: runs {}", what, fmt::join(ids, ", ")));
    shows.push_back(shell_line({"ridge", "runs", "show", ids.back(), "--json"}));
  }
  add("One run of a variant is made again, and kept, by:", std::move(runs));
  add("All that is kept of a run, such as its steps, its losses and its machine, is printed by:",
      std::move(shows));
  return section;
}

}  // namespace ridge
