#include "ridge/cli/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/cli/command.h"

namespace ridge {
namespace {

// How a flag shows its argument in --help, and the value it has if nothing is said.
std::string_view type_name(const OptionInfo& option) {
  struct Name {
    std::string_view operator()(std::int64_t*) const { return "N"; }
    std::string_view operator()(double*) const { return "X"; }
    std::string_view operator()(bool*) const { return ""; }
    std::string_view operator()(std::string*) const { return "TEXT"; }
  };
  return std::visit(Name{}, option.target);
}

std::string value_text(const OptionInfo& option) {
  return std::visit([](const auto* value) { return fmt::format("{}", *value); }, option.target);
}

std::string flag_names(const OptionInfo& option) {
  std::string names = "--" + option.name;
  for (const std::string& alias : option.aliases) names += ",--" + alias;
  return names;
}

Flag add_flag(Command command, const OptionInfo& option) {
  if (std::holds_alternative<bool*>(option.target))
    return command.add_flag(flag_names(option), option.help);
  return command.add_option(flag_names(option), option.help)
      .type_name(std::string(type_name(option)))
      .default_text(value_text(option))
      .take_last();
}

std::vector<std::string> flags_of(Command command) {
  std::vector<std::string> names;
  for (const Flag flag : command.flags())
    names.insert(names.end(), flag.long_names().begin(), flag.long_names().end());
  return names;
}

std::vector<std::string> subcommands_of(Command command) {
  std::vector<std::string> names;
  for (const Command sub : command.subcommands()) names.push_back(sub.name());
  return names;
}

template <class Field>
void read(const std::string& name, const std::string& text, Field& field) {
  set_from_text({.name = name, .aliases = {}, .group = {}, .help = {}, .target = &field}, text);
}

template <class Field>
void read(const std::string& name, const std::string& text, std::optional<Field>& field) {
  read(name, text, field.emplace());
}

template <class Field>
void read(const std::string& name, const std::string& text, std::vector<Field>& list) {
  list.clear();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (begin == end)
      throw UsageError("--{} is '{}', whose item {} is empty", name, text, list.size() + 1);
    read(name, text.substr(begin, end - begin), list.emplace_back());
    begin = end + 1;
  }
}

}  // namespace

template <class Field>
Flag add_value(Command command, const std::string& flags, Field& field, const std::string& help) {
  const std::string name = flags.substr(2, flags.find(',') - 2);  // without "--" and aliases
  const auto set = [name, &field](const std::string& text) {
    // An empty one, whatever it is for, is refuse_unknown_arguments()'s to refuse.
    if (!text.empty()) read(name, text, field);
  };
  return command.add_option(flags, set, help).take_last();
}

#define RIDGE_VALUE(...) \
  template Flag add_value(Command, const std::string&, __VA_ARGS__& field, const std::string&);
RIDGE_VALUE(std::int64_t)
RIDGE_VALUE(double)
RIDGE_VALUE(std::string)
RIDGE_VALUE(std::optional<std::int64_t>)
RIDGE_VALUE(std::optional<double>)
RIDGE_VALUE(std::optional<std::string>)
RIDGE_VALUE(std::vector<double>)
RIDGE_VALUE(std::vector<std::int64_t>)
RIDGE_VALUE(std::vector<std::string>)
#undef RIDGE_VALUE

OptionFilter all_but(std::vector<std::string> names) {
  return [names = std::move(names)](const OptionInfo& option) {
    return std::ranges::find(names, option.name) == names.end();
  };
}

OptionFlags::OptionFlags(Command command, RunOptions defaults, const OptionFilter& has) {
  for (const OptionInfo& option : options_of(defaults)) {
    if (has && !has(option)) continue;
    flags_.emplace_back(option.name, add_flag(command, option).group(option.group));
  }
}

void OptionFlags::apply(RunOptions& options) const {
  const std::vector<OptionInfo> fields = options_of(options);
  for (const auto& [name, flag] : flags_) {
    if (!flag.was_given()) continue;
    const auto field = std::ranges::find(fields, name, &OptionInfo::name);
    set_from_text(*field, flag.values().back());
  }
}

std::vector<std::string> OptionFlags::given() const {
  std::vector<std::string> names;
  for (const auto& [name, flag] : flags_)
    if (flag.was_given()) names.push_back(name);
  return names;
}

void refuse_unknown_arguments(Command command) {
  const std::string name = command.full_name();
  const std::vector<Flag> flags = command.flags();
  for (const Flag flag : flags)
    for (const std::string& value : flag.values()) {
      // Behind "--" everything is an argument.
      if (value.starts_with("--") && !flag.is_argument())
        throw UsageError("{} needs a value, not {}", flag.name(), value);
      // As of a variable of the shell that is not set: what was asked for is not the default.
      if (value.empty()) throw UsageError("{} is empty; it needs a value", flag.name());
    }
  std::vector<std::string> unknown = command.unknown_arguments();
  if (std::ranges::any_of(flags, &Flag::is_argument)) std::erase(unknown, "--");
  if (unknown.empty()) return;
  const std::string argument = unknown.front().substr(0, unknown.front().find('='));
  const bool is_flag = argument.starts_with("-");
  const std::size_t dashes = std::min(argument.find_first_not_of('-'), argument.size());
  const std::string near =
      nearest_name(argument.substr(dashes), is_flag ? flags_of(command) : subcommands_of(command));
  const bool chooses = !subcommands_of(command).empty();
  const std::string_view kind = is_flag ? "flag" : chooses ? "command" : "argument";
  if (near.empty()) throw UsageError("there is no {} {}; see {} --help", kind, argument, name);
  throw UsageError("there is no {} {}; did you mean {}{}?", kind, argument, is_flag ? "--" : "",
                   near);
}

std::string with_dashes(std::string_view argument) {
  std::string text(argument);
  if (argument.starts_with("--"))
    std::replace(text.begin(), std::find(text.begin(), text.end(), '='), '_', '-');
  return text;
}

}  // namespace ridge
