#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ridge/trace/host_nesting.h"
#include "ridge/trace/trace.h"

namespace ridge::trace {

// What a table of an export holds: without a value, an empty field of CSV and NULL in SQL.
using Integer = std::optional<std::int64_t>;
using Text = std::optional<std::string_view>;

inline Integer id_of(Row row) { return row == no_row ? Integer() : Integer(row); }
inline Integer known(std::int64_t value) { return value == EventColumns::none ? Integer() : value; }
inline Text known(std::string_view text) { return text.empty() ? Text() : Text(text); }

}  // namespace ridge::trace
