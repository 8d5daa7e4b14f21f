#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// A program or a script of the workshop, and the command of ours that it is. The build makes a link
// of each name to the program.
struct WorkshopName {
  std::string name;        // without ".py" or ".sh", with which it may be called too
  std::string command;     // words of a command line, before those that the user gives
  std::string alone = {};  // further words, if the user's begin with a flag or there are none
};
std::span<const WorkshopName> workshop_names();

// The words of the command line, without the program's name, that a call under the name of the
// workshop stands for; none if the name is not one of these. That of torchrun, as it is used in the
// workshop, stands for the program that it names, on as many ranks, and that of one of ROCm's
// profilers for the program that it starts, profiled; UsageError if it names none.
std::optional<std::vector<std::string>> workshop_command(std::string_view program,
                                                         std::span<const std::string> arguments);

}  // namespace ridge
