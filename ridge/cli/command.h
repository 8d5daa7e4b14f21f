#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ridge {

// What the command line may hold, as CLI11 reads it. Only command.cpp includes CLI11, whose
// functions take longer to compile than most commands.

// A flag of a command, or an argument that stands without one, as "names" of `ridge runs show`. A
// handle, as a pointer is: copies stand for the same flag, for as long as there is the Program.
// What is set returns the flag itself, to set more.
class Flag {
 public:
  explicit Flag(CLI::Option& option) : option_(&option) {}

  // How --help shows the value that it takes, as "FILE", and the value that it has unless given.
  Flag type_name(const std::string& name) const;
  Flag default_text(const std::string& text) const;
  // What --help says of it, and below which heading; below "", it is left out.
  Flag description(const std::string& text) const;
  Flag group(const std::string& heading) const;
  // Given several times, the last counts. Without this, several values are an error of
  // Program::parse(), unless the field is a list.
  Flag take_last() const;
  // Of a field that is a list: takes one value each time that it is given, and keeps all of them.
  // Without this, it takes all arguments that follow.
  Flag take_one_each_time() const;

  // "--batch-size", the first of its names.
  std::string name() const;
  // All of them, without dashes; none of an argument.
  const std::vector<std::string>& long_names() const;
  bool is_argument() const;
  // "-h", "--help"; "traces" of an argument.
  std::vector<std::string> names_in_full() const;
  // What --help says of it: the sentence, the value that it takes ("FILE"; empty without one), the
  // one that it has unless given, and the heading that it stands below (empty: it is hidden).
  std::string help() const;
  std::string value_name() const;
  std::string default_value() const;
  std::string heading() const;

  // After Program::parse(): whether the command line has it, and its values there, in order.
  bool was_given() const;
  const std::vector<std::string>& values() const;

 private:
  CLI::Option* option_;
};

// A command, as `ridge train`, or the program above them. A handle as Flag is, so callbacks capture
// it by value. Fields that are set to what was given must be there until after Program::parse().
//
// Names of flags are "--tag", or "--tag,--tags" with aliases; those of arguments have no dashes.
// Adding a name that the command has already is a mistake of the program: a std::runtime_error.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  // Takes over what has been said of this command: footer(), take_one_subcommand(), hide().
  Command add_subcommand(const std::string& name, const std::string& help) const;
  // A command line chooses one of the commands below this one, or none.
  void take_one_subcommand() const;
  // Leaves the command out of the --help of the one above it.
  void hide() const;
  // What --help ends with.
  void footer(const std::string& text) const;
  // Called by Program::parse(), when it has read all, if the command is chosen: the program always
  // is.
  void callback(std::function<void()> then) const;

  // A flag without a value. It sets its field, or is asked whether it was_given(), or is followed
  // by `then`, whose errors leave Program::parse().
  Flag add_flag(const std::string& names, const std::string& help) const;
  Flag add_flag(const std::string& names, bool& field, const std::string& help) const;
  Flag add_flag(const std::string& names, std::function<void()> then,
                const std::string& help) const;
  // A flag with a value, or an argument; lists take all that follow. For other types, and for
  // checks of what was given, there is add_value() of flags.h.
  Flag add_option(const std::string& names, const std::string& help) const;
  Flag add_option(const std::string& names, std::string& field, const std::string& help) const;
  Flag add_option(const std::string& names, std::vector<std::string>& field,
                  const std::string& help) const;
  // `read` gets the last value that was given. Its errors leave Program::parse().
  Flag add_option(const std::string& names, std::function<void(const std::string&)> read,
                  const std::string& help) const;

  // Takes what stands behind "--" as it is: the words of another program. --help does not show it.
  void take_words_behind_dashes(std::vector<std::string>& words) const;

  // "train"; "ridge train", with the commands above it.
  std::string name() const;
  std::string full_name() const;
  // What --help says of it, and ends with; and whether the command above it is silent about it.
  std::string help() const;
  std::string footer_text() const;
  bool is_hidden() const;
  std::vector<Command> subcommands() const;
  std::vector<Flag> flags() const;
  // The one of this name, such as "--data". Asking for one that the command has not is a mistake of
  // the program: a std::runtime_error.
  Flag flag(const std::string& name) const;

  // After Program::parse(): the commands below this one that were chosen, and the arguments that
  // it did not know.
  std::vector<Command> chosen_subcommands() const;
  std::vector<std::string> unknown_arguments() const;

 private:
  CLI::App* app_;
};

// The command line of a program, with --help for each command.
class Program {
 public:
  Program(const std::string& name, const std::string& description);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The one to which the others are added.
  Command command() const { return Command(*app_); }

  // Reads the arguments, without the program's name: sets fields, then calls the callbacks of the
  // commands that were chosen. If --help is among them it calls none, and returns the text to
  // print. UsageError for a value that is missing or one too many, and whatever the callbacks
  // throw; arguments that nobody knows are left to refuse_unknown_arguments() of flags.h.
  std::optional<std::string> parse(std::vector<std::string> arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace ridge
