#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/trace/cut.h"
#include "ridge/trace/json_stream.h"
#include "ridge/trace/read_rocprof.h"
#include "ridge/trace/rocprof_names.h"
#include "ridge/trace/trace_builder.h"

namespace ridge::trace {
namespace {

namespace json = simdjson::dom;

constexpr std::string_view root = "rocprofiler-sdk-tool";

// The integer of an element, or of the result of a search for one.
template <class Element>
std::int64_t integer_of(Element element, std::int64_t otherwise = 0) {
  std::int64_t number = 0;
  return element.get_int64().get(number) ? otherwise : number;
}

template <class Element>
std::string text_of(Element element) {
  std::string_view text;
  return element.get_string().get(text) ? "" : std::string(text);
}

// {"handle": 3}
template <class Element>
std::int64_t handle_of(Element element) {
  json::object object;
  return element.get_object().get(object) ? -1 : integer_of(object["handle"], -1);
}

// Calls f(object) for the objects of a list.
template <class Element, class F>
void each_object(Element element, const F& f) {
  json::array list;
  if (element.get_array().get(list)) return;
  for (const json::element one : list) {
    json::object object;
    if (!one.get_object().get(object)) f(object);
  }
}

constexpr std::int64_t no_time = std::numeric_limits<std::int64_t>::min();

struct Dimensions {
  std::int64_t x = 1, y = 1, z = 1;
};

// One event, with the members that any kind has.
struct Record {
  std::int64_t kind = -1, operation = -1, thread = 0;
  std::int64_t correlation = 0, begin_ns = no_time, end_ns = no_time;
  std::int64_t agent = -1, queue = -1, stream = -1, kernel = -1;
  std::int64_t source = -1, destination = -1, bytes = EventColumns::none;
  Dimensions workgroup, grid;
};

template <class Element>
Dimensions dimensions_of(Element element) {
  Dimensions sizes;
  json::object object;
  if (element.get_object().get(object)) return sizes;
  return {integer_of(object["x"], 1), integer_of(object["y"], 1), integer_of(object["z"], 1)};
}

void read_dispatch(json::element element, Record& record) {
  json::object info;
  if (element.get_object().get(info)) return;
  record.agent = handle_of(info["agent_id"]);
  record.queue = handle_of(info["queue_id"]);
  record.kernel = integer_of(info["kernel_id"], -1);
  record.workgroup = dimensions_of(info["workgroup_size"]);
  record.grid = dimensions_of(info["grid_size"]);
}

void read_correlation(json::element element, Record& record) {
  json::object id;
  if (!element.get_object().get(id)) record.correlation = integer_of(id["internal"]);
}

Record record_of(json::object object) {
  Record record;
  for (const auto& [key, element] : object) {
    if (key == "kind") record.kind = integer_of(element, -1);
    if (key == "operation") record.operation = integer_of(element, -1);
    if (key == "thread_id") record.thread = integer_of(element);
    if (key == "start_timestamp") record.begin_ns = integer_of(element);
    if (key == "end_timestamp") record.end_ns = integer_of(element);
    if (key == "stream_id") record.stream = handle_of(element);
    if (key == "src_agent_id") record.source = handle_of(element);
    if (key == "dst_agent_id") record.destination = handle_of(element);
    if (key == "bytes") record.bytes = integer_of(element, EventColumns::none);
    if (key == "correlation_id") read_correlation(element, record);
    if (key == "dispatch_info") read_dispatch(element, record);
  }
  return record;
}

// Parses pieces of a file, and notes in the trace what of them is no JSON.
class PieceOfJson {
 public:
  explicit PieceOfJson(Damage& damage) : damage_(damage) {}

  // Calls f(object) for the objects of a list whose first value stands at a place of the file, and
  // the others behind it but for space. Of a damaged list, whatever value is whole counts.
  template <class F>
  void each(std::string& list, std::uint64_t at, const F& f) {
    json::element parsed;
    if (parse(list, parsed) == simdjson::SUCCESS) return each_object(parsed, f);
    JsonStream values(std::string_view(list), list.size());
    values.each_value([&] {
      const std::uint64_t begin = values.at();
      const std::optional<std::string_view> value = values.value();
      if (!value) return false;
      each_alone(std::string(*value), at + begin - 1, f);
      return true;
    });
  }
  // The same of an object or a list of them.
  template <class F>
  void one(std::string_view value, std::uint64_t at, const F& f) {
    each_alone(std::string(value), at, f);
  }
  void lose(std::uint64_t at, std::uint64_t bytes) {
    if (bytes == 0) return;
    if (damage_.lost_bytes == 0) damage_.first_at = at;
    damage_.lost_bytes += bytes;
  }

