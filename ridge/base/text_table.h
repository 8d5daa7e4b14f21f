#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct TextColumn {
  std::string header;
  bool left = false;          // names; numbers stand right
  std::size_t max_width = 0;  // in columns of a terminal; longer cells end in an ellipsis. 0: any
};

// A row without cells is a rule across the table; missing cells at a row's end are empty.
using TextRow = std::vector<std::string>;

// Aligned for a terminal, one line a row, every line ended:
//   Operation | Calls | Total Time
//   ----------|-------|-----------
//   matmul    |   240 |    18.7 ms
// Cells may hold any bytes: see printable().
std::string text_table(std::span<const TextColumn> columns, std::span<const TextRow> rows);

// Text that a terminal shows as it is: control and direction characters are escaped (\x0a, \u202e),
// and bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text);

// The same as the content or an attribute of an XML element.
std::string xml_escaped(std::string_view text);

// The columns that printable text takes on a terminal: two for a wide character, none for a
// combining one.
std::size_t display_width(std::string_view text);

// `text` if it is at most `width` columns wide, else its start and an ellipsis.
std::string shortened(std::string_view text, std::size_t width);

inline constexpr std::size_t sentence_width = 100;  // of sentences and helps

// Printable text in lines of at most `width` columns, broken at spaces; lines after the first begin
// with `indent`. Ends of lines that are there stay; a longer word stands alone.
std::string wrapped(std::string_view text, std::size_t width, std::string_view indent = "");

// A field of a CSV file in quotes, with those in the text doubled (RFC 4180).
std::string csv_quoted(std::string_view text);

}  // namespace ridge
