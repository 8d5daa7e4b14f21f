#include "ridge/report/svg.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "ridge/base/text_table.h"

namespace ridge {
namespace {

constexpr SvgRule common_rules[] = {
    {"", "color-scheme:light dark;font:12px system-ui,sans-serif"},
    {".paper", "fill:#fff", "fill:#15171a"},
    {"text", "fill:#333", "fill:#ddd"},
    {".title", "font-size:14px;font-weight:600"},
    {".small", "font-size:10.5px"},
    {".faint", "fill:#6b7280", "fill:#9198a1"},
    {".grid", "stroke:#000;stroke-opacity:.12;fill:none", "stroke:#fff;stroke-opacity:.16"},
    {".band", "fill:#000;fill-opacity:.05", "fill:#fff;fill-opacity:.06"},
};

void append_rules(std::string& style, std::string_view name, std::span<const SvgRule> rules,
                  std::string_view SvgRule::*declarations) {
  for (const SvgRule& rule : rules)
    if (!(rule.*declarations).empty())
      fmt::format_to(std::back_inserter(style), ".ridge-{}{}{}{{{}}}\n", name,
                     rule.selector.empty() ? "" : " ", rule.selector, rule.*declarations);
}

std::string style_of(std::string_view name, std::span<const SvgRule> rules) {
  std::string style = "<style>\n";
  append_rules(style, name, common_rules, &SvgRule::light);
  append_rules(style, name, rules, &SvgRule::light);
  style += "@media (prefers-color-scheme:dark){\n";
  append_rules(style, name, common_rules, &SvgRule::dark);
  append_rules(style, name, rules, &SvgRule::dark);
  return style + "}\n</style>\n";
}

}  // namespace

double SvgScale::operator()(double value) const {
  const double part =
      logarithmic ? std::log(value / from) / std::log(to / from) : (value - from) / (to - from);
  return begin + (end - begin) * part;
}

Svg::Svg(std::string_view name, double width, double height, std::string_view description,
         std::span<const SvgRule> rules)
    : text_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ridge-{0}\" "
                        "viewBox=\"0 0 {1:g} {2:g}\" width=\"{1:g}\" height=\"{2:g}\" role=\"img\" "
                        "aria-label=\"{3}\">\n{4}",
                        name, width, height, xml_escaped(description), style_of(name, rules))) {
  rect("paper", 0, 0, width, height);
}

void Svg::shape(std::string_view tag, std::string_view css, std::string_view attributes,
                std::string_view title) {
  fmt::format_to(std::back_inserter(text_), "<{} class=\"{}\" {}", tag, css, attributes);
  if (title.empty())
    text_ += "/>\n";
  else
    fmt::format_to(std::back_inserter(text_), "><title>{}</title></{}>\n", xml_escaped(title), tag);
}

void Svg::text(double x, double y, Anchor anchor, std::string_view text, std::string_view css,
               double degrees) {
  constexpr std::string_view anchors[] = {"start", "middle", "end"};
  const std::string turned =
      degrees == 0 ? "" : fmt::format(" transform=\"rotate({:g} {:.1f} {:.1f})\"", degrees, x, y);
  fmt::format_to(std::back_inserter(text_),
                 "<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n",
                 css, x, y, anchors[static_cast<int>(anchor)], turned, xml_escaped(text));
}

void Svg::rect(std::string_view css, double x, double y, double width, double height,
               std::string_view title) {
  shape("rect", css,
        fmt::format("x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", x, y, width,
                    height),
        title);
}

void Svg::circle(std::string_view css, double x, double y, double radius, std::string_view title) {
  shape("circle", css, fmt::format("cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"", x, y, radius),
        title);
}

void Svg::path(std::string_view css, std::string_view commands, std::string_view title) {
  shape("path", css, fmt::format("d=\"{}\"", commands), title);
}

void Svg::line(std::string_view css, double x1, double y1, double x2, double y2) {
  path(css, fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", x1, y1, x2, y2));
}

void Svg::row(double left, double right, double y, std::string_view label) {
  line("grid", left, y, right, y);
  text(left - 8, y + 4, Anchor::end, label);
}

void Svg::column(double x, double top, double bottom, std::string_view label) {
  line("grid", x, top, x, bottom);
  text(x, bottom + 18, Anchor::middle, label);
}

}  // namespace ridge
