#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/roofline.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/report/svg.h"

namespace ridge {
namespace {

constexpr double width = 960, height = 600;
constexpr double left = 96, right = 190, top = 56, bottom = 64;  // margins
constexpr std::size_t labeled_points = 12;

// Colors stand as they are, not as variables, which some viewers do not know.
constexpr SvgRule rules[] = {
    {"path", "fill:none"},
    {".roof", "stroke:#374151;stroke-width:2", "stroke:#c9d1d9"},
    {".cache", "stroke:#6b7280;stroke-dasharray:3 4", "stroke:#9198a1"},
    {".fast", "stroke:#7c3aed;stroke-width:2", "stroke:#b392f0"},
    {".vendor", "stroke:#b45309;stroke-dasharray:8 5", "stroke:#e3a857"},
    {".point", "fill:#2563eb;fill-opacity:.55;stroke:#2563eb", "fill:#58a6ff;stroke:#58a6ff"},
    {".point:hover", "fill-opacity:.9"},
    {".name", "font-size:11px;paint-order:stroke;stroke-width:3px;stroke:#fff", "stroke:#15171a"},
};

struct Axes {
  RooflineRange range;
  SvgScale x{range.min_intensity, range.max_intensity, left, width - right, true};
  SvgScale y{range.min_rate, range.max_rate, height - bottom, top, true};
};

void draw_grid(Svg& svg, const Axes& axes) {
  const RooflineRange& r = axes.range;
  for (double i = r.min_intensity; i <= r.max_intensity * 1.001; i *= 10)
    svg.column(axes.x(i), top, height - bottom, fmt::format("{:g}", i));
  for (double rate = r.min_rate; rate <= r.max_rate * 1.001; rate *= 10)
    svg.row(left, width - right, axes.y(rate), format_si(rate) + "FLOP/s");
  svg.text((left + width - right) / 2, height - bottom + 42, Svg::Anchor::middle,
           "arithmetic intensity, FLOP/byte", "faint");
}

void draw_slope(Svg& svg, const Axes& axes, double bandwidth, double peak, std::string_view css) {
  const RooflineRange& r = axes.range;
  const double from = std::max(r.min_intensity, r.min_rate / bandwidth);
  const double to = std::min(r.max_intensity, peak / bandwidth);
  if (from < to)
    svg.line(css, axes.x(from), axes.y(from * bandwidth), axes.x(to), axes.y(to * bandwidth));
}

void draw_flat(Svg& svg, const Axes& axes, double bandwidth, double peak, std::string_view css,
               const std::string& name) {
  const double from = std::max(axes.range.min_intensity, peak / bandwidth);
  const double y = axes.y(peak);
  svg.line(css, axes.x(from), y, width - right, y);
  svg.text(width - right + 8, y + (name == "vendor" ? -6 : 5), Svg::Anchor::start,
           fmt::format("{} {}FLOP/s", name, format_si(peak)));
}

void draw_ceilings(Svg& svg, const Axes& axes, const Roof& roof) {
  const double peak = roof.fastest_flops(), f32 = roof.flops(ProductKind::f32);
  const double nearest = roof.levels.front().bytes_per_second;
  for (const Roof::Level& level : roof.levels) {
    const bool memory = &level == &roof.levels.back();
    draw_slope(svg, axes, level.bytes_per_second, peak, memory ? "roof" : "cache");
  }
  draw_flat(svg, axes, nearest, f32, "roof", "f32");
  for (const Roof::Peak& faster : roof.peaks)
    if (faster.flops > f32)
      draw_flat(svg, axes, nearest, faster.flops, "fast", std::string(name_of(faster.precision)));
  if (const auto vendor = roof.vendor.flops_per_second)
    draw_flat(svg, axes, roof.vendor.bytes_per_second.value_or(nearest), *vendor, "vendor",
              "vendor");
  if (const auto vendor = roof.vendor.bytes_per_second)
    draw_slope(svg, axes, *vendor, roof.vendor.flops_per_second.value_or(peak), "vendor");
  double y = height - bottom - 8 - 16 * static_cast<double>(roof.levels.size() - 1);
  for (const Roof::Level& level : roof.levels) {
    svg.text(width - right + 8, y, Svg::Anchor::start,
             fmt::format("{} {:.1f} GB/s", level.name, level.bytes_per_second / 1e9), "faint");
    y += 16;
  }
}

// Names of points, none over another or over the middle of a circle.
class Names {
 public:
  void keep_clear(double x, double y, double radius) {
    const double core = std::min(radius, 5.0);
    taken_.push_back({x - core, x + core, y - core, y + core});
  }

  // Beside, above or below a circle; nowhere if all that is taken, for the circle has it as title.
  void add(Svg& svg, double x, double y, double radius, const std::string& name) {
    const double length = letter_width * static_cast<double>(name.size());
    const double beside = x + radius + 3, before = x - radius - 3 - length, over = x - length / 2;
    for (const auto& [from, baseline] :
         {std::pair{beside, y + 4}, std::pair{before, y + 4}, std::pair{over, y - radius - 4},
          std::pair{over, y + radius + 11}, std::pair{beside, y - 6}, std::pair{beside, y + 14}}) {
      const Box box{from, from + length, baseline - 9, baseline + 2};
      if (from < left || !is_free(box)) continue;
      taken_.push_back(box);
      svg.text(from, baseline, Svg::Anchor::start, name, "name");
      return;
    }
  }

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

void draw_points(Svg& svg, const Axes& axes, const std::vector<RooflinePoint>& points) {
  struct Circle {
    double x, y, radius;
    std::string name;
  };
  std::vector<Circle> drawn;
  Names names;
  for (const RooflinePoint& p : points) {
    if (p.intensity() <= 0 || p.seconds <= 0) continue;
    const Circle c{axes.x(p.intensity()), axes.y(p.flops_per_second()),
                   std::clamp(30 * std::sqrt(std::max(p.share, 0.0)), 3.0, 30.0),
                   shortened(printable(p.name), 28)};
    svg.circle("point", c.x, c.y, c.radius,
               fmt::format("{}: {:.1f} % of the step, {:.2f} FLOP/byte, {:.2f} GFLOP/s, {:.2f} "
                           "GB/s, {} calls",
                           p.name, 100 * p.share, p.intensity(), p.flops_per_second() / 1e9,
                           p.bytes_per_second() / 1e9, p.calls));
    names.keep_clear(c.x, c.y, c.radius);
    drawn.push_back(c);
  }
  for (std::size_t i = 0; i < std::min(drawn.size(), labeled_points); ++i)  // over all circles
    names.add(svg, drawn[i].x, drawn[i].y, drawn[i].radius, drawn[i].name);
}

}  // namespace

std::string roofline_svg(const std::vector<RooflinePoint>& points, const Roof& roof,
                         std::string_view title) {
  const Axes axes{roofline_range(points, roof)};
  Svg svg("roofline", width, height, title, rules);
  svg.text(left, 30, Svg::Anchor::start, title, "title");
  draw_grid(svg, axes);
  draw_ceilings(svg, axes, roof);
  draw_points(svg, axes, points);
  return std::move(svg).finish();
}

}  // namespace ridge
