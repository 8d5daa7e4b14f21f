#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/trace/cut.h"
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

// Reads the part of the file that one process wrote.
class ProcessReader {
 public:
  ProcessReader(TraceBuilder& builder, std::uint64_t index) : builder_(builder), index_(index) {}

  void read(json::object process);

 private:
  void read_agents(json::object process);
  void read_strings(json::object process);
  void read_symbols(json::object process);
  void read_records(json::object records);
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
  std::int64_t range_kind_ = -1;  // the number of what newer versions record ranges as
  bool has_ranges_ = false;       // there are such records
  std::vector<std::vector<std::string>> operations_;        // by kind
  std::unordered_map<std::int64_t, std::string> messages_;  // of ranges, by correlation
  std::unordered_map<std::int64_t, std::string> kernels_;
};

void ProcessReader::read_agents(json::object process) {
  constexpr std::int64_t card = 2;  // ROCPROFILER_AGENT_TYPE_GPU
  each_object(process["agents"], [&](json::object agent) {
    const std::int64_t handle = handle_of(agent["id"]);
    const std::int64_t node = integer_of(agent["node_id"], handle);
    const std::int64_t number = integer_of(agent["logical_node_type_id"], node);
    const bool is_card = integer_of(agent["type"]) == card;
    std::string name = text_of(agent["product_name"]);
    if (name.empty()) name = text_of(agent["name"]);
    agents_[handle] = {fmt::format("{}", is_card ? number : node), is_card};
    if (is_card && !name.empty()) builder_.add_card(agents_[handle].number, name);
  });
}

void ProcessReader::read_strings(json::object process) {
  json::object strings;
  if (process["strings"].get_object().get(strings)) return;
  each_object(strings["buffer_records"], [&](json::object kind) {
    if (text_of(kind["kind"]) == "MARKER_CORE_RANGE_API") range_kind_ = std::ssize(operations_);
    std::vector<std::string>& names = operations_.emplace_back();
    json::array list;
    if (kind["operations"].get_array().get(list)) return;
    for (const json::element name : list) names.push_back(text_of(name));
  });
  each_object(strings["marker_api"], [&](json::object message) {
    const std::int64_t key = integer_of(message["key"]);
    messages_.try_emplace(key, text_of(message["value"]));
  });
}

void ProcessReader::read_symbols(json::object process) {
  each_object(process["kernel_symbols"], [&](json::object symbol) {
    const std::int64_t id = integer_of(symbol["kernel_id"], -1);
    std::string name = text_of(symbol["formatted_kernel_name"]);
    if (name.empty()) name = text_of(symbol["demangled_kernel_name"]);
    if (name.empty()) name = text_of(symbol["kernel_name"]);
    kernels_.try_emplace(id, std::move(name));
  });
}

void ProcessReader::read(json::object process) {
  json::object metadata, records;
  if (!process["metadata"].get_object().get(metadata))
    pid_ = fmt::format("{}", integer_of(metadata["pid"]));
  read_agents(process);
  read_strings(process);
  read_symbols(process);
  if (!process["buffer_records"].get_object().get(records)) read_records(records);
}

void ProcessReader::read_records(json::object records) {
  const auto add = [&](const char* list, void (ProcessReader::*one)(const Record&)) {
    each_object(records[list], [&](json::object object) {
      const Record record = record_of(object);
      if (record.begin_ns != no_time && record.end_ns != no_time) (this->*one)(record);
    });
  };
  each_object(records["marker_api"], [&](json::object object) {
    has_ranges_ = has_ranges_ || (range_kind_ >= 0 && integer_of(object["kind"]) == range_kind_);
  });
  add("kernel_dispatch", &ProcessReader::add_kernel);
  add("memory_copy", &ProcessReader::add_copy);
  add("marker_api", &ProcessReader::add_range);
  for (const char* calls : {"hip_api", "hsa_api", "rccl_api"}) add(calls, &ProcessReader::add_call);
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
  if (has_ranges_ && record.kind != range_kind_) return;
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

// A text that was cut short, as far as objects in lists are whole, with the brackets that it lacks.
// Empty if none is.
std::string completed(std::string_view text) {
  std::string open, closing;  // brackets to be closed: here, and at `end`
  std::size_t end = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text && (c == '{' || c == '[')) {
      open += c == '{' ? '}' : ']';
    } else if (!in_text && (c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
      if (c == ']' || !open.ends_with(']')) continue;
      end = i + 1;
      closing.assign(open.rbegin(), open.rend());
    }
  }
  return std::string(text.substr(0, end)) + closing;
}

// Parses a text, or what can be of it, and notes in the trace what cannot.
simdjson::error_code parse(json::parser& parser, std::string& text, json::element& document,
                           Trace& trace) {
  const auto parse_text = [&] {
    text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    return parser.parse(text.data(), text.size(), false).get(document);
  };
  simdjson::error_code error = parse_text();
  if (error == simdjson::UTF8_ERROR || error == simdjson::UNESCAPED_CHARS) {
    std::size_t count = 0;
    text = repaired(text, count);
    trace.damage.repaired_bytes += count;
    error = parse_text();
  }
  if (error == simdjson::SUCCESS || error == simdjson::MEMALLOC || error == simdjson::CAPACITY)
    return error;
  const std::size_t before = text.size();
  std::string whole = completed(text);
  trace.damage.cut_short = true;
  trace.damage.first_at =
      std::mismatch(whole.begin(), whole.end(), text.begin(), text.end()).first - whole.begin();
  trace.damage.lost_bytes = before - trace.damage.first_at;
  text = std::move(whole);
  return parse_text();
}

// A file of one process may have it alone in place of the list.
void read_processes(json::element document, TraceBuilder& builder) {
  json::object top, process;
  if (document.get_object().get(top)) return;
  std::uint64_t index = 0;
  if (!top[root].get_object().get(process)) ProcessReader(builder, index).read(process);
  each_object(top[root], [&](json::object one) { ProcessReader(builder, index++).read(one); });
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

void read_rocprof_json(std::string& text, Trace& trace) {
  json::parser parser;
  json::element document;
  trace.bytes = text.size();
  const simdjson::error_code error = parse(parser, text, document, trace);
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();
  if (error == simdjson::CAPACITY)
    throw FormatError("its JSON is larger than the 4 GiB that a text of rocprofv3 may have");
  TraceBuilder builder(trace);
  if (error == simdjson::SUCCESS) read_processes(document, builder);
  if (trace.event_count == 0 && trace.damage.any())
    throw FormatError("its JSON is damaged or cut short, and no event of it can be read");
  builder.finish();
}

}  // namespace ridge::trace
