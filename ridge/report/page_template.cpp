#include "ridge/report/page_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/report/page/assets.h"

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

std::string page_of(const nlohmann::ordered_json& document, std::string_view style,
                    std::span<const std::string_view> scripts, std::string_view begin) {
  std::string code = "(() => {\n'use strict';\n";
  for (const std::string_view script : scripts) code += script;
  code += fmt::format("{};\n}})();\n", begin);
  const std::string data = harmless_in_html(document);
  const TemplatePart parts[] = {{"style", style},
                                {"d3_license", page_d3_license},
                                {"d3", page_d3},
                                {"data", data},
                                {"scripts", code}};
  return filled_template(page_template, parts);
}

}  // namespace ridge
