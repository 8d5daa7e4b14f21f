// The waterfall of an ablation as a picture.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/analyze/ablation.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/memory_plot.h"

namespace ridge {
namespace {

constexpr double width = 960, margin_left = 64, margin_right = 16;
constexpr double falls_top = 84, falls_height = 300;
constexpr double strip_height = 62, strip_distance = 96;
constexpr double names_height = 120;

// All rules are below one class: the picture may stand inside another page.
constexpr std::string_view style = R"(<style>
.ridge-ablation{color-scheme:light dark;font:12px system-ui,sans-serif}
.ridge-ablation .paper{fill:#fff}
.ridge-ablation text{fill:#333}
.ridge-ablation .title{font-size:14px;font-weight:600}
.ridge-ablation .small{font-size:10.5px}
.ridge-ablation .faint{fill:#6b7280}
.ridge-ablation .grid{stroke:#000;stroke-opacity:.12;fill:none}
.ridge-ablation .band{fill:#000;fill-opacity:.045}
.ridge-ablation .link{stroke:#6b7280;stroke-dasharray:2 2}
.ridge-ablation .whisker{stroke:#333;stroke-width:1.2;fill:none}
.ridge-ablation .whole{fill:#4477aa}
.ridge-ablation .faster{fill:#228833}
.ridge-ablation .slower{fill:#dd5566}
.ridge-ablation .unclear{fill:#aaaaaa}
.ridge-ablation .strip{fill:#66aacc}
@media (prefers-color-scheme:dark){
.ridge-ablation .paper{fill:#15171a}
.ridge-ablation text{fill:#ddd}
.ridge-ablation .faint{fill:#9198a1}
.ridge-ablation .grid{stroke:#fff;stroke-opacity:.16}
.ridge-ablation .band{fill:#fff;fill-opacity:.055}
.ridge-ablation .whisker{stroke:#ddd}
}
</style>
)";

std::string label(double x, double y, std::string_view anchor, std::string_view text,
                  std::string_view css = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     x, y, anchor, css, xml_escaped(text));
}

// A bar from one height to another, at least a hair high, so that a change of nothing is seen.
std::string bar(double x, double w, double from, double to, std::string_view css,
                std::string_view title) {
  const double top = std::min(from, to), height = std::max(std::abs(from - to), 1.5);
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}"
      "</title></rect>\n",
      css, x, top, w, height, xml_escaped(title));
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
  double y(double ms) const { return falls_top + falls_height * (1 - ms / full_ms); }
  double bottom() const { return falls_top + falls_height; }
  double strip_bottom(std::size_t strip) const {
    return bottom() + strip_distance * static_cast<double>(strip + 1);
  }
};

std::string axis(const Layout& layout) {
  const double tick = tick_distance(layout.full_ms, 6);
  std::string svg;
  for (double ms = 0; ms <= layout.full_ms; ms += tick) {
    svg += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>\n", margin_left, layout.y(ms),
                       width - margin_right);
    svg += label(margin_left - 8, layout.y(ms) + 4, "end", fmt::format("{:g}", ms));
  }
  return svg;
}

// Every other version's columns are shaded; each says above what it comes to in the end.
std::string version_bands(const Ablation& ablation, const Layout& layout, double bottom) {
  std::string svg;
  std::size_t begin = 0;
  bool shaded = false;
  for (std::size_t i = 0; i < ablation.rows.size(); ++i) {
    const AblationRow& row = ablation.rows[i];
    if (row.version.empty()) continue;
    const double x = layout.left(begin), w = layout.left(i + 1) - x;
    if (shaded)
      svg += fmt::format(
          "<rect class=\"band\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", x,
          falls_top - 38, w, bottom - falls_top + 38);
    svg += label(x + w / 2, falls_top - 24, "middle", row.version, "title");
    const std::string speedup =
        i == 0 ? "" : fmt::format("{:.2f}\u00d7", 1 / std::max(row.to_first.value, 1e-9));
    svg += label(x + w / 2, falls_top - 9, "middle", speedup, "small");
    begin = i + 1;
    shaded = !shaded;
  }
  return svg;
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
std::string fall(const AblationRow& before, const AblationRow& row, std::size_t column,
                 const Layout& layout) {
  const double from = before.seconds * 1e3, to = row.seconds * 1e3;
  const double x = layout.middle(column);
  std::string svg = bar(layout.bar_left(column), layout.bar_width(), layout.y(from), layout.y(to),
                        css_of(change_of(row.to_before)), fall_title(row));
  double lowest = std::max(layout.y(from), layout.y(to));
  if (const auto& interval = row.to_before.interval) {
    const double low = layout.y(from * interval->low);
    const double high = std::max(layout.y(from * interval->high), falls_top);
    svg += fmt::format(
        "<path class=\"whisker\" d=\"M{0:.1f} {1:.1f}H{2:.1f}M{3:.1f} {1:.1f}V{4:.1f}M{0:.1f} "
        "{4:.1f}H{2:.1f}\"/>\n",
        x - 4, low, x + 4, x, high);
    lowest = std::max(lowest, low);
  }
  // Without its number, which would be read as if the change were clear.
  if (change_of(row.to_before) == Change::unclear) return svg;
  return svg + label(x, lowest + 14, "middle", percent(row.to_before.value), "small");
}

std::string waterfall(const Ablation& ablation, const Layout& layout) {
  const std::vector<AblationRow>& rows = ablation.rows;
  std::string svg;
  const auto whole = [&](const AblationRow& row, std::size_t column, std::string_view name) {
    const double ms = row.seconds * 1e3;
    svg += bar(layout.bar_left(column), layout.bar_width(), layout.bottom(), layout.y(ms), "whole",
               fmt::format("{}: {:.2f} ms", name, ms));
    svg += label(layout.middle(column), layout.y(ms) - 5, "middle", fmt::format("{:.4g}", ms),
                 "small");
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = layout.y(rows[i].seconds * 1e3);
    svg += fmt::format("<path class=\"link\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", layout.bar_left(i),
                       y, layout.bar_left(i + 1) + layout.bar_width());
  }
  whole(rows.front(), 0, rows.front().name());
  for (std::size_t i = 1; i < rows.size(); ++i) svg += fall(rows[i - 1], rows[i], i, layout);
  whole(rows.back(), rows.size(), rows.back().version);
  return svg;
}

// A low chart of one number of every row, in whole bars.
std::string strip(const Ablation& ablation, const Layout& layout, std::size_t number,
                  std::string_view name, std::int64_t (*value)(const AblationRow&),
                  std::string (*text)(std::int64_t)) {
  std::int64_t most = 1;
  for (const AblationRow& row : ablation.rows) most = std::max(most, value(row));
  const double bottom = layout.strip_bottom(number);
  std::string svg = label(margin_left, bottom - strip_height - 19, "start", name, "faint");
  svg += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>\n", margin_left, bottom,
                     width - margin_right);
  std::string said;  // a number is written where it changes
  for (std::size_t i = 0; i < ablation.rows.size(); ++i) {
    const AblationRow& row = ablation.rows[i];
    const double height =
        strip_height * static_cast<double>(value(row)) / static_cast<double>(most);
    svg += bar(layout.bar_left(i), layout.bar_width(), bottom, bottom - height, "strip",
               fmt::format("{}: {}", row.name(), text(value(row))));
    if (text(value(row)) == said) continue;
    said = text(value(row));
    svg += label(layout.middle(i), bottom - height - 4, "middle", said, "small");
  }
  return svg;
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

std::string names(const Ablation& ablation, const Layout& layout, double top) {
  std::string svg;
  for (std::size_t i = 0; i <= ablation.rows.size(); ++i) {
    const bool whole = i == 0 || i == ablation.rows.size();
    const std::string name =
        whole ? ablation.rows[i == 0 ? 0 : i - 1].version : "+ " + ablation.rows[i].name();
    const double x = layout.middle(i) + 4;
    svg += fmt::format(
        "<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"end\" transform=\"rotate(-40 {0:.1f} "
        "{1:.1f})\">{2}</text>\n",
        x, top + 14, xml_escaped(name));
  }
  return svg;
}

}  // namespace

std::string ablation_svg(const Ablation& ablation) {
  const Layout layout{ablation.rows.size(), top_of_axis(ablation.rows)};
  const double bottom = layout.strip_bottom(2), height = bottom + names_height;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ridge-ablation\" viewBox=\"0 0 {0:g} "
      "{1:g}\" width=\"{0:g}\" height=\"{1:g}\" role=\"img\" aria-label=\"Waterfall of "
      "optimizations\">\n{2}<rect class=\"paper\" width=\"{0:g}\" height=\"{1:g}\"/>\n",
      width, height, style);
  svg += label(margin_left, 22, "start",
               "Milliseconds a training step takes, one optimization more at a time", "title");
  svg += version_bands(ablation, layout, bottom) + axis(layout) + waterfall(ablation, layout);
  svg += strip(
      ablation, layout, 0, "Peak memory of tensors, MB",
      [](const AblationRow& row) { return static_cast<std::int64_t>(row.peak_bytes); },
      tenths_of_mb);
  svg += strip(
      ablation, layout, 1, "Bytes moved, MB", [](const AblationRow& row) { return row.bytes; },
      tenths_of_mb);
  svg += strip(
      ablation, layout, 2, "Kernels", [](const AblationRow& row) { return row.kernels; },
      format_count);
  return svg + names(ablation, layout, bottom) + "</svg>\n";
}

}  // namespace ridge
