#include "ridge/cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"

namespace ridge {
namespace {

// Breaks what is said of an option into lines.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(44); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), sentence_width - 44);
  }
};

// CLI11 reports a missing value itself, as "--flag: 1 required N missing".
std::string in_our_words(const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error))
    return fmt::format("{} needs one value", text.substr(0, text.find(':')));
  return text;
}

// The hidden flag of commands that take what stands behind "--"; its value is all of these words,
// each with a zero behind it.
constexpr const char* words_flag = "--words-behind-dashes";

// Makes one argument of the words behind "--", if they are for another program.
void gather_words_behind_dashes(CLI::App* app, std::vector<std::string>& arguments) {
  const auto dashes = std::ranges::find(arguments, "--");
  for (auto word = arguments.begin(); word != dashes; ++word)
    if (const auto below =
            app->get_subcommands([&](CLI::App* one) { return one->get_name() == *word; });
        !below.empty())
      app = below.front();
  if (dashes == arguments.end() || !app->get_option_no_throw(words_flag)) return;
  std::string value = fmt::format("{}=", words_flag);
  for (auto word = std::next(dashes); word != arguments.end(); ++word) value += *word + '\0';
  const bool any = std::next(dashes) != arguments.end();
  arguments.erase(dashes, arguments.end());
  if (any) arguments.push_back(std::move(value));
}

std::vector<Command> commands_of(const std::vector<CLI::App*>& apps) {
  std::vector<Command> commands;
  for (CLI::App* app : apps) commands.emplace_back(*app);
  return commands;
}

}  // namespace

Flag Flag::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Flag Flag::default_text(const std::string& text) const {
  option_->default_str(text);
  return *this;
}

Flag Flag::description(const std::string& text) const {
  option_->description(text);
  return *this;
}

Flag Flag::group(const std::string& heading) const {
  option_->group(heading);
  return *this;
}

Flag Flag::take_last() const {
  option_->take_last();
  return *this;
}

Flag Flag::take_one_each_time() const {
  option_->expected(1)->allow_extra_args(false)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
  return *this;
}

std::string Flag::name() const { return option_->get_name(); }

const std::vector<std::string>& Flag::long_names() const { return option_->get_lnames(); }

bool Flag::is_argument() const { return !option_->nonpositional(); }

std::vector<std::string> Flag::names_in_full() const {
  if (is_argument()) return {option_->get_name()};
  std::vector<std::string> names;
  for (const std::string& name : option_->get_snames()) names.push_back("-" + name);
  for (const std::string& name : option_->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string Flag::help() const { return option_->get_description(); }

std::string Flag::value_name() const {
  return option_->get_expected_max() == 0 ? "" : option_->get_type_name();
}

std::string Flag::default_value() const { return option_->get_default_str(); }

std::string Flag::heading() const { return option_->get_group(); }

bool Flag::was_given() const { return option_->count() > 0; }

const std::vector<std::string>& Flag::values() const { return option_->results(); }

Command Command::add_subcommand(const std::string& name, const std::string& help) const {
  return Command(*app_->add_subcommand(name, help));
}

void Command::take_one_subcommand() const { app_->require_subcommand(0, 1); }

void Command::hide() const { app_->group(""); }

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::callback(std::function<void()> then) const { app_->callback(std::move(then)); }

Flag Command::add_flag(const std::string& names, const std::string& help) const {
  return Flag(*app_->add_flag(names)->description(help));
}

Flag Command::add_flag(const std::string& names, bool& field, const std::string& help) const {
  return Flag(*app_->add_flag(names, field, help));
}

Flag Command::add_flag(const std::string& names, std::function<void()> then,
                       const std::string& help) const {
  return Flag(*app_->add_flag_callback(names, std::move(then), help));
}

Flag Command::add_option(const std::string& names, const std::string& help) const {
  return Flag(*app_->add_option(names)->description(help));
}

Flag Command::add_option(const std::string& names, std::string& field,
                         const std::string& help) const {
  return Flag(*app_->add_option(names, field, help));
}

Flag Command::add_option(const std::string& names, std::vector<std::string>& field,
                         const std::string& help) const {
  return Flag(*app_->add_option(names, field, help));
}

Flag Command::add_option(const std::string& names, std::function<void(const std::string&)> read,
                         const std::string& help) const {
  const CLI::callback_t read_last = [read = std::move(read)](const CLI::results_t& values) {
    read(values.back());
    return true;
  };
  return Flag(*app_->add_option(names, read_last, help));
}

void Command::take_words_behind_dashes(std::vector<std::string>& words) const {
  const auto split = [&words](const std::string& value) {
    for (std::size_t begin = 0, end = 0; begin < value.size(); begin = end + 1) {
      end = value.find('\0', begin);
      words.push_back(value.substr(begin, end - begin));
    }
  };
  add_option(words_flag, split, "").group("");
}

std::string Command::name() const { return app_->get_name(); }

std::string Command::full_name() const {
  CLI::App* const above = app_->get_parent();
  return (above ? Command(*above).full_name() + " " : "") + name();
}

std::string Command::help() const { return app_->get_description(); }

std::string Command::footer_text() const { return app_->get_footer(); }

bool Command::is_hidden() const { return app_->get_group().empty(); }

std::vector<Command> Command::subcommands() const { return commands_of(app_->get_subcommands({})); }

std::vector<Flag> Command::flags() const {
  std::vector<Flag> flags;
  for (CLI::Option* option : app_->get_options()) flags.emplace_back(*option);
  return flags;
}

Flag Command::flag(const std::string& name) const { return Flag(*app_->get_option(name)); }

std::vector<Command> Command::chosen_subcommands() const {
  return commands_of(app_->get_subcommands());
}

std::vector<std::string> Command::unknown_arguments() const { return app_->remaining(); }

Program::Program(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {
  // Before there are commands, which inherit both.
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->allow_extras();  // so that refuse_unknown_arguments() says in our words what is wrong
}

Program::~Program() = default;

std::optional<std::string> Program::parse(std::vector<std::string> arguments) {
  gather_words_behind_dashes(app_.get(), arguments);
  std::ranges::reverse(arguments);  // as CLI11 takes them
  try {
    app_->parse(arguments);
  } catch (const CLI::CallForHelp&) {
    return app_->help();
  } catch (const CLI::ParseError& error) {
    throw UsageError(in_our_words(error));
  }
  return {};
}

}  // namespace ridge
