#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/roofline.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

constexpr double width = 960, height = 600;
constexpr double left = 96, right = 190, top = 56, bottom = 64;  // margins
constexpr std::size_t labeled_points = 12;

// Colors stand as they are, not as variables, which some viewers do not know.
constexpr std::string_view style = R"(<style>
svg { font:12px system-ui,-apple-system,"Segoe UI",sans-serif } path { fill:none }
.title { font-size:16px; font-weight:600 } .roof,.fast { stroke-width:2 }
.cache { stroke-dasharray:3 4 } .vendor { stroke-dasharray:8 5 } circle { fill-opacity:.55 }
.name { font-size:11px; paint-order:stroke; stroke-width:3px } circle:hover { fill-opacity:.9 }
.ground { fill:#ffffff } text { fill:#1f2328 } text.faint { fill:#6b7280 } .grid { stroke:#e5e7eb }
.roof { stroke:#374151 } .cache { stroke:#6b7280 } .fast { stroke:#7c3aed } .vendor { stroke:#b45309 }
circle { fill:#2563eb; stroke:#2563eb } .name { stroke:#ffffff }
@media (prefers-color-scheme: dark) {
.ground { fill:#0d1117 } text { fill:#e6edf3 } text.faint { fill:#9198a1 } .grid { stroke:#21262d }
.roof { stroke:#c9d1d9 } .cache { stroke:#9198a1 } .fast { stroke:#b392f0 } .vendor { stroke:#e3a857 }
circle { fill:#58a6ff; stroke:#58a6ff } .name { stroke:#0d1117 } }
</style>
)";

struct Axes {
  RooflineRange range;

  double x(double intensity) const {
    return left + (width - left - right) * std::log(intensity / range.min_intensity) /
                      std::log(range.max_intensity / range.min_intensity);
  }
  double y(double rate) const {
    return height - bottom -
           (height - top - bottom) * std::log(rate / range.min_rate) /
               std::log(range.max_rate / range.min_rate);
  }
};

std::string grid(const Axes& axes) {
  const RooflineRange& r = axes.range;
  std::string svg;
  for (double i = r.min_intensity; i <= r.max_intensity * 1.001; i *= 10)
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/><text class=\"faint\" x=\"{0:.1f}\" "
        "y=\"{3:.1f}\" text-anchor=\"middle\">{4:g}</text>\n",
        axes.x(i), top, height - bottom, height - bottom + 18, i);
  for (double rate = r.min_rate; rate <= r.max_rate * 1.001; rate *= 10)
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}H{2:.1f}\"/><text class=\"faint\" x=\"{3:.1f}\" "
        "y=\"{4:.1f}\" text-anchor=\"end\">{5}FLOP/s</text>\n",
        left, axes.y(rate), width - right, left - 8, axes.y(rate) + 4, format_si(rate));
  return svg + fmt::format(
                   "<text class=\"faint\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">"
                   "arithmetic intensity, FLOP/byte</text>\n",
                   (left + width - right) / 2, height - bottom + 42);
}

std::string label(double x, double y, std::string_view css, const std::string& text) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", css, x, y,
                     xml_escaped(text));
}

// From the bottom or left edge up the slope of a bandwidth to a peak.
std::string slope(const Axes& axes, double bandwidth, double peak, std::string_view css) {
  const RooflineRange& r = axes.range;
  const double from = std::max(r.min_intensity, r.min_rate / bandwidth);
  const double to = std::min(r.max_intensity, peak / bandwidth);
  if (from >= to) return "";
  return fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", css, axes.x(from),
                     axes.y(from * bandwidth), axes.x(to), axes.y(to * bandwidth));
}

std::string flat(const Axes& axes, double bandwidth, double peak, std::string_view css,
                 const std::string& name) {
  const double from = std::max(axes.range.min_intensity, peak / bandwidth);
  const double y = axes.y(peak);
  return fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", css, axes.x(from), y,
                     width - right) +
         label(width - right + 8, y + (name == "vendor" ? -6 : 5), "",
               fmt::format("{} {}FLOP/s", name, format_si(peak)));
}

