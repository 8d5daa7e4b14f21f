#include "ridge/report/runs/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "ridge/base/text_table.h"
#include "ridge/report/svg.h"

namespace ridge {
namespace {

constexpr double width = 820, left = 250, right = 130, top = 52;
constexpr double row_height = 26, bar_height = 14;
constexpr double most_times = 50;         // the smallest bar, on a straight axis
constexpr std::size_t label_width = 34;   // columns of a terminal, which are letters here
constexpr std::size_t most_points = 400;  // of a curve
constexpr std::size_t colors = 6;

constexpr SvgRule bar_rules[] = {
    {".bar", "fill:#4269d0", "fill:#6488e6"},
    {".spread", "fill:none;stroke:#1d2127;stroke-width:1.5", "stroke:#e8eaed"},
};

constexpr SvgRule curve_rules[] = {
    {"path", "fill:none;stroke-width:2"},        {".c0", "stroke:#2563eb", "stroke:#58a6ff"},
    {".c1", "stroke:#b45309", "stroke:#e3a857"}, {".c2", "stroke:#15803d", "stroke:#56d364"},
    {".c3", "stroke:#7c3aed", "stroke:#b392f0"}, {".c4", "stroke:#be123c", "stroke:#ff7b95"},
    {".c5", "stroke:#0f766e", "stroke:#5eead4"}, {".grid", "stroke-width:1"},
};

SvgScale scale_of(std::span<const Bar> bars) {
  double least = std::numeric_limits<double>::infinity(), largest = 0;
  for (const Bar& bar : bars) {
    least = std::min({least, bar.value, bar.spread ? bar.spread->low : bar.value});
    largest = std::max({largest, bar.value, bar.spread ? bar.spread->high : bar.value});
  }
  if (least > 0 && largest > most_times * least)
    return {least / 1.3, largest, left, width - right, true};
  return {0, largest > 0 ? largest : 1, left, width - right, false};
}

void draw_bar(Svg& svg, const SvgScale& scale, const Bar& bar, double y) {
  const double middle = y + row_height / 2, end = scale(bar.value);
  svg.text(left - 10, middle + 4, Svg::Anchor::end, shortened(printable(bar.label), label_width));
  const std::string title = fmt::format("{}: {}", bar.label, bar.value_text);
  if (scale.logarithmic)
    svg.circle("bar", end, middle, 5, title);
  else
    svg.rect("bar", left, middle - bar_height / 2, std::max(1.0, end - left), bar_height, title);
  double text_x = end;
  if (bar.spread) {
    const double low = scale(bar.spread->low), high = scale(bar.spread->high);
    svg.line("spread", low, middle, high, middle);
    svg.line("spread", low, middle - 4, low, middle + 4);
    svg.line("spread", high, middle - 4, high, middle + 4);
    text_x = std::max(text_x, high);
  }
  svg.text(text_x + 10, middle + 4, Svg::Anchor::start, bar.value_text);
}

// At most so many numbers of a curve, as far apart as they must be.
std::string path_of(const Curve& curve, const SvgScale& x, const SvgScale& y) {
  const std::size_t stride = curve.values.size() / most_points + 1;
  std::string path;
  for (std::size_t i = 0; i < curve.values.size(); i += stride)
    if (std::isfinite(curve.values[i]))
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L',
                     x(curve.first_x + static_cast<double>(i)), y(curve.values[i]));
  return path;
}

}  // namespace

std::string bars_svg(const std::string& title, std::span<const Bar> bars) {
  const double height = top + row_height * static_cast<double>(bars.size()) + 14;
  Svg svg("bars", width, height, title, bar_rules);
  svg.text(20, 28, Svg::Anchor::start, title, "title");
  const SvgScale scale = scale_of(bars);
  double y = top;
  for (const Bar& bar : bars) {
    draw_bar(svg, scale, bar, y);
    y += row_height;
  }
  return std::move(svg).finish();
}

std::string curves_svg(const std::string& title, const std::string& axis,
                       std::span<const Curve> curves) {
  constexpr double height = 360, begin = 64, end = 240, bottom = 52;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double x0 = infinity, x1 = -infinity, y0 = infinity, y1 = -infinity;
  for (const Curve& curve : curves)
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
      if (!std::isfinite(curve.values[i])) continue;
      const double x = curve.first_x + static_cast<double>(i);
      x0 = std::min(x0, x), x1 = std::max(x1, x);
      y0 = std::min(y0, curve.values[i]), y1 = std::max(y1, curve.values[i]);
    }
  Svg svg("curves", width, height, title, curve_rules);
  svg.text(20, 28, Svg::Anchor::start, title, "title");
  if (!(x0 <= x1)) return std::move(svg).finish();
  const double margin = y1 > y0 ? 0.05 * (y1 - y0) : 0.05 * std::max(std::abs(y1), 1e-9);
  const SvgScale x{x0, std::max(x1, x0 + 1), begin, width - end};
  const SvgScale y{y0 - margin, y1 + margin, height - bottom, top};
  constexpr int lines = 4;
  double last_step = -infinity;
  for (int i = 0; i <= lines; ++i) {
    const double at = y.from + (y.to - y.from) * i / lines;
    svg.row(begin, width - end, y(at), fmt::format("{:.4g}", at));
    const double step = std::round(x.from + (x.to - x.from) * i / lines);
    if (step != last_step) svg.column(x(step), top, height - bottom, fmt::format("{:.0f}", step));
    last_step = step;
  }
  svg.text((begin + width - end) / 2, height - 10, Svg::Anchor::middle, axis, "faint");
  double legend = top + 8;
  for (std::size_t c = 0; c < curves.size(); ++c) {
    const std::string css = fmt::format("c{}", c % colors);
    svg.path(css, path_of(curves[c], x, y), curves[c].label);
    svg.line(css, width - end + 18, legend - 4, width - end + 36, legend - 4);
    svg.text(width - end + 44, legend, Svg::Anchor::start,
             shortened(printable(curves[c].label), 30));
    legend += 22;
  }
  return std::move(svg).finish();
}

}  // namespace ridge
