#pragma once

// Where a trace's text is cut into pieces: between two events of its list.

#include <cstddef>
#include <string>
#include <string_view>

namespace ridge::trace {

// How the list of events is wrapped: {"traceEvents": [...], ...} or [...] alone.
struct Form {
  bool bare_list = false;
  std::string_view opening() const { return bare_list ? "[" : R"({"traceEvents":[)"; }
  std::string_view closing() const { return bare_list ? "]" : "]}"; }
};

// Two events that follow each other: where the first has ended, and where the next begins.
struct Cut {
  std::size_t end = std::string_view::npos, next = 0;
  explicit operator bool() const { return end != std::string_view::npos; }
};

enum class CutKind {
  likely,  // what follows begins with a member that events have
  any
};

// The last place in text[from, before) that looks like the end of an event and the begin of the
// next. Whether it is one, and not a list within an event or a text, shows only when what stands
// before it is parsed.
Cut last_cut(std::string_view text, std::size_t from, std::size_t before,
             CutKind kind = CutKind::likely);

// Where the list of events begins, behind its bracket; npos if it is not in this text. Sets the
// form.
std::size_t begin_of_events(std::string_view text, Form& form);

// The text with each byte replaced that no JSON may have: those that are not UTF-8 by '?', control
// characters by spaces. Adds how many those were.
std::string repaired(std::string_view text, std::size_t& count);

}  // namespace ridge::trace
