#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "ridge/analyze/ceilings.h"

namespace ridge {

// A machine's ceilings as JSON, and back. Rates are in FLOP/s and bytes per second. FormatError,
// with `source` in the message, for a text that is none.
std::string ceilings_json(const Ceilings& ceilings);
Ceilings ceilings_from_json(std::string_view text, const std::string& source);

// The ceilings over one run, as bottlenecks.json has them.
std::string roof_json(const Roof& roof);

// $XDG_CACHE_HOME/ridge/machine.json, or ~/.cache/ridge/machine.json. UsageError if the environment
// names neither directory.
std::filesystem::path default_machine_file();

Ceilings read_machine_file(const std::filesystem::path& path);
// Creates the directory if there is none.
void write_machine_file(const std::filesystem::path& path, const Ceilings& ceilings);

}  // namespace ridge
