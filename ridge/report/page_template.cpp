#include "ridge/report/page_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ridge {

std::string filled_template(std::string_view text, std::span<const TemplatePart> parts) {
  std::string page;
  for (std::size_t open; (open = text.find("{{")) != std::string_view::npos;) {
    const std::size_t close = text.find("}}", open);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    page += text.substr(0, open);
    page += std::ranges::find(parts, name, &TemplatePart::name)->text;
    text.remove_prefix(close + 2);
  }
  return page += text;
}

// "<" occurs in JSON only within strings, where \u003c is the same.
std::string harmless_in_html(const nlohmann::ordered_json& document) {
  const std::string json =
      document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

}  // namespace ridge
