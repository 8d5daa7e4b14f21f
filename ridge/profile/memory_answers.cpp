#include "ridge/profile/memory_answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/profile/module_tree.h"
#include "ridge/profile/operator_memory.h"

namespace ridge {
namespace {

using Change = Recording::MemoryChange;

constexpr std::size_t shown = 5;
// Smaller allocations are called small.
constexpr std::uint64_t small_bytes = 1'000'000;
// Memory that exceeds its average by no more than this is steady.
constexpr double steady_ratio = 1.1;
// Memory near its peak for less than this part of the time has spikes.
constexpr double spike_time = 0.05;
// What is released within this many kernels of its last use is released promptly.
constexpr std::size_t prompt_nodes = 1;

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0);
}

std::size_t index_of(MemoryGroup group) { return static_cast<std::size_t>(group); }

// The recording's points of one step.
MemoryTimeline points_of(const Recording& recording, const Recording::Step& step) {
  return memory_timeline(recording, step.begin_ns, step.end_ns, recording.memory.size() + 8);
}

const MemoryPoint& point_at(const MemoryTimeline& timeline, std::int64_t time_ns) {
  const auto after = std::ranges::partition_point(
      timeline.points, [=](const MemoryPoint& point) { return point.time_ns <= time_ns; });
  return after == timeline.points.begin() ? timeline.points.front() : *std::prev(after);
}

class MemoryAnswers {
 public:
  MemoryAnswers(const Recording& recording, const MemoryReport& report)
      : recording_(recording),
        report_(report),
        step_(recording.steps.front()),
        timeline_(points_of(recording, step_)) {}

  std::vector<std::pair<std::string, std::string>> all() {
    add("Is memory steady, or does it fluctuate or spike?", pattern());
    add("Does it grow through the forward pass?", forward_growth());
    add("When are there gradients, and how many?", gradients());
    add("Does it fall back to its base after each step?", base());
    add("Are tensors freed promptly, late or never?", releases());
    add("Are there many small allocations?", small_allocations());
    add("Which operations take most memory?", operators());
    add("What does each layer keep for the backward pass?", layer());
    return std::move(list_);
  }

 private:
  void add(std::string_view question, const std::string& answer) {
    if (!answer.empty()) list_.emplace_back(question, answer);
  }

  // The part of the step's time in which at least so many bytes were alive.
  double time_above(double bytes) const {
    double ns = 0;
    for (std::size_t i = 0; i < timeline_.points.size(); ++i) {
      const std::int64_t end =
          i + 1 < timeline_.points.size() ? timeline_.points[i + 1].time_ns : timeline_.end_ns;
      if (static_cast<double>(timeline_.points[i].live) >= bytes)
        ns += static_cast<double>(end - timeline_.points[i].time_ns);
    }
    const auto all = static_cast<double>(timeline_.end_ns - timeline_.begin_ns);
    return all > 0 ? ns / all : 0;
  }

  std::string pattern() const {
    std::uint64_t least = ~std::uint64_t{0}, most = 0;
    for (const Recording::Step& step : recording_.steps) {
      std::uint64_t peak = 0;
      for (const MemoryPoint& point : points_of(recording_, step).points)
        peak = std::max(peak, point.live);
      least = std::min(least, peak);
      most = std::max(most, peak);
    }
    const double near = time_above(0.9 * static_cast<double>(report_.peak));
    const std::string_view verdict = report_.peak_to_average() <= steady_ratio ? "steady"
                                     : near < spike_time                       ? "it spikes"
                                                                               : "it fluctuates";
    return fmt::format(
        "{}: the peak is {:.2f} times the average, and memory is within 10 % of it for {:.1f} % of "
        "the step; {}",
        verdict, report_.peak_to_average(), 100 * near,
        least == most ? "all recorded steps reach the same peak"
                      : fmt::format("the peaks of the recorded steps are {} to {}",
                                    memory_text(least), memory_text(most)));
  }

