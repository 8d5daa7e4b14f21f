#include "ridge/trace/work_tables.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "ridge/trace/operator_work.h"
#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

// The values of a map, most of `key` first.
template <class Map, class Key>
auto most_first(const Map& map, Key key) {
  std::vector<typename Map::mapped_type> values;
  values.reserve(map.size());
  for (const auto& [_, value] : map) values.push_back(value);
  std::ranges::stable_sort(values, std::greater(), key);
  return values;
}

// When its work began and ended on the card, for each launching call.
struct CallWork {
  Row call;
  std::int64_t begin, end;
};

std::vector<CallWork> work_of_calls(const Trace& trace, const Work& work) {
  std::unordered_map<Row, std::size_t> at;
  std::vector<CallWork> calls;
  for (const DeviceWork& one : work.device) {
    if (one.call == no_row) continue;
    const std::int64_t begin = trace.events.begin_ns[one.row], end = trace.events.end_ns(one.row);
    const auto [found, added] = at.try_emplace(one.call, calls.size());
    if (added) calls.push_back({one.call, begin, end});
    CallWork& call = calls[found->second];
    call.begin = std::min(call.begin, begin);
    call.end = std::max(call.end, end);
  }
  std::ranges::sort(calls, {}, [&](const CallWork& c) { return trace.events.begin_ns[c.call]; });
  return calls;
}

void add_queue(const Trace& trace, const std::vector<CallWork>& calls, LaunchStatistics& launches) {
  std::vector<std::int64_t> ends;
  ends.reserve(calls.size());
  for (const CallWork& call : calls) ends.push_back(call.end);
  std::ranges::sort(ends);
  double sum = 0;
  std::size_t ended = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    while (ended < ends.size() && ends[ended] <= trace.events.begin_ns[calls[i].call]) ++ended;
    const std::uint64_t queued = i + 1 - std::min(ended, i + 1);
    launches.longest_queue = std::max(launches.longest_queue, queued);
    sum += static_cast<double>(queued);
  }
  if (!calls.empty()) launches.mean_queue = sum / static_cast<double>(calls.size());
}

// The work of each operator; each combination of name, shapes, types and values is worked out once.
class LeastWork {
 public:
  explicit LeastWork(const Trace& trace) : trace_(trace) {}

  const OperatorWork& of(Row row) {
    const EventColumns& events = trace_.events;
    const auto [at, added] = known_.try_emplace(
        {events.name[row], events.shape[row], events.types[row], events.values[row]});
    if (added)
      at->second = operator_work({.name = trace_.name(row),
                                  .shapes = trace_.texts[events.shape[row]],
                                  .types = trace_.texts[events.types[row]],
                                  .values = trace_.texts[events.values[row]]});
    return at->second;
  }

 private:
  const Trace& trace_;
  std::map<std::array<TextPool::Id, 4>, OperatorWork> known_;
};

// By the names of cuBLAS', CUTLASS' and cuDNN's kernels of f32 that round operands to tf32.
bool computes_tf32(std::string_view kernel) {
  return kernel.find("tf32") != std::string_view::npos ||
         kernel.find("s1688") != std::string_view::npos;
}

bool crosses_to_host(std::string_view copy) {
  return copy.starts_with("Memcpy HtoD") || copy.starts_with("Memcpy DtoH");
}

double floor_us(const OperatorSum& sum, const DataSheet& card) {
  const double products =
      sum.products && sum.flops > 0 ? sum.flops / card.flops(*sum.products, 1) : 0;
  return 1e6 * std::max(products, sum.bytes / card.bytes_per_second);
}

}  // namespace

std::vector<Row> operators_of_work(const Trace& trace, const Work& work,
                                   const HostNesting& nesting) {
  const EventColumns& events = trace.events;
  std::unordered_map<std::int64_t, Row> by_external;
  if (work.work_without_call > 0)
    for (Row row = 0; row < events.size(); ++row)
      if (events.kind[row] == EventKind::operation && events.external[row] > 0)
        by_external.try_emplace(events.external[row], row);
  std::vector<Row> operators;
  operators.reserve(work.device.size());
  for (const DeviceWork& one : work.device) {
    Row found = one.call == no_row ? no_row : nesting.operation_of(one.call);
    if (one.call == no_row)
      if (const auto at = by_external.find(events.external[one.row]); at != by_external.end())
        found = at->second;
    operators.push_back(found);
  }
  return operators;
}

