#include "ridge/profile/trace_event.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

using json = nlohmann::json;
using Is = TraceEvent::Is;
using Category = TraceEvent::Category;

constexpr std::array<std::pair<std::string_view, Category>, 11> categories{{
    {"cpu_op", Category::cpu_op},
    {"cuda_runtime", Category::runtime},
    {"cuda_driver", Category::runtime},
    {"kernel", Category::kernel},
    {"gpu_memcpy", Category::copy},
    {"gpu_memset", Category::fill},
    {"user_annotation", Category::annotation},
    {"gpu_user_annotation", Category::annotation},
    {"python_function", Category::python_function},
    {"ac2g", Category::flow_to_gpu},
    {"Trace", Category::trace},
}};

Category category_of(std::string_view text) {
  const auto found =
      std::ranges::find(categories, text, &std::pair<std::string_view, Category>::first);
  return found == categories.end() ? Category::other : found->second;
}

// Replaces, without moving any byte, what Python's reader of JSON or a browser takes and the
// grammar of JSON does not, and notes it.
class Repair {
 public:
  Repair(std::string_view text, TraceFile& file) : text_(text), file_(file) {}

  std::string run() {
    replace_invalid_utf8();
    for (std::size_t i = 0; i < text_.size(); ++i) {
      if (in_string_)
        i += within_string(i);
      else if (text_[i] == '"')
        in_string_ = true;
      else
        i += replace_word(i);
    }
    return std::move(text_);
  }

 private:
  void replace_invalid_utf8() {
    for (std::size_t at = 0;
         (at += find_invalid_utf8(std::string_view(text_).substr(at))) < text_.size();) {
      file_.invalid_utf8 = true;
      text_[at] = '?';
    }
  }

  // How many bytes after this one belong to it.
  std::size_t within_string(std::size_t i) {
    if (text_[i] == '\\') return 1;
    if (text_[i] == '"') in_string_ = false;
    if (static_cast<unsigned char>(text_[i]) < 0x20) {
      file_.control_characters = true;
      text_[i] = ' ';
    }
    return 0;
  }

  std::size_t replace_word(std::size_t i) {
    for (const std::string_view word : {"NaN", "Infinity"}) {
      if (std::string_view(text_).substr(i, word.size()) != word) continue;
      file_.numbers_beyond_json = true;
      std::ranges::fill_n(text_.begin() + static_cast<std::ptrdiff_t>(i),
                          static_cast<std::ptrdiff_t>(word.size()), ' ');
      text_[i] = '0';
      return word.size() - 1;
    }
    return 0;
  }

  std::string text_;
  TraceFile& file_;
  bool in_string_ = false;
};

}  // namespace

json parse_trace(std::string_view text, TraceFile& file) {
  file.bytes = text.size();
  file.byte_order_mark = text.starts_with("\xef\xbb\xbf");
  file.rank_text = text.find("\"rank\": ") != std::string_view::npos;
  json trace = json::parse(text, nullptr, false);
  if (trace.is_discarded()) trace = json::parse(Repair(text, file).run(), nullptr, false);
  if (trace.is_discarded())
    throw FormatError("{} is no valid JSON, so none of the tools reads it", shown(file.name));
  file.bare_list = trace.is_array();
  if (file.bare_list) return trace;
  const auto events = trace.is_object() ? trace.find("traceEvents") : trace.end();
  if (!trace.is_object() || events == trace.end() || !events->is_array())
    throw FormatError("{} is JSON but no trace: it has no list \"traceEvents\"", shown(file.name));
  json list = std::move(*events);
  return list;
}

void TraceTally::note(const json* event) {
  // The events are elements of one list, so the lower address is the earlier event.
  if (count++ == 0 || std::less<>()(event, first)) first = event;
}

Is kind_of(const json* value) {
  if (value == nullptr) return Is::missing;
  if (value->is_number()) return Is::number;
  if (value->is_string()) return Is::text;
  if (value->is_object()) return Is::object;
  return value->is_null() ? Is::null : Is::other;
}

TraceEvent::TraceEvent(const nlohmann::json& event, std::size_t position)
    : source(&event), index(position), object(event.is_object()) {
  if (!object) return;
  for (const auto& [key, value] : event.get_ref<const json::object_t&>()) {
    const Is is = kind_of(&value);
    const auto text = [&] {
      return is == Is::text ? std::string_view(value.get_ref<const std::string&>())
                            : std::string_view();
    };
    if (key == "ph") {
      phase = text().size() == 1 ? text()[0] : '?';
    } else if (key == "name") {
      name_is = is;
      name = text();
    } else if (key == "cat") {
      category_is = is;
      category_name = text();
      if (is == Is::text) category = category_of(category_name);
    } else if (key == "ts") {
      begin_is = is;
      if (is == Is::number) begin = value.get<double>();
    } else if (key == "dur") {
      duration_is = is;
      if (is == Is::number) duration = value.get<double>();
    } else if (key == "args") {
      args_is = is;
      if (is == Is::object) args = &value;
    } else if (key == "pid") {
      process_is = is;
      process = &value;
    } else if (key == "tid") {
      thread_is = is;
      thread = &value;
    }
  }
  if (args != nullptr) find_arguments();
}

void TraceEvent::find_arguments() {
  correlation = argument("correlation");
  stream = argument("stream");
  device = argument("device");
}

const json* TraceEvent::member(const char* key) const {
  if (!object) return nullptr;
  const auto found = source->find(key);
  return found == source->end() ? nullptr : &*found;
}

const json* TraceEvent::argument(const char* key) const {
  if (args == nullptr) return nullptr;
  const auto found = args->find(key);
  return found == args->end() ? nullptr : &*found;
}

std::optional<std::uint64_t> identity_of(const json* value) {
  switch (kind_of(value)) {
    case Is::missing:
    case Is::null:
      return std::nullopt;
    case Is::number:
      return value->is_number_float() ? std::hash<double>()(value->get<double>())
                                      : value->get<std::uint64_t>();
    default:
      return std::hash<std::string>()(value->dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

std::uint64_t track_of(const TraceEvent& event) {
  const std::uint64_t process = identity_of(event.process).value_or(~std::uint64_t{0});
  const std::uint64_t thread = identity_of(event.thread).value_or(~std::uint64_t{0});
  // An odd multiplier keeps small numbers of processes and threads apart.
  return process * 0x9e3779b97f4a7c15u + thread;
}

}  // namespace ridge
