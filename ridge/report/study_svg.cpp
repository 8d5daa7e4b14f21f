#include "ridge/report/study_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/report/svg.h"
#include "ridge/study/study_laws.h"

namespace ridge {
namespace {

constexpr double width = 820, height = 460;
constexpr double left = 84, right = 240, top = 52, bottom = 58;  // margins
constexpr std::size_t colours = 6;
constexpr std::size_t legend_width = 30;  // letters

constexpr SvgRule rules[] = {
    {"path", "fill:none;stroke-width:2"},
    {".c0", "stroke:#2563eb", "stroke:#58a6ff"},
    {".c1", "stroke:#b45309", "stroke:#e3a857"},
    {".c2", "stroke:#15803d", "stroke:#56d364"},
    {".c3", "stroke:#7c3aed", "stroke:#b392f0"},
    {".c4", "stroke:#be123c", "stroke:#ff7b95"},
    {".c5", "stroke:#0f766e", "stroke:#5eead4"},
    {".grid", "stroke-width:1"},
    {"circle", "fill:#fff;stroke-width:2", "fill:#15171a"},
};

// From the smallest to the largest that is drawn, both a little further out.
struct Axes {
  SvgScale x, y;
};

Axes axes_of(const std::vector<const StudyLaw*>& laws) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double x0 = infinity, x1 = 0, y0 = infinity, y1 = 0;
  for (const StudyLaw* law : laws)
    for (const StudyPoint& point : law->points) {
      x0 = std::min(x0, point.x);
      x1 = std::max(x1, point.x);
      y0 = std::min(y0, point.spread ? point.spread->low : point.y);
      y1 = std::max(y1, point.spread ? point.spread->high : point.y);
    }
  // Both axes alike, so that a line is drawn as one, and a power where there is no other law.
  constexpr double margin = 1.15, wide = 20;
  const bool logarithmic = (!laws.front()->growth && !laws.front()->saturation) || x1 / x0 > wide;
  const auto scale = [&](double from, double to, double begin, double end) {
    if (logarithmic) return SvgScale{from / margin, to * margin, begin, end, true};
    return SvgScale{0, to * 1.05, begin, end, false};
  };
  return {scale(x0, x1, left, width - right), scale(y0, y1, height - bottom, top)};
}

// 1, 2, 5, 10, ..: of a logarithmic axis those of few digits, of a straight one some six steps.
std::vector<double> ticks_of(const SvgScale& scale) {
  std::vector<double> ticks;
  constexpr double most = 8;
  if (!scale.logarithmic) {
    double step = std::pow(10, std::floor(std::log10(scale.to)));
    while (scale.to / step < most / 2) step /= 2;
    for (double tick = 0; tick <= scale.to; tick += step) ticks.push_back(tick);
    return ticks;
  }
  const bool is_long = scale.to / scale.from > 300;
  for (double decade = std::pow(10, std::floor(std::log10(scale.from))); decade <= scale.to;
       decade *= 10)
    for (const double digit : {1.0, 2.0, 5.0})
      if ((digit == 1 || !is_long) && decade * digit >= scale.from && decade * digit <= scale.to)
        ticks.push_back(decade * digit);
  return ticks;
}

std::string label(double value) {
  constexpr double thousand = 1e4;
  return value < thousand ? fmt::format("{:g}", value) : format_si(value);
}

void draw_axes(Svg& svg, const Axes& axes, const StudyLaw& law) {
  for (const double tick : ticks_of(axes.x))
    svg.column(axes.x(tick), top, height - bottom, label(tick));
  for (const double tick : ticks_of(axes.y))
    svg.row(left, width - right, axes.y(tick), label(tick));
  svg.text((left + width - right) / 2, height - 14, Svg::Anchor::middle, law.axis, "faint");
}

std::string curve(const Axes& axes, const StudyLaw& law) {
  const double from = law.points.front().x, to = law.points.back().x;
  constexpr int pieces = 60;
  std::string path;
  for (int i = 0; i <= pieces; ++i) {
    const double part = static_cast<double>(i) / pieces;
    const double x =
        axes.x.logarithmic ? from * std::pow(to / from, part) : from + (to - from) * part;
    const double y =
        std::clamp(axes.y(std::max(law.at(x).value_or(0), 1e-12)), top, height - bottom);
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', axes.x(x), y);
  }
  return path;
}

void draw_law(Svg& svg, const Axes& axes, const StudyLaw& law, const std::string& css) {
  if (law.at(law.points.front().x)) svg.path(css, curve(axes, law));
  for (const StudyPoint& point : law.points) {
    const double x = axes.x(point.x);
    if (point.spread) {
      const double low = axes.y(point.spread->low), high = axes.y(point.spread->high);
      svg.line(css, x, low, x, high);
      svg.line(css, x - 4, low, x + 4, low);
      svg.line(css, x - 4, high, x + 4, high);
    }
    svg.circle(
        css, x, axes.y(point.y), 4,
        fmt::format("{} {:.6g}: {:.6g} {}", law.axis, point.x, point.y, unit_of(law.quantity)));
  }
}

std::string title_of(const StudyLaw& law) {
  return fmt::format("{} by {}, {}", name_of(law.quantity), law.axis, unit_of(law.quantity));
}

std::string picture_of(const std::vector<const StudyLaw*>& laws) {
  const StudyLaw& first = *laws.front();
  const Axes axes = axes_of(laws);
  const std::string title = title_of(first);
  Svg svg("study", width, height, title, rules);
  svg.text(left, 28, Svg::Anchor::start, title, "title");
  draw_axes(svg, axes, first);
  double y = top + 8;
  for (std::size_t i = 0; i < laws.size(); ++i) {
    const std::string css = fmt::format("c{}", i % colours);
    draw_law(svg, axes, *laws[i], css);
    const double x = width - right + 18;
    svg.line(css, x, y - 4, x + 18, y - 4);
    const std::string where = laws[i]->where.empty() ? "measured" : laws[i]->where;
    svg.text(x + 26, y, Svg::Anchor::start, shortened(printable(where), legend_width));
    svg.text(x + 26, y + 15, Svg::Anchor::start, laws[i]->text(), "small");
    y += 38;
  }
  return std::move(svg).finish();
}

// "time-of-a-step-by-batch-size": letters, digits and hyphens, whatever an axis of somebody else's
// runs is called.
std::string file_name_of(const StudyLaw& law) {
  constexpr std::size_t longest = 80;
  std::string name = fmt::format("{}-by-{}", name_of(law.quantity), law.axis).substr(0, longest);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) c = '-';
  }
  return name;
}

bool has_picture_with(const StudyLaw& law, const StudyLaw& other) {
  return law.quantity == other.quantity && law.axis == other.axis;
}

}  // namespace

std::vector<StudyPicture> study_pictures(const StudyResult& result) {
  const std::vector<StudyLaw> laws = laws_of(result);
  std::vector<StudyPicture> pictures;
  std::set<std::string> names;
  for (auto law = laws.begin(); law != laws.end(); ++law) {
    const auto goes_with = [&](const StudyLaw& other) { return has_picture_with(*law, other); };
    if (std::any_of(laws.begin(), law, goes_with)) continue;
    std::vector<const StudyLaw*> alike;
    for (const StudyLaw& other : laws)
      if (goes_with(other)) alike.push_back(&other);
    std::string name = file_name_of(*law);
    while (!names.insert(name).second) name += "-other";
    pictures.push_back({name + ".svg", title_of(*law), picture_of(alike)});
  }
  return pictures;
}

}  // namespace ridge
