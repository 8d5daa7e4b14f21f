#pragma once

// The options of a kept run: which of them make two runs comparable, and which a person gave.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

// The options of a run, a JSON object, without those that say where it writes and how often it
// prints, by name: a JSON object that is equal where runs did the same. Of what such runs measured,
// what the same machine measured may be compared. FormatError for a text that is no JSON object.
std::string configuration_of(std::string_view options);

// Names and values of the options of a record that differ from the defaults of its workload; empty
// for a workload that this program does not know. Switches have the value "true" or "false".
std::vector<std::pair<std::string, std::string>> given_options(
    const nlohmann::ordered_json& record);

}  // namespace ridge
