#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/cli/command.h"

namespace ridge {

// The manual page of a command for man(1), made of what its --help says: source of groff's man
// macros.
std::string man_page(Command command);

// One for the program and each command below it, by file names: "ridge-trace-report.1".
std::vector<std::pair<std::string, std::string>> man_pages(Command program);

// The script by which a shell completes commands and flags; UsageError for a shell other than bash,
// zsh and fish.
std::string completion_script(Command program, std::string_view shell);

}  // namespace ridge
