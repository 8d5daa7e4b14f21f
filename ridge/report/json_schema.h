#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// A place at which a document is not as its schema says.
struct Breach {
  std::string place;   // "rows.1.total.time_ns"; of a member that is missing where it would be
  std::string reason;  // in the validator's words
};

// All breaches of a JSON schema (https://json-schema.org, draft 7), the innermost places first.
// Only the first elements of an array are looked at in search of the places: of a million wrong
// ones nobody wants to read. A breach beyond them is told without its place.
std::vector<Breach> breaches_of(const nlohmann::ordered_json& document, std::string_view schema);

}  // namespace ridge
