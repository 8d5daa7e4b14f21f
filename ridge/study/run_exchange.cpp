#include "ridge/study/run_exchange.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/utf8.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view run_schema = "ridge-run-1";
// Others who wait for the store get their turn between so many runs.
constexpr std::size_t runs_at_once = 500;

// The text of a member, as row_of() will read it: whole numbers stay whole.
std::string member_text(const Json& json, const char* name) {
  const auto member = json.find(name);
  if (member == json.end() || !member->is_object())
    throw FormatError("it has no {}, which is a JSON object", name);
  return one_line(*member);
}

Json value_of(const RunRow& row, const RunColumn& column) {
  struct Get {
    const RunRow& row;
    const RunColumn& column;
    Json operator()(std::string RunRow::*field) const { return row.*field; }
    Json operator()(std::int64_t RunRow::*field) const {
      return column.is_date() ? Json(utc_text(row.*field)) : Json(row.*field);
    }
    Json operator()(Uuid RunRow::*field) const { return to_string(row.*field); }
    Json operator()(std::optional<std::int64_t> RunRow::*field) const {
      return row.*field ? Json(*(row.*field)) : Json();
    }
    Json operator()(std::optional<double> RunRow::*field) const {
      return row.*field ? Json(*(row.*field)) : Json();
    }
  };
  return std::visit(Get{row, column}, column.field);
}

}  // namespace

std::string run_line(const RunDocument& run) {
  return fmt::format(
      R"({{"schema":"{}","uuid":"{}","study":{},"tags":{},"context":{},"record":{}{}}})",
      run_schema, to_string(run.uuid), one_line(run.study), one_line(run.tags), run.context,
      run.record, run.profile.empty() ? "" : ",\"profile\":" + run.profile);
}

RunDocument run_from_line(std::string_view line) {
  const Json json = json_object(line, "it");
  if (json.value("schema", Json()) != run_schema)
    throw FormatError("its schema is not {}", run_schema);
  const Json uuid = json.value("uuid", Json());
  const std::optional<Uuid> read =
      uuid.is_string() ? uuid_from(uuid.get_ref<const std::string&>()) : std::nullopt;
  if (!read || *read == Uuid{}) throw FormatError("it has no uuid");
  RunDocument run{.uuid = *read,
                  .record = member_text(json, "record"),
                  .context = member_text(json, "context")};
  if (const Json study = json.value("study", Json()); study.is_string()) run.study = study;
  if (json.contains("profile")) run.profile = member_text(json, "profile");
  for (const Json& tag : json.value("tags", Json::array()))
    if (tag.is_string()) run.tags.push_back(checked_tag(tag.get_ref<const std::string&>()));
  return run;
}

std::int64_t export_runs(Store& store, std::string_view filter,
                         const std::function<void(std::string_view line)>& write) {
  std::int64_t count = 0;
  store.each({.filter = std::string(filter), .descending = false}, [&](const RunRow& row) {
    RunDocument run = store.document(row.id);
    run.profile = store.profile(row.id);
    write(run_line(run));
    ++count;
  });
  return count;
}

Imported import_runs(Store& store, std::istream& file) {
  Imported result;
  std::vector<RunDocument> runs;
  const auto add = [&] {
    result.added += store.add(runs).added;
    result.read += std::ssize(runs);
    runs.clear();
  };
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      RunDocument run = run_from_line(line);
      row_of(run);  // which may be refused
      runs.push_back(std::move(run));
    } catch (const Error& error) {
      result.damaged.push_back({number, error.what()});
    }
    if (runs.size() == runs_at_once) add();
  }
  if (!runs.empty()) add();
  return result;
}

std::string row_json(const RunRow& row) {
  Json json = Json::object();
  for (const RunColumn& column : run_columns())
    json[std::string(column.name)] = value_of(row, column);
  json["tags"] = row.tags;
  return one_line(json);
}

std::string csv_heading() {
  std::string line;
  for (const RunColumn& column : run_columns()) line += fmt::format("{},", column.name);
  return line + "tags";
}

std::string row_csv(const RunRow& row) {
  std::string line;
  for (const RunColumn& column : run_columns()) {
    const Json value = value_of(row, column);
    if (value.is_string())
      line += csv_quoted(printable(value.get_ref<const std::string&>()));
    else if (!value.is_null())
      line += value.dump();
    line += ',';
  }
  return line + csv_quoted(printable(fmt::format("{}", fmt::join(row.tags, " "))));
}

}  // namespace ridge