 private:
  simdjson::error_code parse(std::string& text, json::element& parsed) {
    text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    const simdjson::error_code error = parser_.parse(text.data(), text.size(), false).get(parsed);
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    return error;
  }
  template <class F>
  void each_alone(std::string value, std::uint64_t at, const F& f) {
    json::element parsed;
    simdjson::error_code error = parse(value, parsed);
    if (error == simdjson::UTF8_ERROR || error == simdjson::UNESCAPED_CHARS) {
      std::size_t count = 0;
      value = repaired(value, count);
      damage_.repaired_bytes += count;
      error = parse(value, parsed);
    }
    json::object object;
    if (error != simdjson::SUCCESS) return lose(at, value.size());
    if (!parsed.get_object().get(object)) return f(object);
    each_object(parsed, f);
  }

  json::parser parser_;
  Damage& damage_;
};

// Reads the part of the file that one process wrote: first what its records are told by, which may
// stand behind them, then the records.
class ProcessReader {
 public:
  ProcessReader(TraceBuilder& builder, std::uint64_t index) : builder_(builder), index_(index) {}

  // Each takes the process from the text. False if it is not whole.
  bool read_names(JsonStream& text, PieceOfJson& parser);
  bool read_records(JsonStream& text, PieceOfJson& parser);

 private:
  void add_agent(json::object agent);
  void add_operations(json::object kind);
  void add_symbol(json::object symbol);
  void add_kernel(const Record& record);
  void add_copy(const Record& record);
  void add_range(const Record& record);
  void add_call(const Record& record);

  std::string operation_name(const Record& record) const;
  std::uint32_t device_track(std::int64_t agent, const Record& record);
  std::uint32_t host_track(const Record& record);
  std::int64_t correlation(const Record& record) const;

