#include "ridge/trace/idle_time.h"
#include "ridge/trace/times.h"

#include <algorithm>
#include <map>

namespace ridge::trace {
namespace {

// Calls that block, by the time at which they return.
std::vector<Row> blocking_calls(const Trace& trace) {
  std::vector<signed char> known(trace.texts.size(), -1);
  std::vector<Row> calls;
  for (Row row = 0; row < trace.events.size(); ++row) {
    if (trace.events.kind[row] != EventKind::call) continue;
    signed char& blocking = known[trace.events.name[row]];
    if (blocking < 0) blocking = is_blocking_call(trace.name(row)) ? 1 : 0;
    if (blocking == 1) calls.push_back(row);
  }
  std::ranges::sort(calls, {}, [&](Row row) { return trace.events.end_ns(row); });
  return calls;
}

class IdleFinder {
 public:
  IdleFinder(const Trace& trace, const Work& work, const HostNesting& nesting)
      : trace_(trace), work_(work), nesting_(nesting), blocking_(blocking_calls(trace)) {}

  IdleTime find();

 private:
  void add(const DeviceWork& before, const DeviceWork& next, std::int64_t begin);
  IdleCause cause_of(const DeviceWork& before, const DeviceWork& next, IdleStretch& stretch);
  Row blocking_before(const Interval& idle) const;
  bool one_slice_fills(const Interval& wait, const DeviceWork& next, Row blocking) const;
  void add_host(const Interval& wait, std::uint32_t track);
  std::string name_of(const HostStretch& stretch) const;
  // Calls f(stretch, how much of it lies within the wait) for what a track did meanwhile.
  template <class F>
  void each_stretch(const Interval& wait, std::uint32_t track, const F& f) const {
    const auto& stretches = nesting_.stretches(track);
    auto at = std::ranges::upper_bound(stretches, wait.begin_ns, {}, &HostStretch::end_ns);
    for (; at != stretches.end() && at->begin_ns < wait.end_ns; ++at)
      f(*at, std::min(at->end_ns, wait.end_ns) - std::max(at->begin_ns, wait.begin_ns));
  }

