// What a store is asked.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/utf8.h"
#include "ridge/session/options.h"
#include "ridge/study/first_rows.h"
#include "ridge/study/store.h"

namespace ridge {
namespace {

// How many of the newest records are asked for a name before it counts as unknown.
constexpr int records_asked = 50;

std::string_view table_of(const RunColumn& column) {
  return column.table == RunColumn::Table::runs       ? "runs"
         : column.table == RunColumn::Table::machines ? "machines"
                                                      : "programs";
}

// All columns of all runs: what a query adds stands behind it. CROSS JOIN keeps SQLite from going
// through the machines first.
const std::string& selection() {
  static const std::string sql = [] {
    std::string names;
    for (const RunColumn& column : run_columns())
      names += fmt::format("{}{}.{}", names.empty() ? "" : ", ", table_of(column), column.sql);
    return fmt::format(
        "SELECT {} FROM runs CROSS JOIN machines ON machines.id = runs.machine_id"
        " CROSS JOIN programs ON programs.id = runs.program_id",
        names);
  }();
  return sql;
}

void read_column(const Statement& from, int column, RunRow& row, const RunColumn::Field& field) {
  struct Set {
    const Statement& from;
    int column;
    RunRow& row;
    void operator()(std::string RunRow::*field) const { row.*field = from.text(column); }
    void operator()(std::int64_t RunRow::*field) const { row.*field = from.integer(column); }
    void operator()(Uuid RunRow::*field) const {
      const SqlValue value = from.value(column);
      if (const auto* uuid = std::get_if<Uuid>(&value)) row.*field = *uuid;
    }
    void operator()(std::optional<std::int64_t> RunRow::*field) const {
      if (!from.is_null(column)) row.*field = from.integer(column);
    }
    void operator()(std::optional<double> RunRow::*field) const {
      if (!from.is_null(column)) row.*field = from.real(column);
    }
  };
  std::visit(Set{from, column, row}, field);
}

const RunColumn& column_named(std::string_view name) {
  if (const RunColumn* column = find_run_column(name)) return *column;
  std::vector<std::string> names;
  for (const RunColumn& column : run_columns()) names.emplace_back(column.name);
  const std::string near = nearest_name(std::string(name), names);
  throw UsageError("runs have no column {}{}", shown(name),
                   near.empty() ? fmt::format("; there are: {}", fmt::join(names, ", "))
                                : "; did you mean " + near + "?");
}

const RunColumn& measured_column(std::string_view name) {
  const RunColumn& column = column_named(name);
  if (column.is_text() || column.table != RunColumn::Table::runs ||
      std::holds_alternative<Uuid RunRow::*>(column.field))
    throw UsageError("{} is no number that a run has measured", name);
  return column;
}

// A column's value, without the joins of selection().
std::string key_of(const RunColumn& column) {
  if (column.table == RunColumn::Table::runs) return fmt::format("runs.{}", column.sql);
  const bool machine = column.table == RunColumn::Table::machines;
  return fmt::format("(SELECT {} FROM {} WHERE id = runs.{}_id)", column.sql, table_of(column),
                     machine ? "machine" : "program");
}

std::string order_by(const RunColumn& column, bool descending) {
  const bool may_lack = std::holds_alternative<std::optional<double> RunRow::*>(column.field) ||
                        std::holds_alternative<std::optional<std::int64_t> RunRow::*>(column.field);
  const std::string key = fmt::format("{}.{}", table_of(column), column.sql);
  const std::string_view direction = descending ? " DESC" : "";
  return fmt::format(" ORDER BY {}{}{}, runs.id{}",
                     may_lack ? fmt::format("{} IS NULL, ", key) : "", key, direction, direction);
}

std::string where(const SqlCondition& condition) {
  return condition.sql.empty() ? "" : " WHERE " + condition.sql;
}

}  // namespace

bool Store::has_path(bool context, const std::string& path) {
  return look_up(fmt::format("SELECT 1 FROM (SELECT {0} AS text FROM records ORDER BY run_id DESC"
                             " LIMIT {1}) WHERE json_type(text, ?1) IS NOT NULL LIMIT 1",
                             context ? "context" : "record", records_asked),
                 std::vector<SqlValue>{path})
      .has_value();
}

SqlCondition Store::condition(std::string_view filter) {
  FilterNames names{.options = {}, .has_path = [this](bool context, const std::string& path) {
                      return has_path(context, path);
                    }};
  RunOptions options;
  for (const OptionInfo& option : options_of(options)) names.options.push_back(option.name);
  // Those of other versions of the program, as far as the newest options have them.
  Statement others(database_, fmt::format("SELECT DISTINCT key FROM (SELECT json AS text FROM"
                                          " options ORDER BY id DESC LIMIT {}), json_each(text)",
                                          records_asked));
  while (others.step()) names.options.emplace_back(others.text(0));
  return condition_of(filter, names);
}

void Store::visit_rows(const std::string& tail, std::span<const SqlValue> values,
                       const std::function<void(const RunRow&)>& visit) {
  Statement statement(database_, selection() + tail);
  statement.bind(values);
  Statement tags(database_, "SELECT tag FROM tags WHERE run_id = ?1 ORDER BY tag");
  while (statement.step()) {
    RunRow row;
    int number = 0;
    for (const RunColumn& column : run_columns())
      read_column(statement, number++, row, column.field);
    tags.bind(1, row.id);
    while (tags.step()) row.tags.emplace_back(tags.text(0));
    visit(row);
  }
}

void Store::each(const RunQuery& query, const std::function<void(const RunRow&)>& visit) {
  const SqlCondition found = condition(query.filter);
  std::string tail = where(found) + order_by(column_named(query.order), query.descending);
  if (query.limit > 0 || query.offset > 0)
    tail += fmt::format(" LIMIT {} OFFSET {}", query.limit > 0 ? query.limit : -1, query.offset);
  visit_rows(tail, found.values, visit);
}

RunPage Store::list(const RunQuery& query) {
  const RunColumn& order = column_named(query.order);
  const SqlCondition found = condition(query.filter);
  RunPage page;
  const auto keep = [&](const RunRow& row) { page.runs.push_back(row); };
  if (query.limit == 0) {
    each(query, keep);
    page.total = query.offset == 0 ? std::ssize(page.runs) : count(query.filter);
    return page;
  }
  if (found.sql.empty() && order.is_date()) {  // the index has what is wanted, and nothing else
    const std::string_view direction = query.descending ? " DESC" : "";
    visit_rows(fmt::format(" WHERE runs.id IN (SELECT id FROM runs ORDER BY created{0}, id{0}"
                           " LIMIT {1} OFFSET {2}){3}",
                           direction, query.limit, query.offset, order_by(order, query.descending)),
               {}, keep);
    page.total = count({});
    return page;
  }
  FirstRows first(database_, static_cast<std::size_t>(query.offset + query.limit),
                  query.descending);
  {
    Statement statement(database_,
                        fmt::format("SELECT count(*), first_rows(runs.id, {}) FROM runs{}",
                                    key_of(order), where(found)));
    statement.bind(found.values);
    statement.step();
    page.total = statement.integer(0);
  }
  const std::vector<std::int64_t> ids = first.ids();
  const auto skipped = std::min(static_cast<std::size_t>(query.offset), ids.size());
  visit_rows(
      fmt::format(" WHERE runs.id IN ({}){}", fmt::join(std::span(ids).subspan(skipped), ","),
                  order_by(order, query.descending)),
      {}, keep);
  return page;
}

std::int64_t Store::count(std::string_view filter) {
  const SqlCondition found = condition(filter);
  return look_up("SELECT count(*) FROM runs" + where(found), found.values).value_or(0);
}

std::vector<SeriesPoint> Store::series(std::string_view filter, std::string_view name) {
  const RunColumn& column = measured_column(name);
  const SqlCondition found = condition(filter);
  Statement statement(database_,
                      fmt::format("SELECT id, created, {0}, machine_id, program_id, options_id FROM"
                                  " runs WHERE {1} AND {0} IS NOT NULL",
                                  column.sql, found.sql.empty() ? "true" : found.sql));
  statement.bind(found.values);
  std::vector<SeriesPoint> points;
  while (statement.step())
    points.push_back({.run = statement.integer(0),
                      .created = statement.integer(1),
                      .value = statement.real(2),
                      .machine = statement.integer(3),
                      .program = statement.integer(4),
                      .options = statement.integer(5)});
  // Runs are mostly added in the order of time; a sort in SQLite would write them all elsewhere.
  const auto time = [](const SeriesPoint& point) { return std::pair(point.created, point.run); };
  if (!std::ranges::is_sorted(points, {}, time)) std::ranges::sort(points, {}, time);
  return points;
}

std::vector<std::pair<std::int64_t, std::int64_t>> Store::option_sets() {
  Statement statement(database_, "SELECT id, hash FROM options");
  std::vector<std::pair<std::int64_t, std::int64_t>> sets;
  while (statement.step()) sets.emplace_back(statement.integer(0), statement.integer(1));
  return sets;
}

std::string Store::text_of(const std::string& sql, std::int64_t id) {
  Statement& statement = prepared(sql).bind(1, id);
  std::string text;
  if (statement.step()) text = statement.text(0);
  statement.reset();
  return text;
}

std::string Store::options(std::int64_t id) {
  return text_of("SELECT json FROM options WHERE id = ?1", id);
}

std::string Store::options_of_run(std::int64_t run) {
  return text_of("SELECT json FROM options WHERE id = (SELECT options_id FROM runs WHERE id = ?1)",
                 run);
}

std::string Store::commit(std::int64_t program) {
  return text_of("SELECT commit_id FROM programs WHERE id = ?1", program);
}

std::vector<std::string> Store::commits() {
  return texts_of(
      "SELECT DISTINCT commit_id FROM programs WHERE commit_id != '' ORDER BY commit_id");
}

std::vector<RunsOfStudy> Store::runs_by_study() {
  Statement statement(database_,
                      "SELECT study, count(*), min(created), max(created) FROM runs WHERE"
                      " study != '' GROUP BY study ORDER BY max(created) DESC, study");
  std::vector<RunsOfStudy> studies;
  while (statement.step())
    studies.push_back({.name = std::string(statement.text(0)),
                       .runs = statement.integer(1),
                       .first = statement.integer(2),
                       .last = statement.integer(3)});
  return studies;
}

std::vector<std::string> Store::texts_of(const std::string& sql) {
  Statement statement(database_, sql);
  std::vector<std::string> texts;
  while (statement.step()) texts.emplace_back(statement.text(0));
  return texts;
}

std::vector<std::string> Store::tags() {
  return texts_of("SELECT DISTINCT tag FROM tags ORDER BY tag");
}

RunRow Store::find(std::string_view reference) {
  std::vector<RunRow> found;
  const auto keep = [&](const RunRow& row) { found.push_back(row); };
  std::int64_t id = 0;
  const auto [stop, fault] =
      std::from_chars(reference.data(), reference.data() + reference.size(), id);
  if (fault == std::errc() && stop == reference.data() + reference.size())
    visit_rows(" WHERE runs.id = ?1", std::vector<SqlValue>{id}, keep);
  if (found.empty())
    visit_rows(
        " WHERE runs.id IN (SELECT run_id FROM tags WHERE tag = ?1)"
        " ORDER BY runs.created DESC, runs.id DESC LIMIT 1",
        std::vector<SqlValue>{stored_text(reference)}, keep);
  const auto range = uuids_with_prefix(reference);
  if (found.empty() && range)
    visit_rows(" WHERE runs.uuid >= ?1 AND runs.uuid <= ?2 LIMIT 2",
               std::vector<SqlValue>{range->first, range->second}, keep);
  if (found.size() == 1) return found.front();
  if (found.size() > 1)
    throw UsageError("{} begins the uuid of several runs: give more of it", shown(reference));
  const std::string near = nearest_name(std::string(reference), tags());
  throw UsageError("there is no run {} in {}{}", shown(reference), file().string(),
                   near.empty() ? ": name one by its id, a tag or the beginning of its uuid"
                                : "; did you mean the tag \"" + printable(near) + "\"?");
}

RunDocument Store::document(std::int64_t id) {
  const RunRow row = find(std::to_string(id));
  RunDocument document{.uuid = row.uuid, .study = row.study, .tags = row.tags};
  Statement statement(database_, "SELECT record, context FROM records WHERE run_id = ?1");
  statement.bind(1, id);
  if (!statement.step())
    throw FormatError("{} has no record of run {}; see ridge store check", file().string(), id);
  document.record = statement.text(0);
  document.context = statement.text(1);
  return document;
}

}  // namespace ridge
