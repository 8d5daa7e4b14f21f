#pragma once

// A store of runs: one SQLite file, which many processes read and write at once.
//
//   Store store(file);
//   store.add({.tags = {"baseline"}, .record = record_json(record, summary)});
//   for (const RunRow& run : store.list({.filter = "version=v4", .limit = 10}).runs) ...
//
// What a member that writes has returned from survives the death of the process at any moment, and
// a loss of power (SQLite's WAL with synchronous=FULL). WAL needs one machine: no network drives.
// Errors: see Database; UsageError for a filter, a column, a run or a tag that there is not.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/study/filter.h"
#include "ridge/study/run_row.h"
#include "ridge/study/sqlite.h"

namespace ridge {

struct RunQuery {
  std::string filter;             // study/filter.h; empty: all runs
  std::string order = "created";  // a column
  bool descending = true;         // runs without a value come last either way
  std::int64_t limit = 0;         // 0: all
  std::int64_t offset = 0;        // how many are left out before the first
};

struct RunPage {
  std::vector<RunRow> runs;
  std::int64_t total = 0;  // that the filter finds, whatever the limit
};

// One run of a series, with the rows of the tables that it refers to: numbers alone, so that a
// million of them take a fraction of a second.
struct SeriesPoint {
  std::int64_t run = 0, created = 0;
  double value = 0;
  std::int64_t machine = 0, program = 0, options = 0;
};

// The runs of one study, whether or not the store has the study itself.
struct RunsOfStudy {
  std::string name;
  std::int64_t runs = 0, first = 0, last = 0;  // when the oldest and the newest were made
};

struct StoreStats {
  std::int64_t version = 0;  // of the file's tables
  std::int64_t runs = 0, tags = 0, machines = 0, programs = 0, studies = 0;
  std::int64_t first = 0, last = 0;  // when the oldest and the newest run were made
  std::uint64_t bytes = 0;           // of the file
};

// A study as a store keeps it; its definition and plans are study/definition.h's and
// study/variant_plan.h's.
struct StudyRow {
  std::string name;
  std::int64_t created = 0;  // seconds since 1970, UTC
  std::string definition, plans;
};

// What became of a turn of a study: a run, or a reason why there is none.
struct StudyEntry {
  StudyTurn turn;
  std::optional<RunRow> run;
  std::string fault;
};

class Store {
 public:
  // Opens a store that there is; see open_store() and make_store().
  explicit Store(const std::filesystem::path& file);

  const std::filesystem::path& file() const { return database_.file(); }
  bool read_only() const { return database_.read_only(); }

  // Adds runs in one transaction: all, or none if one is refused. A run whose uuid is all zeros
  // gets one. A run that is there already, by its uuid, is left alone but for the tags it lacks.
  // Returns the ids, and how many runs were new. FormatError for a record that is none; UsageError
  // for a turn of a study that there is not, or that has been taken.
  struct Added {
    std::vector<std::int64_t> ids;
    std::int64_t added = 0;
  };
  Added add(std::span<const RunDocument> runs);
  std::int64_t add(const RunDocument& run) { return add(std::span(&run, 1)).ids.front(); }

  RunPage list(const RunQuery& query);
  // Calls for every run of a query, in order, as the store was when it began.
  void each(const RunQuery& query, const std::function<void(const RunRow&)>& visit);
  std::int64_t count(std::string_view filter);
  // What a numeric column was over time, the oldest run first, where it is known.
  std::vector<SeriesPoint> series(std::string_view filter, std::string_view column);
  // Ids and digests of the sets of options that runs have; the JSON of one, and of a run's; the
  // commit of a program.
  std::vector<std::pair<std::int64_t, std::int64_t>> option_sets();
  std::string options(std::int64_t id);
  std::string options_of_run(std::int64_t run);
  std::string commit(std::int64_t program);
  std::vector<std::string> commits();        // of all programs, each once
  std::vector<RunsOfStudy> runs_by_study();  // the newest first
  StoreStats stats();

  // See Database::give_up_when().
  void give_up_when(std::function<bool()> is_wanted) {
    database_.give_up_when(std::move(is_wanted));
  }

  // The run that a person names: by its id, by a tag (the newest run that has it), or by the first
  // four or more digits of its uuid.
  RunRow find(std::string_view reference);
  RunDocument document(std::int64_t id);

  // The profile of a run, as RunDocument has it; empty if there is none. FormatError if it is
  // damaged.
  std::string profile(std::int64_t id);
  void set_profile(std::int64_t id, std::string_view document);
  // The run itself if it has a profile; else the newest one with the same options, machine and
  // program that has: a study profiles each variant in a run after the rounds.
  std::optional<std::int64_t> profiled_run(std::int64_t id);
  std::vector<std::string> tags();  // all there are, in alphabetical order

  // How many runs did not have the tag yet, or had it. A tag is any text, but not empty and no
  // number, which would be taken for an id.
  std::int64_t tag(std::span<const std::int64_t> ids, std::string_view name);
  std::int64_t untag(std::span<const std::int64_t> ids, std::string_view name);

  // Studies. UsageError for a study that there is not.
  bool add_study(const StudyRow& study);  // whether there was none of its name
  std::optional<StudyRow> find_study(std::string_view name);
  StudyRow study(std::string_view name);
  std::vector<StudyRow> studies();                               // the newest first
  std::vector<StudyEntry> study_entries(std::string_view name);  // by variant and round
  bool has_run(std::string_view name, StudyTurn turn);
  // Notes why a turn has no run; nothing happens if it has one.
  void add_fault(std::string_view name, StudyTurn turn, std::string_view fault);
  void forget_faults(std::string_view name);  // so that these turns are taken again

  // What prune() removes: the runs of a filter but for the newest `keep`, and but for those with
  // tags unless `tagged`.
  struct Pruning {
    std::string filter;
    std::int64_t keep = 0;
    bool tagged = false;
  };
  std::vector<std::int64_t> prunable(const Pruning& pruning);
  std::int64_t prune(const Pruning& pruning);  // how many runs are gone
  void compact();                              // gives the space of removed runs back to the disk

  // What SQLite finds wrong with the file, line by line; empty if nothing is.
  std::vector<std::string> faults();

 private:
  SqlCondition condition(std::string_view filter);
  bool has_path(bool context, const std::string& path);
  // Calls for the rows of selection() with `tail` behind it.
  void visit_rows(const std::string& tail, std::span<const SqlValue> values,
                  const std::function<void(const RunRow&)>& visit);
  std::int64_t add_row(const DocumentRow& document);
  void put_profile(std::int64_t id, std::string_view packed);
  void take_turn(const std::string& study, StudyTurn turn, std::int64_t run);
  std::int64_t study_id(std::string_view name);
  std::int64_t id_in(std::string_view table, const std::string& condition,
                     const std::string& insert, std::span<const SqlValue> values);
  // Statements that come again and again stay prepared.
  Statement& prepared(const std::string& sql);
  std::int64_t run_statement(const std::string& sql, std::span<const SqlValue> values);
  std::optional<std::int64_t> look_up(const std::string& sql, std::span<const SqlValue> values);
  std::string text_of(const std::string& sql, std::int64_t id);
  std::vector<std::string> texts_of(const std::string& sql);

  Database database_;
  std::map<std::string, Statement> statements_;
};

// A tag that can be given: UsageError with the reason for any other.
std::string checked_tag(std::string_view tag);

}  // namespace ridge
