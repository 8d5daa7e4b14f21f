#include "ridge/analyze/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "ridge/base/lines.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/graph/op_rules.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/node_stats.h"

namespace ridge {
namespace {

constexpr std::size_t slowest_shown = 5;

bool trains(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(),
                             [](const Node& node) { return node.phase != Phase::forward; });
}

double steps_of(const Recording& recording) {
  return static_cast<double>(std::max<std::size_t>(recording.steps.size(), 1));
}

void keep_slowest(ProfileAnswers& answers, const std::map<std::string, double>& seconds,
                  double all) {
  for (const auto& [name, time] : seconds)
    answers.slowest.push_back({name, time, all > 0 ? time / all : 0});
  std::ranges::stable_sort(answers.slowest, std::greater{}, &ProfileAnswers::Slow::seconds);
  if (answers.slowest.size() > slowest_shown) answers.slowest.resize(slowest_shown);
}

// The host's share in a pass: its phases, or the calls that replay them.
double host_seconds(const Recording& host) {
  std::int64_t ns = 0;
  if (!host.replays.empty())
    for (const Recording::ReplayRun& replay : host.replays) ns += replay.end_ns - replay.begin_ns;
  else
    for (const Recording::PhaseRun& phase : host.phases) ns += phase.end_ns - phase.begin_ns;
  return static_cast<double>(ns) * 1e-9 / steps_of(host);
}

std::string_view run_of(bool of_steps) { return of_steps ? "step" : "pass"; }

}  // namespace

ProfileAnswers profile_answers(const Recording& host, const Recording& on_device) {
  const Graph& graph = *on_device.graph;
  const double steps = steps_of(on_device);
  ProfileAnswers answers{.of_steps = trains(graph)};
  for (const Recording::Step& step : on_device.steps)
    answers.pass_seconds += static_cast<double>(step.end_ns - step.begin_ns) * 1e-9 / steps;
  std::map<std::string, double> by_name;
  for (const Recording::NodeRun& run : on_device.nodes) {
    const Node& node = graph.nodes()[run.node];
    const double seconds = static_cast<double>(run.time_ns()) * 1e-9 / steps;
    by_name[std::string(name_of(*node.op))] += seconds;
    if (is_convolution(*node.op)) answers.convolution_seconds += seconds;
  }
  double all = answers.pass_seconds;
  if (const auto report = device_report(on_device)) {
    answers.of_kernels = true;
    all = static_cast<double>(report->kernel_ns) * 1e-9 / steps;
    by_name.clear();
    for (const DeviceReport::Kernel& kernel : report->kernels_by_time)
      by_name[kernel.name] += static_cast<double>(kernel.total_ns) * 1e-9 / steps;
    answers.overhead = {.host_seconds = host_seconds(host), .kernel_seconds = all};
  }
  keep_slowest(answers, by_name, all);
  return answers;
}

std::string answers_text(const ProfileAnswers& answers) {
  Lines line;
  line("Which {} take longest, in one {}?", answers.of_kernels ? "kernels" : "operations",
       run_of(answers.of_steps));
  for (std::size_t i = 0; i < answers.slowest.size(); ++i)
    line("  {}. {}: {} ({})", i + 1, shortened(printable(answers.slowest[i].name), 70),
         format_duration(answers.slowest[i].seconds), format_percent(answers.slowest[i].share));
  double together = 0;
  for (const ProfileAnswers::Slow& slow : answers.slowest) together += slow.share;
  line("  Together: {}", format_percent(together));
  const double share = answers.convolution_share();
  line("What share have convolutions?");
  line("  {} of {}, {}: {}", format_duration(answers.convolution_seconds),
       format_duration(answers.pass_seconds), format_percent(share),
       share > 0.7   ? "they are the bottleneck"
       : share < 0.5 ? "the other operators matter more"
                     : "the largest part, but not the only one that matters");
  line("How much does the host add?");
  if (const auto& o = answers.overhead)
    line("  {} to launch the work, {} of kernels, a ratio of {:.2f}: {}",
         format_duration(o->host_seconds), format_duration(o->kernel_seconds), o->ratio(),
         o->ratio() < 1.2   ? "the device sets the pace"
         : o->ratio() < 2.0 ? "the host is at times too slow for the device"
                            : "the device waits for the host: larger batches or captured replay");
  else
    line("  the host is the device here: see (between operators) in the table above");
  return line.text;
}

