#include "ridge/study/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "ridge/base/digest.h"
#include "ridge/base/error.h"
#include "ridge/base/gzip.h"
#include "ridge/base/utf8.h"
#include "ridge/study/store_schema.h"

namespace ridge {
namespace {

// Of a profile, unpacked: a page of more would hang its browser.
constexpr std::size_t max_profile_bytes = std::size_t{256} << 20;

// "[1,2,3]", which a statement takes as one parameter.
std::string list_of(std::span<const std::int64_t> ids) {
  return fmt::format("[{}]", fmt::join(ids, ","));
}

SqlValue sql_value(const RunRow& row, const RunColumn& column) {
  struct Get {
    const RunRow& row;
    SqlValue operator()(std::string RunRow::*field) const { return row.*field; }
    SqlValue operator()(std::int64_t RunRow::*field) const { return row.*field; }
    SqlValue operator()(Uuid RunRow::*field) const { return row.*field; }
    SqlValue operator()(std::optional<std::int64_t> RunRow::*field) const {
      return row.*field ? SqlValue(*(row.*field)) : SqlValue();
    }
    SqlValue operator()(std::optional<double> RunRow::*field) const {
      return row.*field ? SqlValue(*(row.*field)) : SqlValue();
    }
  };
  return std::visit(Get{row}, column.field);
}

// The columns of one table, but for ids, as SQL and as values.
struct TableRow {
  std::string names;
  std::vector<SqlValue> values;

  TableRow(RunColumn::Table table, const RunRow& row) {
    for (const RunColumn& column : run_columns())
      if (column.table == table && column.name != "id") add(column.sql, sql_value(row, column));
  }
  void add(std::string_view name, SqlValue value) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    values.push_back(std::move(value));
  }
  std::string insert(std::string_view table) const {
    std::string parameters;
    for (std::size_t i = 1; i <= values.size(); ++i)
      parameters += fmt::format("{}?{}", i > 1 ? ", " : "", i);
    return fmt::format("INSERT INTO {} ({}) VALUES ({})", table, names, parameters);
  }
};

std::string all_equal(const TableRow& row) {
  std::string condition;
  int number = 0;
  for (std::string_view rest = row.names; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(", "));
    condition += fmt::format("{}{} = ?{}", number ? " AND " : "", name, number + 1);
    rest.remove_prefix(std::min(name.size() + 2, rest.size()));
    ++number;
  }
  return condition;
}

}  // namespace

std::string checked_tag(std::string_view tag) {
  std::string text = stored_text(tag);
  if (text.empty()) throw UsageError("a tag is a text; this one is empty");
  if (std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }))
    throw UsageError("{} is no tag: a number is taken for the id of a run", shown(text));
  return text;
}

Store::Store(const std::filesystem::path& file) : database_(open_store(file)) {}

Statement& Store::prepared(const std::string& sql) {
  const auto found = statements_.find(sql);
  return found != statements_.end()
             ? found->second
             : statements_.emplace(sql, Statement(database_, sql)).first->second;
}

std::int64_t Store::run_statement(const std::string& sql, std::span<const SqlValue> values) {
  Statement& statement = prepared(sql).bind(values);
  statement.run();
  return database_.changes();
}

std::optional<std::int64_t> Store::look_up(const std::string& sql,
                                           std::span<const SqlValue> values) {
  Statement& statement = prepared(sql).bind(values);
  std::optional<std::int64_t> result;
  if (statement.step()) result = statement.integer(0);
  statement.reset();
  return result;
}

// The id of a row that is there, or is added.
std::int64_t Store::id_in(std::string_view table, const std::string& names,
                          const std::string& insert, std::span<const SqlValue> values) {
  if (const auto id = look_up(fmt::format("SELECT id FROM {} WHERE {}", table, names), values))
    return *id;
  run_statement(insert, values);
  return database_.last_row_id();
}

std::int64_t Store::add_row(const DocumentRow& document) {
  const TableRow machine(RunColumn::Table::machines, document.row);
  const TableRow program(RunColumn::Table::programs, document.row);
  const std::vector<SqlValue> options{static_cast<std::int64_t>(fnv1a(document.options)),
                                      document.options};
  TableRow row(RunColumn::Table::runs, document.row);
  row.add("machine_id",
          id_in("machines", all_equal(machine), machine.insert("machines"), machine.values));
  row.add("program_id",
          id_in("programs", all_equal(program), program.insert("programs"), program.values));
  row.add("options_id", id_in("options", "hash = ?1 AND json = ?2",
                              "INSERT INTO options (hash, json) VALUES (?1, ?2)", options));
  run_statement(row.insert("runs"), row.values);
  const std::int64_t id = database_.last_row_id();
  run_statement("INSERT INTO records (run_id, record, context) VALUES (?1, ?2, ?3)",
                std::vector<SqlValue>{id, document.record, document.context});
  return id;
}

