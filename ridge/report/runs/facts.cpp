#include "ridge/report/runs/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/study/run_row.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

const Json& member(const Json& json, const char* name) {
  static const Json none;
  if (!json.is_object()) return none;
  const auto found = json.find(name);
  return found == json.end() ? none : *found;
}

void note_place(std::vector<RunPlace>& places, const RunRow& row,
                const std::vector<std::string RunRow::*>& key) {
  const auto found = std::ranges::find_if(places, [&](const RunPlace& place) {
    return std::ranges::all_of(key, [&](auto field) { return place.row.*field == row.*field; });
  });
  RunPlace& place = found != places.end() ? *found : places.emplace_back(RunPlace{row, 0});
  ++place.runs;
}

void note_range(SeenRange& range, const Json& value) {
  if (!value.is_number()) return;
  const double number = value.get<double>();
  range.least = range.runs == 0 ? number : std::min(range.least, number);
  range.largest = range.runs == 0 ? number : std::max(range.largest, number);
  ++range.runs;
}

// The operators as a profile directory has them, if they are among a run's context.
std::string operators_in(const Json& context) {
  const Json& operators = member(context, "operators");
  return operators.is_object() ? operators.dump() : "";
}

NewestRun newest_run(const RunRow& row, const RunDocument& document, const Json& context) {
  NewestRun run;
  run.id = row.id;
  run.record = json_object(document.record, "the record");
  const std::string name = fmt::format("run {}", row.id);
  for (const std::string& operators : {operators_in(context), std::string()}) try {
      run.compared = parse_run(name, name, document.record, operators);
      break;
    } catch (const FormatError&) {  // a record, or operators, of another version of the program
      continue;
    }
  const Json& summary = member(run.record, "performance_summary");
  if (const Json& losses = member(summary, "losses"); losses.is_array())
    for (const Json& loss : losses)
      run.losses.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  if (const Json& first = member(summary, "first_step"); first.is_number())
    run.first_step = first.get<double>();
  return run;
}

// Seconds of the steps that averages are of: without those that warm up or were recorded.
std::vector<double> counted_steps(const NewestRun& run) {
  const Json& summary = member(run.record, "performance_summary");
  const Json &times = member(summary, run.compared && !run.compared->trains ? "device_seconds"
                                                                            : "step_seconds"),
             &left_out = member(summary, "steps_left_out_of_averages"),
             &recorded = member(summary, "recorded_steps");
  std::vector<double> steps;
  if (!times.is_array()) return steps;
  const std::size_t first = left_out.is_number_unsigned() ? left_out.get<std::size_t>() : 0;
  for (std::size_t i = first; i < times.size(); ++i) {
    const bool is_recorded =
        recorded.is_array() && std::ranges::find(recorded, Json(i)) != recorded.end();
    if (!is_recorded && times[i].is_number() && times[i].get<double>() > 0)
      steps.push_back(times[i].get<double>());
  }
  return steps;
}

// What decides the work of a step: as the record says it, or else by what every row has.
VariantWork work_of(const std::optional<NewestRun>& newest, const MeasuredVariant& variant) {
  VariantWork work;
  if (!newest) return work;
  const RunRow& row = variant.runs.back();
  const Json& said = member(newest->record, "work");
  const auto size = [](const std::optional<std::int64_t>& value) { return value.value_or(0); };
  work.work =
      fmt::format("{}\n{}", row.workload,
                  said.is_object() ? said.dump()
                                   : fmt::format("{} {} {} {}", row.mode, size(row.batch_size),
                                                 size(row.seq_len), size(row.image_size)));
  work.steps = counted_steps(*newest);
  return work;
}

void note_run(ReportFacts& facts, const RunRow& row) {
  facts.first = facts.runs == 0 ? row.created : std::min(facts.first, row.created);
  facts.last = std::max(facts.last, row.created);
  ++facts.runs;
  facts.training = facts.training || row.mode == "training";
  if (std::ranges::find(facts.workloads, row.workload) == facts.workloads.end())
    facts.workloads.push_back(row.workload);
  note_place(facts.machines, row, {&RunRow::machine});
  note_place(facts.programs, row,
             {&RunRow::ridge_version, &RunRow::commit, &RunRow::binary, &RunRow::compiler});
}

[[noreturn]] void refuse_unmeasured(const StudyResult& result) {
  if (result.gathered)
    throw Error("none of these runs has the time of a step: there is nothing to report");
  throw Error("no turn of the study {} has been measured yet: ridge study --resume {} measures it",
              result.name, result.name);
}

}  // namespace

std::vector<std::size_t> ReportFacts::measured() const {
  std::vector<std::size_t> all;
  for (std::size_t v = 0; v < result.variants.size(); ++v)
    if (result.variants[v].seconds) all.push_back(v);
  return all;
}

ReportFacts facts_of(Store& store, StudyResult result) {
  ReportFacts facts;
  facts.result = std::move(result);
  if (facts.measured().empty()) refuse_unmeasured(facts.result);
  facts.laws = laws_of(facts.result);
  facts.answers = answers_of(facts.result, facts.laws);
  std::vector<VariantWork> works;
  for (const MeasuredVariant& variant : facts.result.variants) {
    std::optional<NewestRun>& newest = facts.newest.emplace_back();
    for (std::size_t i = 0; i < variant.runs.size(); ++i) {
      const RunRow& row = variant.runs[i];
      note_run(facts, row);
      const RunDocument document = store.document(row.id);
      const Json context = json_object(document.context, "the context");
      const Json& conditions = member(context, "conditions");
      note_range(facts.load, member(conditions, "load_average"));
      note_range(facts.busy_cores, member(conditions, "busy_cores_of_others"));
      if (i + 1 == variant.runs.size()) newest = newest_run(row, document, context);
    }
    works.push_back(work_of(newest, variant));
  }
  facts.comparisons = comparisons_of(facts.result, works);
  return facts;
}

}  // namespace ridge
