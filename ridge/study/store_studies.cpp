// The studies of a store, and whose turn each of their runs was.

#include <fmt/format.h>

#include <map>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/utf8.h"
#include "ridge/session/options.h"
#include "ridge/study/store.h"

namespace ridge {
namespace {

StudyRow study_row(const Statement& from) {
  return {.name = std::string(from.text(0)),
          .created = from.integer(1),
          .definition = std::string(from.text(2)),
          .plans = std::string(from.text(3))};
}

}  // namespace

bool Store::add_study(const StudyRow& study) {
  Transaction transaction(database_);
  const std::int64_t added = run_statement(
      "INSERT OR IGNORE INTO studies (name, created, definition, plans) VALUES (?1, ?2, ?3, ?4)",
      std::vector<SqlValue>{stored_text(study.name), study.created, stored_text(study.definition),
                            stored_text(study.plans)});
  transaction.commit();
  return added > 0;
}

std::optional<StudyRow> Store::find_study(std::string_view name) {
  Statement statement(database_,
                      "SELECT name, created, definition, plans FROM studies WHERE name = ?1");
  statement.bind(1, stored_text(name));
  if (!statement.step()) return std::nullopt;
  return study_row(statement);
}

StudyRow Store::study(std::string_view name) {
  if (auto study = find_study(name)) return *std::move(study);
  std::vector<std::string> names;
  for (const StudyRow& study : studies()) names.push_back(study.name);
  const std::string near = nearest_name(std::string(name), names);
  throw UsageError(
      "there is no study {} in {}{}", shown(name), file().string(),
      near.empty() ? "; ridge study list has them" : "; did you mean " + printable(near) + "?");
}

std::vector<StudyRow> Store::studies() {
  Statement statement(
      database_,
      "SELECT name, created, definition, plans FROM studies ORDER BY created DESC, id DESC");
  std::vector<StudyRow> rows;
  while (statement.step()) rows.push_back(study_row(statement));
  return rows;
}

std::int64_t Store::study_id(std::string_view name) {
  const auto id =
      look_up("SELECT id FROM studies WHERE name = ?1", std::vector<SqlValue>{stored_text(name)});
  if (!id) throw UsageError("there is no study {} in {}", shown(name), file().string());
  return *id;
}

bool Store::has_run(std::string_view name, StudyTurn turn) {
  return look_up(
             "SELECT 1 FROM study_runs WHERE study_id = ?1 AND variant = ?2 AND round = ?3"
             " AND run_id IS NOT NULL",
             std::vector<SqlValue>{study_id(name), turn.variant, turn.round})
      .has_value();
}

void Store::take_turn(const std::string& study, StudyTurn turn, std::int64_t run) {
  if (has_run(study, turn))
    throw UsageError("the study {} has measured variant {} in round {} already", shown(study),
                     turn.variant, turn.round);
  run_statement(
      "INSERT OR REPLACE INTO study_runs (study_id, variant, round, run_id, fault)"
      " VALUES (?1, ?2, ?3, ?4, '')",
      std::vector<SqlValue>{study_id(study), turn.variant, turn.round, run});
}

std::vector<StudyEntry> Store::study_entries(std::string_view name) {
  const std::int64_t id = study_id(name);
  std::map<std::int64_t, RunRow> runs;
  visit_rows(" WHERE runs.id IN (SELECT run_id FROM study_runs WHERE study_id = ?1)",
             std::vector<SqlValue>{id}, [&](const RunRow& row) { runs.emplace(row.id, row); });
  Statement statement(database_,
                      "SELECT variant, round, run_id, fault FROM study_runs WHERE study_id = ?1"
                      " ORDER BY variant, round");
  statement.bind(1, id);
  std::vector<StudyEntry> entries;
  while (statement.step()) {
    StudyEntry entry{.turn = {.variant = statement.integer(0), .round = statement.integer(1)},
                     .fault = std::string(statement.text(3))};
    if (!statement.is_null(2)) {
      const auto run = runs.find(statement.integer(2));
      if (run == runs.end()) continue;  // kept since the runs were read
      entry.run = run->second;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

void Store::add_fault(std::string_view name, StudyTurn turn, std::string_view fault) {
  Transaction transaction(database_);
  run_statement(
      "INSERT OR IGNORE INTO study_runs (study_id, variant, round, run_id, fault)"
      " VALUES (?1, ?2, ?3, NULL, ?4)",
      std::vector<SqlValue>{study_id(name), turn.variant, turn.round, stored_text(fault)});
  transaction.commit();
}

void Store::forget_faults(std::string_view name) {
  Transaction transaction(database_);
  run_statement("DELETE FROM study_runs WHERE study_id = ?1 AND run_id IS NULL",
                std::vector<SqlValue>{study_id(name)});
  transaction.commit();
}

}  // namespace ridge
