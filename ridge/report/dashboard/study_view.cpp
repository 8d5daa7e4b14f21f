#include "ridge/report/dashboard/study_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/statistics.h"
#include "ridge/base/utf8.h"
#include "ridge/report/dashboard/comparison.h"
#include "ridge/report/dashboard/series.h"
#include "ridge/study/configuration.h"
#include "ridge/study/law.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t max_runs = 5000;  // of a study that are shown: the newest
constexpr int curve_points = 60;

struct StudyRun {
  RunRow row;
  Json options;  // an object
};

struct StudyRuns {
  std::vector<StudyRun> runs;  // the newest first
  std::int64_t total = 0;
};

StudyRuns runs_of(Store& store, std::string_view study) {
  RunPage page =
      store.list({.filter = "study=" + filter_value(study), .order = "created", .limit = max_runs});
  if (page.total == 0) throw UsageError("there is no study {}", shown(study));
  StudyRuns found{.runs = {}, .total = page.total};
  for (RunRow& row : page.runs) {
    Json options = Json::parse(store.options_of_run(row.id), nullptr, false);
    if (!options.is_object()) options = Json::object();
    found.runs.push_back({std::move(row), std::move(options)});
  }
  return found;
}

bool is_metric(const RunColumn& column) {
  return std::ranges::find(measured_columns(), column.name) != measured_columns().end();
}

// A number of a run under the name of a column, or else of an option.
std::optional<double> number_of(const StudyRun& run, std::string_view name) {
  struct Get {
    const RunRow& row;
    std::optional<double> operator()(std::string RunRow::*) const { return std::nullopt; }
    std::optional<double> operator()(Uuid RunRow::*) const { return std::nullopt; }
    std::optional<double> operator()(std::int64_t RunRow::*field) const {
      return static_cast<double>(row.*field);
    }
    std::optional<double> operator()(std::optional<std::int64_t> RunRow::*field) const {
      return row.*field ? std::optional(static_cast<double>(*(row.*field))) : std::nullopt;
    }
    std::optional<double> operator()(std::optional<double> RunRow::*field) const {
      return row.*field;
    }
  };
  if (const RunColumn* column = find_run_column(name))
    return std::visit(Get{run.row}, column->field);
  const auto option = run.options.find(std::string(name));
  if (option == run.options.end() || !option->is_number()) return std::nullopt;
  return option->get<double>();
}

// The options that decide a run's series, without one of them, and its machine.
std::string series_key(const StudyRun& run, const std::string& without) {
  Json options = run.options;
  options.erase(without);
  return configuration_of(options.dump(-1, ' ', true, Json::error_handler_t::replace)) +
         run.row.machine;
}

// "batch-size" of the column batch_size, which is the name of the option.
std::string option_named(std::string_view name) {
  std::string option(name);
  std::ranges::replace(option, '_', '-');
  return option;
}

