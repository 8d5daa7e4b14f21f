#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/trace/read_rocprof.h"
#include "ridge/trace/rocprof_names.h"
#include "ridge/trace/trace_builder.h"

namespace ridge::trace {
namespace {

// How rocprofv3 ends the names of the tables that are read.
constexpr std::array endings = {
    "_kernel_trace.csv",     "_memory_copy_trace.csv", "_hip_api_trace.csv",  "_hip_trace.csv",
    "_hsa_api_trace.csv",    "_hsa_trace.csv",         "_rccl_api_trace.csv", "_rccl_trace.csv",
    "_marker_api_trace.csv", "_marker_trace.csv",      "_agent_info.csv"};

// Takes the records of a CSV file apart (RFC 4180), each into its fields.
class CsvRecords {
 public:
  explicit CsvRecords(std::string_view text) : text_(text) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
    size_ = text_.size();
  }

  // The next record; its fields last until the one after. False at the end.
  bool next(std::vector<std::string_view>& fields);
  std::uint64_t at() const { return size_ - text_.size(); }
  // Whether the last record had no end.
  bool cut_short() const { return cut_short_; }

 private:
  std::string_view quoted_field();
  std::string_view plain_field();
  bool take(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  std::string_view text_;
  std::uint64_t size_ = 0;
  std::deque<std::string> unquoted_;  // fields in which quotes stand
  bool cut_short_ = false;
};

std::string_view CsvRecords::plain_field() {
  const std::string_view field = text_.substr(0, text_.find_first_of(",\r\n"));
  text_.remove_prefix(field.size());
  return field;
}

std::string_view CsvRecords::quoted_field() {
  std::size_t end = 0;
  bool doubled = false;
  for (;; end += 2) {
    end = text_.find('"', end);
    if (end == std::string_view::npos || text_.substr(end + 1, 1) != "\"") break;
    doubled = true;
  }
  cut_short_ = end == std::string_view::npos;
  std::string_view field = text_.substr(0, end);
  text_.remove_prefix(cut_short_ ? text_.size() : end + 1);
  if (!doubled) return field;
  std::string& plain = unquoted_.emplace_back();
  for (std::size_t i = 0; i < field.size(); ++i) {
    plain += field[i];
    if (field[i] == '"') ++i;
  }
  return plain;
}

bool CsvRecords::next(std::vector<std::string_view>& fields) {
  fields.clear();
  unquoted_.clear();
  while (take('\n') || take('\r')) {
  }
  if (text_.empty()) return false;
  do {
    fields.push_back(take('"') ? quoted_field() : plain_field());
  } while (take(','));
  // What stands between a quote and the next comma belongs to no field.
  if (const std::string_view rest = plain_field(); !rest.empty()) fields.push_back(rest);
  take('\r');
  cut_short_ = !take('\n');
  return true;
}

// The header of a table: where its columns stand.
class Header {
 public:
  explicit Header(const std::vector<std::string_view>& names)
      : names_(names.begin(), names.end()) {}

  std::size_t size() const { return names_.size(); }
  bool has(std::string_view name) const { return std::ranges::find(names_, name) != names_.end(); }
  // The field of a record in the column of this name; empty if the table has none.
  std::string_view operator()(const std::vector<std::string_view>& record,
                              std::string_view name) const {
    const auto at = static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin());
    return at < record.size() ? record[at] : std::string_view();
  }