std::string short_kernel_name(std::string_view name) {
  std::string text(name);
  if (text.starts_with("void ")) text.erase(0, 5);
  for (const std::string_view part : {"(anonymous namespace)::", "at::native::", "at::cuda::"})
    for (std::size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
  // The parameters stand in the last parentheses that are no part of a template's arguments.
  if (text.ends_with(')')) {
    int depth = 0;
    for (std::size_t at = text.size(); at-- > 0;) {
      depth += text[at] == ')' ? 1 : text[at] == '(' ? -1 : 0;
      if (depth > 0) continue;
      if (at > 0) text.resize(at);
      break;
    }
  }
  return text;
}

std::vector<KernelSum> kernel_sums(const Trace& trace, const Work& work) {
  std::unordered_map<TextPool::Id, KernelSum> sums;
  for (const DeviceWork& one : work.device) {
    if (one.work == WorkClass::copy) continue;
    const double time = us(trace.events.duration_ns[one.row]);
    KernelSum& sum = sums[trace.events.name[one.row]];
    if (sum.count == 0)
      sum = {.name = trace.name(one.row), .work = one.work, .min_us = time, .max_us = time};
    ++sum.count;
    sum.us += time;
    sum.min_us = std::min(sum.min_us, time);
    sum.max_us = std::max(sum.max_us, time);
  }
  return most_first(sums, &KernelSum::us);
}

std::vector<OperatorSum> operator_sums(const Trace& trace, const Work& work,
                                       const HostNesting& nesting,
                                       const std::vector<Row>& operators, const DataSheet* card) {
  const EventColumns& events = trace.events;
  using Key = std::tuple<TextPool::Id, TextPool::Id, TextPool::Id>;
  std::map<Key, OperatorSum> sums;
  LeastWork least(trace);
  std::set<const OperatorSum*> crossing;  // whose bytes go over the link to the host
  std::vector<OperatorSum*> of_row(events.size());
  for (Row row = 0; row < events.size(); ++row) {
    if (events.kind[row] != EventKind::operation) continue;
    OperatorSum& sum = sums[{events.name[row], events.shape[row], events.types[row]}];
    if (sum.count++ == 0) {
      sum.name = trace.name(row);
      sum.shape = trace.texts[events.shape[row]];
      sum.types = trace.texts[events.types[row]];
    }
    sum.host_us += us(events.duration_ns[row]);
    sum.self_host_us += us(nesting.self_ns(row));
    const OperatorWork& one = least.of(row);
    sum.flops += one.flops;
    sum.bytes += one.bytes;
    sum.products = one.kind;
    of_row[row] = &sum;
  }
  if (!work.of_host) {
    for (std::size_t i = 0; i < operators.size(); ++i) {
      if (operators[i] == no_row) continue;
      OperatorSum& sum = *of_row[operators[i]];
      sum.device_us += us(events.duration_ns[work.device[i].row]);
      ++sum.kernels;
      if (crosses_to_host(trace.name(work.device[i].row))) crossing.insert(&sum);
      if (sum.products == ProductKind::f32 && computes_tf32(trace.name(work.device[i].row)))
        sum.products = ProductKind::tf32;
    }
  }
  if (card)
    for (auto& [_, sum] : sums)
      if (!crossing.contains(&sum)) sum.floor_us = floor_us(sum, *card);
  return most_first(sums, [&](const OperatorSum& sum) {
    return work.of_host ? std::pair(sum.self_host_us, 0.0)
                        : std::pair(sum.device_us, sum.self_host_us);
  });
}

std::vector<CopySum> copy_sums(const Trace& trace, const Work& work) {
  std::unordered_map<TextPool::Id, CopySum> sums;
  for (const DeviceWork& one : work.device) {
    if (one.work != WorkClass::copy) continue;
    CopySum& sum = sums[trace.events.name[one.row]];
    sum.name = trace.name(one.row);
    ++sum.count;
    sum.us += us(trace.events.duration_ns[one.row]);
    sum.bytes += std::max<std::int64_t>(trace.events.bytes[one.row], 0);
  }
  return most_first(sums, &CopySum::us);
}

LaunchStatistics launch_statistics(const Trace& trace, const Work& work) {
  LaunchStatistics launches;
  if (work.of_host) return launches;
  const std::vector<CallWork> calls = work_of_calls(trace, work);
  std::unordered_map<TextPool::Id, LaunchSum> sums;
  std::vector<double> delays;
  for (const CallWork& one : calls) {
    LaunchSum& sum = sums[trace.events.name[one.call]];
    sum.call = trace.name(one.call);
    ++sum.count;
    sum.host_us += us(trace.events.duration_ns[one.call]);
    delays.push_back(us(one.begin - trace.events.end_ns(one.call)));
  }
  launches.calls = most_first(sums, &LaunchSum::host_us);
  std::ranges::sort(delays);
  if (!delays.empty()) {
    launches.median_delay_us = delays[delays.size() / 2];
    launches.p90_delay_us = delays[delays.size() * 9 / 10];
  }
  for (const DeviceWork& one : work.device) {
    const double time = us(trace.events.duration_ns[one.row]);
    if (one.work == WorkClass::copy || time >= LaunchStatistics::short_kernel_us) continue;
    ++launches.short_kernels;
    launches.short_us += time;
  }
  add_queue(trace, calls, launches);
  return launches;
}

}  // namespace ridge::trace
