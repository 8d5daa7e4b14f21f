#include <array>
#include <optional>
#include <string>

#include "ridge/base/file.h"
#include "ridge/trace/database.h"
#include "ridge/trace/export.h"
#include "ridge/trace/export_values.h"
#include "ridge/trace/report.h"

namespace ridge::trace {
namespace {

constexpr const char* schema_sql = R"(
CREATE TABLE trace (
  schema TEXT NOT NULL, file TEXT NOT NULL, device TEXT, rank INTEGER, of_host INTEGER NOT NULL,
  events INTEGER NOT NULL, lost_bytes INTEGER NOT NULL, cut_short INTEGER NOT NULL);
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE tracks (
  id INTEGER PRIMARY KEY, process TEXT NOT NULL, process_name TEXT, thread TEXT NOT NULL,
  thread_name TEXT, device INTEGER NOT NULL);
CREATE TABLE events (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL,
  name_id INTEGER NOT NULL REFERENCES texts (id),
  track_id INTEGER NOT NULL REFERENCES tracks (id),
  begin_ns INTEGER NOT NULL, duration_ns INTEGER NOT NULL,
  correlation INTEGER, external_id INTEGER, bytes INTEGER,
  shape_id INTEGER REFERENCES texts (id), types_id INTEGER REFERENCES texts (id));
CREATE TABLE work (
  event_id INTEGER PRIMARY KEY REFERENCES events (id),
  call_id INTEGER REFERENCES events (id), operator_id INTEGER REFERENCES events (id),
  class TEXT NOT NULL, step INTEGER);
CREATE TABLE steps (
  step INTEGER PRIMARY KEY, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
  span_us REAL NOT NULL, busy_us REAL NOT NULL, compute_us REAL NOT NULL,
  communication_us REAL NOT NULL, exposed_communication_us REAL NOT NULL, copy_us REAL NOT NULL,
  idle_us REAL NOT NULL, kernels INTEGER NOT NULL);
CREATE TABLE idle (
  begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, cause TEXT NOT NULL,
  next_event_id INTEGER REFERENCES events (id), blocking_event_id INTEGER REFERENCES events (id),
  step INTEGER);
CREATE TABLE memory (
  time_ns INTEGER NOT NULL, device INTEGER, bytes INTEGER NOT NULL,
  allocated_bytes INTEGER NOT NULL, reserved_bytes INTEGER NOT NULL);
CREATE TABLE properties (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE findings (
  rule TEXT NOT NULL, what TEXT NOT NULL, remedy TEXT NOT NULL, see TEXT NOT NULL,
  gain_us REAL NOT NULL, gain_part REAL NOT NULL);
CREATE VIEW named_events AS
  SELECT events.id, kind, names.text AS name, process, process_name, thread, thread_name,
         begin_ns, duration_ns, correlation, external_id, bytes, shapes.text AS shape,
         types.text AS types
  FROM events
  JOIN texts AS names ON names.id = name_id
  JOIN tracks ON tracks.id = track_id
  LEFT JOIN texts AS shapes ON shapes.id = shape_id
  LEFT JOIN texts AS types ON types.id = types_id;
)";

// Adds rows to a table.
class Inserter {
 public:
  Inserter(const Database& database, const std::string& table, int columns)
      : statement_(database, sql(table, columns)) {}

  template <class... Values>
  void operator()(const Values&... values) {
    int column = 0;
    (bind(++column, values), ...);
    statement_.run();
  }

 private:
  static std::string sql(const std::string& table, int columns) {
    std::string text = "INSERT INTO " + table + " VALUES (?";
    for (int i = 1; i < columns; ++i) text += ", ?";
    return text + ")";
  }
  void bind(int column, std::int64_t value) { statement_.bind(column, value); }
  void bind(int column, double value) { statement_.bind(column, value); }
  void bind(int column, std::string_view text) { statement_.bind(column, text); }
  template <class Value>
  void bind(int column, const std::optional<Value>& value) {
    if (value)
      statement_.bind(column, *value);
    else
      statement_.bind_null(column);
  }

  Statement statement_;
};

class SqliteExport {
 public:
  SqliteExport(const Database& database, const Trace& trace) : database_(database), trace_(trace) {}

  void add_trace(const Report& report);
  void add_texts();
  void add_tracks();
  void add_events();
  void add_work(const Work& work, const HostNesting& nesting);
  void add_steps(const Work& work, const Report& report);
  void add_idle(const IdleTime& idle);
  void add_rest(const Report& report);

 private:
  Inserter into(const std::string& table, int columns) const { return {database_, table, columns}; }

