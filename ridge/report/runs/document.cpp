#include "ridge/report/runs/document.h"

#include <fmt/format.h>

#include "ridge/base/markdown.h"
#include "ridge/base/version.h"
#include "ridge/report/page_template.h"
#include "ridge/report/runs/page/runs_assets.h"

namespace ridge {
namespace {

std::string anchor_of(std::string_view heading) {
  std::string anchor;
  for (const char c : heading)
    anchor += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == ' ' ? '-' : c;
  return anchor;
}

// A file's name as a relative address.
std::string in_address(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

// Paragraphs and lists of a text as elements.
std::string html_paragraphs(std::string_view text) {
  std::string out;
  bool in_list = false;
  for (const auto& [is_item, line] : paragraph_lines(text)) {
    if (is_item != in_list) out += is_item ? "<ul>" : "</ul>";
    in_list = is_item;
    out += fmt::format("<{0}>{1}</{0}>", is_item ? "li" : "p", xml_escaped(line));
  }
  return out + (in_list ? "</ul>" : "");
}

// Blocks as elements. Every text is escaped; pictures are our own SVG, whose texts are.
struct Html {
  std::string out;

  void operator()(const ReportText& block) {
    out += fmt::format("<p>{}</p>\n", xml_escaped(block.text));
  }
  void operator()(const ReportHeading& block) {
    out += fmt::format("<h3>{}</h3>\n", xml_escaped(block.text));
  }
  void operator()(const ReportTable& block) {
    out += "<div class=\"scroll\"><table>\n";
    if (!block.caption.empty())
      out += fmt::format("<caption>{}</caption>\n", xml_escaped(block.caption));
    out += "<thead><tr>";
    for (const TextColumn& column : block.columns) cell("th", column, column.header);
    out += "</tr></thead>\n<tbody>\n";
    for (const TextRow& row : block.rows) {
      out += "<tr>";
      for (std::size_t i = 0; i < row.size(); ++i) cell("td", block.columns[i], row[i]);
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
  }
  void operator()(const ReportPicture& block) {
    out +=
        fmt::format("<figure><div class=\"scroll\">{}</div><figcaption>{}</figcaption></figure>\n",
                    block.svg, xml_escaped(block.caption));
  }
  void operator()(const ReportFinding& block) {
    out += fmt::format("<div class=\"finding\"><p><strong>{}</strong></p>{}</div>\n",
                       xml_escaped(block.statement), html_paragraphs(block.evidence));
  }
  void operator()(const ReportCommands& block) {
    out += "<pre><code>";
    for (const std::string& line : block.lines) out += xml_escaped(line) + "\n";
    out += "</code></pre>\n";
  }
  void cell(std::string_view tag, const TextColumn& column, std::string_view text) {
    out += fmt::format("<{0}{1}>{2}</{0}>", tag, column.left ? " class=\"left\"" : "",
                       xml_escaped(text));
  }
};

struct Markdown {
  const std::string& prefix;
  std::string out;

  void operator()(const ReportText& block) { out += markdown_escaped(block.text) + "\n\n"; }
  void operator()(const ReportHeading& block) {
    out += fmt::format("### {}\n\n", markdown_escaped(block.text));
  }
  void operator()(const ReportTable& block) {
    if (!block.caption.empty()) out += markdown_escaped(block.caption) + "\n\n";
    out += markdown_table(block.columns, block.rows) + "\n";
  }
  void operator()(const ReportPicture& block) {
    out += fmt::format("![{}]({}.svg)\n\n", markdown_escaped(block.caption),
                       in_address(prefix + block.name));
  }
  void operator()(const ReportFinding& block) {
    out += fmt::format("**{}** {}\n\n", markdown_escaped(block.statement),
                       markdown_paragraphs(block.evidence));
  }
  // Indented, which nothing in a line can end.
  void operator()(const ReportCommands& block) {
    for (const std::string& line : block.lines) out += "    " + printable(line) + "\n";
    out += "\n";
  }
};

std::string made_by() { return fmt::format("Made by ridge report, Ridge {}.", version()); }

}  // namespace

std::vector<const ReportPicture*> pictures_of(const ReportDocument& document) {
  std::vector<const ReportPicture*> pictures;
  for (const ReportSection& section : document.sections)
    for (const ReportBlock& block : section.blocks)
      if (const auto* picture = std::get_if<ReportPicture>(&block)) pictures.push_back(picture);
  return pictures;
}

std::string report_html(const ReportDocument& document) {
  Html body;
  std::string contents;
  for (const ReportSection& section : document.sections) {
    const std::string anchor = xml_escaped(anchor_of(section.heading));
    const std::string heading = xml_escaped(section.heading);
    contents += fmt::format("<a href=\"#{}\">{}</a>\n", anchor, heading);
    body.out += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", anchor, heading);
    for (const ReportBlock& block : section.blocks) std::visit(body, block);
    body.out += "</section>\n";
  }
  const std::string title = xml_escaped(document.title), subtitle = xml_escaped(document.subtitle);
  const std::string made = xml_escaped(made_by());
  const TemplatePart parts[] = {{"title", title},       {"style", runs_style},
                                {"subtitle", subtitle}, {"contents", contents},
                                {"body", body.out},     {"made", made}};
  return filled_template(runs_template, parts);
}

std::string report_markdown(const ReportDocument& document, const std::string& prefix) {
  Markdown body{prefix, {}};
  body.out = fmt::format("# {}\n\n{}\n\n", markdown_escaped(document.title),
                         markdown_escaped(document.subtitle));
  for (const ReportSection& section : document.sections) {
    body.out += fmt::format("## {}\n\n", markdown_escaped(section.heading));
    for (const ReportBlock& block : section.blocks) std::visit(body, block);
  }
  return body.out + made_by() + "\n";
}

}  // namespace ridge