  const Recording::PhaseRun* phase(Phase which) const {
    const auto found = std::ranges::find_if(recording_.phases, [&](const auto& run) {
      return run.phase == which && run.step == step_.step;
    });
    return found == recording_.phases.end() ? nullptr : &*found;
  }

  std::string forward_growth() const {
    const Recording::PhaseRun* const run = phase(Phase::forward);
    if (!run) return "";
    const MemoryPoint &begin = point_at(timeline_, run->begin_ns),
                      &end = point_at(timeline_, run->end_ns);
    const std::size_t group = index_of(MemoryGroup::activations);
    return fmt::format(
        "{}: from {} to {}, with {} of activations that are kept for the backward pass",
        end.live > begin.live ? "yes" : "no", memory_text(begin.live), memory_text(end.live),
        memory_text(
            end.groups[group] > begin.groups[group] ? end.groups[group] - begin.groups[group] : 0));
  }

  std::string gradients() const {
    const std::size_t group = index_of(MemoryGroup::gradients);
    std::vector<std::string> parts;
    for (const Phase which : {Phase::forward, Phase::backward, Phase::optimizer}) {
      const Recording::PhaseRun* const run = phase(which);
      if (!run) continue;
      std::uint64_t most = point_at(timeline_, run->begin_ns).groups[group];
      std::int64_t when = run->begin_ns;
      for (const MemoryPoint& point : timeline_.points)
        if (point.time_ns > run->begin_ns && point.time_ns <= run->end_ns &&
            point.groups[group] > most) {
          most = point.groups[group];
          when = point.time_ns;
        }
      parts.push_back(fmt::format(
          "{} {}{}", name_of(which), memory_text(most),
          most > 0 ? fmt::format(" at {} of its time",
                                 percent(static_cast<double>(when - run->begin_ns),
                                         static_cast<double>(run->end_ns - run->begin_ns)))
                   : ""));
    }
    return fmt::format("at most, by phase: {}; {} when the step ends", fmt::join(parts, ", "),
                       memory_text(timeline_.points.back().groups[group]));
  }

  std::string base() const {
    const MemoryPoint& end = timeline_.points.back();
    const std::uint64_t persistent = end.groups[index_of(MemoryGroup::parameters)] +
                                     end.groups[index_of(MemoryGroup::optimizer)] +
                                     end.groups[index_of(MemoryGroup::inputs)];
    std::vector<std::uint64_t> ends;
    for (const Recording::Step& step : recording_.steps)
      ends.push_back(points_of(recording_, step).points.back().live);
    const bool grows = ends.back() > ends.front();
    const bool falls = static_cast<double>(ends.front()) <= 1.01 * static_cast<double>(persistent);
    return fmt::format(
        "{}: {} are left after step {} and {} after step {}; parameters, optimizer state and "
        "inputs "
        "are {}",
        grows   ? "no, it grows"
        : falls ? "yes"
                : "nearly",
        memory_text(ends.front()), recording_.steps.front().step, memory_text(ends.back()),
        recording_.steps.back().step, memory_text(persistent));
  }