Store::Added Store::add(std::span<const RunDocument> runs) {
  // What can be refused is refused before anybody has to wait.
  std::vector<DocumentRow> rows;
  std::vector<std::string> profiles;
  for (const RunDocument& run : runs) {
    profiles.push_back(run.profile.empty() ? "" : gzipped(run.profile));
    DocumentRow& document = rows.emplace_back(row_of(run));
    document.row.uuid = run.uuid == Uuid{} ? random_uuid() : run.uuid;
    document.row.study = stored_text(run.study);
    for (const std::string& tag : run.tags) document.row.tags.push_back(checked_tag(tag));
  }
  Added result;
  Transaction transaction(database_);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunRow& row = rows[i].row;
    std::optional<std::int64_t> id =
        look_up("SELECT id FROM runs WHERE uuid = ?1", std::vector<SqlValue>{row.uuid});
    if (!id) {
      id = add_row(rows[i]);
      if (runs[i].turn) take_turn(row.study, *runs[i].turn, *id);
      if (!profiles[i].empty()) put_profile(*id, profiles[i]);
      ++result.added;
    }
    for (const std::string& tag : row.tags)
      run_statement("INSERT OR IGNORE INTO tags (tag, run_id) VALUES (?1, ?2)",
                    std::vector<SqlValue>{tag, *id});
    result.ids.push_back(*id);
  }
  transaction.commit();
  return result;
}

void Store::put_profile(std::int64_t id, std::string_view packed) {
  prepared("INSERT OR REPLACE INTO profiles (run_id, document) VALUES (?1, ?2)")
      .bind(1, id)
      .bind_blob(2, packed)
      .run();
}

void Store::set_profile(std::int64_t id, std::string_view document) {
  const std::string packed = gzipped(document);
  Transaction transaction(database_);
  put_profile(id, packed);
  transaction.commit();
}

std::string Store::profile(std::int64_t id) {
  Statement statement(database_, "SELECT document FROM profiles WHERE run_id = ?1");
  statement.bind(1, id);
  if (!statement.step()) return "";
  return gunzip(statement.blob(0), max_profile_bytes, fmt::format("the profile of run {}", id));
}

std::optional<std::int64_t> Store::profiled_run(std::int64_t id) {
  return look_up(
      "SELECT run_id FROM profiles CROSS JOIN runs AS other ON other.id = run_id"
      " CROSS JOIN runs ON runs.id = ?1 WHERE other.options_id = runs.options_id"
      " AND other.machine_id = runs.machine_id AND other.program_id = runs.program_id"
      " ORDER BY run_id = ?1 DESC, run_id DESC LIMIT 1",
      std::vector<SqlValue>{id});
}

std::int64_t Store::tag(std::span<const std::int64_t> ids, std::string_view name) {
  const std::vector<SqlValue> values{checked_tag(name), list_of(ids)};
  Transaction transaction(database_);
  const std::int64_t tagged = run_statement(
      "INSERT OR IGNORE INTO tags (tag, run_id) SELECT ?1, id FROM runs"
      " WHERE id IN (SELECT value FROM json_each(?2))",
      values);
  transaction.commit();
  return tagged;
}

std::int64_t Store::untag(std::span<const std::int64_t> ids, std::string_view name) {
  const std::vector<SqlValue> values{stored_text(name), list_of(ids)};
  Transaction transaction(database_);
  const std::int64_t removed = run_statement(
      "DELETE FROM tags WHERE tag = ?1 AND run_id IN (SELECT value FROM json_each(?2))", values);
  transaction.commit();
  return removed;
}

std::vector<std::int64_t> Store::prunable(const Pruning& pruning) {
  const SqlCondition found = condition(pruning.filter);
  Statement statement(
      database_,
      fmt::format("SELECT id FROM runs WHERE {} AND {} ORDER BY created DESC, id DESC"
                  " LIMIT -1 OFFSET {}",
                  found.sql.empty() ? "true" : found.sql,
                  pruning.tagged ? "true" : "id NOT IN (SELECT run_id FROM tags)", pruning.keep));
  statement.bind(found.values);
  std::vector<std::int64_t> ids;
  while (statement.step()) ids.push_back(statement.integer(0));
  return ids;
}

std::int64_t Store::prune(const Pruning& pruning) {
  Transaction transaction(database_);
  const std::vector<std::int64_t> ids = prunable(pruning);
  const std::vector<SqlValue> list{list_of(ids)};
  for (const char* column : {"tags WHERE run_id", "records WHERE run_id", "profiles WHERE run_id",
                             "study_runs WHERE run_id", "runs WHERE id"})
    run_statement(fmt::format("DELETE FROM {} IN (SELECT value FROM json_each(?1))", column), list);
  run_statement("DELETE FROM options WHERE id NOT IN (SELECT options_id FROM runs)", {});
  transaction.commit();
  return std::ssize(ids);
}

void Store::compact() {
  database_.execute("VACUUM");
  database_.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

StoreStats Store::stats() {
  StoreStats stats{.version = database_.integer("PRAGMA user_version")};
  stats.runs = database_.integer("SELECT count(*) FROM runs");
  stats.tags = database_.integer("SELECT count(DISTINCT tag) FROM tags");
  stats.machines = database_.integer("SELECT count(*) FROM machines");
  stats.programs = database_.integer("SELECT count(*) FROM programs");
  stats.studies = database_.integer("SELECT count(DISTINCT study) FROM runs WHERE study != ''");
  stats.first = database_.integer("SELECT min(created) FROM runs");
  stats.last = database_.integer("SELECT max(created) FROM runs");
  stats.bytes = std::filesystem::file_size(file());
  return stats;
}

std::vector<std::string> Store::faults() {
  std::vector<std::string> faults;
  Statement check(database_, "PRAGMA quick_check");
  while (check.step())
    if (check.text(0) != "ok") faults.emplace_back(check.text(0));
  const std::int64_t without =
      database_.integer("SELECT count(*) FROM runs WHERE id NOT IN (SELECT run_id FROM records)");
  if (without > 0) faults.push_back(fmt::format("{} runs have no record", without));
  return faults;
}

}  // namespace ridge