// Runs with equal keys, in the order in which keys appear.
std::vector<std::vector<const StudyRun*>> grouped(
    const std::vector<StudyRun>& runs, const std::function<std::string(const StudyRun&)>& key_of) {
  std::vector<std::vector<const StudyRun*>> groups;
  std::map<std::string, std::size_t> places;
  for (const StudyRun& run : runs) {
    const auto [place, is_new] = places.try_emplace(key_of(run), groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(&run);
  }
  return groups;
}

// Labels of groups, without the option that varies within them.
std::vector<std::string> labels_of(Store& store,
                                   const std::vector<std::vector<const StudyRun*>>& groups,
                                   const std::string& without = {}) {
  std::vector<RunRow> rows;
  std::vector<std::string> labels;
  for (const auto& group : groups) {
    rows.push_back(group.front()->row);
    RunRow named = rows.back();
    if (without == "batch-size") named.batch_size.reset();
    if (without == "seq-len") named.seq_len.reset();
    if (without == "image-size") named.image_size.reset();
    labels.push_back(label_of(named));
  }
  tell_apart(store, rows, labels, without);
  return labels;
}

Json spread_json(std::span<const double> values) {
  const Statistics found = statistics_of(values);
  return {{"median", found.median}, {"least", found.min}, {"largest", found.max}};
}

Json variant_json(const std::string& label, const std::vector<const StudyRun*>& runs) {
  Json metrics = Json::object();
  for (const RunColumn& column : run_columns()) {
    if (!is_metric(column)) continue;
    std::vector<double> values;
    for (const StudyRun* run : runs)
      if (const auto value = number_of(*run, column.name)) values.push_back(*value);
    if (!values.empty()) metrics[std::string(column.name)] = spread_json(values);
  }
  return {{"label", label},
          {"runs", runs.size()},
          {"newest", runs.front()->row.id},
          {"row", json_of(runs.front()->row)},
          {"metrics", std::move(metrics)}};
}

// Sizes and options that have several numbers, and metrics that are known.
Json quantities_json(const std::vector<StudyRun>& runs) {
  std::map<std::string, std::set<double>> values;
  for (const StudyRun& run : runs) {
    for (const RunColumn& column : run_columns())
      if (const auto value = number_of(run, column.name))
        values[std::string(column.name)].insert(*value);
    for (const auto& [name, value] : run.options.items())
      if (value.is_number()) values[name].insert(value.get<double>());
  }
  Json x = Json::array(), y = Json::array();
  for (const auto& [name, found] : values) {
    const RunColumn* column = find_run_column(name);
    const bool has_column = column != nullptr && column->name != name;  // the option's other name
    if (column != nullptr && is_metric(*column)) y.push_back(name);
    if (has_column || name == "id" || name == "created") continue;
    if (found.size() > 1) x.push_back(name);
  }
  return {{"x", std::move(x)}, {"y", std::move(y)}};
}

Json law_json(const Law& law, std::string_view form, std::string_view x, double from, double to) {
  Json curve = Json::array();
  for (int i = 0; i <= curve_points; ++i) {
    const double at = from + (to - from) * i / curve_points;
    curve.push_back({at, law.at(at)});
  }
  return {{"form", form}, {"text", to_string(law, x)}, {"error", law.error}, {"curve", curve}};
}

Json series_json(const std::string& label, const std::vector<const StudyRun*>& runs,
                 std::string_view x, std::string_view y) {
  Json points = Json::array(), fits = Json::array();
  std::vector<double> xs, ys;
  for (const StudyRun* run : runs) {
    const auto from = number_of(*run, x), to = number_of(*run, y);
    if (!from || !to) continue;
    points.push_back({*from, *to, run->row.id});
    if (*from > 0 && *to > 0) xs.push_back(*from), ys.push_back(*to);
  }
  if (!xs.empty()) {
    const auto [least, largest] = std::ranges::minmax(xs);
    if (const auto law = fit_growth(xs, ys))
      fits.push_back(
          law_json(*law, law->form == LawForm::linear ? "linear" : "quadratic", x, least, largest));
    if (const auto law = fit(LawForm::power, xs, ys))
      fits.push_back(law_json(*law, "power", x, least, largest));
  }
  return {{"label", label}, {"points", std::move(points)}, {"fits", std::move(fits)}};
}

}  // namespace

Json study_json(Store& store, std::string_view study) {
  const StudyRuns found = runs_of(store, study);
  const auto groups = grouped(found.runs, [](const StudyRun& run) { return series_key(run, {}); });
  const std::vector<std::string> labels = labels_of(store, groups);
  Json variants = Json::array();
  for (std::size_t i = 0; i < groups.size(); ++i)
    variants.push_back(variant_json(labels[i], groups[i]));
  return {{"study", study},
          {"runs", found.total},
          {"shown", found.runs.size()},
          {"variants", std::move(variants)},
          {"quantities", quantities_json(found.runs)}};
}

Json fits_json(Store& store, std::string_view study, std::string_view x, std::string_view y) {
  const StudyRuns found = runs_of(store, study);
  for (const std::string_view name : {x, y})
    if (std::ranges::none_of(found.runs,
                             [&](const StudyRun& run) { return number_of(run, name).has_value(); }))
      throw UsageError("no run of the study has a number {}", shown(name));
  const std::string option = option_named(x);
  const bool is_option = found.runs.front().options.contains(option);
  const auto groups = grouped(found.runs, [&](const StudyRun& run) {
    return is_option ? series_key(run, option) : "";  // what is measured has a law of its own
  });
  std::vector<std::string> labels =
      is_option ? labels_of(store, groups, option) : std::vector<std::string>{"all runs"};
  Json series = Json::array();
  for (std::size_t i = 0; i < groups.size(); ++i)
    series.push_back(series_json(labels[i], groups[i], x, y));
  return {{"study", study}, {"x", x}, {"y", y}, {"series", std::move(series)}};
}

}  // namespace ridge
