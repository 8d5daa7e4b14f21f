#include "ridge/study/store_schema.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "ridge/base/error.h"
#include "ridge/base/file.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t application_id = 0x52494447;  // "RIDG"

// A row of `runs` is narrow, because lists and filters go through all of them: texts that come
// again and again stand in tables of their own, and so do the whole records. There is no index but
// for what is looked up by its value: reading a million rows in order takes less time than looking
// up a tenth of them.
constexpr std::array<std::string_view, 3> steps{R"(
CREATE TABLE machines(
  id INTEGER PRIMARY KEY,
  machine TEXT NOT NULL UNIQUE,  -- digest of what follows
  cpu TEXT NOT NULL,
  cores INTEGER NOT NULL,        -- that a run used
  gpu TEXT NOT NULL,
  gpu_uuid TEXT NOT NULL,
  driver TEXT NOT NULL,
  libraries TEXT NOT NULL
) STRICT;
CREATE TABLE programs(
  id INTEGER PRIMARY KEY,
  ridge_version TEXT NOT NULL,
  commit_id TEXT NOT NULL,
  binary TEXT NOT NULL,          -- digest of the program's file
  compiler TEXT NOT NULL,
  UNIQUE(binary, commit_id, ridge_version, compiler)
) STRICT;
CREATE TABLE options(
  id INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,         -- of the next, 64-bit FNV-1a
  json TEXT NOT NULL             -- resolved options of a run
) STRICT;
CREATE INDEX options_hash ON options(hash);
CREATE TABLE runs(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid BLOB NOT NULL UNIQUE,
  created INTEGER NOT NULL,      -- seconds since 1970, UTC
  workload TEXT NOT NULL,
  mode TEXT NOT NULL,
  version TEXT NOT NULL,         -- schedule
  dtype TEXT NOT NULL,
  device TEXT NOT NULL,
  batch_size INTEGER,
  seq_len INTEGER,
  image_size INTEGER,
  median_seconds REAL,           -- of a step
  samples_per_second REAL,
  tokens_per_second REAL,
  peak_bytes INTEGER,
  kernels INTEGER,               -- of a step
  flops INTEGER,                 -- of a step
  final_loss REAL,
  outcome TEXT NOT NULL,
  study TEXT NOT NULL,
  machine_id INTEGER NOT NULL,
  program_id INTEGER NOT NULL,
  options_id INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_created ON runs(created);
CREATE TABLE records(
  run_id INTEGER PRIMARY KEY,
  record TEXT NOT NULL,          -- JSON: a record as a run writes it
  context TEXT NOT NULL          -- JSON: machine, program, conditions and what else was seen
) STRICT;
CREATE TABLE tags(
  tag TEXT NOT NULL,
  run_id INTEGER NOT NULL,
  PRIMARY KEY(tag, run_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_run ON tags(run_id);
)",
                                                R"(
CREATE TABLE studies(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  created INTEGER NOT NULL,      -- seconds since 1970, UTC
  definition TEXT NOT NULL,      -- JSON: what is measured
  plans TEXT NOT NULL            -- JSON: what was computed of each variant before
) STRICT;
CREATE TABLE study_runs(
  study_id INTEGER NOT NULL,
  variant INTEGER NOT NULL,
  round INTEGER NOT NULL,        -- from 1 on; 0: before any
  run_id INTEGER,                -- NULL: there is no run
  fault TEXT NOT NULL,           -- why there is none
  PRIMARY KEY(study_id, variant, round)
) STRICT, WITHOUT ROWID;
CREATE INDEX study_runs_run ON study_runs(run_id);
)",
                                                R"(
CREATE TABLE profiles(
  run_id INTEGER PRIMARY KEY,
  document BLOB NOT NULL         -- gzip of JSON: what `ridge report` draws of the run's profile
) STRICT;
)"};

[[noreturn]] void refuse_newer(const fs::path& file, std::int64_t version, std::size_t known) {
  throw IoError("{} is a store of version {}; this program knows version {} and older: update it",
                file.string(), version, known);
}

void check_kind(Database& database) {
  if (database.integer("PRAGMA application_id") != application_id)
    throw FormatError("{} is a database of another program, no store of runs",
                      database.file().string());
}

std::int64_t version_of(Database& database) { return database.integer("PRAGMA user_version"); }

// Another process may take the same steps at the same time: the version is read again inside.
void take_steps(Database& database, std::span<const std::string_view> all) {
  Transaction transaction(database);
  const std::int64_t begin = version_of(database), end = std::ssize(all);
  for (std::int64_t version = begin; version < end; ++version)
    database.execute(std::string(all[static_cast<std::size_t>(version)]).c_str());
  database.execute(fmt::format("PRAGMA user_version = {}", std::max(begin, end)).c_str());
  transaction.commit();
}

// A place where nobody can write has no writers either, unless one left its log behind.
bool is_frozen(const fs::path& file) {
  const fs::path directory = fs::absolute(file).parent_path();
  if (::access(directory.c_str(), W_OK) == 0) return false;
  std::error_code fault;
  const auto log = fs::file_size(file.string() + "-wal", fault);
  return fault || log == 0;
}

}  // namespace

std::span<const std::string_view> store_steps() { return steps; }

bool make_store(const fs::path& file) {
  const fs::path absolute = fs::absolute(file);
  std::error_code fault;
  if (fs::exists(absolute, fault)) return false;
  probe_writing(absolute);
  // A store without its tables is never seen: it is made under a name of its own.
  fs::path temporary = absolute;
  temporary += fmt::format(".{}.ridge-tmp", ::getpid());
  fs::remove(temporary, fault);
  {
    Database database(temporary, Database::Access::create);
    database.execute("PRAGMA journal_mode = WAL");
    database.execute(fmt::format("PRAGMA application_id = {}", application_id).c_str());
    take_steps(database, steps);
  }
  const bool linked = ::link(temporary.c_str(), absolute.c_str()) == 0;
  const int reason = errno;
  fs::remove(temporary, fault);
  if (!linked && reason != EEXIST)
    throw IoError("cannot make {}: {}", file.string(), std::generic_category().message(reason));
  return linked;
}

Database open_store(const fs::path& file, std::span<const std::string_view> all) {
  Database database(file, is_frozen(file) ? Database::Access::frozen : Database::Access::write);
  check_kind(database);
  const std::int64_t version = version_of(database), newest = std::ssize(all);
  if (version > newest) refuse_newer(file, version, all.size());
  if (version < newest && database.read_only())
    throw IoError("{} is a store of version {}, and cannot be written to bring it to version {}",
                  file.string(), version, newest);
  if (version < newest) take_steps(database, all);
  return database;
}

}  // namespace ridge
