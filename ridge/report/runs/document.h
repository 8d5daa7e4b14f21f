#pragma once

// A report as a value, which becomes a page or a Markdown file: what it says stands here once. All
// texts are plain; who writes them need not think of markup.

#include <string>
#include <variant>
#include <vector>

#include "ridge/base/text_table.h"

namespace ridge {

struct ReportText {
  std::string text;
};
struct ReportHeading {
  std::string text;
};
struct ReportTable {
  std::string caption;
  std::vector<TextColumn> columns;
  std::vector<TextRow> rows;  // with a cell for each column
};
struct ReportPicture {
  std::string name;     // of its file, without an end: "step-time"
  std::string caption;  // a sentence
  std::string svg;
};
struct ReportFinding {
  std::string statement, evidence;  // sentences; lines of evidence that begin with "- " are items
};
struct ReportCommands {
  std::vector<std::string> lines;
};
using ReportBlock = std::variant<ReportText, ReportHeading, ReportTable, ReportPicture,
                                 ReportFinding, ReportCommands>;

struct ReportSection {
  std::string heading;
  std::vector<ReportBlock> blocks;
};

struct ReportDocument {
  std::string title, subtitle;
  std::vector<ReportSection> sections;
};

// One HTML file that needs no other, no network and no script, light or dark as its reader has it.
std::string report_html(const ReportDocument& document);

// Markdown (GitHub Flavored), with pictures under the names of their files: `prefix`, their name,
// and ".svg".
std::string report_markdown(const ReportDocument& document, const std::string& prefix);

// The pictures of a document, in its order.
std::vector<const ReportPicture*> pictures_of(const ReportDocument& document);

}  // namespace ridge