  const Database& database_;
  const Trace& trace_;
};

void SqliteExport::add_trace(const Report& report) {
  into("trace", 8)(export_schema, trace_.file, known(report.device), report.rank,
                   static_cast<std::int64_t>(report.of_host),
                   static_cast<std::int64_t>(report.events),
                   static_cast<std::int64_t>(report.damage.lost_bytes),
                   static_cast<std::int64_t>(report.damage.cut_short));
}

void SqliteExport::add_texts() {
  Inserter add = into("texts", 2);
  for (TextPool::Id id = 0; id < trace_.texts.size(); ++id)
    add(static_cast<std::int64_t>(id), trace_.texts[id]);
}

void SqliteExport::add_tracks() {
  Inserter add = into("tracks", 6);
  std::int64_t id = 0;
  for (const Track& track : trace_.tracks) {
    const auto process = trace_.process_names.find(track.process);
    add(id++, track.process,
        process == trace_.process_names.end() ? Text() : known(process->second), track.thread,
        known(track.thread_name), static_cast<std::int64_t>(track.device));
  }
}

void SqliteExport::add_events() {
  Inserter add = into("events", 11);
  const EventColumns& events = trace_.events;
  const auto text = [](TextPool::Id id) { return id == 0 ? Integer() : Integer(id); };
  for (Row row = 0; row < events.size(); ++row)
    add(static_cast<std::int64_t>(row), name_of(events.kind[row]),
        static_cast<std::int64_t>(events.name[row]), static_cast<std::int64_t>(events.track[row]),
        events.begin_ns[row], events.duration_ns[row], known(events.correlation[row]),
        known(events.external[row]), known(events.bytes[row]), text(events.shape[row]),
        text(events.types[row]));
}

void SqliteExport::add_work(const Work& work, const HostNesting& nesting) {
  Inserter add = into("work", 5);
  for (const DeviceWork& one : work.device)
    add(static_cast<std::int64_t>(one.row), id_of(one.call),
        one.call == no_row ? Integer() : id_of(nesting.operation_of(one.call)), name_of(one.work),
        known(one.step));
}

void SqliteExport::add_steps(const Work& work, const Report& report) {
  Inserter add = into("steps", 11);
  for (std::size_t i = 0; i < report.steps.size(); ++i) {
    const TimeUse& use = report.steps[i].use;
    add(report.steps[i].number, work.steps[i].host.begin_ns, work.steps[i].host.end_ns, use.span,
        use.busy, use.compute, use.communication, use.exposed_communication, use.copy, use.idle,
        static_cast<std::int64_t>(use.kernels));
  }
}

void SqliteExport::add_idle(const IdleTime& idle) {
  Inserter add = into("idle", 6);
  for (const IdleStretch& stretch : idle.stretches)
    add(stretch.time.begin_ns, stretch.time.end_ns, idle_cause_name(stretch.cause),
        id_of(stretch.next), id_of(stretch.blocking), known(stretch.step));
}

void SqliteExport::add_rest(const Report& report) {
  Inserter memory = into("memory", 5);
  for (const MemoryInstant& instant : trace_.memory)
    memory(instant.time_ns, known(std::int64_t{instant.device}), instant.bytes, instant.allocated,
           instant.reserved);
  Inserter property = into("properties", 2);
  for (const auto& [name, value] : trace_.properties) property(name, value);
  Inserter finding = into("findings", 6);
  for (const Finding& one : report.findings)
    finding(one.rule, one.what, one.remedy, one.see, one.gain_us, one.gain_part);
}

void fill(Database& database, const Trace& trace) {
  const HostNesting nesting(trace);
  const Work work = work_of(trace, nesting);
  const Report report = report_of(trace);
  database.execute(schema_sql);
  database.execute("BEGIN");
  SqliteExport out(database, trace);
  out.add_trace(report);
  out.add_texts();
  out.add_tracks();
  out.add_events();
  out.add_work(work, nesting);
  out.add_steps(work, report);
  out.add_idle(report.idle);
  out.add_rest(report);
  database.execute("COMMIT");
}

}  // namespace

// SQLite writes by name: into the temporary of an AtomicFile, which stands beside the file, and
// which that then syncs and renames.
void export_sqlite(const Trace& trace, const std::filesystem::path& file) {
  AtomicFile finished(file);
  const std::filesystem::path temporary =
      file.parent_path() / ("." + file.filename().string() + ".ridge-tmp");
  {
    Database database = Database::to_fill(temporary, file.string());
    fill(database, trace);
  }
  finished.commit();
}

const char* name_of(EventKind kind) {
  static constexpr std::array names = {
      "other",      "operation",         "call",   "kernel",          "copy",    "fill",
      "annotation", "device_annotation", "python", "synchronization", "overhead"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace ridge::trace
