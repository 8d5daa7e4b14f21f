#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ridge/base/text_table.h"

namespace ridge {

// Text within a paragraph, a heading or a cell of Markdown: printable, and nothing in it is markup.
std::string markdown_escaped(std::string_view text);

// Text of several lines: those that begin with "- " are items of a list, and the others paragraphs.
std::string markdown_paragraphs(std::string_view text);

// Text as code within a line, which may hold any backquotes: printable, and nothing in it ends it.
std::string markdown_code(std::string_view text);

// A table (GitHub Flavored Markdown, "Tables"), whose cells are texts. Rows have a cell for each
// column.
std::string markdown_table(std::span<const TextColumn> columns, std::span<const TextRow> rows);

}  // namespace ridge
