#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/cli/command.h"
#include "ridge/session/options.h"

namespace ridge {

// Which of options_of() a command has; null stands for all.
using OptionFilter = std::function<bool(const OptionInfo&)>;
OptionFilter all_but(std::vector<std::string> names);

// Flags made of options_of(), on one command. Outlives its parsing.
class OptionFlags {
 public:
  // Adds the flags of the options that a command has. --help shows `defaults`.
  OptionFlags(Command command, RunOptions defaults, const OptionFilter& has = {});

  // Sets the fields whose flags were given, to the last value given. UsageError for a bad value.
  void apply(RunOptions& options) const;
  std::vector<std::string> given() const;  // names of the flags that were given

 private:
  std::vector<std::pair<std::string, Flag>> flags_;  // by option name
};

// A flag with a value, which is read as those of OptionFlags are; of several the last counts. Takes
// integers, numbers and texts, std::optional of them, and std::vector of what stands between
// commas.
template <class Field>
Flag add_value(Command command, const std::string& flags, Field& field, const std::string& help);

// UsageError if a command that allows extras was given some, naming the nearest flag or subcommand,
// or if a flag was taken for the value of the one before it, or if a value is empty.
void refuse_unknown_arguments(Command command);

// "--batch_size" is the same as "--batch-size".
std::string with_dashes(std::string_view argument);

}  // namespace ridge