  // How many runs of kernels lie between a storage's last use and its release.
  std::string releases() const {
    const Graph& graph = *recording_.graph;
    const Lifetimes lifetimes = lifetimes_of(graph);
    std::vector<const Recording::NodeRun*> runs;
    for (const Recording::NodeRun& run : recording_.nodes)
      if (run.step == step_.step) runs.push_back(&run);
    if (runs.empty()) return "";
    std::unordered_map<ValueId, std::size_t> last_use;  // of a storage, by the run's place
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const Node& node = graph.nodes()[runs[r]->node];
      for (const auto* values : {&node.inputs, &node.outputs})
        for (const ValueId value : *values) last_use[lifetimes.storage[value]] = r;
    }
    std::size_t prompt = 0, late = 0, never = 0;
    std::set<ValueId> taken;
    for (const Change& c : recording_.memory) {
      if (c.step != step_.step || c.workspace) continue;
      if (c.bytes > 0) taken.insert(c.owner);
      if (c.bytes > 0 || !taken.erase(c.owner)) continue;
      const auto use = last_use.find(c.owner);
      const auto released = std::ranges::partition_point(
          runs, [&](const Recording::NodeRun* run) { return run->begin_ns < c.time_ns; });
      const auto place = static_cast<std::size_t>(released - runs.begin());
      const bool is_prompt = use == last_use.end() || place <= use->second + 1 + prompt_nodes;
      ++(is_prompt ? prompt : late);
    }
    for (const ValueId owner : taken) never += !lifetimes.permanent[owner];
    const std::size_t all = prompt + late + never;
    if (all == 0)
      return "none is allocated in a step: one arena that was planned before holds them all";
    return fmt::format(
        "{}: of {} tensors of a step {} are freed within {} kernel of their last use, {} later, {} "
        "not in the step",
        never > 0  ? "some never"
        : late > 0 ? "some late"
                   : "promptly",
        format_count(static_cast<std::int64_t>(all)),
        format_count(static_cast<std::int64_t>(prompt)), prompt_nodes, late, never);
  }

  std::string small_allocations() const {
    std::int64_t all = 0, small = 0;
    std::uint64_t bytes = 0, bytes_small = 0;
    for (const Change& c : recording_.memory) {
      if (c.step != step_.step || c.bytes <= 0 || c.time_ns <= step_.begin_ns) continue;
      const std::uint64_t taken = allocated_for(c.bytes);
      ++all;
      bytes += taken;
      if (taken >= small_bytes) continue;
      ++small;
      bytes_small += taken;
    }
    if (all == 0) return "no: nothing is allocated in a step";
    return fmt::format(
        "{} of the {} allocations of a step ({}) are smaller than 1 MB; they take {} "
        "of the bytes",
        format_count(small), format_count(all),
        percent(static_cast<double>(small), static_cast<double>(all)),
        percent(static_cast<double>(bytes_small), static_cast<double>(bytes)));
  }

  std::string operators() const {
    std::vector<std::string> words;
    const auto steps = static_cast<double>(recording_.steps.size());
    for (const OperatorMemory& one : operator_memory(recording_)) {
      if (words.size() == shown) break;
      words.push_back(
          fmt::format("{} {}", one.op, memory_text(static_cast<double>(one.all()) / steps)));
    }
    if (words.empty()) return "";
    return fmt::format("by what a step allocates for them: {}", fmt::join(words, ", "));
  }

  // Of layers that repeat: the activations of one, by tensor.
  std::string layer() const {
    const auto layers = static_cast<double>(recording_.graph->blocks().size());
    if (layers == 0) return "";
    std::map<std::string, double> bytes;
    double all = 0;
    for (const TensorMemory& tensor : report_.tensors) {
      const std::string kind = kind_of(tensor.name);
      if (tensor.group != MemoryGroup::activations || kind == tensor.name) continue;
      const double each = static_cast<double>(tensor.bytes) / layers;
      bytes[kind] += each;
      all += each;
    }
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [kind, each] : bytes) sorted.emplace_back(each, kind);
    std::ranges::stable_sort(sorted, std::greater{}, &std::pair<double, std::string>::first);
    std::vector<std::string> words;
    for (const auto& [each, kind] : sorted)
      if (words.size() < 2 * shown)
        words.push_back(fmt::format("{} {}", printable(kind), memory_text(each)));
    if (words.empty()) return "";
    return fmt::format("activations of {}: {}{}", memory_text(all), fmt::join(words, ", "),
                       sorted.size() > words.size() ? ", .." : "");
  }

  const Recording& recording_;
  const MemoryReport& report_;
  const Recording::Step& step_;
  MemoryTimeline timeline_;
  std::vector<std::pair<std::string, std::string>> list_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> memory_answers(const Recording& recording,
                                                                const MemoryReport& report) {
  if (recording.memory.empty() || recording.steps.empty() || report.peak == 0) return {};
  return MemoryAnswers(recording, report).all();
}

}  // namespace ridge
