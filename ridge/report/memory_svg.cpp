// The memory timeline as a picture.

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/text_table.h"
#include "ridge/profile/memory_plot.h"
#include "ridge/profile/memory_timeline.h"

namespace ridge {
namespace {

constexpr std::size_t max_points = 2000;  // a panel has fewer pixels
constexpr double width = 960, margin_left = 70, margin_right = 20;

// Told apart on white and on black, and by most of the color-blind (Paul Tol's "bright" scheme).
constexpr std::string_view colors[memory_groups] = {"#4477aa", "#66ccee", "#999999", "#ee6677",
                                                    "#228833", "#ccbb44", "#aa3377", "#777777"};

// All rules are below one class: the picture may stand inside another page.
constexpr std::string_view style = R"(<style>
.ridge-memory{color-scheme:light dark;font:12px system-ui,sans-serif}
.ridge-memory .paper{fill:#fff}
.ridge-memory text{fill:#333}
.ridge-memory .title{font-size:14px;font-weight:600}
.ridge-memory .grid{stroke:#000;stroke-opacity:.12;fill:none}
.ridge-memory .band{fill:#000;fill-opacity:.05}
.ridge-memory .mark{fill:none;stroke:#333;stroke-width:1.5}
@media (prefers-color-scheme:dark){
.ridge-memory .paper{fill:#15171a}
.ridge-memory text{fill:#ddd}
.ridge-memory .grid{stroke:#fff;stroke-opacity:.16}
.ridge-memory .band{fill:#fff;fill-opacity:.07}
.ridge-memory .mark{stroke:#ddd}
}
</style>
)";

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) * 1e-6);
}

std::string label(double x, double y, std::string_view anchor, std::string_view text,
                  std::string_view css = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, css, xml_escaped(text));
}

// A stretch of time drawn between two heights of the picture.
struct Panel {
  MemoryTimeline timeline;
  double top, height;
  double full;  // bytes at the top

  double x(std::int64_t ns) const {
    const auto span =
        static_cast<double>(std::max<std::int64_t>(timeline.end_ns - timeline.begin_ns, 1));
    return margin_left + (width - margin_left - margin_right) *
                             static_cast<double>(ns - timeline.begin_ns) / span;
  }
  double y(double bytes) const { return top + height * (1 - bytes / full); }
  double bottom() const { return top + height; }
};

std::string axes(const Panel& panel) {
  std::string svg;
  const double tick = tick_distance(panel.full * 1e-6, 5);
  for (double mb = 0; mb * 1e6 <= panel.full; mb += tick) {
    const double y = panel.y(mb * 1e6);
    svg += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>\n", margin_left, y,
                       width - margin_right);
    svg += label(margin_left - 8, y + 4, "end", fmt::format("{:g}", mb));
  }
  const double milliseconds =
      static_cast<double>(panel.timeline.end_ns - panel.timeline.begin_ns) * 1e-6;
  const double step = tick_distance(milliseconds, 10);
  for (double ms = 0; ms <= milliseconds; ms += step)
    svg += label(panel.x(panel.timeline.begin_ns + static_cast<std::int64_t>(ms * 1e6)),
                 panel.bottom() + 16, "middle", fmt::format("{:g}", ms));
  svg += label(margin_left - 8, panel.bottom() + 16, "end", "ms");
  return svg;
}

// The areas of all groups, each on top of those before it.
std::string areas(const Panel& panel) {
  const std::vector<MemoryPoint>& points = panel.timeline.points;
  std::vector<double> lower(points.size(), 0);
  std::string svg;
  for (std::size_t g = 0; g < memory_groups; ++g) {
    std::vector<double> upper = lower;
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      upper[i] += static_cast<double>(points[i].groups[g]);
      most = std::max(most, points[i].groups[g]);
    }
    if (most == 0) continue;
    const double right = panel.x(panel.timeline.end_ns);
    std::string path = fmt::format("M{:.2f} {:.1f}", panel.x(points[0].time_ns), panel.y(upper[0]));
    for (std::size_t i = 1; i < points.size(); ++i)
      path += fmt::format("H{:.2f}V{:.1f}", panel.x(points[i].time_ns), panel.y(upper[i]));
    path += fmt::format("H{:.2f}V{:.1f}", right, panel.y(lower.back()));
    for (std::size_t i = points.size(); i-- > 1;)
      path += fmt::format("H{:.2f}V{:.1f}", panel.x(points[i].time_ns), panel.y(lower[i - 1]));
    path += fmt::format("H{:.2f}Z", panel.x(points[0].time_ns));
    svg += fmt::format("<path fill=\"{}\" d=\"{}\"><title>{}: {} at most</title></path>\n",
                       colors[g], path, name_of(static_cast<MemoryGroup>(g)), megabytes(most));
    lower = std::move(upper);
  }
  return svg;
}

std::string peak_mark(const Panel& panel, const Recording::MemoryChange& peak, bool labeled) {
  if (peak.time_ns < panel.timeline.begin_ns || peak.time_ns > panel.timeline.end_ns) return "";
  const double x = panel.x(peak.time_ns), y = panel.y(static_cast<double>(peak.live));
  const bool left = x > width / 2;
  std::string svg =
      fmt::format("<circle class=\"mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n", x, y);
  if (labeled)
    svg += label(left ? x - 8 : x + 8, y - 5, left ? "end" : "start",
                 fmt::format("peak {}", megabytes(peak.live)));
  return svg;
}

// A shaded band with a name, every other one; names that do not fit are left out.
std::string band(const Panel& panel, std::int64_t begin_ns, std::int64_t end_ns, bool shaded,
                 std::string_view name) {
  const double x = panel.x(begin_ns), w = panel.x(end_ns) - x;
  std::string svg;
  if (w < 1) return svg;  // of ten thousand steps, no band could be told from the next
  if (shaded)
    svg =
        fmt::format("<rect class=\"band\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>\n",
                    x, panel.top, w, panel.height);
  if (w >= 7 * static_cast<double>(name.size()))
    svg += label(x + w / 2, panel.top - 5, "middle", name);
  return svg;
}

// Names every group that is drawn anywhere, with what it has at the peak.
std::string legend(const MemoryTimeline& drawn, const MemoryByGroup& at_peak, double y) {
  std::string svg = label(margin_left, y, "start", "At the peak:");
  const double first = margin_left + 85;
  double x = first;
  for (std::size_t g = 0; g < memory_groups; ++g) {
    if (std::ranges::all_of(drawn.points, [&](const MemoryPoint& p) { return p.groups[g] == 0; }))
      continue;
    const std::string text =
        fmt::format("{} {}", name_of(static_cast<MemoryGroup>(g)), megabytes(at_peak[g]));
    const double entry = 30 + 7 * static_cast<double>(text.size());
    if (x + entry > width - margin_right) {
      x = first;
      y += 20;
    }
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                       x, y - 10, colors[g]);
    svg += label(x + 17, y, "start", text);
    x += entry;
  }
  return svg;
}

}  // namespace

std::string memory_timeline_svg(const Recording& recording) {
  constexpr double picture_height = 660;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ridge-memory\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"Memory over time\">\n{2}"
      "<rect class=\"paper\" width=\"{0}\" height=\"{1}\"/>\n",
      width, picture_height, style);
  if (recording.memory.empty())
    return svg + label(width / 2, 60, "middle", "no memory was recorded") + "</svg>\n";

  const auto peak = *std::ranges::max_element(recording.memory, {}, &Recording::MemoryChange::live);
  const double full = static_cast<double>(peak.live) * 1.08;  // room for the peak's label
  const TimeSpan span = recorded_span(recording);
  const PeakStep step = peak_step(recording);
  const Panel all{memory_timeline(recording, span.begin_ns, span.end_ns, max_points), 50, 150,
                  full};
  const Panel one{memory_timeline(recording, step.begin_ns, step.end_ns, max_points), 275, 300,
                  full};

  svg +=
      label(margin_left, 20, "start", "Memory in MB over all recorded steps", " class=\"title\"");
  for (std::size_t s = 0; s < recording.steps.size(); ++s) {
    const Recording::Step& it = recording.steps[s];
    svg += band(all, it.begin_ns, it.end_ns, s % 2 == 0, fmt::format("step {}", it.step));
  }
  svg += areas(all) + axes(all) + peak_mark(all, peak, false);

  svg += label(margin_left, 245, "start",
               step.step > 0 ? fmt::format("Step {}, which holds the peak", step.step)
                             : std::string("Around the peak"),
               " class=\"title\"");
  for (const Recording::PhaseRun& run : recording.phases)
    if (run.begin_ns >= step.begin_ns && run.end_ns <= step.end_ns)
      svg += band(one, run.begin_ns, run.end_ns, run.phase != Phase::backward, name_of(run.phase));
  svg += areas(one) + axes(one) + peak_mark(one, peak, true);
  const MemoryTimeline at_peak = memory_timeline(recording, peak.time_ns, peak.time_ns);
  svg += legend(all.timeline, at_peak.points.front().groups, 620);
  return svg + "</svg>\n";
}

}  // namespace ridge
