#include "ridge/trace/check/parse.h"

#include <simdjson.h>

#include <functional>
#include <new>
#include <nlohmann/json.hpp>

#include "ridge/trace/check/repair.h"
#include "ridge/trace/check/rules.h"
#include "ridge/trace/piece.h"

namespace ridge::trace {
namespace {

namespace dom = simdjson::dom;

using Is = TraceValue::Is;

TraceValue value_of(dom::element element) {
  TraceValue value;
  switch (element.type()) {
    case dom::element_type::INT64: {
      std::int64_t number = 0;
      value.integer = !element.get(number);
      value.bits = static_cast<std::uint64_t>(number);
      value.number = static_cast<double>(number);
      value.is = Is::number;
      break;
    }
    case dom::element_type::UINT64:
      value.integer = !element.get(value.bits);
      value.number = static_cast<double>(value.bits);
      value.is = Is::number;
      break;
    case dom::element_type::DOUBLE:
      if (!element.get(value.number)) value.is = Is::number;
      break;
    case dom::element_type::STRING:
      if (!element.get(value.text)) value.is = Is::text;
      break;
    case dom::element_type::NULL_VALUE:
      value.is = Is::null;
      break;
    case dom::element_type::OBJECT:
      value.is = Is::object;
      break;
    default:
      value.is = Is::other;
  }
  return value;
}

// The same of a value that is compared with others. Few of those are objects or lists, whose
// members may stand in any order.
TraceValue compared(dom::element element) {
  TraceValue value = value_of(element);
  if (value.is == Is::object || value.is == Is::other)
    value.bits = std::hash<std::string>()(
        nlohmann::json::parse(simdjson::minify(element), nullptr, false).dump());
  return value;
}

void read_arguments(dom::object args, TraceEvent& event) {
  for (const auto [key, value] : args) {
    if (key == "correlation")
      event.correlation = compared(value);
    else if (key == "External id")
      event.external = compared(value);
    else if (key == "Sequence number")
      event.sequence = compared(value);
    else if (key == "stream")
      event.stream = value_of(value);
    else if (key == "device")
      event.device = compared(value);
    else if (key == "Input Dims")
      event.has_shapes = true;
    else if (key == "Python module id")
      event.has_module = true;
    else if (key == "name")
      event.has_name = true;
    else if (key == "labels")
      event.has_labels = true;
    else if (key == "sort_index")
      event.has_sort_index = true;
  }
}

// Where a key comes twice, the last counts.
TraceEvent event_of(dom::element element, std::uint32_t index) {
  TraceEvent event;
  event.index = index;
  event.object = element.is_object();
  event.null = element.is_null();
  dom::object members;
  if (element.get(members)) return event;
  std::optional<dom::element> args;
  for (const auto [key, value] : members) {
    if (key == "ph") {
      const std::string_view text = value_of(value).text;
      event.phase = text.size() == 1 ? text[0] : '?';
    } else if (key == "name") {
      event.name = value_of(value);
    } else if (key == "cat") {
      event.category_name = value_of(value);
    } else if (key == "ts") {
      event.begin = value_of(value);
    } else if (key == "dur") {
      event.duration = value_of(value);
    } else if (key == "pid") {
      event.process = compared(value);
    } else if (key == "tid") {
      event.thread = compared(value);
    } else if (key == "id") {
      event.id = compared(value);
    } else if (key == "args") {
      args = value;
    }
  }
  if (event.category_name.is == Is::text)
    event.category = TraceEvent::category_of(event.category_name.text);
  if (!args) return event;
  event.args_is = value_of(*args).is;
  dom::object arguments;
  if (!args->get(arguments)) read_arguments(arguments, event);
  return event;
}

// The list of events of a trace, the last of that name; none if there is none.
std::optional<dom::array> events_of(dom::element trace, bool& list_ended) {
  dom::array list;
  if (!trace.get(list)) return list;
  dom::object members;
  if (trace.get(members)) return std::nullopt;
  std::optional<dom::array> events;
  for (const auto [key, value] : members) {
    list_ended = events.has_value();
    if (key == "traceEvents") events = value.get(list) ? std::nullopt : std::optional(list);
  }
  return events;
}

}  // namespace

struct FactsParser::State {
  dom::parser parser;
  std::string repaired;  // what was parsed, if not the piece itself

  // None if no reader takes it for JSON.
  std::optional<dom::element> parse(std::string_view text, TraceFile& noted);
};

std::optional<dom::element> FactsParser::State::parse(std::string_view text, TraceFile& noted) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  noted.byte_order_mark = text.starts_with(mark);
  if (noted.byte_order_mark) text.remove_prefix(mark.size());
  dom::element element;
  const auto parse = [&](const char* data, std::size_t bytes) {
    const simdjson::error_code error = parser.parse(data, bytes, false).get(element);
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    return !error;
  };
  if (parse(text.data(), text.size())) return element;
  repaired = trace::repaired(text, noted);
  repaired.reserve(repaired.size() + PieceParser::padding);
  if (parse(repaired.data(), repaired.size())) return element;
  return std::nullopt;
}

FactsParser::FactsParser() : state_(std::make_unique<State>()) {}
FactsParser::~FactsParser() = default;
FactsParser::FactsParser(FactsParser&&) noexcept = default;

std::optional<PieceFacts> FactsParser::parse(std::string_view text) {
  PieceFacts piece;
  TraceFacts& facts = piece.facts;
  const std::optional<dom::element> trace = state_->parse(text, facts.file);
  if (!trace) return std::nullopt;
  facts.file.rank_text = text.find("\"rank\": ") != std::string_view::npos;
  const std::optional<dom::array> events = events_of(*trace, piece.list_ended);
  piece.has_list = events.has_value();
  if (!events) return piece;
  for (const dom::element element : *events) {
    const TraceEvent event = event_of(element, facts.events);
    facts.add(event);
    note_rules_of(event, facts.of_rules);
  }
  return piece;
}

std::vector<std::string> FactsParser::events(std::string_view text,
                                             std::span<const std::uint32_t> places) {
  TraceFile noted;
  bool list_ended = false;
  std::vector<std::string> found(places.size());
  const std::optional<dom::element> trace = state_->parse(text, noted);
  const auto events = trace ? events_of(*trace, list_ended) : std::nullopt;
  if (!events) return found;
  for (std::size_t i = 0; i < places.size(); ++i) {
    dom::element event;
    if (!events->at(places[i]).get(event)) found[i] = simdjson::minify(event);
  }
  return found;
}

}  // namespace ridge::trace
