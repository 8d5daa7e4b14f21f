#include "ridge/base/markdown.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge {
namespace {

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

std::string markdown_escaped(std::string_view text) {
  const std::string plain = printable(text);
  std::string out;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const char c = plain[i];
    // Between letters an underscore is no emphasis (CommonMark 0.31, 6.2), and reads better bare.
    const bool is_bare =
        c == '_' && i > 0 && i + 1 < plain.size() && is_word(plain[i - 1]) && is_word(plain[i + 1]);
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (!is_bare && std::string_view(R"(|\`*_[]~$)").find(c) != std::string_view::npos)
      out += {'\\', c};
    else
      out += c;
  }
  return out;
}

std::vector<ParagraphLine> paragraph_lines(std::string_view text) {
  std::vector<ParagraphLine> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const bool is_item = line.starts_with("- ");
    lines.push_back({is_item, line.substr(is_item ? 2 : 0)});
  }
  return lines;
}

std::string markdown_paragraphs(std::string_view text) {
  std::string out;
  bool was_item = false;
  for (const auto& [is_item, line] : paragraph_lines(text)) {
    if (!out.empty()) out += is_item && was_item ? "\n" : "\n\n";
    out += (is_item ? "- " : "") + markdown_escaped(line);
    was_item = is_item;
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  const std::string plain = printable(text);
  std::size_t longest = 0, run = 0;
  for (const char c : plain) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  const bool is_bare = !plain.empty() && plain.front() != '`' && plain.back() != '`';
  return is_bare ? fence + plain + fence : fmt::format("{0} {1} {0}", fence, plain);
}

std::string markdown_table(std::span<const TextColumn> columns, std::span<const TextRow> rows) {
  std::string text = "|", rule = "|";
  for (const TextColumn& column : columns) {
    text += fmt::format(" {} |", markdown_escaped(column.header));
    rule += column.left ? " --- |" : " ---: |";
  }
  text += "\n" + rule + "\n";
  for (const TextRow& row : rows) {
    text += "|";
    for (const std::string& cell : row) text += fmt::format(" {} |", markdown_escaped(cell));
    text += "\n";
  }
  return text;
}

}  // namespace ridge
