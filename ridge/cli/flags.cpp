#include "ridge/cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <utility>

#include "ridge/base/error.h"

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

CLI::Option* add_flag(CLI::App& command, const OptionInfo& option) {
  if (std::holds_alternative<bool*>(option.target)) return command.add_flag(flag_names(option));
  return command.add_option(flag_names(option))
      ->type_name(std::string(type_name(option)))
      ->default_str(value_text(option))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// "ridge train"
std::string command_line_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent ? command_line_name(*parent) + " " : "") + command.get_name();
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

std::vector<std::string> subcommands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands({})) names.push_back(sub->get_name());
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
CLI::Option* add_value(CLI::App& command, const std::string& flags, Field& field,
                       const std::string& help) {
  const std::string name = flags.substr(2, flags.find(',') - 2);  // without "--" and aliases
  const auto set = [name, &field](const CLI::results_t& values) {
    // An empty one, whatever it is for, is refuse_unknown_arguments()'s to refuse.
    if (!values.back().empty()) read(name, values.back(), field);
    return true;
  };
  CLI::Option* option = command.add_option(flags, set, help)->take_last();
  if constexpr (fmt::is_formattable<Field>::value)
    option->default_function([&field] { return fmt::format("{}", field); });
  return option;
}

#define RIDGE_VALUE(...)                                                             \
  template CLI::Option* add_value(CLI::App&, const std::string&, __VA_ARGS__& field, \
                                  const std::string&);
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

OptionFlags::OptionFlags(CLI::App& command, RunOptions defaults, const OptionFilter& has) {
  for (const OptionInfo& option : options_of(defaults)) {
    if (has && !has(option)) continue;
    CLI::Option* flag = add_flag(command, option);
    flag->description(option.help)->group(option.group);
    flags_.emplace_back(option.name, flag);
  }
}

void OptionFlags::apply(RunOptions& options) const {
  const std::vector<OptionInfo> fields = options_of(options);
  for (const auto& [name, flag] : flags_) {
    if (flag->count() == 0) continue;
    const auto field = std::ranges::find(fields, name, &OptionInfo::name);
    set_from_text(*field, flag->results().back());
  }
}

std::vector<std::string> OptionFlags::given() const {
  std::vector<std::string> names;
  for (const auto& [name, flag] : flags_)
    if (flag->count() > 0) names.push_back(name);
  return names;
}

void refuse_unknown_arguments(const CLI::App& command) {
  const std::string name = command_line_name(command);
  for (const CLI::Option* option : command.get_options())
    for (const std::string& value : option->results()) {
      // Behind "--" everything is an argument.
      if (value.starts_with("--") && option->nonpositional())
        throw UsageError("{} needs a value, not {}", option->get_name(), value);
      // As of a variable of the shell that is not set: what was asked for is not the default.
      if (value.empty()) throw UsageError("{} is empty; it needs a value", option->get_name());
    }
  std::vector<std::string> unknown = command.remaining();
  const auto takes_arguments = [](const CLI::Option* option) { return !option->nonpositional(); };
  if (std::ranges::any_of(command.get_options(), takes_arguments)) std::erase(unknown, "--");
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
