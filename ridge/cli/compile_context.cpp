#include "ridge/cli/compile_context.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/passes/schedules.h"
#include "ridge/session/options.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr int most_nested = 8;

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw UsageError(
      "--compileContext takes a dict of Python, such as \"{{'mode': 'max-autotune'}}\", and not "
      "\"{}\": {}",
      text.substr(0, 60), why);
}

// A string of Python's that begins at `text`, in either kind of quotes, as JSON's. Takes it off the
// text.
std::string json_string(std::string_view& text, std::string_view whole) {
  const char quote = text.front();
  std::string content;
  std::size_t at = 1;
  for (; at < text.size() && text[at] != quote; ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) ++at;
    content += text[at];
  }
  if (at >= text.size()) refuse(whole, "a string lacks its closing quote");
  text.remove_prefix(at + 1);
  return Json(content).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A constant of Python's, or anything else that stands between commas and brackets. JSON's own
// constants are none of Python's.
std::string json_word(std::string_view word, std::string_view whole) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  if (std::isalpha(static_cast<unsigned char>(word.front())))
    refuse(whole, fmt::format("'{}' is neither in quotes, nor one of True, False and None", word));
  return std::string(word);
}

// The literal as JSON: strings in double quotes, constants by JSON's names, no comma before a
// closing brace.
std::string as_json(std::string_view text) {
  constexpr std::string_view ends = "{}[]:,'\" \t\r\n";
  const std::string_view whole = text;
  std::string json;
  while (!text.empty()) {
    const char c = text.front();
    if (c == '\'' || c == '"') {
      json += json_string(text, whole);
    } else if (ends.find(c) != ends.npos) {
      const std::size_t last = json.find_last_not_of(" \t\r\n");
      if (c == '}' && last != json.npos && json[last] == ',') json.erase(last);
      json += c;
      text.remove_prefix(1);
    } else {
      const std::string_view word = text.substr(0, text.find_first_of(ends));
      json += json_word(word, whole);
      text.remove_prefix(word.size());
    }
  }
  return json;
}

// Of a key that is there twice the last counts, as in Python.
Json parse_dict(std::string_view text) {
  const auto shallow = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > most_nested) refuse(text, "no argument is a dict this deep");
    if (event == Json::parse_event_t::array_start) refuse(text, "no argument is a list");
    return true;
  };
  Json dict;
  try {
    dict = Json::parse(as_json(text), shallow);
  } catch (const Json::exception&) {
    refuse(text, "a key in quotes, ':', a value and ',' or '}' follow each other");
  }
  if (!dict.is_object()) refuse(text, "it is not in braces");
  return dict;
}

// The value as Python would show it.
std::string shown(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return fmt::format("'{}'", value.get<std::string>());
  return value.is_object() ? "a dict" : value.dump();
}

[[noreturn]] void refuse_value(std::string_view key, const Json& value, std::string_view wanted) {
  throw UsageError("--compileContext: '{}' is {}; it has to be {}", key, shown(value), wanted);
}

// None stands for the default of any argument.
bool flag(std::string_view key, const Json& value) {
  if (value.is_null()) return false;
  if (!value.is_boolean()) refuse_value(key, value, "True or False");
  return value.get<bool>();
}

void set_mode(const Json& value, CompileContext& context) {
  if (value.is_null()) return;
  const auto known = [&](const ScheduleRow& row) {
    return row.kind == ScheduleRow::Kind::compile_mode && value == row.name && !row.passes.empty();
  };
  if (std::ranges::none_of(schedules(), known))
    refuse_value("mode", value, "'default', 'reduce-overhead' or 'max-autotune'");
  context.mode = value.get<std::string>();
}

void check_backend(const Json& value, CompileContext& context) {
  if (value.is_null()) return;
  if (value != "inductor")
    refuse_value("backend", value, "left out: Ridge compiles by itself ('inductor' is let pass)");
  context.notes.emplace_back("backend: it is Ridge's own, whatever it is called");
}

void note_options(const Json& value, CompileContext& context) {
  if (value.is_null()) return;
  if (!value.is_object()) refuse_value("options", value, "a dict");
  std::vector<std::string> names;
  for (const auto& [name, ignored] : value.items()) names.push_back(name);
  if (!names.empty())
    context.notes.push_back(fmt::format(
        "options: {} belong to another compiler and change nothing here", fmt::join(names, ", ")));
}

}  // namespace

CompileContext parse_compile_context(std::string_view text) {
  CompileContext context;
  bool disabled = false;
  const Json dict = parse_dict(text);
  for (const auto& [key, value] : dict.items()) {
    if (key == "mode") {
      set_mode(value, context);
    } else if (key == "fullgraph") {
      flag(key, value);
      context.notes.emplace_back("fullgraph: a network is one graph here, which never breaks");
    } else if (key == "dynamic") {
      flag(key, value);
      context.notes.emplace_back(
          "dynamic: each batch and sample size is compiled for itself, whatever this says");
    } else if (key == "backend") {
      check_backend(value, context);
    } else if (key == "options") {
      note_options(value, context);
    } else if (key == "disable") {
      disabled = flag(key, value);
      if (disabled) context.notes.emplace_back("disable: nothing is compiled");
    } else {
      const std::vector<std::string> known{"mode",    "fullgraph", "dynamic",
                                           "backend", "options",   "disable"};
      const std::string near = nearest_name(key, known);
      throw UsageError("--compileContext: torch.compile has no argument '{}'; {}", key,
                       near.empty() ? fmt::format("it has {}", fmt::join(known, ", "))
                                    : fmt::format("did you mean '{}'?", near));
    }
  }
  if (disabled) context.mode = "none";
  return context;
}

}  // namespace ridge