namespace {

// The modules directly below the network, with all that is in them.
std::vector<EfficiencyAnswers::Part> parts_of(const FlopsReport& report) {
  const ModuleWork& root = report.root();
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  std::vector<EfficiencyAnswers::Part> parts;
  for (std::size_t m = 1; m < report.tree.modules.size(); ++m) {
    if (report.tree.modules[m].depth != 1) continue;
    const PhaseWork work = report.total[m].all();
    if (work.ns == 0) continue;
    parts.push_back({.name = report.tree.modules[m].path,
                     .seconds = static_cast<double>(work.ns) * 1e-9 /
                                static_cast<double>(std::max<std::int64_t>(report.steps, 1)),
                     .time_share = share(work.ns, root.all().ns),
                     .flops_share = share(work.flops, root.all().flops)});
  }
  std::ranges::stable_sort(parts, std::greater{}, &EfficiencyAnswers::Part::seconds);
  return parts;
}

}  // namespace

EfficiencyAnswers efficiency_answers(const Recording& recording, const FlopsReport& report,
                                     const Roof& roof, ProductKind precision, std::int64_t samples,
                                     double pass_seconds) {
  const BottleneckReport bottlenecks = analyze_bottlenecks(recording, roof);
  const auto steps = static_cast<double>(std::max<std::int64_t>(report.steps, 1));
  const PhaseWork all = report.root().all();
  return {.flops = static_cast<double>(all.flops) / steps,
          .bytes = static_cast<double>(all.bytes) / steps,
          .seconds = pass_seconds,
          .samples = samples,
          .of_steps = trains(*recording.graph),
          .precision = precision,
          .peak_flops = bottlenecks.roof.flops(precision),
          .bandwidth = bottlenecks.roof.memory().bytes_per_second,
          .parts = parts_of(report),
          .bound_seconds = bottlenecks.all.seconds_by_bound,
          .floor_seconds = bottlenecks.all.floor,
          .notes = bottlenecks.notes};
}

std::string answers_text(const EfficiencyAnswers& a) {
  Lines line;
  line("How much work is a {}?", run_of(a.of_steps));
  line("  {}FLOPs, {}FLOPs for each of {} samples", format_si(a.flops),
       format_si(a.flops / static_cast<double>(a.samples)), format_count(a.samples));
  line("How efficient is it?");
  line("  {}FLOP/s of a peak of {}FLOP/s in {}: {}", format_si(a.flops_per_second()),
       format_si(a.peak_flops), name_of(a.precision), format_percent(a.efficiency()));
  line("Which modules hold it back?");
  for (std::size_t i = 0; i < std::min<std::size_t>(5, a.parts.size()); ++i)
    line("  {}. {}: {}, {} of the time for {} of the FLOPs", i + 1, a.parts[i].name,
         format_duration(a.parts[i].seconds), format_percent(a.parts[i].time_share),
         format_percent(a.parts[i].flops_share));
  line("How many FLOPs does it do for each byte, and how many could it?");
  line(
      "  {:.1f}, moving {}; above {:.1f} this device computes longer than its memory delivers: "
      "as a whole bound by {}",
      a.intensity(), format_bytes(static_cast<std::uint64_t>(a.bytes)), a.ridge_point(),
      a.intensity() < a.ridge_point() ? "memory" : "compute");
  const double all = std::accumulate(a.bound_seconds.begin(), a.bound_seconds.end(), 0.0);
  const auto bound = [&](Bound b) {
    return format_percent(all > 0 ? a.bound_seconds[static_cast<std::size_t>(b)] / all : 0);
  };
  line("What bounds its operators, by their time?");
  line(
      "  compute {}, memory {}, launches {}, where caches hold what fits in them; at those "
      "ceilings they would take {} in place of {}",
      bound(Bound::compute), bound(Bound::memory), bound(Bound::overhead),
      format_duration(a.floor_seconds), format_duration(all));
  for (const std::string& note : a.notes) line("Note: {}", note);
  return line.text;
}

}  // namespace ridge
