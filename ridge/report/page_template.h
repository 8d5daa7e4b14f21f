#pragma once

// Pages that consist of one file.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace ridge {

struct TemplatePart {
  std::string_view name, text;
};
// A template with each {{name}} replaced by the part of that name, whatever that contains.
std::string filled_template(std::string_view text, std::span<const TemplatePart> parts);

// A document as JSON that can stand in a script element of an HTML file: no name in it can close
// the element, or open another.
std::string harmless_in_html(const nlohmann::ordered_json& document);

// One HTML file that needs no other and no network. Nothing in the document can break it or become
// part of its code. It is styled by `style`, its code is `scripts` one after the other, of which
// `begin` calls the first function.
std::string page_of(const nlohmann::ordered_json& document, std::string_view style,
                    std::span<const std::string_view> scripts, std::string_view begin);

}  // namespace ridge