 private:
  std::vector<std::string> names_;
};

// rocprof's own table of kernels has other names for its columns than rocprofv2's and rocprofv3's.
enum class Table : std::uint8_t { rocprof_kernels, kernels, copies, calls_and_ranges, agents };

std::optional<Table> table_of(const Header& header) {
  if (header.has("Node_Id") && header.has("Agent_Type")) return Table::agents;
  if (header.has("KernelName") && header.has("BeginNs") && header.has("EndNs"))
    return Table::rocprof_kernels;
  if (!header.has("Start_Timestamp") || !header.has("End_Timestamp")) return std::nullopt;
  if (header.has("Kernel_Name") && !header.has("Counter_Name")) return Table::kernels;
  if (header.has("Direction")) return Table::copies;
  if (header.has("Domain") && header.has("Function")) return Table::calls_and_ranges;
  return std::nullopt;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// The number of "Agent 4", "GPU 0" or "4".
std::string_view agent_number(std::string_view agent) {
  const auto at = agent.find_last_of(' ');
  return at == std::string_view::npos ? agent : agent.substr(at + 1);
}

class TableReader {
 public:
  TableReader(const Header& header, Trace& trace)
      : header_(header), trace_(trace), builder_(trace) {}

  // False if the record has no times.
  bool add(Table table, const std::vector<std::string_view>& record);
  void finish() { builder_.finish(); }

 private:
  using Record = std::vector<std::string_view>;

  std::string_view field(const Record& record, std::string_view name) const {
    return header_(record, name);
  }
  std::int64_t integer(const Record& record, std::string_view name, std::int64_t otherwise) const {
    return number(field(record, name)).value_or(otherwise);
  }
  void add_rocprof_kernel(const Record& record, Slice slice);
  void add_kernel(const Record& record, Slice slice);
  void add_copy(const Record& record, Slice slice);
  void add_call(const Record& record, Slice slice);
  std::uint32_t device_track(const Record& record, std::string_view agent);

  const Header& header_;
  Trace& trace_;
  TraceBuilder builder_;
};

bool TableReader::add(Table table, const Record& record) {
  if (table == Table::agents) {
    const std::string_view product = field(record, "Product_Name");
    if (field(record, "Agent_Type") == "GPU")
      builder_.add_card(std::string(field(record, "Node_Id")),
                        product.empty() ? field(record, "Name") : product);
    return true;
  }
  const bool old = table == Table::rocprof_kernels;
  const auto begin = number(field(record, old ? "BeginNs" : "Start_Timestamp"));
  const auto end = number(field(record, old ? "EndNs" : "End_Timestamp"));
  if (!begin || !end) return false;
  const std::int64_t correlation =
      integer(record, header_.has("Correlation_ID") ? "Correlation_ID" : "Correlation_Id", 0);
  Slice slice{.begin_ns = *begin,
              .end_ns = *end,
              .correlation = correlation > 0 ? correlation : EventColumns::none};
  if (old) add_rocprof_kernel(record, slice);
  if (table == Table::kernels) add_kernel(record, slice);
  if (table == Table::copies) add_copy(record, slice);
  if (table == Table::calls_and_ranges) add_call(record, slice);
  return true;
}

std::uint32_t TableReader::device_track(const Record& record, std::string_view agent) {
  const std::string_view stream = field(record, "Stream_Id");
  return builder_.track(
      agent_number(agent),
      stream.empty() ? fmt::format("queue {}", field(record, "Queue_Id")) : std::string(stream));
}

// Its grid and work group are counted along all axes together.
void TableReader::add_rocprof_kernel(const Record& record, Slice slice) {
  slice.kind = EventKind::kernel;
  slice.name = builder_.text(field(record, "KernelName"));
  slice.track =
      builder_.track(field(record, "gpu-id"), fmt::format("queue {}", field(record, "queue-id")));
  const std::int64_t group = integer(record, "wgr", 1);
  slice.shape = builder_.list(workgroups(integer(record, "grd", 1), group), 1, 1);
  slice.types = builder_.list(group, 1, 1);
  builder_.add(slice);
}

void TableReader::add_kernel(const Record& record, Slice slice) {
  slice.kind = EventKind::kernel;
  slice.name = builder_.text(field(record, "Kernel_Name"));
  // rocprofv2 has numbers of cards, of queues, and of threads along all axes together.
  const bool of_rocprofv2 = header_.has("GPU_ID");
  slice.track = of_rocprofv2 ? builder_.track(field(record, "GPU_ID"),
                                              fmt::format("queue {}", field(record, "Queue_ID")))
                             : device_track(record, field(record, "Agent_Id"));
  std::array<std::int64_t, 3> groups{}, group{};
  constexpr std::array axes = {'X', 'Y', 'Z'};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    group[i] = integer(record, fmt::format("Workgroup_Size_{}", axes[i]), 1);
    groups[i] = workgroups(integer(record, fmt::format("Grid_Size_{}", axes[i]), 1), group[i]);
  }
  if (of_rocprofv2) {
    group[0] = integer(record, "Workgroup_Size", 1);
    groups[0] = workgroups(integer(record, "Grid_Size", 1), group[0]);
  }
  slice.shape = builder_.list(groups[0], groups[1], groups[2]);
  slice.types = builder_.list(group[0], group[1], group[2]);
  builder_.add(slice);
}

// A copy runs on the card that it concerns, the destination if both are cards.
void TableReader::add_copy(const Record& record, Slice slice) {
  const std::string_view direction = field(record, "Direction");
  slice.kind = EventKind::copy;
  slice.name = builder_.text(rocprof_copy_name(direction));
  slice.track = device_track(
      record,
      field(record, direction.ends_with("TO_HOST") ? "Source_Agent_Id" : "Destination_Agent_Id"));
  builder_.add(slice);
}

// Ranges have their message in place of a function; marks last no time.
void TableReader::add_call(const Record& record, Slice slice) {
  const std::string_view function = field(record, "Function");
  slice.kind = EventKind::call;
  slice.name = builder_.text(function);
  slice.track = builder_.track(field(record, "Process_Id"), field(record, "Thread_Id"));
  if (field(record, "Domain").starts_with("MARKER")) {
    if (slice.end_ns <= slice.begin_ns) return;
    const RangeName range = range_name(function);
    slice.kind = range.kind;
    slice.name = builder_.text(range.name);
    slice.shape = builder_.text(range.shape);
    slice.correlation = EventColumns::none;
  }
  builder_.add(slice);
}

std::optional<Header> header_of(CsvRecords& records) {
  std::vector<std::string_view> fields;
  if (!records.next(fields)) return std::nullopt;
  return Header(fields);
}

// The begin that the tables of one run share; nothing if the file is not named as they are.
std::optional<std::string> prefix_of(const std::string& name) {
  for (const std::string_view ending : endings) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
    if (name == ending.substr(1)) return "";
  }
  return std::nullopt;
}

}  // namespace

