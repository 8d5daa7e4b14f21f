// The waterfall of an ablation as a picture.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/analyze/ablation.h"
#include "ridge/base/units.h"
#include "ridge/profile/memory_plot.h"
#include "ridge/report/svg.h"

namespace ridge {
namespace {

constexpr double width = 960, margin_left = 64, margin_right = 16;
constexpr double falls_top = 84, falls_height = 300;
constexpr double strip_height = 62, strip_distance = 96;
constexpr double names_height = 120;

constexpr SvgRule rules[] = {
    {".link", "stroke:#6b7280;stroke-dasharray:2 2"},
    {".whisker", "stroke:#333;stroke-width:1.2;fill:none", "stroke:#ddd"},
    {".whole", "fill:#4477aa"},
    {".faster", "fill:#228833"},
    {".slower", "fill:#dd5566"},
    {".unclear", "fill:#aaaaaa"},
    {".strip", "fill:#66aacc"},
};

// A bar from one height to another, at least a hair high, so that a change of nothing is seen.
void draw_bar(Svg& svg, double x, double w, double from, double to, std::string_view css,
              std::string_view title) {
  svg.rect(css, x, std::min(from, to), w, std::max(std::abs(from - to), 1.5), title);
}

// Places on the picture: a column for each row and, in the waterfall, one for what remains.
struct Layout {
  std::size_t rows;
  double full_ms;  // at the top of the waterfall