  struct Agent {
    std::string number;  // of the card, or of the node
    bool is_card = false;
  };
  TraceBuilder& builder_;
  std::uint64_t index_;
  std::string pid_;
  std::unordered_map<std::int64_t, Agent> agents_;
  std::int64_t range_kind_ = -1;         // the number of what newer versions record ranges as
  std::set<std::int64_t> marker_kinds_;  // the kinds of the records of ROCTX
  std::vector<std::vector<std::string>> operations_;        // by kind
  std::unordered_map<std::int64_t, std::string> messages_;  // of ranges, by correlation
  std::unordered_map<std::int64_t, std::string> kernels_;
};

void ProcessReader::add_agent(json::object agent) {
  constexpr std::int64_t card = 2;  // ROCPROFILER_AGENT_TYPE_GPU
  const std::int64_t handle = handle_of(agent["id"]);
  const std::int64_t node = integer_of(agent["node_id"], handle);
  const std::int64_t number = integer_of(agent["logical_node_type_id"], node);
  const bool is_card = integer_of(agent["type"]) == card;
  std::string name = text_of(agent["product_name"]);
  if (name.empty()) name = text_of(agent["name"]);
  agents_[handle] = {fmt::format("{}", is_card ? number : node), is_card};
  if (is_card && !name.empty()) builder_.add_card(agents_[handle].number, name);
}

void ProcessReader::add_operations(json::object kind) {
  if (text_of(kind["kind"]) == "MARKER_CORE_RANGE_API") range_kind_ = std::ssize(operations_);
  std::vector<std::string>& names = operations_.emplace_back();
  json::array list;
  if (kind["operations"].get_array().get(list)) return;
  for (const json::element name : list) names.push_back(text_of(name));
}

void ProcessReader::add_symbol(json::object symbol) {
  const std::int64_t id = integer_of(symbol["kernel_id"], -1);
  std::string name = text_of(symbol["formatted_kernel_name"]);
  if (name.empty()) name = text_of(symbol["demangled_kernel_name"]);
  if (name.empty()) name = text_of(symbol["kernel_name"]);
  kernels_.try_emplace(id, std::move(name));
}

bool ProcessReader::read_names(JsonStream& text, PieceOfJson& parser) {
  const auto each = [&](const auto& take) {
    return text.each_batch(
        [&](std::string& list, std::uint64_t at) { parser.each(list, at, take); });
  };
  const auto read_strings = [&](std::string_view key) {
    if (key == "buffer_records") return each([&](json::object kind) { add_operations(kind); });
    if (key != "marker_api") return text.skip_value();
    return each([&](json::object message) {
      messages_.try_emplace(integer_of(message["key"]), text_of(message["value"]));
    });
  };
  const auto find_kinds = [&](std::string_view key) {
    if (key != "marker_api") return text.skip_value();
    return each([&](json::object record) { marker_kinds_.insert(integer_of(record["kind"], -1)); });
  };
  return text.each_member([&](std::string_view key) {
    if (key == "agents") return each([&](json::object agent) { add_agent(agent); });
    if (key == "kernel_symbols") return each([&](json::object symbol) { add_symbol(symbol); });
    if (key == "strings") return text.each_member(read_strings);
    if (key == "buffer_records") return text.each_member(find_kinds);
    if (key != "metadata") return text.skip_value();
    const std::uint64_t at = text.at();
    const std::optional<std::string_view> metadata = text.value();
    if (!metadata) return false;
    parser.one(*metadata, at,
               [&](json::object object) { pid_ = fmt::format("{}", integer_of(object["pid"])); });
    return true;
  });
}

bool ProcessReader::read_records(JsonStream& text, PieceOfJson& parser) {
  static const std::map<std::string_view, void (ProcessReader::*)(const Record&)> lists = {
      {"kernel_dispatch", &ProcessReader::add_kernel}, {"memory_copy", &ProcessReader::add_copy},
      {"marker_api", &ProcessReader::add_range},       {"hip_api", &ProcessReader::add_call},
      {"hsa_api", &ProcessReader::add_call},           {"rccl_api", &ProcessReader::add_call}};
  const auto read_list = [&](std::string_view key) {
    const auto list = lists.find(key);
    if (list == lists.end()) return text.skip_value();
    return text.each_batch([&](std::string& batch, std::uint64_t at) {
      parser.each(batch, at, [&](json::object object) {
        const Record record = record_of(object);
        if (record.begin_ns != no_time && record.end_ns != no_time) (this->*list->second)(record);
      });
    });
  };
  return text.each_member([&](std::string_view key) {
    return key == "buffer_records" ? text.each_member(read_list) : text.skip_value();
  });
}

std::string ProcessReader::operation_name(const Record& record) const {
  const auto kind = static_cast<std::size_t>(record.kind);
  const auto operation = static_cast<std::size_t>(record.operation);
  if (kind >= operations_.size() || operation >= operations_[kind].size()) return "";
  return operations_[kind][operation];
}

// Each process numbers its correlations anew.
std::int64_t ProcessReader::correlation(const Record& record) const {
  if (record.correlation <= 0) return EventColumns::none;
  constexpr int bits = 40;
  constexpr std::uint64_t most = (std::uint64_t{1} << (63 - bits)) - 1;
  return static_cast<std::int64_t>((std::min(index_, most) << bits) ^
                                   static_cast<std::uint64_t>(record.correlation));
}

// Since ROCm 6.4 a record tells its stream; before, only the queue of the card.
std::uint32_t ProcessReader::device_track(std::int64_t agent, const Record& record) {
  const auto known = agents_.find(agent);
  std::string stream = record.stream >= 0
                           ? fmt::format("{}", record.stream)
                           : fmt::format("queue {}", std::max<std::int64_t>(record.queue, 0));
  if (index_ > 0) stream += " of process " + pid_;
  return builder_.track(known == agents_.end() ? fmt::format("{}", agent) : known->second.number,
                        stream);
}

std::uint32_t ProcessReader::host_track(const Record& record) {
  return builder_.track(pid_, fmt::format("{}", record.thread));
}

void ProcessReader::add_kernel(const Record& record) {
  const auto name = kernels_.find(record.kernel);
  const Dimensions &grid = record.grid, &group = record.workgroup;
  builder_.add({.kind = EventKind::kernel,
                .name = builder_.text(name == kernels_.end() ? "" : name->second),
                .track = device_track(record.agent, record),
                .begin_ns = record.begin_ns,
                .end_ns = record.end_ns,
                .correlation = correlation(record),
                .shape = builder_.list(workgroups(grid.x, group.x), workgroups(grid.y, group.y),
                                       workgroups(grid.z, group.z)),
                .types = builder_.list(group.x, group.y, group.z)});
}

// A copy runs on the card that it concerns, the destination if both are cards.
void ProcessReader::add_copy(const Record& record) {
  const auto to = agents_.find(record.destination);
  const bool to_card = to == agents_.end() || to->second.is_card;
  builder_.add({.kind = EventKind::copy,
                .name = builder_.text(rocprof_copy_name(operation_name(record))),
                .track = device_track(to_card ? record.destination : record.source, record),
                .begin_ns = record.begin_ns,
                .end_ns = record.end_ns,
                .correlation = correlation(record),
                .bytes = record.bytes});
}

// Ranges have a message; marks last no time, and other calls of ROCTX say nothing. Beside records
// of ranges there may be those of the calls that begin them, with the same messages.
void ProcessReader::add_range(const Record& record) {
  const bool has_ranges = range_kind_ >= 0 && marker_kinds_.contains(range_kind_);
  if (has_ranges && record.kind != range_kind_) return;
  const auto message = messages_.find(record.correlation);
  if (message == messages_.end() || record.end_ns <= record.begin_ns) return;
  const RangeName range = range_name(message->second);
  builder_.add({.kind = range.kind,
                .name = builder_.text(range.name),
                .track = host_track(record),
                .begin_ns = record.begin_ns,
                .end_ns = record.end_ns,
                .shape = builder_.text(range.shape)});
}

void ProcessReader::add_call(const Record& record) {
  builder_.add({.kind = EventKind::call,
                .name = builder_.text(operation_name(record)),
                .track = host_track(record),
                .begin_ns = record.begin_ns,
                .end_ns = record.end_ns,
                .correlation = correlation(record)});
}

// Calls `take` with the number of each process, which takes it from the text. A file of one process
// may have it alone in place of the list. False if the text is not whole.
bool each_process(JsonStream& text, const std::function<bool(std::size_t)>& take) {
  return text.each_member([&](std::string_view key) {
    if (key != root) return text.skip_value();
    if (text.begins_with('{')) return take(0);
    std::size_t index = 0;
    return text.each_value([&] { return take(index++); });
  });
}

template <class File>
void read_file(const File& file, const ReadOptions& options, Trace& trace) {
  TraceBuilder builder(trace);
  std::deque<ProcessReader> processes;  // in the order of the file
  std::uint64_t names_bytes = 0;        // of the file, the first time
  const auto progress = [&](std::uint64_t bytes) {
    if (options.progress) options.progress((names_bytes + bytes) / 2);
  };
  {
    JsonStream text(file, options.piece_bytes, progress);
    PieceOfJson parser(trace.damage);
    each_process(text, [&](std::size_t index) {
      return processes.emplace_back(builder, index).read_names(text, parser);
    });
    text.skip_rest();
    names_bytes = text.file_bytes_read();
  }
  JsonStream text(file, options.piece_bytes, progress);
  PieceOfJson parser(trace.damage);
  const bool whole = each_process(text, [&](std::size_t index) {
    return index < processes.size() ? processes[index].read_records(text, parser)
                                    : text.skip_value();
  });
  const bool ends = whole && text.at_end();
  const std::uint64_t at = text.at();
  trace.bytes = text.skip_rest();
  if (!ends) parser.lose(at, trace.bytes - at);
  trace.damage.cut_short = !whole;
  trace.damage.unpacking = text.damage();
  if (trace.event_count == 0 && trace.damage.any())
    throw FormatError("its JSON is damaged or cut short, and no event of it can be read");
  builder.finish();
}

}  // namespace

bool is_rocprof_json(std::string_view text) {
  const auto skip_space = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  };
  skip_space();
  if (!text.starts_with('{')) return false;
  text.remove_prefix(1);
  skip_space();
  return text.starts_with(fmt::format("\"{}\"", root));
}

void read_rocprof_json(const std::filesystem::path& file, const ReadOptions& options,
                       Trace& trace) {
  read_file(file, options, trace);
}

void read_rocprof_json(std::string_view file, const ReadOptions& options, Trace& trace) {
  read_file(file, options, trace);
}

}  // namespace ridge::trace
