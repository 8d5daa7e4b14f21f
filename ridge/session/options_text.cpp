// Options as text: what the command line and JSON say, and which name a misspelled one was meant to
// be.

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/error.h"
#include "ridge/session/json.h"
#include "ridge/session/options.h"

namespace ridge {
namespace {

template <class Number>
Number number_from(const std::string& name, std::string_view text, std::string_view kind) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  if (fault == std::errc::result_out_of_range)
    throw UsageError("--{} is '{}', which is out of range", name, text);
  if (fault != std::errc() || stop != end)
    throw UsageError("--{} is '{}'; it must be {}", name, text, kind);
  return value;
}

bool bool_from(const std::string& name, std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  throw UsageError("--{} is '{}'; it must be true or false", name, text);
}

struct FromJson {
  const std::string& name;
  const nlohmann::json& json;

  void operator()(std::int64_t* target) const {
    require(json.is_number_integer(), "an integer");
    if (json.is_number_unsigned())
      require(json.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
              "an integer of at most 63 bits");
    *target = json.get<std::int64_t>();
  }
  void operator()(double* target) const {
    require(json.is_number(), "a number");
    *target = json.get<double>();
  }
  void operator()(bool* target) const {
    require(json.is_boolean(), "true or false");
    *target = json.get<bool>();
  }
  void operator()(std::string* target) const {
    require(json.is_string(), "a string");
    *target = json.get<std::string>();
  }
  void require(bool right, std::string_view what) const {
    if (!right) throw FormatError("the value of '{}' is not {}", name, what);
  }
};

// A key as it may be printed: on one line, and not too long.
std::string in_quotes(std::string_view key) {
  constexpr std::size_t longest = 60;
  std::string text(key.substr(0, longest));
  if (key.size() > longest) text += "..";
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// The option a JSON key means.
const OptionInfo& option_for_key(const std::vector<OptionInfo>& options, std::string key) {
  std::ranges::replace(key, '_', '-');
  std::vector<std::string> names;
  for (const OptionInfo& option : options) {
    if (option.name == key || std::ranges::find(option.aliases, key) != option.aliases.end())
      return option;
    names.push_back(option.name);
    names.insert(names.end(), option.aliases.begin(), option.aliases.end());
  }
  const std::string near = nearest_name(key, names);
  if (near.empty()) throw FormatError("there is no option {}", in_quotes(key));
  throw FormatError("there is no option {}; did you mean '{}'?", in_quotes(key), near);
}

// Parses one flat object. What is no option is refused as soon as it is met, so that a large or
// deeply nested text is never built up in memory.
nlohmann::json parse_flat_object(std::string_view text, const std::vector<OptionInfo>& options) {
  using Event = nlohmann::json::parse_event_t;
  constexpr auto no_object = "the text is no JSON object, such as {\"batch-size\": 8}";
  std::set<std::string> seen;
  const auto check = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > 0 && (event == Event::array_start || event == Event::object_start))
      throw FormatError("an option's value cannot be a list or an object");
    if (depth == 0 && event == Event::array_start) throw FormatError(no_object);
    if (event != Event::key) return true;
    const OptionInfo& option = option_for_key(options, value.get<std::string>());
    if (!seen.insert(option.name).second)
      throw FormatError("the option '{}' is given twice", option.name);
    return true;
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text, check);
  } catch (const nlohmann::json::parse_error& error) {
    const std::string_view before = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    throw FormatError("the text is not valid JSON at line {}, column {}",
                      std::ranges::count(before, '\n') + 1,
                      before.size() - (before.rfind('\n') + 1) + 1);
  } catch (const nlohmann::json::exception&) {
    throw FormatError("the text has a number that is out of range");
  }
  if (!json.is_object()) throw FormatError(no_object);
  return json;
}

}  // namespace

const OptionInfo* find_option(const std::vector<OptionInfo>& options, std::string_view name) {
  const auto found = std::ranges::find_if(options, [&](const OptionInfo& option) {
    return option.name == name || std::ranges::find(option.aliases, name) != option.aliases.end();
  });
  return found == options.end() ? nullptr : &*found;
}

std::int64_t& integer_option(RunOptions& options, std::string_view name) {
  const std::vector<OptionInfo> fields = options_of(options);
  return *std::get<std::int64_t*>(find_option(fields, name)->target);
}

void set_from_text(const OptionInfo& option, std::string_view text) {
  struct Set {
    const std::string& name;
    std::string_view text;
    void operator()(std::int64_t* p) const {
      *p = number_from<std::int64_t>(name, text, "an integer");
    }
    void operator()(double* p) const { *p = number_from<double>(name, text, "a number"); }
    void operator()(bool* p) const { *p = bool_from(name, text); }
    void operator()(std::string* p) const { *p = text; }
  };
  std::visit(Set{option.name, text}, option.target);
}

nlohmann::ordered_json json_of(const RunOptions& options) {
  RunOptions copy = options;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const OptionInfo& option : options_of(copy))
    std::visit([&](const auto* value) { json[option.name] = *value; }, option.target);
  return json;
}

nlohmann::ordered_json json_of(const RunOptions& options, std::span<const std::string_view> names) {
  RunOptions copy = options;
  const std::vector<OptionInfo> fields = options_of(copy);
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const std::string_view name : names) {
    const auto option = std::ranges::find(fields, name, &OptionInfo::name);
    std::string key(name);
    std::ranges::replace(key, '-', '_');
    std::visit([&](const auto* value) { json[key] = *value; }, option->target);
  }
  return json;
}

std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_json(const RunOptions& options) { return text_of(json_of(options)); }

std::vector<std::string> apply_json(RunOptions& options, std::string_view text) {
  RunOptions changed = options;
  const std::vector<OptionInfo> fields = options_of(changed);
  const nlohmann::json json = parse_flat_object(text, fields);
  std::vector<std::string> names;
  for (const auto& [key, value] : json.items()) {
    const OptionInfo& option = option_for_key(fields, key);
    std::visit(FromJson{key, value}, option.target);
    names.push_back(option.name);
  }
  options = changed;
  return names;
}

namespace {

// Optimal string alignment distance, by rows.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view misspelled, const std::vector<std::string>& names) {
  constexpr std::size_t longest = 64, shortest_prefix = 3;
  if (misspelled.empty() || misspelled.size() > longest) return {};
  std::size_t least = std::max<std::size_t>(misspelled.size() / 3, 1) + 1;
  std::string nearest;
  for (const std::string& name : names) {
    const bool begins = misspelled.size() >= shortest_prefix && name.starts_with(misspelled);
    const std::size_t distance = begins ? 1 : edit_distance(misspelled, name);
    if (distance < least) least = distance, nearest = name;
  }
  return nearest;
}

}  // namespace ridge
