#include "ridge/report/dashboard/http_message.h"

#include <algorithm>

#include "ridge/study/run_row.h"

namespace ridge {
namespace {

// Takes what stands before a separator, or all of it, off the front.
std::string_view take(std::string_view& text, std::string_view separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + separator.size());
  return part;
}

}  // namespace

std::string_view HttpRequest::parameter(std::string_view name) const {
  const auto found = parameters.find(name);
  return found == parameters.end() ? std::string_view() : found->second;
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

void read_target(HttpRequest& request, std::string_view target) {
  const bool is_plain = std::ranges::all_of(target, [](char c) { return c > ' ' && c < 0x7F; });
  if (!target.starts_with('/') || !is_plain)
    throw HttpFault(400, "this is no address of this server");
  request.path = take(target, "?");
  while (!target.empty()) {
    std::string_view value = take(target, "&");
    const std::string name = percent_decoded(take(value, "="));
    if (!name.empty()) request.parameters[name] = percent_decoded(value);
  }
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const bool has_two = i + 2 < text.size();
    const int high = has_two ? digit(text[i + 1]) : -1, low = has_two ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) throw HttpFault(400, "the address has a % without two digits");
    out += static_cast<char>(16 * high + low);
    i += 2;
  }
  return stored_text(out);
}

std::string_view cookie_of(const HttpRequest& request, std::string_view name) {
  std::string_view cookies = request.header("cookie");
  while (!cookies.empty()) {
    std::string_view value = take(cookies, ";");
    while (value.starts_with(' ')) value.remove_prefix(1);
    if (take(value, "=") == name) return value;
  }
  return {};
}

}  // namespace ridge
