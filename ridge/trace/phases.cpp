#include "ridge/trace/phases.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

constexpr std::size_t phases = 6;

// The part of a step that an annotation or operator says of all within it.
std::optional<Phase> phase_of(std::string_view name) {
  if (name.starts_with("Optimizer.") || name == "optimizer") return Phase::optimizer;
  if (name.starts_with("autograd::engine::evaluate_function") || name == "backward")
    return Phase::backward;
  if (name.find("DataLoader") != std::string_view::npos) return Phase::loading;
  if (name == "forward") return Phase::forward;
  return std::nullopt;
}

class PhaseFinder {
 public:
  PhaseFinder(const Trace& trace, const HostNesting& nesting) : trace_(trace), nesting_(nesting) {}

  Phase of(const DeviceWork& work) {
    if (work.call == no_row) return Phase::unknown;
    for (Row row = work.call; row != no_row; row = nesting_.parent_of(row)) {
      const TextPool::Id name = trace_.events.name[row];
      const auto [at, added] = known_.try_emplace(name);
      if (added) at->second = phase_of(trace_.texts[name]);
      if (at->second) return *at->second;
    }
    if (trace_.name(work.call).find("GraphLaunch") != std::string::npos) return Phase::graphs;
    return Phase::forward;
  }

 private:
  const Trace& trace_;
  const HostNesting& nesting_;
  std::unordered_map<TextPool::Id, std::optional<Phase>> known_;
};

// When the host was in each part. Between two slices of autograd's engine it still goes backward.
std::array<Intervals, phases> host_times(const Trace& trace) {
  constexpr std::int64_t between_ns = 100'000;
  std::array<std::vector<Interval>, phases> times;
  std::vector<std::optional<Phase>> known(trace.texts.size());
  for (TextPool::Id id = 0; id < trace.texts.size(); ++id) known[id] = phase_of(trace.texts[id]);
  for (Row row = 0; row < trace.events.size(); ++row) {
    const EventKind kind = trace.events.kind[row];
    if (kind != EventKind::operation && kind != EventKind::annotation) continue;
    const std::optional<Phase> phase = known[trace.events.name[row]];
    if (!phase) continue;
    const std::int64_t end = trace.events.end_ns(row);
    times[static_cast<std::size_t>(*phase)].push_back(
        {trace.events.begin_ns[row], *phase == Phase::backward ? end + between_ns : end});
  }
  std::array<Intervals, phases> apart;
  std::ranges::transform(times, apart.begin(), [](auto& of) { return merged(std::move(of)); });
  return apart;
}

void add_peaks(const Trace& trace, std::array<PhaseUse, phases>& uses) {
  if (trace.memory.empty()) return;
  const std::array<Intervals, phases> times = host_times(trace);
  for (const MemoryInstant& instant : trace.memory) {
    if (instant.device < 0) continue;
    Phase phase = Phase::forward;
    for (const Phase one : {Phase::optimizer, Phase::backward, Phase::loading})
      if (overlap(times[static_cast<std::size_t>(one)], {instant.time_ns, instant.time_ns + 1})) {
        phase = one;
        break;
      }
    PhaseUse& use = uses[static_cast<std::size_t>(phase)];
    use.peak_allocated = std::max(use.peak_allocated, instant.allocated);
  }
}

}  // namespace

std::string phase_name(Phase phase) {
  static constexpr const char* names[phases] = {"loading",   "forward", "backward",
                                                "optimizer", "graphs",  "unknown"};
  return names[static_cast<std::size_t>(phase)];
}

std::vector<PhaseUse> phase_uses(const Trace& trace, const Work& work, const HostNesting& nesting) {
  std::array<PhaseUse, phases> uses;
  std::array<std::vector<Interval>, phases> times;
  PhaseFinder finder(trace, nesting);
  for (const DeviceWork& one : work.device) {
    const auto phase = static_cast<std::size_t>(finder.of(one));
    times[phase].push_back({trace.events.begin_ns[one.row], trace.events.end_ns(one.row)});
    uses[phase].kernels += one.work != WorkClass::copy;
  }
  add_peaks(trace, uses);
  std::vector<PhaseUse> found;
  for (std::size_t phase = 0; phase < phases; ++phase) {
    uses[phase].phase = static_cast<Phase>(phase);
    if (times[phase].empty()) continue;
    uses[phase].busy_us = us(length_ns(merged(std::move(times[phase]))));
    found.push_back(uses[phase]);
  }
  if (found.size() < 2) found.clear();
  return found;
}

}  // namespace ridge::trace