  const Trace& trace_;
  const Work& work_;
  const HostNesting& nesting_;
  std::vector<Row> blocking_;
  std::map<std::string, IdleTime::HostShare> host_;
  IdleTime found_;
};

// The blocking call that had begun when the card ran dry, and returned within the idle time.
Row IdleFinder::blocking_before(const Interval& idle) const {
  constexpr std::int64_t early_ns = 1000;  // clocks of host and card differ by so much
  const auto end = [&](Row row) { return trace_.events.end_ns(row); };
  auto at = std::ranges::lower_bound(blocking_, idle.begin_ns - early_ns, {}, end);
  for (; at != blocking_.end() && end(*at) <= idle.end_ns; ++at)
    if (trace_.events.begin_ns[*at] < idle.begin_ns) return *at;
  return no_row;
}

// Whether the host spent half of the wait in one annotation or operator other than the one that had
// blocked it, such as a data loader's.
bool IdleFinder::one_slice_fills(const Interval& wait, const DeviceWork& next, Row blocking) const {
  std::map<Row, std::int64_t> shares;
  each_stretch(wait, trace_.events.track[next.call],
               [&](const HostStretch& at, std::int64_t inside) {
                 const bool blocked = blocking != no_row &&
                                      trace_.events.begin_ns[blocking] >= at.begin_ns &&
                                      trace_.events.begin_ns[blocking] < at.end_ns;
                 if (!blocked)
                   shares[at.annotation != no_row ? at.annotation : at.operation] += inside;
               });
  return std::ranges::any_of(shares,
                             [&](const auto& share) { return 2 * share.second >= wait.length(); });
}

IdleCause IdleFinder::cause_of(const DeviceWork& before, const DeviceWork& next,
                               IdleStretch& stretch) {
  const EventColumns& events = trace_.events;
  if (work_.of_host) return IdleCause::host_late;
  if (next.call == no_row) return IdleCause::unknown;
  const bool late = next.call != before.call && events.end_ns(next.call) >= stretch.time.begin_ns;
  if (!late) {
    // Between two kernels lie a few microseconds. What lasts longer waits for something that the
    // trace does not show, such as nodes of a captured graph that the profiler left out.
    constexpr std::int64_t longest_boundary_ns = 50'000;
    if (events.track[before.row] != events.track[next.row]) return IdleCause::stream_dependency;
    return stretch.time.length() <= longest_boundary_ns ? IdleCause::kernel_boundary
                                                        : IdleCause::unknown;
  }
  const Interval wait{
      stretch.time.begin_ns,
      std::clamp(events.begin_ns[next.call], stretch.time.begin_ns, stretch.time.end_ns)};
  add_host(wait, events.track[next.call]);
  const Row blocking = blocking_before(stretch.time);
  if (one_slice_fills(wait, next, blocking)) return IdleCause::host_late;
  if (blocking != no_row) {
    stretch.blocking = blocking;
    return IdleCause::synchronization;
  }
  return before.step != next.step ? IdleCause::step_end : IdleCause::host_late;
}

std::string IdleFinder::name_of(const HostStretch& stretch) const {
  if (stretch.annotation == no_row) return trace_.name(stretch.operation);
  if (stretch.operation == no_row) return trace_.name(stretch.annotation);
  return trace_.name(stretch.annotation) + " > " + trace_.name(stretch.operation);
}

void IdleFinder::add_host(const Interval& wait, std::uint32_t track) {
  const auto share = [&](const std::string& name, std::int64_t ns) {
    if (ns <= 0) return;
    IdleTime::HostShare& one = host_[name];
    one.us += us(ns);
    ++one.stretches;
  };
  std::int64_t outside = wait.length();
  each_stretch(wait, track, [&](const HostStretch& at, std::int64_t inside) {
    share(name_of(at), inside);
    outside -= inside;
  });
  share("", outside);
}

void IdleFinder::add(const DeviceWork& before, const DeviceWork& next, std::int64_t begin) {
  IdleStretch stretch{
      .time = {begin, trace_.events.begin_ns[next.row]}, .next = next.row, .step = next.step};
  stretch.cause = cause_of(before, next, stretch);
  IdleTime::OfCause& sum = found_.by_cause[static_cast<std::size_t>(stretch.cause)];
  sum.us += us(stretch.time.length());
  ++sum.stretches;
  found_.stretches.push_back(stretch);
}

IdleTime IdleFinder::find() {
  const DeviceWork* last = nullptr;  // that ends last of those so far
  for (const DeviceWork& next : work_.device) {
    const std::int64_t end = last ? trace_.events.end_ns(last->row) : 0;
    if (last && trace_.events.begin_ns[next.row] > end) add(*last, next, end);
    if (!last || trace_.events.end_ns(next.row) >= end) last = &next;
  }
  for (auto& [name, share] : host_) {
    share.name = name;
    found_.host.push_back(share);
  }
  std::ranges::stable_sort(found_.host, std::greater(), &IdleTime::HostShare::us);
  return std::move(found_);
}

}  // namespace

std::string idle_cause_name(IdleCause cause) {
  static constexpr const char* names[] = {"host_late",         "synchronization", "step_end",
                                          "stream_dependency", "kernel_boundary", "unknown"};
  return names[static_cast<std::size_t>(cause)];
}

std::string idle_cause_sentence(IdleCause cause) {
  static constexpr const char* sentences[] = {
      "the host launches too late",
      "the host had waited for the card",
      "the host launches too late between two steps",
      "the next work waits for another stream",
      "the next kernel begins late though it was launched in time",
      "the trace does not tell what the next work waited for"};
  return sentences[static_cast<std::size_t>(cause)];
}

bool is_blocking_call(std::string_view name) {
  if (name.find("Synchronize") != std::string_view::npos) return true;
  static constexpr std::string_view calls[] = {
      "cudaMemcpy",      "cudaMemcpy2D", "cudaMemcpyToSymbol",  "cudaMemcpyFromSymbol",
      "cudaFree",        "cudaFreeHost", "cudaMalloc",          "cudaMallocHost",
      "cudaHostAlloc",   "cuMemFree_v2", "cuMemAlloc_v2",       "cuMemcpyDtoH_v2",
      "cuMemcpyHtoD_v2", "hipMemcpy",    "hipMemcpyWithStream", "hipFree",
      "hipHostFree",     "hipMalloc",    "hipHostMalloc"};
  return std::ranges::find(calls, name) != std::end(calls);
}

IdleTime idle_time(const Trace& trace, const Work& work, const HostNesting& nesting) {
  return IdleFinder(trace, work, nesting).find();
}

}  // namespace ridge::trace