std::string ceilings(const Axes& axes, const Roof& roof) {
  std::string svg;
  const double peak = roof.fastest_flops(), f32 = roof.flops("f32");
  const double nearest = roof.levels.front().bytes_per_second;
  for (const Roof::Level& level : roof.levels) {
    const bool memory = &level == &roof.levels.back();
    svg += slope(axes, level.bytes_per_second, peak, memory ? "roof" : "cache");
  }
  svg += flat(axes, nearest, f32, "roof", "f32");
  for (const Roof::Peak& faster : roof.peaks)
    if (faster.flops > f32) svg += flat(axes, nearest, faster.flops, "fast", faster.precision);
  if (const auto vendor = roof.vendor.flops_per_second)
    svg += flat(axes, roof.vendor.bytes_per_second.value_or(nearest), *vendor, "vendor", "vendor");
  if (const auto vendor = roof.vendor.bytes_per_second)
    svg += slope(axes, *vendor, roof.vendor.flops_per_second.value_or(peak), "vendor");
  double y = height - bottom - 8 - 16 * static_cast<double>(roof.levels.size() - 1);
  for (const Roof::Level& level : roof.levels) {
    svg += label(width - right + 8, y, "faint",
                 fmt::format("{} {:.1f} GB/s", level.name, level.bytes_per_second / 1e9));
    y += 16;
  }
  return svg;
}

// Names of points, none over another or over the middle of a circle.
class Names {
 public:
  void keep_clear(double x, double y, double radius) {
    const double core = std::min(radius, 5.0);
    taken_.push_back({x - core, x + core, y - core, y + core});
  }

  // Beside, above or below a circle; nowhere if all that is taken, for the circle has it as title.
  void add(double x, double y, double radius, const std::string& name) {
    const double length = letter_width * static_cast<double>(name.size());
    const double beside = x + radius + 3, before = x - radius - 3 - length, over = x - length / 2;
    for (const auto& [from, baseline] :
         {std::pair{beside, y + 4}, std::pair{before, y + 4}, std::pair{over, y - radius - 4},
          std::pair{over, y + radius + 11}, std::pair{beside, y - 6}, std::pair{beside, y + 14}}) {
      const Box box{from, from + length, baseline - 9, baseline + 2};
      if (from < left || !is_free(box)) continue;
      taken_.push_back(box);
      svg += label(from, baseline, "name", name);
      return;
    }
  }

  std::string svg;

 private:
  static constexpr double letter_width = 6.7;  // at the 11 px of .name
  struct Box {
    double left, right, top, bottom;
  };

  bool is_free(const Box& box) const {
    return std::ranges::none_of(taken_, [&](const Box& other) {
      return box.left < other.right && other.left < box.right && box.top < other.bottom &&
             other.top < box.bottom;
    });
  }

  std::vector<Box> taken_;
};

std::string circles(const Axes& axes, const std::vector<RooflinePoint>& points) {
  struct Circle {
    double x, y, radius;
    std::string name;
  };
  std::vector<Circle> drawn;
  std::string svg;
  Names names;
  for (const RooflinePoint& p : points) {
    if (p.intensity() <= 0 || p.seconds <= 0) continue;
    const Circle c{axes.x(p.intensity()), axes.y(p.flops_per_second()),
                   std::clamp(30 * std::sqrt(std::max(p.share, 0.0)), 3.0, 30.0),
                   shortened(printable(p.name), 28)};
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"><title>{}: {:.1f} % of the step, {:.2f} "
        "FLOP/byte, {:.2f} GFLOP/s, {:.2f} GB/s, {} calls</title></circle>\n",
        c.x, c.y, c.radius, xml_escaped(p.name), 100 * p.share, p.intensity(),
        p.flops_per_second() / 1e9, p.bytes_per_second() / 1e9, p.calls);
    names.keep_clear(c.x, c.y, c.radius);
    drawn.push_back(c);
  }
  for (std::size_t i = 0; i < std::min(drawn.size(), labeled_points); ++i)
    names.add(drawn[i].x, drawn[i].y, drawn[i].radius, drawn[i].name);
  return svg + names.svg;  // names over all circles
}

}  // namespace

std::string roofline_svg(const std::vector<RooflinePoint>& points, const Roof& roof,
                         std::string_view title) {
  const Axes axes{roofline_range(points, roof)};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" role=\"img\">\n{2}"
      "<rect class=\"ground\" width=\"{0:g}\" height=\"{1:g}\"/>\n"
      "<text class=\"title\" x=\"{3:g}\" y=\"30\">{4}</text>\n",
      width, height, style, left, xml_escaped(title));
  svg += grid(axes) + ceilings(axes, roof) + circles(axes, points);
  return svg + "</svg>\n";
}

}  // namespace ridge
