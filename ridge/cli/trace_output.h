#pragma once

#include <span>
#include <string>

namespace ridge {

// Looks at a file that a command on traces is to write, before they are read. UsageError if it is
// one of them; `flag` names it. IoError if it cannot be written.
void check_output(const std::string& flag, const std::string& file,
                  std::span<const std::string> traces);

}  // namespace ridge
