#pragma once

// Options and records as JSON values, for those who make them part of a document of their own. Not
// among the installed headers: who embeds Ridge has to_json() and record_json(), and needs no JSON
// library.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "ridge/session/options.h"
#include "ridge/session/record.h"

namespace ridge {

// All options under their names, in the order of options_of().
nlohmann::ordered_json json_of(const RunOptions& options);
// Those that are named, in that order, under the keys of the workshop: "batch_size".
nlohmann::ordered_json json_of(const RunOptions& options, std::span<const std::string_view> names);

// See record_json().
nlohmann::ordered_json json_of(const Record& record, const Summary& summary);

// A document as files have it: indented, with a line end; what is not UTF-8 is replaced.
std::string text_of(const nlohmann::ordered_json& json);

}  // namespace ridge
