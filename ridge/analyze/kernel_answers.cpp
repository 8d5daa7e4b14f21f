#include "ridge/analyze/kernel_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/lines.h"
#include "ridge/base/statistics.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/kernel_stats.h"
#include "ridge/profile/node_stats.h"

namespace ridge {
namespace {

constexpr std::size_t longest_kept = 5, longest_in_trace = 3, name_width = 60;
constexpr double notable_share = 0.01;  // of a pass; what is shorter varies by the clock's grain
// The workshop's limits: more makes copies the bottleneck, less leaves them without weight.
constexpr double copies_hold_back = 0.1, copies_matter = 0.05;

std::string short_name(const std::string& name) { return shortened(printable(name), name_width); }

std::string name_at(const Graph& graph, NodeId node) {
  return node == no_node ? std::string("something unknown") : node_name(graph, node);
}

// Something that ran, by begin.
struct Stretch {
  std::int64_t begin_ns, end_ns;
  NodeId node;
};
std::vector<Stretch> stretches_of(const Recording& recording) {
  std::vector<Stretch> all;
  for (const Activity& a : recording.activities)
    if (a.on_device()) all.push_back({a.begin_ns, a.end_ns, a.node});
  if (recording.activities.empty())
    for (const Recording::NodeRun& run : recording.nodes)
      all.push_back({run.begin_ns, run.end_ns, run.node});
  return all;
}

bool within_a_step(const Recording& recording, std::int64_t begin_ns, std::int64_t end_ns) {
  return std::ranges::any_of(recording.steps, [&](const Recording::Step& step) {
    return step.begin_ns <= begin_ns && end_ns <= step.end_ns;
  });
}

void find_gaps(KernelAnswers& answers, const Recording& recording, double passes) {
  std::optional<Stretch> last;  // that ended last
  for (const Stretch& stretch : stretches_of(recording)) {
    const double seconds = last ? nano * real(stretch.begin_ns - last->end_ns) : 0;
    if (seconds > KernelAnswers::long_gap &&
        within_a_step(recording, last->end_ns, stretch.begin_ns)) {
      answers.gaps += 1 / passes;
      answers.gap_seconds += seconds / passes;
      if (seconds > answers.longest_gap) {
        answers.longest_gap = seconds;
        answers.longest_gap_after = name_at(*recording.graph, last->node);
        answers.longest_gap_before = name_at(*recording.graph, stretch.node);
      }
    }
    if (!last || stretch.end_ns > last->end_ns) last = stretch;
  }
}

void find_copies(KernelAnswers& answers, const Recording& recording, double passes) {
  for (const Activity& a : recording.activities) {
    if (a.kind != Activity::Kind::copy) continue;
    answers.copies += 1 / passes;
    answers.copied_bytes += static_cast<double>(a.bytes) / passes;
    answers.copy_seconds += nano * real(a.end_ns - a.begin_ns) / passes;
  }
}

void find_launches(KernelAnswers& answers, const Recording& recording, double passes) {
  std::vector<KernelAnswers::Launch> launches;
  std::vector<double> spreads;
  for (const NodeStats& stats : node_stats(recording)) {
    KernelAnswers::Launch launch{.name = node_name(*recording.graph, stats.node),
                                 .least = nano * real(stats.min_ns),
                                 .mean = nano * real(stats.total_ns) / real(stats.calls),
                                 .most = nano * real(stats.max_ns),
                                 .share = answers.share(nano * real(stats.total_ns) / passes)};
    if (stats.calls > 1 && launch.share >= notable_share) {
      spreads.push_back(launch.spread());
      if (!answers.most_varied || launch.spread() > answers.most_varied->spread())
        answers.most_varied = launch;
    }
    launches.push_back(std::move(launch));
  }
  answers.median_spread = percentile(spreads, 0.5);
  std::ranges::stable_sort(launches, std::greater{}, &KernelAnswers::Launch::mean);
  if (launches.size() > longest_kept) launches.resize(longest_kept);
  answers.longest = std::move(launches);
}

std::string_view run_of(const KernelAnswers& answers) { return answers.of_steps ? "step" : "pass"; }

std::string counted_runs(const KernelAnswers& answers) {
  if (answers.of_steps) return counted(answers.passes, "step");
  return answers.passes == 1 ? "1 pass" : fmt::format("{} passes", answers.passes);
}

std::string gaps_line(const KernelAnswers& a) {
  if (a.gaps == 0) return fmt::format("none within a {}", run_of(a));
  return fmt::format("{:.1f} a {}, together {}, {} of it; the longest of {} between {} and {}",
                     a.gaps, run_of(a), format_duration(a.gap_seconds),
                     format_percent(a.share(a.gap_seconds)), format_duration(a.longest_gap),
                     short_name(a.longest_gap_after), short_name(a.longest_gap_before));
}

std::string copies_line(const KernelAnswers& a) {
  if (!a.on_gpu) return "none: the processor works in the memory that holds the data";
  if (a.copies == 0) return fmt::format("none within a {}", run_of(a));
  const double share = a.share(a.copy_seconds);
  return fmt::format("{:.1f} a {} of {} in {}, {} of it: {}", a.copies, run_of(a),
                     format_bytes(static_cast<std::uint64_t>(a.copied_bytes)),
                     format_duration(a.copy_seconds), format_percent(share),
                     share > copies_hold_back ? "a bottleneck"
                     : share < copies_matter  ? "no bottleneck"
                                              : "worth a look");
}

}  // namespace

KernelAnswers kernel_answers(const Recording& on_device) {
  const auto passes = real(std::max<std::int64_t>(std::ssize(on_device.steps), 1));
  KernelAnswers answers{
      .passes = std::ssize(on_device.steps),
      .of_steps = std::ranges::any_of(
          on_device.graph->nodes(), [](const Node& node) { return node.phase != Phase::forward; }),
      .on_gpu = on_device.on_device_time};
  for (const Recording::Step& step : on_device.steps)
    answers.pass_seconds += nano * real(step.end_ns - step.begin_ns) / passes;
  find_launches(answers, on_device, passes);
  find_gaps(answers, on_device, passes);
  find_copies(answers, on_device, passes);
  if (const std::vector<KernelStats> kernels = kernel_stats(on_device); !kernels.empty()) {
    const KernelStats& first = kernels.front();
    answers.busiest = {.name = first.name,
                       .calls = first.calls / static_cast<std::int64_t>(passes),
                       .least = nano * real(first.min_ns),
                       .mean = nano * first.average_ns,
                       .most = nano * real(first.max_ns),
                       .std_dev = nano * first.std_dev_ns};
  }
  return answers;
}

std::string answers_text(const KernelAnswers& a) {
  Lines line;
  line("Are there gaps between {} above 10 µs?", a.on_gpu ? "kernels" : "operations");
  line("  {}", gaps_line(a));
  line("Are there copies?");
  line("  {}", copies_line(a));
  line("Do launches of the same work vary in length?");
  if (a.most_varied)
    line(
        "  over {} the longest takes {:.2f} times the shortest, in the median; {} varies most, {} "
        "to "
        "{}",
        counted_runs(a), a.median_spread, short_name(a.most_varied->name),
        format_duration(a.most_varied->least), format_duration(a.most_varied->most));
  else
    line("  one {} does not say: record more --iterations", run_of(a));
  line(
      "  all {} launches of {} in a {}, whose work differs, take {} to {}, {} on the average with "
      "a deviation of {}",
      a.busiest.calls, short_name(a.busiest.name), run_of(a), format_duration(a.busiest.least),
      format_duration(a.busiest.most), format_duration(a.busiest.mean),
      format_duration(a.busiest.std_dev));
  return line.text;
}

std::string trace_text(const KernelAnswers& a) {
  Lines line;
  line("What it shows, of {}:", counted_runs(a));
  std::string longest;
  for (std::size_t i = 0; i < std::min(longest_in_trace, a.longest.size()); ++i)
    longest += fmt::format("{}{} {} ({})", i == 0 ? "" : ", ", short_name(a.longest[i].name),
                           format_duration(a.longest[i].mean), format_percent(a.longest[i].share));
  line("  Long operations: {}", longest);
  line("  Gaps above 10 µs: {}", gaps_line(a));
  line("  Transfers: {}", copies_line(a));
  return line.text;
}

nlohmann::ordered_json json_of(const KernelAnswers& a) {
  using Json = nlohmann::ordered_json;
  const auto launch_json = [](const KernelAnswers::Launch& launch) -> Json {
    return {{"name", printable(launch.name)},
            {"least_seconds", launch.least},
            {"mean_seconds", launch.mean},
            {"most_seconds", launch.most},
            {"share", launch.share}};
  };
  Json longest = Json::array();
  for (const KernelAnswers::Launch& launch : a.longest) longest.push_back(launch_json(launch));
  return {{"passes", a.passes},
          {"pass_seconds", a.pass_seconds},
          {"longest", longest},
          {"most_varied", a.most_varied ? launch_json(*a.most_varied) : Json()},
          {"median_spread", a.median_spread},
          {"busiest_kernel",
           {{"name", printable(a.busiest.name)},
            {"calls", a.busiest.calls},
            {"least_seconds", a.busiest.least},
            {"mean_seconds", a.busiest.mean},
            {"most_seconds", a.busiest.most},
            {"std_dev_seconds", a.busiest.std_dev}}},
          {"long_gaps", a.gaps},
          {"long_gap_seconds", a.gap_seconds},
          {"longest_gap_seconds", a.longest_gap},
          {"copies", a.copies},
          {"copied_bytes", a.copied_bytes},
          {"copy_seconds", a.copy_seconds}};
}

}  // namespace ridge
