#include "ridge/base/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "ridge/base/utf8.h"

namespace ridge {
namespace {

struct CodePoint {
  std::uint32_t code;
  std::size_t length;
};

// The first code point of `text`, which is UTF-8 and not empty.
CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const std::size_t length = byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
  std::uint32_t code = byte(0) & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3Fu);
  return {code, length};
}

struct Range {
  std::uint32_t first, last;
};

bool within(std::uint32_t code, std::span<const Range> ranges) {
  return std::ranges::any_of(ranges, [&](Range r) { return r.first <= code && code <= r.last; });
}

// Control characters, line separators, and what changes the direction of the text around it.
bool is_unprintable(std::uint32_t code) {
  static constexpr Range ranges[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x200E, 0x200F},
                                     {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};
  return within(code, ranges);
}

std::size_t width_of(std::uint32_t code) {
  static constexpr Range none[] = {
      {0x0300, 0x036F}, {0x200B, 0x200D}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}};
  static constexpr Range wide[] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
                                   {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                                   {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
  return within(code, none) ? 0 : within(code, wide) ? 2 : 1;
}

std::string aligned(const std::string& cell, std::size_t width, bool left) {
  const std::string space(width - display_width(cell), ' ');
  return left ? cell + space : space + cell;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::string_view valid = text.substr(0, find_invalid_utf8(text));
    text.remove_prefix(valid.size());
    while (!valid.empty()) {
      const auto [code, length] = first_code_point(valid);
      if (!is_unprintable(code))
        out += valid.substr(0, length);
      else
        out += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
      valid.remove_prefix(length);
    }
    if (!text.empty()) {
      append_utf8(out, 0xFFFD);
      text.remove_prefix(1);
    }
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const auto [code, length] = first_code_point(text);
    width += width_of(code);
    text.remove_prefix(std::min(length, text.size()));
  }
  return width;
}

std::string shortened(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  std::size_t bytes = 0, columns = 0;
  while (bytes < text.size()) {
    const auto [code, length] = first_code_point(text.substr(bytes));
    if (columns + width_of(code) + 1 > width) break;
    columns += width_of(code);
    bytes += length;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

std::string csv_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + '"';
}

std::string text_table(std::span<const TextColumn> columns, std::span<const TextRow> rows) {
  std::vector<TextRow> cells;
  std::vector<std::size_t> widths;
  for (const TextColumn& column : columns) widths.push_back(display_width(column.header));
  for (const TextRow& row : rows) {
    TextRow& shown = cells.emplace_back();
    for (std::size_t c = 0; c < row.size() && c < columns.size(); ++c) {
      const std::string cell = printable(row[c]);
      const std::size_t limit = columns[c].max_width;
      shown.push_back(limit ? shortened(cell, limit) : cell);
      widths[c] = std::max(widths[c], display_width(shown.back()));
    }
  }

  std::string out;
  const auto add_rule = [&] {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const bool outer = c == 0 || c + 1 == columns.size();
      if (c > 0) out += '|';
      out.append(widths[c] + (outer && columns.size() > 1 ? 1 : columns.size() > 1 ? 2 : 0), '-');
    }
    out += '\n';
  };
  const auto add_row = [&](const TextRow& row) {
    std::string line;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) line += " | ";
      line += aligned(c < row.size() ? row[c] : "", widths[c], columns[c].left);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  TextRow headers;
  for (const TextColumn& column : columns) headers.push_back(column.header);
  add_row(headers);
  add_rule();
  for (const TextRow& row : cells) row.empty() ? add_rule() : add_row(row);
  return out;
}

std::string wrapped(std::string_view text, std::size_t width, std::string_view indent) {
  std::string out;
  std::size_t column = 0;
  bool begins = true;  // a line: no space comes first
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const std::size_t needed = display_width(word) + (begins ? 0 : 1);
    if (!begins && column + needed > width) {
      out.append("\n").append(indent).append(word);
      column = display_width(indent) + display_width(word);
    } else {
      out.append(begins ? "" : " ").append(word);
      column += needed;
    }
    begins = end < text.size() && text[end] == '\n';
    if (begins) {
      out.append("\n").append(indent);
      column = display_width(indent);
    }
    at = end + 1;
  }
  return out;
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

}  // namespace ridge
