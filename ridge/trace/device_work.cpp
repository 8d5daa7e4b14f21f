#include "ridge/trace/device_work.h"
#include "ridge/trace/times.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <unordered_map>

namespace ridge::trace {
namespace {

// Steps by the annotations that PyTorch's profiler makes, once each.
std::vector<Step> steps_of(const Trace& trace) {
  std::map<std::int64_t, Interval> windows;
  for (Row row = 0; row < trace.events.size(); ++row) {
    if (trace.events.kind[row] != EventKind::annotation) continue;
    const std::int64_t number = step_number(trace.name(row));
    if (number >= 0)
      windows.try_emplace(number, Interval{trace.events.begin_ns[row], trace.events.end_ns(row)});
  }
  std::vector<Step> steps;
  for (const auto& [number, window] : windows) steps.push_back({number, window});
  std::ranges::sort(steps, {}, [](const Step& step) { return step.host.begin_ns; });
  return steps;
}

WorkClass class_of(EventKind kind, bool communication) {
  if (kind == EventKind::copy || kind == EventKind::fill) return WorkClass::copy;
  return communication ? WorkClass::communication : WorkClass::compute;
}

std::vector<bool> communication_names(const TextPool& texts) {
  std::vector<bool> found(texts.size());
  for (TextPool::Id id = 0; id < texts.size(); ++id) found[id] = is_communication(texts[id]);
  return found;
}

// The operator around an operator; no_row if there is none.
Row operator_around(const HostNesting& nesting, Row row) {
  const Row around = nesting.parent_of(row);
  return around == no_row ? no_row : nesting.operation_of(around);
}

// The operators of the host that stand in no other. In place of an operator that communicates
// within, and of the slices by which autograd's engine calls operators, those within it count: what
// is around them is not their time.
void add_host_work(const Trace& trace, const HostNesting& nesting, Work& work) {
  const EventColumns& events = trace.events;
  const std::vector<bool> names = communication_names(trace.texts);
  const auto communicates = [&](Row row) {
    return names[events.name[row]] || collective_of(trace, row);
  };
  std::vector<bool> opened(events.size());
  for (Row row = 0; row < events.size(); ++row) {
    if (events.kind[row] != EventKind::operation) continue;
    if (trace.name(row).starts_with("autograd::engine::")) opened[row] = true;
    if (!communicates(row)) continue;
    for (Row around = operator_around(nesting, row); around != no_row;
         around = operator_around(nesting, around))
      if (!communicates(around)) opened[around] = true;
  }
  for (Row row = 0; row < events.size(); ++row) {
    if (events.kind[row] != EventKind::operation || opened[row]) continue;
    const Row around = operator_around(nesting, row);
    if (around != no_row && !opened[around]) continue;
    work.device.push_back({.row = row,
                           .call = row,
                           .work = class_of(EventKind::operation, communicates(row)),
                           .step = step_at(work.steps, events.begin_ns[row])});
  }
}

// What a card still had to do when the trace began has no launch in it. The host may be a step or
// two ahead by then; that work belongs to none of these, and stands in the first.
void put_leftover_in_first_step(const EventColumns& events, Work& work) {
  if (work.steps.empty() || work.work_without_call == work.device.size()) return;
  std::int64_t first_launched = std::numeric_limits<std::int64_t>::max();
  for (const DeviceWork& one : work.device)
    if (one.call != no_row) first_launched = std::min(first_launched, events.begin_ns[one.row]);
  for (DeviceWork& one : work.device)
    if (one.call == no_row && events.begin_ns[one.row] < first_launched)
      one.step = work.steps.front().number;
}

void add_device_work(const Trace& trace, Work& work) {
  const EventColumns& events = trace.events;
  std::unordered_map<std::int64_t, Row> calls;
  for (Row row = 0; row < events.size(); ++row)
    if (events.kind[row] == EventKind::call && events.correlation[row] > 0)
      calls.try_emplace(events.correlation[row], row);
  const std::vector<bool> communication = communication_names(trace.texts);
  for (Row row = 0; row < events.size(); ++row) {
    if (!is_on_device(events.kind[row])) continue;
    const auto call = calls.find(events.correlation[row]);
    const bool talks = communication[events.name[row]] || collective_of(trace, row);
    DeviceWork one{.row = row, .work = class_of(events.kind[row], talks)};
    if (call == calls.end()) {
      ++work.work_without_call;
      one.step = step_at(work.steps, events.begin_ns[row]);
    } else {
      one.call = call->second;
      one.step = step_at(work.steps, events.begin_ns[one.call]);
    }
    work.device.push_back(one);
  }
  put_leftover_in_first_step(events, work);
}

// Adds up the lines of work[first, last), which began in this order.
TimeUse use_of(const Trace& trace, const std::vector<const DeviceWork*>& work,
               std::int64_t span_end) {
  TimeUse use;
  if (work.empty()) return use;
  std::array<std::vector<Interval>, 3> of_class;
  std::vector<Interval> all;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = span_end;
  for (const DeviceWork* one : work) {
    const Interval time{trace.events.begin_ns[one->row], trace.events.end_ns(one->row)};
    begin = std::min(begin, time.begin_ns);
    end = std::max(end, time.end_ns);
    of_class[static_cast<std::size_t>(one->work)].push_back(time);
    all.push_back(time);
    if (one->work != WorkClass::copy) ++use.kernels;
  }
  const Intervals compute = merged(std::move(of_class[0]));
  const Intervals communication = merged(std::move(of_class[1]));
  const std::int64_t busy = length_ns(merged(std::move(all)));
  use.span = us(end - begin);
  use.busy = us(busy);
  use.idle = us(end - begin - busy);
  use.compute = us(length_ns(compute));
  use.communication = us(length_ns(communication));
  use.exposed_communication = us(length_ns(without(communication, compute)));
  use.copy = us(length_ns(merged(std::move(of_class[2]))));
  return use;
}

}  // namespace

const char* name_of(WorkClass work) {
  return work == WorkClass::compute         ? "compute"
         : work == WorkClass::communication ? "communication"
                                            : "copy";
}

bool is_communication(std::string_view name) {
  static constexpr std::string_view marks[] = {
      "nccl",  // ncclKernel_*, ncclDevKernel_*, nccl:all_reduce, RCCL's too
      "rccl",
      "nvshmem",
      "cross_device_reduce",  // of serving engines
      "one_shot_all_reduce",
      "two_shot_all_reduce",
      "multimem_all_reduce",
      "c10d::",
      "gloo:",
      "mpi:"};
  for (const std::string_view mark : marks)
    if (name.find(mark) != std::string_view::npos) return true;
  return false;
}

const CollectiveFact* collective_of(const Trace& trace, Row row) {
  const auto at = std::ranges::lower_bound(trace.collectives, row, {}, &CollectiveFact::row);
  return at != trace.collectives.end() && at->row == row ? &*at : nullptr;
}

std::int64_t step_at(const std::vector<Step>& steps, std::int64_t time_ns) {
  const auto after = std::ranges::upper_bound(steps, time_ns, {},
                                              [](const Step& step) { return step.host.begin_ns; });
  if (after == steps.begin()) return -1;
  const Step& step = *std::prev(after);
  // Behind the last step is what follows the loop.
  return after == steps.end() && time_ns >= step.host.end_ns ? -1 : step.number;
}

Work work_of(const Trace& trace, const HostNesting& nesting) {
  Work work;
  work.steps = steps_of(trace);
  add_device_work(trace, work);
  work.of_host = work.device.empty();
  if (work.of_host) add_host_work(trace, nesting, work);
  std::ranges::stable_sort(work.device, {},
                           [&](const DeviceWork& one) { return trace.events.begin_ns[one.row]; });
  return work;
}

TimeUse time_use(const Trace& trace, const Work& work) {
  std::vector<const DeviceWork*> all;
  all.reserve(work.device.size());
  for (const DeviceWork& one : work.device) all.push_back(&one);
  return use_of(trace, all, std::numeric_limits<std::int64_t>::min());
}

std::vector<StepUse> time_use_of_steps(const Trace& trace, const Work& work) {
  std::map<std::int64_t, std::vector<const DeviceWork*>> by_step;
  for (const DeviceWork& one : work.device)
    if (one.step >= 0) by_step[one.step].push_back(&one);
  std::vector<StepUse> uses;
  for (std::size_t i = 0; i < work.steps.size(); ++i) {
    const std::int64_t number = work.steps[i].number;
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    if (i + 1 < work.steps.size()) {
      const auto& next = by_step[work.steps[i + 1].number];
      if (!next.empty()) end = trace.events.begin_ns[next.front()->row];
    }
    uses.push_back({number, use_of(trace, by_step[number], end)});
  }
  return uses;
}

}  // namespace ridge::trace
