#include "ridge/cli/compile_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>
#include <variant>

#include "ridge/base/error.h"
#include "ridge/passes/schedules.h"
#include "ridge/session/options.h"

namespace ridge {
namespace {

struct PythonValue;
// In the order of the text; of a key that is there twice the last counts, as in Python.
using PythonDict = std::vector<std::pair<std::string, PythonValue>>;
struct None {};

struct PythonValue {
  std::variant<None, bool, double, std::string, PythonDict> value;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
};

// The value as Python would show it.
std::string shown(const PythonValue& value) {
  struct Show {
    std::string operator()(None) const { return "None"; }
    std::string operator()(bool x) const { return x ? "True" : "False"; }
    std::string operator()(double x) const { return fmt::format("{}", x); }
    std::string operator()(const std::string& x) const { return fmt::format("'{}'", x); }
    std::string operator()(const PythonDict&) const { return "a dict"; }
  };
  return std::visit(Show{}, value.value);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  PythonDict whole() {
    PythonDict dict = this->dict(0);
    skip_spaces();
    if (at_ != text_.size()) refuse("nothing after the dict");
    return dict;
  }

 private:
  static constexpr int most_nested = 8;

  [[noreturn]] void refuse(std::string_view wanted) const {
    const std::string found =
        at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 12)) : std::string("the end");
    throw UsageError(
        "--compileContext takes a dict of Python, such as \"{{'mode': 'max-autotune'}}\": after "
        "{} characters there is {} where {} is due",
        at_, found, wanted);
  }

  void skip_spaces() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool next_is(char c) {
    skip_spaces();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(fmt::format("'{}'", c));
  }

  PythonDict dict(int nested) {
    if (nested > most_nested) refuse("no dict this deep");
    PythonDict dict;
    expect('{');
    while (!take('}')) {
      if (!next_is('\'') && !next_is('"')) refuse("a key in quotes");
      std::string key = string();
      expect(':');
      std::erase_if(dict, [&](const auto& entry) { return entry.first == key; });
      dict.emplace_back(std::move(key), value(nested));
      if (!take(',') && !next_is('}')) refuse("',' or '}'");
    }
    return dict;
  }

  PythonValue value(int nested) {
    skip_spaces();
    if (next_is('{')) return {dict(nested + 1)};
    if (next_is('\'') || next_is('"')) return {string()};
    const std::size_t end = std::min(text_.find_first_of(",}: \t\r\n", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    PythonValue value;
    double number = 0;
    if (word == "True" || word == "False")
      value.value = word == "True";
    else if (word == "None")
      value.value = None{};
    else if (const auto [stop, fault] =
                 std::from_chars(word.data(), word.data() + word.size(), number);
             fault == std::errc() && stop == word.data() + word.size())
      value.value = number;
    else
      refuse("a string in quotes, a number, True, False, None or a dict");
    at_ = end;
    return value;
  }

  std::string string() {
    const char quote = text_[at_++];
    std::string content;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      content += text_[at_];
    }
    if (at_ == text_.size()) refuse("the closing quote");
    ++at_;
    return content;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

[[noreturn]] void refuse_value(std::string_view key, const PythonValue& value,
                               std::string_view wanted) {
  throw UsageError("--compileContext: '{}' is {}; it has to be {}", key, shown(value), wanted);
}

// None stands for the default of any argument.
bool flag(std::string_view key, const PythonValue& value) {
  if (value.as<None>()) return false;
  if (!value.as<bool>()) refuse_value(key, value, "True or False");
  return *value.as<bool>();
}

void set_mode(const PythonValue& value, CompileContext& context) {
  if (value.as<None>()) return;
  const auto* const mode = value.as<std::string>();
  const auto known = [&](const ScheduleRow& row) {
    return mode && row.kind == ScheduleRow::Kind::compile_mode && row.name == *mode &&
           !row.passes.empty();
  };
  if (std::ranges::none_of(schedules(), known))
    refuse_value("mode", value, "'default', 'reduce-overhead' or 'max-autotune'");
  context.mode = *mode;
}

void check_backend(const PythonValue& value, CompileContext& context) {
  if (value.as<None>()) return;
  const auto* const backend = value.as<std::string>();
  if (!backend || *backend != "inductor")
    refuse_value("backend", value, "left out: Ridge compiles by itself ('inductor' is let pass)");
  context.notes.emplace_back("backend: it is Ridge's own, whatever it is called");
}

void note_options(const PythonValue& value, CompileContext& context) {
  if (value.as<None>()) return;
  const auto* const options = value.as<PythonDict>();
  if (!options) refuse_value("options", value, "a dict");
  std::vector<std::string> names;
  for (const auto& [name, ignored] : *options) names.push_back(name);
  if (!names.empty())
    context.notes.push_back(fmt::format(
        "options: {} belong to another compiler and change nothing here", fmt::join(names, ", ")));
}

}  // namespace

CompileContext parse_compile_context(std::string_view text) {
  CompileContext context;
  bool disabled = false;
  for (const auto& [key, value] : Parser(text).whole()) {
    if (key == "mode") {
      set_mode(value, context);
    } else if (key == "fullgraph") {
      flag(key, value);
      context.notes.emplace_back("fullgraph: a network is one graph here, which never breaks");
    } else if (key == "dynamic") {
      flag(key, value);
      context.notes.emplace_back(
          "dynamic: each batch and image size is compiled for itself, whatever this says");
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
