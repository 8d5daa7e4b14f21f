#include "ridge/trace/cut.h"

#include <algorithm>

#include "ridge/base/utf8.h"

namespace ridge::trace {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

// The last character before `at` that is no space; npos if there is none at or behind `from`.
std::size_t back_over_space(std::string_view text, std::size_t from, std::size_t at) {
  while (at > from)
    if (!is_space(text[--at])) return at;
  return std::string_view::npos;
}

// Whether an object begins with a member that events have.
bool begins_like_event(std::string_view text) {
  static constexpr std::string_view members[] = {"ph", "name", "cat", "pid", "tid",
                                                 "ts", "dur",  "id",  "bp",  "args"};
  const std::size_t quote = skip_space(text, 1);
  if (quote >= text.size() || text[quote] != '"') return false;
  const std::string_view key = text.substr(quote + 1, 8);
  return std::ranges::any_of(members, [&](std::string_view member) {
    return key.starts_with(member) && key.substr(member.size()).starts_with('"');
  });
}

}  // namespace

Cut last_cut(std::string_view text, std::size_t from, std::size_t before, CutKind kind) {
  std::size_t at = std::min(before, text.size());
  while (at > from) {
    at = text.rfind('{', at - 1);
    if (at == std::string_view::npos || at <= from) break;
    const std::size_t comma = back_over_space(text, from, at);
    if (comma == std::string_view::npos || text[comma] != ',') continue;
    const std::size_t brace = back_over_space(text, from, comma);
    if (brace == std::string_view::npos || text[brace] != '}') continue;
    if (kind == CutKind::any || begins_like_event(text.substr(at))) return {brace + 1, at};
  }
  return {};
}

std::size_t begin_of_events(std::string_view text, Form& form) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF", key = "\"traceEvents\"";
  std::size_t at = skip_space(text, text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
  form.bare_list = at < text.size() && text[at] == '[';
  if (form.bare_list) return at + 1;
  for (at = text.find(key, at); at != std::string_view::npos; at = text.find(key, at)) {
    at = skip_space(text, at + key.size());
    if (at == text.size() || text[at] != ':') continue;
    at = skip_space(text, at + 1);
    if (at < text.size() && text[at] == '[') return at + 1;
  }
  return std::string_view::npos;
}

std::string repaired(std::string_view text, std::size_t& count) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) >= ' ' || is_space(c)) continue;
    c = ' ';
    ++count;
  }
  for (std::size_t at = 0;
       (at += find_invalid_utf8(std::string_view(out).substr(at))) < out.size();) {
    out[at] = '?';
    ++count;
  }
  // Between events a line's end is space too; within a text none may stand.
  std::ranges::replace_if(
      out, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return out;
}

}  // namespace ridge::trace
