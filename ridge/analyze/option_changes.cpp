#include "ridge/analyze/option_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

constexpr double least_gain = 0.005;  // of the time of a sample; less is not worth a line
constexpr double as_good = 0.98;  // of the best rate: the smallest such batch is the one to take
constexpr std::int64_t largest_factor = 64, smallest_divisor = 4;

// By how much the operators of a recorded run were above their least times.
class Efficiency {
 public:
  Efficiency(const Graph& graph, const BottleneckReport& report, bool captured) {
    for (const NodeBottleneck& bottleneck : report.nodes) {
      const Node& node = graph.nodes()[bottleneck.node];
      const Timed& timed = bottleneck.timed;
      const double least = timed.calls * least_time(graph, node, report.roof, captured).total();
      for (Sums* const sums :
           {&by_name_[std::string(name_of(*node.op))], &by_kind_[work_of(*node.op)], &all_}) {
        sums->seconds += timed.seconds;
        sums->least += least;
      }
    }
  }

  // How many times its least time an operator takes: as those of its name, or else its kind, did.
  double ratio(const Op& op) const {
    if (const auto named = by_name_.find(std::string(name_of(op))); named != by_name_.end())
      if (named->second.least > 0) return named->second.ratio();
    if (const auto kind = by_kind_.find(work_of(op)); kind != by_kind_.end())
      if (kind->second.least > 0) return kind->second.ratio();
    return all_.least > 0 ? all_.ratio() : 1;
  }

 private:
  struct Sums {
    double seconds = 0, least = 0;
    double ratio() const { return seconds / least; }
  };
  std::map<std::string, Sums> by_name_;
  std::map<WorkKind, Sums> by_kind_;
  Sums all_;
};

class Forecast {
 public:
  Forecast(const RunOptions& options, Device& device, const Graph& graph,
           const BottleneckReport& report)
      : device_(device),
        report_(report),
        samples_now_(options.samples_per_step()),
        precision_(options.precision()),
        efficiency_(graph, report, options.schedule(device.target()).has(captured_launches)) {}

  // Nothing where the device, the network or the options refuse it.
  std::optional<OptionChange> change(std::string name, std::string flags, RunOptions with) const {
    try {
      with.resolve();
      check_device(with, device_);
      Graph graph;
      const BuiltGraph built = build_graph(graph, with, device_.target());
      const std::int64_t batches = with.batches_per_step();
      OptionChange change{.name = std::move(name),
                          .flags = std::move(flags),
                          .options = with,
                          .samples = with.samples_per_step(),
                          .samples_now = samples_now_,
                          .work = cost_of_step(graph, batches).total()};
      change.rounds_otherwise = change.options.precision() != precision_;
      change.seconds = seconds(graph, built.schedule, batches, change.kernels);
      return change;
    } catch (const UsageError&) {
      return std::nullopt;
    } catch (const ShapeError&) {
      return std::nullopt;
    }
  }

  std::int64_t samples_now() const { return samples_now_; }
  bool fits(OptionChange& change) const {
    change.peak_bytes = plan_step(change.options, device_).device_bytes;
    return change.peak_bytes <= usable_memory(device_, change.options);
  }

 private:
  double seconds(const Graph& graph, const Schedule& schedule, std::int64_t batches,
                 std::int64_t& kernels) const {
    const Roof roof = roof_for(report_.roof, schedule);
    const bool captured = schedule.has(captured_launches);
    double seconds = 0;
    for (const Node& node : graph.nodes()) {
      if (only_renames(*node.op)) continue;
      const std::int64_t times = node.phase == Phase::optimizer ? 1 : batches;
      kernels += times;
      seconds += static_cast<double>(times) * efficiency_.ratio(*node.op) *
                 least_time(graph, node, roof, captured).total();
    }
    // What lies between kernels stays as it is for each, unless all are launched as one.
    const double gap = captured ? 0 : over(report_.between_nodes, report_.all.calls);
    return seconds + gap * static_cast<double>(kernels) + report_.outside_phases;
  }

  Device& device_;
  const BottleneckReport& report_;
  std::int64_t samples_now_;
  Precision precision_;  // of the run
  Efficiency efficiency_;
};

// Options that one kind of change varies.
struct Candidate {
  std::string name, flags;
  RunOptions options;
};

std::vector<Candidate> schedules_after(const RunOptions& options) {
  std::vector<Candidate> candidates;
  const ScheduleRow& own = schedule_row(options.version);
  bool after = false;
  for (const ScheduleRow& row : schedules()) {
    if (after && row.kind == own.kind) {
      candidates.push_back({std::string(row.name), fmt::format("--version {}", row.name), options});
      candidates.back().options.version = row.name;
    }
    after |= row.name == own.name;
  }
  return candidates;
}

