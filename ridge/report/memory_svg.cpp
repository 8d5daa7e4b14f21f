// The memory timeline as a picture.

#include <fmt/format.h>

#include <algorithm>

#include "ridge/profile/memory_plot.h"
#include "ridge/profile/memory_timeline.h"
#include "ridge/report/svg.h"

namespace ridge {
namespace {

constexpr std::size_t max_points = 2000;  // a panel has fewer pixels
constexpr double width = 960, margin_left = 70, margin_right = 20;

// Told apart on white and on black, and by most of the color-blind (Paul Tol's "bright" scheme).
constexpr SvgRule rules[] = {
    {".g0", "fill:#4477aa"},
    {".g1", "fill:#66ccee"},
    {".g2", "fill:#999999"},
    {".g3", "fill:#ee6677"},
    {".g4", "fill:#228833"},
    {".g5", "fill:#ccbb44"},
    {".g6", "fill:#aa3377"},
    {".g7", "fill:#777777"},
    {".mark", "fill:none;stroke:#333;stroke-width:1.5", "stroke:#ddd"},
};
std::string css_of(std::size_t group) { return fmt::format("g{}", group); }

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) * 1e-6);
}

// A stretch of time drawn between two heights of the picture.
struct Panel {
  MemoryTimeline timeline;
  double top, height;
  double full;  // bytes at the top

  double x(std::int64_t ns) const {
    const auto span =
        static_cast<double>(std::max<std::int64_t>(timeline.end_ns - timeline.begin_ns, 1));
    return SvgScale{0, span, margin_left,
                    width - margin_right}(static_cast<double>(ns - timeline.begin_ns));
  }
  double y(double bytes) const { return SvgScale{0, full, bottom(), top}(bytes); }
  double bottom() const { return top + height; }
};

void draw_axes(Svg& svg, const Panel& panel) {
  const double tick = tick_distance(panel.full * 1e-6, 5);
  for (double mb = 0; mb * 1e6 <= panel.full; mb += tick)
    svg.row(margin_left, width - margin_right, panel.y(mb * 1e6), fmt::format("{:g}", mb));
  const double milliseconds =
      static_cast<double>(panel.timeline.end_ns - panel.timeline.begin_ns) * 1e-6;
  const double step = tick_distance(milliseconds, 10), y = panel.bottom() + 16;
  for (double ms = 0; ms <= milliseconds; ms += step)
    svg.text(panel.x(panel.timeline.begin_ns + static_cast<std::int64_t>(ms * 1e6)), y,
             Svg::Anchor::middle, fmt::format("{:g}", ms));
  svg.text(margin_left - 8, y, Svg::Anchor::end, "ms");
}

// The areas of all groups, each on top of those before it.
void draw_areas(Svg& svg, const Panel& panel) {
  const std::vector<MemoryPoint>& points = panel.timeline.points;
  std::vector<double> lower(points.size(), 0);
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
    svg.path(css_of(g), path,
             fmt::format("{}: {} at most", name_of(static_cast<MemoryGroup>(g)), megabytes(most)));
    lower = std::move(upper);
  }
}

void draw_peak(Svg& svg, const Panel& panel, const Recording::MemoryChange& peak, bool labeled) {
  if (peak.time_ns < panel.timeline.begin_ns || peak.time_ns > panel.timeline.end_ns) return;
  const double x = panel.x(peak.time_ns), y = panel.y(static_cast<double>(peak.live));
  const bool left = x > width / 2;
  svg.circle("mark", x, y, 4);
  if (labeled)
    svg.text(left ? x - 8 : x + 8, y - 5, left ? Svg::Anchor::end : Svg::Anchor::start,
             fmt::format("peak {}", megabytes(peak.live)));
}

// A shaded band with a name, every other one; names that do not fit are left out.
void draw_band(Svg& svg, const Panel& panel, std::int64_t begin_ns, std::int64_t end_ns,
               bool shaded, std::string_view name) {
  const double x = panel.x(begin_ns), w = panel.x(end_ns) - x;
  if (w < 1) return;  // of ten thousand steps, no band could be told from the next
  if (shaded) svg.rect("band", x, panel.top, w, panel.height);
  if (w >= 7 * static_cast<double>(name.size()))
    svg.text(x + w / 2, panel.top - 5, Svg::Anchor::middle, name);
}

// Names every group that is drawn anywhere, with what it has at the peak.
void draw_legend(Svg& svg, const MemoryTimeline& drawn, const MemoryByGroup& at_peak, double y) {
  svg.text(margin_left, y, Svg::Anchor::start, "At the peak:");
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
    svg.rect(css_of(g), x, y - 10, 12, 12);
    svg.text(x + 17, y, Svg::Anchor::start, text);
    x += entry;
  }
}

}  // namespace

std::string memory_timeline_svg(const Recording& recording) {
  Svg svg("memory", width, 660, "Memory over time", rules);
  if (recording.memory.empty()) {
    svg.text(width / 2, 60, Svg::Anchor::middle, "no memory was recorded");
    return std::move(svg).finish();
  }
  const auto peak = *std::ranges::max_element(recording.memory, {}, &Recording::MemoryChange::live);
  const double full = static_cast<double>(peak.live) * 1.08;  // room for the peak's label
  const TimeSpan span = recorded_span(recording);
  const PeakStep step = peak_step(recording);
  const Panel all{memory_timeline(recording, span.begin_ns, span.end_ns, max_points), 50, 150,
                  full};
  const Panel one{memory_timeline(recording, step.begin_ns, step.end_ns, max_points), 275, 300,
                  full};
  const auto draw = [&](const Panel& panel, bool labeled) {
    draw_areas(svg, panel);
    draw_axes(svg, panel);
    draw_peak(svg, panel, peak, labeled);
  };

  svg.text(margin_left, 20, Svg::Anchor::start, "Memory in MB over all recorded steps", "title");
  for (std::size_t s = 0; s < recording.steps.size(); ++s) {
    const Recording::Step& it = recording.steps[s];
    draw_band(svg, all, it.begin_ns, it.end_ns, s % 2 == 0, fmt::format("step {}", it.step));
  }
  draw(all, false);

  svg.text(margin_left, 245, Svg::Anchor::start,
           step.step > 0 ? fmt::format("Step {}, which holds the peak", step.step)
                         : std::string("Around the peak"),
           "title");
  for (const Recording::PhaseRun& run : recording.phases)
    if (run.begin_ns >= step.begin_ns && run.end_ns <= step.end_ns)
      draw_band(svg, one, run.begin_ns, run.end_ns, run.phase != Phase::backward,
                name_of(run.phase));
  draw(one, true);
  const MemoryTimeline at_peak = memory_timeline(recording, peak.time_ns, peak.time_ns);
  draw_legend(svg, all.timeline, at_peak.points.front().groups, 620);
  return std::move(svg).finish();
}

}  // namespace ridge
