#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/text_table.h"

namespace ridge {

// Text within a paragraph, a heading or a cell of Markdown: printable, and nothing in it is markup.
std::string markdown_escaped(std::string_view text);

// A line of a text in which those that begin with "- " are items of a list, and others paragraphs.
struct ParagraphLine {
  bool is_item = false;
  std::string_view text;  // without the "- "
};
std::vector<ParagraphLine> paragraph_lines(std::string_view text);
// Such a text as Markdown.
std::string markdown_paragraphs(std::string_view text);

// Text as code within a line, which may hold any backquotes: printable, and nothing in it ends it.
std::string markdown_code(std::string_view text);

// A table (GitHub Flavored Markdown, "Tables"), whose cells are texts. Rows have a cell for each
// column.
std::string markdown_table(std::span<const TextColumn> columns, std::span<const TextRow> rows);

}  // namespace ridge