bool is_rocprof_csv(std::string_view text) {
  CsvRecords records(text.substr(0, text.find('\n')));
  const auto header = header_of(records);
  return header && table_of(*header);
}

void read_rocprof_csv(std::string_view text, Trace& trace) {
  CsvRecords records(text);
  const auto header = header_of(records);
  const auto table = header ? table_of(*header) : std::nullopt;
  if (!table)
    throw FormatError(
        "it is a table without the columns of rocprofv3; of CSV, its *_kernel_trace.csv and the "
        "like are read");
  trace.bytes += text.size();
  TableReader reader(*header, trace);
  std::vector<std::string_view> record;
  for (std::uint64_t at = records.at(); records.next(record); at = records.at()) {
    const bool whole = record.size() == header->size() && reader.add(*table, record);
    if (whole) continue;
    if (records.cut_short()) trace.damage.cut_short = true;
    if (trace.damage.lost_bytes == 0) trace.damage.first_at = at;
    trace.damage.lost_bytes += records.at() - at;
  }
  reader.finish();
}

std::vector<std::filesystem::path> rocprof_tables_of(const std::filesystem::path& table) {
  const auto prefix = prefix_of(table.filename().string());
  if (!prefix) return {table};
  std::vector<std::filesystem::path> tables;
  for (const std::string_view ending : endings) {
    const std::string name = prefix->empty() && table.filename().string().front() != '_'
                                 ? std::string(ending.substr(1))
                                 : *prefix + std::string(ending);
    std::error_code ignored;
    const std::filesystem::path path = table.parent_path() / name;
    if (std::filesystem::is_regular_file(path, ignored)) tables.push_back(path);
  }
  return tables;
}

bool is_named_as_kernel_table(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.ends_with("_kernel_trace.csv") || name == "kernel_trace.csv";
}

}  // namespace ridge::trace
