#include "ridge/trace/read_nsys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/trace/trace_builder.h"

namespace ridge::trace {
namespace {

using Strings = std::unordered_map<std::int64_t, std::string>;

// Those that have events; a database without any of them is another program's.
constexpr std::array event_tables = {"CUPTI_ACTIVITY_KIND_KERNEL",
                                     "CUPTI_ACTIVITY_KIND_MEMCPY",
                                     "CUPTI_ACTIVITY_KIND_MEMSET",
                                     "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
                                     "CUPTI_ACTIVITY_KIND_RUNTIME",
                                     "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                                     "NVTX_EVENTS"};

// Nsight Systems packs a process into bits 24 to 47 of what it calls a global id, and a thread into
// the bits below.
constexpr int process_bit = 24;
constexpr std::int64_t thread_mask = (std::int64_t{1} << process_bit) - 1;

std::int64_t process_of(std::int64_t global) { return (global >> process_bit) & thread_mask; }

// No view and no virtual table, which would run a program of whoever made the file.
bool has_table(const Database& database, std::string_view table) {
  Statement statement(database,
                      "SELECT 1 FROM sqlite_master WHERE name = ?1 AND sql LIKE 'CREATE TABLE%'");
  return statement.bind(1, table).step();
}

// The rows of a table, with the columns that a reader names. A column that the table has not is
// NULL; a table that is not there has no rows.
class Rows {
 public:
  // At most `most` rows; more are a FormatError, since each takes bytes of the file.
  Rows(const Database& database, std::string_view table, const std::vector<std::string>& columns,
       std::uint64_t most);

  bool next();
  std::int64_t operator[](int column) const { return statement_->integer(column); }
  std::string_view text(int column) const { return statement_->text(column); }
  bool has(int column) const { return !statement_->is_null(column); }

 private:
  std::optional<Statement> statement_;
  std::uint64_t left_;
};

Rows::Rows(const Database& database, std::string_view table,
           const std::vector<std::string>& columns, std::uint64_t most)
    : left_(most) {
  if (!has_table(database, table)) return;
  Statement names(database, "SELECT name FROM pragma_table_info(?1)");
  names.bind(1, table);
  std::vector<std::string> known;
  while (names.step()) known.emplace_back(names.text(0));
  std::vector<std::string> chosen;
  for (const std::string& column : columns)
    chosen.push_back(std::ranges::find(known, column) == known.end() ? "NULL" : '"' + column + '"');
  statement_.emplace(database,
                     fmt::format("SELECT {} FROM \"{}\"", fmt::join(chosen, ", "), table));
}

bool Rows::next() {
  if (!statement_ || !statement_->step()) return false;
  if (left_-- == 0) throw FormatError("the database is damaged: a table has no end");
  return true;
}

// "cudaLaunchKernel" of "cudaLaunchKernel_v7000". Such as "cuMemFree_v2" is a name of its own.
std::string_view call_name(std::string_view name) {
  const auto at = name.rfind("_v");
  if (at == std::string_view::npos) return name;
  const std::string_view version = name.substr(at + 2);
  const bool of_tool =
      version.size() >= 4 && version.find_first_not_of("0123456789") == std::string_view::npos;
  return of_tool ? name.substr(0, at) : name;
}

// By the numbers that the export has a table ENUM_CUDA_MEM_KIND for.
std::string_view memory_name(std::int64_t kind) {
  static constexpr std::string_view names[] = {
      "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"};
  return kind >= 0 && kind < std::ssize(names) ? names[kind] : std::string_view();
}

// The same of ENUM_CUDA_MEMCPY_OPER.
std::string_view copy_kind_name(std::int64_t kind) {
  static constexpr std::string_view names[] = {"UNKNOWN", "HTOD",     "DTOH",     "HTOA",    "ATOH",
                                               "ATOA",    "ATOD",     "DTOA",     "DTOD",    "HTOH",
                                               "PTOP",    "UVM_HTOD", "UVM_DTOH", "UVM_DTOD"};
  return kind >= 0 && kind < std::ssize(names) ? names[kind] : std::string_view();
}

std::string_view synchronization_name(std::int64_t kind) {
  static constexpr std::string_view names[] = {"Synchronization", "Event Synchronize",
                                               "Stream Wait Event", "Stream Synchronize",
                                               "Context Synchronize"};
  return kind >= 0 && kind < std::ssize(names) ? names[kind] : names[0];
}

class NsysReader {
 public:
  NsysReader(const Database& database, std::uint64_t most_rows, Trace& trace)
      : database_(database), most_rows_(most_rows), trace_(trace), builder_(trace) {}

  void read();

 private:
  Rows rows(std::string_view table, const std::vector<std::string>& columns) const {
    return {database_, table, columns, most_rows_};
  }
  void read_strings();
  void read_copy_kinds();
  void read_kernels();
  void read_copies();
  void read_fills();
  void read_graphs();
  void read_calls();
  void read_waits();
  void read_ranges();
  void read_thread_names();
  void read_cards();

  const std::string& string(std::int64_t id) const;
  std::int64_t correlation(std::int64_t process, std::int64_t number);
  std::uint32_t host_track(std::int64_t global);
  Slice device_slice(const Rows& rows, EventKind kind);
  std::string name_of_copy(std::int64_t kind, std::string_view from, std::string_view to) const;

  const Database& database_;
  std::uint64_t most_rows_;
  Trace& trace_;
  TraceBuilder builder_;
  Strings strings_;
  std::unordered_map<std::int64_t, std::string> copy_kinds_;
  std::vector<std::int64_t> processes_;  // in the order in which they are met
  std::unordered_map<std::int64_t, std::uint32_t> host_tracks_;
};

void NsysReader::read() {
  const bool known = std::ranges::any_of(
      event_tables, [&](std::string_view table) { return has_table(database_, table); });
  if (!known)
    throw FormatError(
        "it is a database without the tables of Nsight Systems; of databases, those are read that "
        "`nsys export --type sqlite` writes");
  read_strings();
  read_copy_kinds();
  read_kernels();
  read_copies();
  read_fills();
  read_graphs();
  read_calls();
  read_waits();
  read_ranges();
  read_thread_names();
  read_cards();
  builder_.finish();
}

void NsysReader::read_strings() {
  for (Rows row = rows("StringIds", {"id", "value"}); row.next();)
    strings_.try_emplace(row[0], row.text(1));
}

const std::string& NsysReader::string(std::int64_t id) const {
  static const std::string none;
  const auto found = strings_.find(id);
  return found == strings_.end() ? none : found->second;
}

// The names that the export itself gives, for kinds that are new.
void NsysReader::read_copy_kinds() {
  constexpr std::string_view prefix = "CUDA_MEMCPY_KIND_";
  for (Rows row = rows("ENUM_CUDA_MEMCPY_OPER", {"id", "name"}); row.next();) {
    const std::string_view name = row.text(1);
    if (name.starts_with(prefix)) copy_kinds_.try_emplace(row[0], name.substr(prefix.size()));
  }
}

// CUDA numbers correlations anew in each process, with 32 bits. Those of the first keep theirs.
std::int64_t NsysReader::correlation(std::int64_t process, std::int64_t number) {
  if (number <= 0) return EventColumns::none;
  if (process == 0) return number;  // older versions do not tell it
  const auto at = std::ranges::find(processes_, process);
  const auto index = static_cast<std::uint64_t>(at - processes_.begin());
  if (at == processes_.end()) processes_.push_back(process);
  constexpr std::uint64_t most = 0x7FFF'FFFF;
  return static_cast<std::int64_t>((std::min(index, most) << 32) ^
                                   (static_cast<std::uint64_t>(number) & 0xFFFF'FFFF));
}

std::uint32_t NsysReader::host_track(std::int64_t global) {
  const auto [at, added] = host_tracks_.try_emplace(global);
  if (added)
    at->second = builder_.track(fmt::format("{}", process_of(global)),
                                fmt::format("{}", global & thread_mask));
  return at->second;
}

// The columns begin with those of device_columns.
const std::vector<std::string> device_columns = {"start",    "end",           "deviceId",
                                                 "streamId", "correlationId", "globalPid"};
constexpr int first_own = 6;

std::vector<std::string> with_device_columns(std::vector<std::string> own) {
  own.insert(own.begin(), device_columns.begin(), device_columns.end());
  return own;
}

// Streams of two processes have the same numbers.
Slice NsysReader::device_slice(const Rows& rows, EventKind kind) {
  const std::int64_t process = process_of(rows[5]);
  const std::int64_t number = correlation(process, rows[4]);
  const bool first = processes_.empty() || process == 0 || process == processes_.front();
  const std::string stream =
      first ? fmt::format("{}", rows[3]) : fmt::format("{} of process {}", rows[3], process);
  return {.kind = kind,
          .track = builder_.track(fmt::format("{}", rows[2]), stream),
          .begin_ns = rows[0],
          .end_ns = rows[1],
          .correlation = number};
}

void NsysReader::read_kernels() {
  for (Rows row = rows("CUPTI_ACTIVITY_KIND_KERNEL",
                       with_device_columns({"demangledName", "shortName", "gridX", "gridY", "gridZ",
                                            "blockX", "blockY", "blockZ"}));
       row.next();) {
    Slice slice = device_slice(row, EventKind::kernel);
    const std::string& name = string(row[first_own]);
    slice.name = builder_.text(name.empty() ? string(row[first_own + 1]) : name);
    if (row.has(first_own + 2))
      slice.shape = builder_.list(row[first_own + 2], row[first_own + 3], row[first_own + 4]);
    if (row.has(first_own + 5))
      slice.types = builder_.list(row[first_own + 5], row[first_own + 6], row[first_own + 7]);
    builder_.add(slice);
  }
}

std::string NsysReader::name_of_copy(std::int64_t kind, std::string_view from,
                                     std::string_view to) const {
  const auto told = copy_kinds_.find(kind);
  std::string_view name = told == copy_kinds_.end() ? copy_kind_name(kind) : told->second;
  const bool unified = name.starts_with("UVM_");
  if (unified) name.remove_prefix(4);
  if (name.size() != 4 || name.substr(1, 2) != "TO") return fmt::format("Memcpy (kind {})", kind);
  return copy_name(name[0], name[3], from, to) + (unified ? " of unified memory" : "");
}

void NsysReader::read_copies() {
  for (Rows row = rows("CUPTI_ACTIVITY_KIND_MEMCPY",
                       with_device_columns({"copyKind", "bytes", "srcKind", "dstKind"}));
       row.next();) {
    Slice slice = device_slice(row, EventKind::copy);
    const auto memory = [&](int column) {
      return row.has(column) ? memory_name(row[column]) : std::string_view();
    };
    slice.name =
        builder_.text(name_of_copy(row[first_own], memory(first_own + 2), memory(first_own + 3)));
    if (row.has(first_own + 1)) slice.bytes = row[first_own + 1];
    builder_.add(slice);
  }
}

void NsysReader::read_fills() {
  for (Rows row = rows("CUPTI_ACTIVITY_KIND_MEMSET", with_device_columns({"bytes", "memKind"}));
       row.next();) {
    Slice slice = device_slice(row, EventKind::fill);
    const std::string_view memory =
        row.has(first_own + 1) ? memory_name(row[first_own + 1]) : std::string_view();
    slice.name = builder_.text(memory.empty() ? "Memset" : fmt::format("Memset ({})", memory));
    if (row.has(first_own)) slice.bytes = row[first_own];
    builder_.add(slice);
  }
}

// Traced as a whole, which is the default: the kernels within are in no table.
void NsysReader::read_graphs() {
  for (Rows row = rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", with_device_columns({"graphId"}));
       row.next();) {
    Slice slice = device_slice(row, EventKind::kernel);
    slice.name = builder_.text(fmt::format("CUDA graph {}", row[first_own]));
    builder_.add(slice);
  }
}

// The table has the calls of both interfaces, runtime and driver.
void NsysReader::read_calls() {
  for (Rows row = rows("CUPTI_ACTIVITY_KIND_RUNTIME",
                       {"start", "end", "globalTid", "correlationId", "nameId"});
       row.next();)
    builder_.add({.kind = EventKind::call,
                  .name = builder_.text(call_name(string(row[4]))),
                  .track = host_track(row[2]),
                  .begin_ns = row[0],
                  .end_ns = row[1],
                  .correlation = correlation(process_of(row[2]), row[3])});
}

void NsysReader::read_waits() {
  for (Rows row = rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", with_device_columns({"syncType"}));
       row.next();) {
    Slice slice = device_slice(row, EventKind::synchronization);
    slice.name = builder_.text(synchronization_name(row[first_own]));
    builder_.add(slice);
  }
}

// Ranges that were never closed have no end, and marks have none either.
void NsysReader::read_ranges() {
  constexpr std::int64_t push_pop = 59, start_end = 60;  // ENUM_NSYS_EVENT_TYPE
  for (Rows row = rows("NVTX_EVENTS", {"start", "end", "eventType", "text", "textId", "globalTid"});
       row.next();) {
    const bool is_range = !row.has(2) || row[2] == push_pop || row[2] == start_end;
    if (!row.has(1) || !is_range) continue;
    const std::string text(row.has(3) ? row.text(3) : string(row[4]));
    const RangeName range = range_name(text);
    builder_.add({.kind = range.kind,
                  .name = builder_.text(range.name),
                  .track = host_track(row[5]),
                  .begin_ns = row[0],
                  .end_ns = row[1],
                  .shape = builder_.text(range.shape)});
  }
}

void NsysReader::read_thread_names() {
  for (Rows row = rows("ThreadNames", {"nameId", "globalTid"}); row.next();) {
    const auto track = host_tracks_.find(row[1]);
    if (track != host_tracks_.end()) builder_[track->second].thread_name = string(row[0]);
  }
}

// A process may number the cards otherwise than the system does.
void NsysReader::read_cards() {
  std::unordered_map<std::int64_t, std::string> names;
  for (Rows row = rows("TARGET_INFO_GPU", {"id", "name"}); row.next();)
    names.try_emplace(row[0], row.text(1));
  for (Rows row = rows("TARGET_INFO_CUDA_DEVICE", {"cudaId", "gpuId"}); row.next();)
    if (const auto card = names.find(row[1]); card != names.end())
      builder_.add_card(fmt::format("{}", row[0]), card->second);
  for (const auto& [id, name] : names) builder_.add_card(fmt::format("{}", id), name);
}

}  // namespace

void read_nsys(const Database& database, std::uint64_t file_bytes, Trace& trace) {
  NsysReader(database, file_bytes, trace).read();
  trace.bytes = file_bytes;
}

}  // namespace ridge::trace
