#include "ridge/trace/piece.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

namespace ridge::trace {
namespace {

namespace json = simdjson::ondemand;

constexpr std::int64_t no_time = std::int64_t{1} << 62;  // beyond all that is believed

// Whether the text that begins at `at` is this key or text and then ends. The buffer's padding lets
// any number of bytes of a key be looked at.
template <std::size_t N>
bool is(const char* at, const char (&word)[N]) {
  return std::memcmp(at, word, N - 1) == 0 && at[N - 1] == '"';
}

// A value as it stands in the text, without the space behind it.
std::string_view token_of(json::value& value) {
  std::string_view token = value.raw_json_token();
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.remove_suffix(1);
  return token;
}

// Some programs write numbers as texts.
std::string_view without_quotes(std::string_view token) {
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"')
    return token.substr(1, token.size() - 2);
  return token;
}

// A number of microseconds in nanoseconds, exact to its third decimal; no_time if it is none or is
// beyond 146 years. A double would not do: PyTorch counts from 1970, some 2^60 ns ago.
std::int64_t nanoseconds_of(std::string_view token) {
  token = without_quotes(token);
  const char *at = token.data(), *end = at + token.size();
  const bool negative = at != end && *at == '-';
  if (negative) ++at;
  const char* digits = at;
  std::int64_t ns = 0;
  int decimals = -1;  // -1: before the point
  for (; at != end; ++at) {
    if (*at == '.' && decimals < 0) {
      decimals = 0;
      continue;
    }
    if (*at < '0' || *at > '9') break;
    if (decimals == 3) {
      if (at[-1] != '.' && *at >= '5') ++ns;
      while (at != end && *at >= '0' && *at <= '9') ++at;
      break;
    }
    if (ns >= no_time / 10) return no_time;
    ns = ns * 10 + (*at - '0');
    if (decimals >= 0) ++decimals;
  }
  if (at == digits) return no_time;
  if (at != end) {  // an exponent, or no number at all
    double value = 0;
    const auto parsed = std::from_chars(token.data(), end, value);
    const double in_ns = std::round(value * 1e3);
    if (parsed.ptr != end || parsed.ec != std::errc() || std::abs(in_ns) >= 0x1p62) return no_time;
    return static_cast<std::int64_t>(in_ns);
  }
  for (int i = std::max(decimals, 0); i < 3; ++i) {
    if (ns >= no_time / 10) return no_time;
    ns *= 10;
  }
  return negative ? -ns : ns;
}

std::int64_t integer_of(std::string_view token, std::int64_t otherwise = EventColumns::none) {
  token = without_quotes(token);
  std::int64_t value = 0;
  const auto parsed = std::from_chars(token.data(), token.data() + token.size(), value);
  if (parsed.ec == std::errc() && parsed.ptr == token.data() + token.size()) return value;
  double number = 0;  // 1e6, 12.0
  const auto real = std::from_chars(token.data(), token.data() + token.size(), number);
  if (real.ec != std::errc() || !(std::abs(number) < 0x1p62)) return otherwise;
  return static_cast<std::int64_t>(number);
}

// By a category's token. libkineto wrote capital letters once.
EventKind kind_of(std::string_view category) {
  struct Known {
    std::string_view category;
    EventKind kind;
  };
  static constexpr Known known[] = {{"cpu_op", EventKind::operation},
                                    {"kernel", EventKind::kernel},
                                    {"cuda_runtime", EventKind::call},
                                    {"python_function", EventKind::python},
                                    {"gpu_memcpy", EventKind::copy},
                                    {"gpu_memset", EventKind::fill},
                                    {"cuda_driver", EventKind::call},
                                    {"user_annotation", EventKind::annotation},
                                    {"gpu_user_annotation", EventKind::device_annotation},
                                    {"cuda_sync", EventKind::synchronization},
                                    {"overhead", EventKind::overhead},
                                    {"Operator", EventKind::operation},
                                    {"Kernel", EventKind::kernel},
                                    {"Runtime", EventKind::call},
                                    {"Memcpy", EventKind::copy},
                                    {"Memset", EventKind::fill},
                                    {"concurrent_kernel", EventKind::kernel},
                                    {"mtia_ccp_events", EventKind::kernel},
                                    {"mtia_runtime", EventKind::call},
                                    {"xpu_runtime", EventKind::call},
                                    {"xpu_driver", EventKind::call},
                                    {"privateuse1_runtime", EventKind::call},
                                    {"privateuse1_driver", EventKind::call}};
  category = without_quotes(category);
  for (const Known& one : known)
    if (one.category == category) return one.kind;
  return EventKind::other;
}

// The members of an event that anything asks for, as they stand in the text.
struct EventText {
  char phase = 0;
  std::string_view name, category, process, thread, begin, duration;
  // of its args
  std::string_view correlation, external, device, stream, bytes, shape, types, values, label;
  std::string_view collective, dtype, group, group_size, in_elements, out_elements;
  std::string_view memory_bytes, allocated, reserved, device_type, device_id;
  struct Number {
    std::string_view key;  // with its quotes
    double value;
  };
  std::vector<Number> numbers;  // if it is a counter, or may be one
};

// The whole value, also if it is an object or a list.
bool take(json::value& value, std::string_view& into) {
  json::json_type type;
  if (value.type().get(type)) return false;
  if (type == json::json_type::array) {
    json::array list;
    return !value.get_array().get(list) && !list.raw_json().get(into);
  }
  if (type == json::json_type::object) {
    json::object object;
    return !value.get_object().get(object) && !object.raw_json().get(into);
  }
  into = token_of(value);
  return true;
}

std::string_view* argument(EventText& event, const char* key) {
  switch (*key) {
    case 'E':
    case 'e':
      if (is(key + 1, "xternal id")) return &event.external;
      break;
    case 'c':
      if (is(key, "correlation")) return &event.correlation;
      break;
    case 'd':
      if (is(key, "device")) return &event.device;
      if (is(key, "dtype")) return &event.dtype;
      break;
    case 's':
      if (is(key, "stream")) return &event.stream;
      break;
    case 'b':
      if (is(key, "bytes")) return &event.bytes;
      if (is(key, "block")) return &event.types;
      break;
    case 'g':
      if (is(key, "grid")) return &event.shape;
      break;
    case 'I':
      if (is(key, "Input Dims") || is(key, "Input dims")) return &event.shape;
      if (is(key, "Input type")) return &event.types;
      if (is(key, "In msg nelems")) return &event.in_elements;
      break;
    case 'n':
      if (is(key, "name")) return &event.label;
      break;
    case 'C':
      if (is(key, "Collective name")) return &event.collective;
      if (is(key, "Concrete Inputs")) return &event.values;
      break;
    case 'G':
      if (is(key, "Group size")) return &event.group_size;
      break;
    case 'O':
      if (is(key, "Out msg nelems")) return &event.out_elements;
      break;
    case 'P':
      if (is(key, "Process Group Name")) return &event.group;
      break;
    case 'B':
      if (is(key, "Bytes")) return &event.memory_bytes;
      break;
    case 'T':
      if (is(key, "Total Allocated")) return &event.allocated;
      if (is(key, "Total Reserved")) return &event.reserved;
      break;
    case 'D':
      if (is(key, "Device Type")) return &event.device_type;
      if (is(key, "Device Id")) return &event.device_id;
      break;
    default:
      break;
  }
  return nullptr;
}

std::string_view* member(EventText& event, const char* key) {
  switch (*key) {
    case 'n':
      if (is(key, "name")) return &event.name;
      break;
    case 'c':
      if (is(key, "cat")) return &event.category;
      break;
    case 'p':
      if (is(key, "pid")) return &event.process;
      break;
    case 't':
      if (is(key, "ts")) return &event.begin;
      if (is(key, "tid")) return &event.thread;
      break;
    case 'd':
      if (is(key, "dur")) return &event.duration;
      break;
    default:
      break;
  }
  return nullptr;
}

// The text of a key with its quotes, as it stands in the file.
std::string_view quoted(const char* key) {
  const char* end = key;
  while (*end != '"') end += *end == '\\' ? 2 : 1;
  return {key - 1, static_cast<std::size_t>(end - key) + 2};
}

// Takes an argument if it is a number, which in a counter's event is its value.
void take_number(const char* key, std::string_view token, EventText& event) {
  double value = 0;
  const auto parsed = std::from_chars(token.data(), token.data() + token.size(), value);
  if (parsed.ec == std::errc() && parsed.ptr == token.data() + token.size() && std::isfinite(value))
    event.numbers.push_back({quoted(key), value});
}

bool read_arguments(json::value& value, EventText& event) {
  json::json_type type;
  if (value.type().get(type)) return false;
  if (type != json::json_type::object) return true;
  json::object object;
  if (value.get_object().get(object)) return false;
  // Some programs write the arguments before the phase.
  const bool may_count = event.phase == 'C' || event.phase == 0;
  for (auto field : object) {
    json::raw_json_string key;
    json::value item;
    if (field.key().get(key) || field.value().get(item)) return false;
    std::string_view* into = argument(event, key.raw());
    if (into && !take(item, *into)) return false;
    if (!may_count) continue;
    std::string_view token = into ? *into : std::string_view();
    if (!into && (item.type().get(type) || (type == json::json_type::number && !take(item, token))))
      return false;
    take_number(key.raw(), token, event);
  }
  return true;
}

bool read_event(json::object object, EventText& event) {
  for (auto field : object) {
    json::raw_json_string key;
    json::value value;
    if (field.key().get(key) || field.value().get(value)) return false;
    const char* name = key.raw();
    if (is(name, "args")) {
      if (!read_arguments(value, event)) return false;
    } else if (is(name, "ph")) {
      const std::string_view token = without_quotes(token_of(value));
      event.phase = token.size() == 1 ? token.front() : '?';
    } else if (std::string_view* into = member(event, name)) {
      if (!take(value, *into)) return false;
    }
  }
  return true;
}

// Numbers texts in the order in which they come.
class TextNumbers {
 public:
  explicit TextNumbers(std::vector<std::string_view>& texts) : texts_(texts) {
    texts_.push_back("");
  }
  TextPool::Id of(std::string_view text) {
    if (text.empty()) return 0;
    const auto [at, added] = ids_.try_emplace(text, static_cast<TextPool::Id>(texts_.size()));
    if (added) texts_.push_back(text);
    return at->second;
  }

