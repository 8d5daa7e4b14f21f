#include "ridge/report/dashboard/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/study/run_exchange.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t curve_points = 1000;
constexpr int quantiles = 100;

// The columns of what a run measured, in the order of tables.
constexpr std::string_view measured_columns[] = {
    "median_seconds", "samples_per_second", "tokens_per_second", "peak_bytes", "kernels",
    "flops",          "final_loss"};

// The member at a path; null where a record, which may come from anywhere, has none.
Json at(const Json& json, std::initializer_list<const char*> path) {
  const Json* here = &json;
  for (const char* name : path) {
    if (!here->is_object()) return {};
    const auto member = here->find(name);
    if (member == here->end()) return {};
    here = &*member;
  }
  return *here;
}

std::vector<double> numbers_at(const Json& record, const char* name) {
  std::vector<double> numbers;
  const Json list = at(record, {"performance_summary", name});
  if (!list.is_array()) return numbers;
  for (const Json& value : list)
    numbers.push_back(value.is_number() ? value.get<double>() : std::nan(""));
  return numbers;
}

// Every few values of a long list, and the place of each.
Json curve_json(const std::vector<double>& values, std::int64_t first_step) {
  Json step = Json::array(), value = Json::array();
  const std::size_t stride = values.size() / curve_points + 1;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    step.push_back(first_step + static_cast<std::int64_t>(i));
    value.push_back(values[i]);
  }
  return {{"step", std::move(step)}, {"value", std::move(value)}};
}

// The 0th to the 100th percentile of the steps that averages are of.
Json quantiles_json(std::vector<double> seconds, std::size_t left_out) {
  if (left_out < seconds.size())
    seconds.erase(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(left_out));
  std::erase_if(seconds, [](double value) { return !std::isfinite(value); });
  std::ranges::sort(seconds);
  Json list = Json::array();
  if (seconds.empty()) return list;
  for (int percent = 0; percent <= quantiles; ++percent)
    list.push_back(percentile_of_sorted(seconds, static_cast<double>(percent) / quantiles));
  return list;
}

std::int64_t integer_at(const Json& record, const char* name, std::int64_t usual) {
  const Json value = at(record, {"performance_summary", name});
  return value.is_number_integer() ? value.get<std::int64_t>() : usual;
}

Json run_json(const RunRow& row, const Json& record) {
  const std::int64_t left_out = integer_at(record, "steps_left_out_of_averages", 0);
  return {{"row", Json::parse(row_json(row))},
          {"losses", curve_json(numbers_at(record, "losses"), integer_at(record, "first_step", 1))},
          {"step_quantiles",
           quantiles_json(numbers_at(record, "step_seconds"),
                          static_cast<std::size_t>(std::max<std::int64_t>(left_out, 0)))}};
}

// Options that not all runs have alike, each with its values; null where a run has none.
Json options_json(std::span<const Json> records) {
  std::vector<std::string> names;
  for (const Json& record : records)
    if (const Json options = at(record, {"options"}); options.is_object())
      for (const auto& [name, value] : options.items())
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  Json list = Json::array();
  for (const std::string& name : names) {
    Json values = Json::array();
    for (const Json& record : records) values.push_back(at(record, {"options", name.c_str()}));
    if (std::ranges::any_of(values, [&](const Json& value) { return value != values[0]; }))
      list.push_back({{"name", name}, {"values", std::move(values)}});
  }
  return list;
}

Json metrics_json(const Json& runs) {
  Json list = Json::array();
  for (const std::string_view name : measured_columns) {
    Json values = Json::array(), ratios = Json::array();
    for (const Json& run : runs) values.push_back(run["row"][name]);
    const double first = values[0].is_number() ? values[0].get<double>() : 0;
    for (const Json& value : values)
      ratios.push_back(value.is_number() && first != 0 ? Json(value.get<double>() / first)
                                                       : Json());
    if (std::ranges::any_of(values, [](const Json& value) { return value.is_number(); }))
      list.push_back(
          {{"name", name}, {"values", std::move(values)}, {"ratios", std::move(ratios)}});
  }
  return list;
}

// Where the operators of a run stand: in its context, or in the profile of a benchmark's record.
Json operators_of(const Json& record, const Json& context) {
  Json operators = at(context, {"operators"});
  return operators.is_object() ? operators : at(record, {"profile", "operators"});
}

double number_or(const Json& value, double usual) {
  return value.is_number() ? value.get<double>() : usual;
}

// Seconds a step of each operator, over all runs; null where a run has no such operator.
Json operators_json(std::span<const Json> operators) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<Json>> seconds;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const double steps = std::max(1.0, number_or(at(operators[i], {"steps"}), 1));
    const Json rows = at(operators[i], {"rows"});
    if (!rows.is_array()) continue;
    for (const Json& row : rows) {
      const Json name = at(row, {"name"}), time = at(row, {"total", "time_ns"});
      if (!name.is_string() || !time.is_number()) continue;
      auto& of = seconds.try_emplace(name.get<std::string>(), operators.size()).first->second;
      if (std::ranges::all_of(of, [](const Json& one) { return one.is_null(); }))
        names.push_back(name.get<std::string>());
      of[i] = 1e-9 * time.get<double>() / steps;
    }
  }
  std::ranges::stable_sort(names, std::ranges::greater(), [&](const std::string& name) {
    double most = 0;
    for (const Json& one : seconds[name]) most = std::max(most, number_or(one, 0));
    return most;
  });
  Json list = Json::array();
  for (const std::string& name : names)
    list.push_back({{"name", name}, {"seconds", seconds[name]}});
  return list;
}

}  // namespace

Json comparison_json(std::span<const KeptRun> runs) {
  std::vector<Json> records, operators;
  Json list = Json::array();
  for (const KeptRun& run : runs) {
    records.push_back(json_object(run.document.record, "the record"));
    operators.push_back(
        operators_of(records.back(), json_object(run.document.context, "the context")));
    list.push_back(run_json(run.row, records.back()));
  }
  Json metrics = metrics_json(list);
  return {{"runs", std::move(list)},
          {"options", options_json(records)},
          {"metrics", std::move(metrics)},
          {"operators", operators_json(operators)}};
}

}  // namespace ridge
