#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

// The position of the first byte of `text` that is not UTF-8 (RFC 3629), or its size.
std::size_t find_invalid_utf8(std::string_view text);

// Appends the encoding of a code point, at most U+10FFFF.
void append_utf8(std::string& out, std::uint32_t code);

// Text from a file for a message of one line: quoted, whatever is no visible character escaped, and
// cut if it is long.
std::string shown(std::string_view text);

}  // namespace ridge