  double slot() const {
    return (width - margin_left - margin_right) / static_cast<double>(rows + 1);
  }
  double left(std::size_t column) const {
    return margin_left + slot() * static_cast<double>(column);
  }
  double bar_width() const { return 0.66 * slot(); }
  double bar_left(std::size_t column) const { return left(column) + 0.17 * slot(); }
  double middle(std::size_t column) const { return left(column) + 0.5 * slot(); }
  double y(double ms) const { return SvgScale{0, full_ms, bottom(), falls_top}(ms); }
  double bottom() const { return falls_top + falls_height; }
  double strip_bottom(std::size_t strip) const {
    return bottom() + strip_distance * static_cast<double>(strip + 1);
  }
};

void draw_axis(Svg& svg, const Layout& layout) {
  const double tick = tick_distance(layout.full_ms, 6);
  for (double ms = 0; ms <= layout.full_ms; ms += tick)
    svg.row(margin_left, width - margin_right, layout.y(ms), fmt::format("{:g}", ms));
}

// Every other version's columns are shaded; each says above what it comes to in the end.
void draw_versions(Svg& svg, const Ablation& ablation, const Layout& layout, double bottom) {
  std::size_t begin = 0;
  bool shaded = false;
  for (std::size_t i = 0; i < ablation.rows.size(); ++i) {
    const AblationRow& row = ablation.rows[i];
    if (row.version.empty()) continue;
    const double x = layout.left(begin), w = layout.left(i + 1) - x;
    if (shaded) svg.rect("band", x, falls_top - 38, w, bottom - falls_top + 38);
    svg.text(x + w / 2, falls_top - 24, Svg::Anchor::middle, row.version, "title");
    const std::string speedup =
        i == 0 ? "" : fmt::format("{:.2f}\u00d7", 1 / std::max(row.to_first.value, 1e-9));
    svg.text(x + w / 2, falls_top - 9, Svg::Anchor::middle, speedup, "small");
    begin = i + 1;
    shaded = !shaded;
  }
}

std::string percent(double ratio) {
  const double change = 100 * (ratio - 1);
  return fmt::format("{}{:.{}f} %", change < 0 ? "\u2212" : "+", std::abs(change),
                     std::abs(change) < 9.95 ? 1 : 0);
}

std::string fall_title(const AblationRow& row) {
  std::string text = fmt::format("{}: {} ({:.2f} ms, {}", row.name(), row.description,
                                 row.seconds * 1e3, percent(row.to_before.value));
  if (row.to_before.interval)
    text += fmt::format(", 95 %: {} to {}", percent(row.to_before.interval->low),
                        percent(row.to_before.interval->high));
  return text + fmt::format("; {})", name_of(change_of(row.to_before)));
}

std::string_view css_of(Change change) {
  if (change == Change::faster || change == Change::slower) return name_of(change);
  return "unclear";
}

// The bar from what the row before takes to what this one takes, and where its end may lie.
void draw_fall(Svg& svg, const AblationRow& before, const AblationRow& row, std::size_t column,
               const Layout& layout) {
  const double from = before.seconds * 1e3, to = row.seconds * 1e3;
  const double x = layout.middle(column);
  draw_bar(svg, layout.bar_left(column), layout.bar_width(), layout.y(from), layout.y(to),
           css_of(change_of(row.to_before)), fall_title(row));
  double lowest = std::max(layout.y(from), layout.y(to));
  if (const auto& interval = row.to_before.interval) {
    const double low = layout.y(from * interval->low);
    const double high = std::max(layout.y(from * interval->high), falls_top);
    svg.path("whisker",
             fmt::format("M{0:.1f} {1:.1f}H{2:.1f}M{3:.1f} {1:.1f}V{4:.1f}M{0:.1f} {4:.1f}H{2:.1f}",
                         x - 4, low, x + 4, x, high));
    lowest = std::max(lowest, low);
  }
  // Without its number, which would be read as if the change were clear.
  if (change_of(row.to_before) != Change::unclear)
    svg.text(x, lowest + 14, Svg::Anchor::middle, percent(row.to_before.value), "small");
}

void draw_waterfall(Svg& svg, const Ablation& ablation, const Layout& layout) {
  const std::vector<AblationRow>& rows = ablation.rows;
  const auto whole = [&](const AblationRow& row, std::size_t column, std::string_view name) {
    const double ms = row.seconds * 1e3;
    draw_bar(svg, layout.bar_left(column), layout.bar_width(), layout.bottom(), layout.y(ms),
             "whole", fmt::format("{}: {:.2f} ms", name, ms));
    svg.text(layout.middle(column), layout.y(ms) - 5, Svg::Anchor::middle,
             fmt::format("{:.4g}", ms), "small");
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = layout.y(rows[i].seconds * 1e3);
    svg.line("link", layout.bar_left(i), y, layout.bar_left(i + 1) + layout.bar_width(), y);
  }
  whole(rows.front(), 0, rows.front().name());
  for (std::size_t i = 1; i < rows.size(); ++i) draw_fall(svg, rows[i - 1], rows[i], i, layout);
  whole(rows.back(), rows.size(), rows.back().version);
}

// A low chart of one number of every row, in whole bars.
void draw_strip(Svg& svg, const Ablation& ablation, const Layout& layout, std::size_t number,
                std::string_view name, std::int64_t (*value)(const AblationRow&),
                std::string (*text)(std::int64_t)) {
  std::int64_t most = 1;
  for (const AblationRow& row : ablation.rows) most = std::max(most, value(row));
  const double bottom = layout.strip_bottom(number);
  svg.text(margin_left, bottom - strip_height - 19, Svg::Anchor::start, name, "faint");
  svg.line("grid", margin_left, bottom, width - margin_right, bottom);
  std::string said;  // a number is written where it changes
  for (std::size_t i = 0; i < ablation.rows.size(); ++i) {
    const AblationRow& row = ablation.rows[i];
    const double height =
        strip_height * static_cast<double>(value(row)) / static_cast<double>(most);
    draw_bar(svg, layout.bar_left(i), layout.bar_width(), bottom, bottom - height, "strip",
             fmt::format("{}: {}", row.name(), text(value(row))));
    if (text(value(row)) == said) continue;
    said = text(value(row));
    svg.text(layout.middle(i), bottom - height - 4, Svg::Anchor::middle, said, "small");
  }
}

std::string tenths_of_mb(std::int64_t bytes) {
  const double mb = static_cast<double>(bytes) / 1e6;
  return fmt::format("{:.{}f}", mb, mb < 99.95 ? 1 : 0);
}

// Above all bars and, unless they are very uncertain, the upper ends of their intervals.
double top_of_axis(const std::vector<AblationRow>& rows) {
  double most = 0, highest = 0, before = 0;
  for (const AblationRow& row : rows) {
    most = std::max(most, row.seconds * 1e3);
    if (row.to_before.interval)
      highest = std::max(highest, before * 1e3 * row.to_before.interval->high);
    before = row.seconds;
  }
  return std::max(1e-6, 1.05 * std::clamp(highest, 1.03 * most, 1.3 * most));
}

void draw_names(Svg& svg, const Ablation& ablation, const Layout& layout, double top) {
  for (std::size_t i = 0; i <= ablation.rows.size(); ++i) {
    const bool whole = i == 0 || i == ablation.rows.size();
    const std::string name =
        whole ? ablation.rows[i == 0 ? 0 : i - 1].version : "+ " + ablation.rows[i].name();
    svg.text(layout.middle(i) + 4, top + 14, Svg::Anchor::end, name, "", -40);
  }
}

}  // namespace

std::string ablation_svg(const Ablation& ablation) {
  const Layout layout{ablation.rows.size(), top_of_axis(ablation.rows)};
  const double bottom = layout.strip_bottom(2);
  Svg svg("ablation", width, bottom + names_height, "Waterfall of optimizations", rules);
  svg.text(margin_left, 22, Svg::Anchor::start,
           fmt::format("Milliseconds a {} takes, one optimization more at a time",
                       ablation.options.use() == Use::training ? "training step" : "pass"),
           "title");
  draw_versions(svg, ablation, layout, bottom);
  draw_axis(svg, layout);
  draw_waterfall(svg, ablation, layout);
  const auto memory = [](const AblationRow& row) {
    return static_cast<std::int64_t>(row.peak_bytes);
  };
  const auto bytes = [](const AblationRow& row) { return row.bytes; };
  const auto kernels = [](const AblationRow& row) { return row.kernels; };
  draw_strip(svg, ablation, layout, 0, "Peak memory of tensors, MB", memory, tenths_of_mb);
  draw_strip(svg, ablation, layout, 1, "Bytes moved, MB", bytes, tenths_of_mb);
  draw_strip(svg, ablation, layout, 2, "Kernels", kernels, format_count);
  draw_names(svg, ablation, layout, bottom);
  return std::move(svg).finish();
}

}  // namespace ridge