std::vector<Candidate> other_precisions(const RunOptions& options) {
  std::vector<Candidate> candidates;
  for (const Precision& precision : precisions()) {
    if (precision == options.precision()) continue;
    candidates.push_back(
        {std::string(precision.name), fmt::format("--dtype {}", precision.name), options});
    candidates.back().options.dtype = precision.name;
    candidates.back().options.use_amp = false;
  }
  return candidates;
}

// The smallest first.
std::vector<Candidate> other_batches(const RunOptions& options) {
  std::vector<Candidate> candidates;
  for (std::int64_t size = std::max<std::int64_t>(1, options.batch_size / smallest_divisor);
       size <= options.batch_size * largest_factor; size *= 2) {
    if (size == options.batch_size) continue;
    candidates.push_back(
        {fmt::format("batch {}", size), fmt::format("--batch-size {}", size), options});
    candidates.back().options.batch_size = size;
  }
  return candidates;
}

double per_sample(const OptionChange& change) { return change.seconds_per_sample(); }

class Search {
 public:
  Search(const RunOptions& options, Device& device, const Graph& graph,
         const BottleneckReport& report)
      : options_(options),
        forecast_(options, device, graph, report),
        now_(report.step_seconds / static_cast<double>(forecast_.samples_now())) {}

  std::vector<OptionChange> changes() && {
    std::vector<OptionChange> found;
    std::vector<OptionChange> best;  // of each kind
    // A mode that adds nothing to the one before it is not named.
    std::vector<OptionChange> modes = worth(schedules_after(options_));
    std::vector<OptionChange> distinct;
    for (OptionChange& mode : modes)
      if (distinct.empty() || per_sample(mode) < (1 - least_gain) * per_sample(distinct.back()))
        distinct.push_back(std::move(mode));
    add(found, best, std::move(distinct));
    add(found, best, worth(other_precisions(options_)));
    if (std::optional<OptionChange> batch = best_batch()) add(found, best, {*std::move(batch)});
    std::ranges::stable_sort(found, {}, per_sample);
    if (best.size() > 1)
      if (std::optional<OptionChange> all = together(best))
        found.insert(found.begin(), *std::move(all));
    return found;
  }

 private:
  bool is_worth_it(const OptionChange& change) const {
    return per_sample(change) < (1 - least_gain) * now_;
  }

  // Those that are expected to gain, whether they fit or not.
  std::vector<OptionChange> gaining(std::vector<Candidate> candidates) const {
    std::vector<OptionChange> found;
    for (Candidate& candidate : candidates)
      if (auto change = forecast_.change(std::move(candidate.name), std::move(candidate.flags),
                                         std::move(candidate.options)))
        if (is_worth_it(*change)) found.push_back(*std::move(change));
    return found;
  }

  std::vector<OptionChange> worth(std::vector<Candidate> candidates) const {
    std::vector<OptionChange> found = gaining(std::move(candidates));
    std::erase_if(found, [&](OptionChange& change) { return !forecast_.fits(change); });
    return found;
  }

  static void add(std::vector<OptionChange>& found, std::vector<OptionChange>& best,
                  std::vector<OptionChange> of_kind) {
    if (of_kind.empty()) return;
    best.push_back(*std::ranges::min_element(of_kind, {}, per_sample));
    for (OptionChange& change : of_kind) found.push_back(std::move(change));
  }

  // The smallest whose rate is as good as the best of those that fit.
  std::optional<OptionChange> best_batch() const {
    std::vector<OptionChange> found = gaining(other_batches(options_));
    while (!found.empty()) {
      const double best = per_sample(*std::ranges::min_element(found, {}, per_sample));
      const auto chosen = std::ranges::find_if(
          found, [&](const OptionChange& change) { return as_good * per_sample(change) <= best; });
      if (forecast_.fits(*chosen)) return *chosen;
      found.erase(chosen, found.end());  // nor do the larger ones
    }
    return std::nullopt;
  }

  std::optional<OptionChange> together(const std::vector<OptionChange>& best) const {
    RunOptions options = options_;
    std::string name, flags;
    for (const OptionChange& one : best) {
      if (one.options.version != options_.version) options.version = one.options.version;
      if (one.options.dtype != options_.dtype) options.dtype = one.options.dtype;
      if (one.options.batch_size != options_.batch_size)
        options.batch_size = one.options.batch_size;
      name += (name.empty() ? "" : " + ") + one.name;
      flags += (flags.empty() ? "" : " ") + one.flags;
    }
    std::optional<OptionChange> all = forecast_.change(name, flags, options);
    const auto is_better = [&](const OptionChange& one) {
      return per_sample(*all) < per_sample(one);
    };
    if (!all || !std::ranges::all_of(best, is_better) || !forecast_.fits(*all)) return std::nullopt;
    return all;
  }

  const RunOptions& options_;
  Forecast forecast_;
  double now_;  // seconds of a sample
};

}  // namespace

std::vector<OptionChange> changes_of(const RunOptions& options, Device& device, const Graph& graph,
                                     const BottleneckReport& report) {
  return Search(options, device, graph, report).changes();
}

}  // namespace ridge