 private:
  std::vector<std::string_view>& texts_;
  std::unordered_map<std::string_view, TextPool::Id> ids_;
};

// Whether the work of an operator depends on the values of its inputs. Those of others are many.
bool values_count(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return has("convolution") || has("attention") || has("index_select");
}

class PieceBuilder {
 public:
  explicit PieceBuilder(PieceEvents& piece) : piece_(piece), texts_(piece.texts) {}

  void add(const EventText& event);

 private:
  EventKind kind_of_category(std::string_view category);
  bool values_count_for(TextPool::Id name);
  std::uint32_t track_of(const EventText& event, bool device);
  void add_row(const EventText& event, EventKind kind, std::int64_t begin, std::int64_t duration);
  void add_memory(const EventText& event, std::int64_t time);
  void add_counts(const EventText& event, std::int64_t time);

  PieceEvents& piece_;
  TextNumbers texts_;
  std::unordered_map<std::string_view, EventKind> kinds_;
  std::vector<std::optional<bool>> values_count_;  // by name
  std::map<std::pair<std::string_view, std::string_view>, std::uint32_t> tracks_;
  std::string_view last_process_, last_thread_;  // most events stand on the track of the one before
  std::uint32_t last_track_ = 0;
};

EventKind PieceBuilder::kind_of_category(std::string_view category) {
  const auto [at, added] = kinds_.try_emplace(category);
  if (added) at->second = kind_of(category);
  return at->second;
}

bool PieceBuilder::values_count_for(TextPool::Id name) {
  if (values_count_.size() <= name) values_count_.resize(name + 1);
  std::optional<bool>& known = values_count_[name];
  if (!known) known = values_count(piece_.texts[name]);
  return *known;
}

// Work of a card belongs to its stream, whichever thread the event names.
std::uint32_t PieceBuilder::track_of(const EventText& event, bool device) {
  const std::string_view process = device && !event.device.empty() ? event.device : event.process;
  const std::string_view thread = device && !event.stream.empty() ? event.stream : event.thread;
  if (!piece_.tracks.empty() && process == last_process_ && thread == last_thread_)
    return last_track_;
  const auto [at, added] =
      tracks_.try_emplace({process, thread}, static_cast<std::uint32_t>(piece_.tracks.size()));
  if (added) piece_.tracks.push_back({process, thread});
  last_process_ = process;
  last_thread_ = thread;
  return last_track_ = at->second;
}

void PieceBuilder::add_row(const EventText& event, EventKind kind, std::int64_t begin,
                           std::int64_t duration) {
  const bool device = is_on_device(kind);
  EventColumns& rows = piece_.rows;
  if (!event.collective.empty())
    piece_.collectives.push_back({.row = static_cast<std::uint32_t>(rows.size()),
                                  .name = texts_.of(event.collective),
                                  .dtype = texts_.of(event.dtype),
                                  .group = texts_.of(event.group),
                                  .in_elements = integer_of(event.in_elements, 0),
                                  .out_elements = integer_of(event.out_elements, 0),
                                  .group_size = integer_of(event.group_size, 0)});
  rows.kind.push_back(kind);
  rows.name.push_back(texts_.of(event.name));
  rows.track.push_back(track_of(event, device));
  rows.begin_ns.push_back(begin);
  rows.duration_ns.push_back(std::max<std::int64_t>(duration, 0));
  rows.correlation.push_back(integer_of(event.correlation));
  rows.external.push_back(integer_of(event.external));
  rows.bytes.push_back(device ? integer_of(event.bytes) : EventColumns::none);
  const bool shaped = device || kind == EventKind::operation || kind == EventKind::annotation;
  rows.shape.push_back(shaped ? texts_.of(event.shape) : 0);
  rows.types.push_back(shaped ? texts_.of(event.types) : 0);
  const bool valued =
      kind == EventKind::operation && !event.values.empty() && values_count_for(rows.name.back());
  rows.values.push_back(valued ? texts_.of(event.values) : 0);
}

void PieceBuilder::add_memory(const EventText& event, std::int64_t time) {
  const bool on_host = integer_of(event.device_type, 0) == 0;
  piece_.memory.push_back({.time_ns = time,
                           .bytes = integer_of(event.memory_bytes, 0),
                           .allocated = integer_of(event.allocated, 0),
                           .reserved = integer_of(event.reserved, 0),
                           .device = on_host ? -1
                                             : static_cast<std::int32_t>(std::clamp<std::int64_t>(
                                                   integer_of(event.device_id, 0), 0, 1 << 20))});
}

void PieceBuilder::add_counts(const EventText& event, std::int64_t time) {
  for (const EventText::Number& number : event.numbers)
    piece_.counts.push_back({.name = texts_.of(event.name),
                             .argument = texts_.of(number.key),
                             .category = texts_.of(event.category),
                             .track = track_of(event, false),
                             .time_ns = time,
                             .value = number.value});
}

void PieceBuilder::add(const EventText& event) {
  if (event.phase == 0) return;  // no event, whatever it is
  ++piece_.event_count;
  if (event.phase == 's' || event.phase == 'f' || event.phase == 't') {
    ++piece_.flow_count;
    return;
  }
  if (event.phase == 'M') {
    const std::string_view name = without_quotes(event.name);
    if (event.label.empty() || (name != "process_name" && name != "thread_name")) return;
    piece_.labels.push_back(
        {track_of(event, false), name == "process_name", texts_.of(event.label)});
    return;
  }
  const std::int64_t begin = nanoseconds_of(event.begin);
  if (begin == no_time) return;
  if (event.phase == 'X') {
    const std::int64_t duration = nanoseconds_of(event.duration);
    if (duration != no_time) add_row(event, kind_of_category(event.category), begin, duration);
  } else if (event.phase == 'B' || event.phase == 'E') {
    piece_.halves.push_back({event.phase == 'B', kind_of_category(event.category),
                             texts_.of(event.name), track_of(event, false), begin});
  } else if (event.phase == 'i' && without_quotes(event.name) == "[memory]") {
    add_memory(event, begin);
  } else if (event.phase == 'C') {
    add_counts(event, begin);
  }
}

bool read_events(json::array list, PieceBuilder& builder) {
  for (auto element : list) {
    json::value value;
    json::object object;
    json::json_type type;
    if (element.get(value) || value.type().get(type)) return false;
    if (type != json::json_type::object) continue;
    EventText event;
    if (value.get_object().get(object) || !read_event(object, event)) return false;
    builder.add(event);
  }
  return true;
}

// An error behind the list of events loses what stands there, and no event.
bool read_members(json::object object, PieceEvents& piece, PieceBuilder& builder) {
  constexpr std::size_t most_bytes = 1 << 20;  // of a property
  bool list_read = false;
  for (auto field : object) {
    json::raw_json_string key;
    json::value value;
    if (field.key().get(key) || field.value().get(value)) return list_read;
    if (is(key.raw(), "traceEvents")) {
      json::array list;
      if (value.get_array().get(list) || !read_events(list, builder)) return false;
      list_read = true;
      continue;
    }
    const char* begin = key.raw();
    const std::string name(begin, std::strcspn(begin, "\"\\"));
    std::string_view text;
    if (!take(value, text)) return list_read;
    if (text.size() <= most_bytes) piece.properties[name] = text;
    piece.list_ended = list_read;
  }
  return true;
}

}  // namespace

struct PieceParser::State {
  json::parser parser;
};

const std::size_t PieceParser::padding = simdjson::SIMDJSON_PADDING;

PieceParser::PieceParser() : state_(std::make_unique<State>()) {}
PieceParser::~PieceParser() = default;
PieceParser::PieceParser(PieceParser&&) noexcept = default;

std::optional<PieceEvents> PieceParser::parse(std::string_view text) {
  PieceEvents piece;
  PieceBuilder builder(piece);
  json::document document;
  json::json_type type;
  const simdjson::error_code error =
      state_->parser.iterate(text.data(), text.size(), text.size() + padding).get(document);
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();
  if (error || document.type().get(type)) return std::nullopt;
  bool read = false;
  if (type == json::json_type::array) {
    json::array list;
    read = !document.get_array().get(list) && read_events(list, builder);
  } else if (type == json::json_type::object) {
    json::object object;
    read = !document.get_object().get(object) && read_members(object, piece, builder);
  }
  return read ? std::optional(std::move(piece)) : std::nullopt;
}

}  // namespace ridge::trace
