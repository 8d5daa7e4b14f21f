#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ridge {

// Where a value lies along a straight or logarithmic axis of a picture: `from` at pixel `begin`,
// `to` at pixel `end`.
struct SvgScale {
  double from = 0, to = 1, begin = 0, end = 1;
  bool logarithmic = false;

  double operator()(double value) const;
};

// A rule of a picture's style: its declarations, and what is other on a dark ground.
struct SvgRule {
  std::string_view selector, light, dark = {};
};

// A picture in SVG, drawn from back to front, which follows its reader's light or dark scheme. All
// its rules are below one class, so that it may stand inside another page. Texts are escaped;
// coordinates are pixels from the upper left corner.
class Svg {
 public:
  enum class Anchor { start, middle, end };

  // `name` is the end of its class, "ridge-NAME". The classes paper, title, small, faint, grid and
  // band have rules; `rules` are those of its own.
  Svg(std::string_view name, double width, double height, std::string_view description,
      std::span<const SvgRule> rules);

  // `degrees` turn it about its anchor, clockwise.
  void text(double x, double y, Anchor anchor, std::string_view text, std::string_view css = "",
            double degrees = 0);
  // What has a title shows it where the pointer rests.
  void rect(std::string_view css, double x, double y, double width, double height,
            std::string_view title = "");
  void circle(std::string_view css, double x, double y, double radius, std::string_view title = "");
  void path(std::string_view css, std::string_view commands, std::string_view title = "");
  void line(std::string_view css, double x1, double y1, double x2, double y2);
  // A line of the grid from left to right with its label before it; or from top to bottom with its
  // label below.
  void row(double left, double right, double y, std::string_view label);
  void column(double x, double top, double bottom, std::string_view label);

  std::string finish() && { return std::move(text_ += "</svg>\n"); }

 private:
  void shape(std::string_view tag, std::string_view css, std::string_view attributes,
             std::string_view title);

  std::string text_;
};

}  // namespace ridge
