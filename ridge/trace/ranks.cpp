#include "ridge/trace/ranks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "ridge/trace/work_tables.h"

namespace ridge::trace {
namespace {

// By PyTorch's names of dtypes, those of collectives and those of tensors; 0 for others.
std::int64_t bytes_of_dtype(std::string_view dtype) {
  struct Size {
    std::string_view name;
    std::int64_t bytes;
  };
  static constexpr Size sizes[] = {{"Float", 4},         {"BFloat16", 2},      {"Half", 2},
                                   {"Double", 8},        {"Int", 4},           {"Long", 8},
                                   {"Short", 2},         {"Byte", 1},          {"Char", 1},
                                   {"Bool", 1},          {"Float8_e4m3fn", 1}, {"float", 4},
                                   {"c10::BFloat16", 2}, {"c10::Half", 2},     {"Float8_e5m2", 1}};
  for (const Size& size : sizes)
    if (size.name == dtype) return size.bytes;
  return 0;
}

// The part of its bytes that each rank sends, of so many ranks; 0 if the name does not tell.
double bus_factor(std::string_view name, std::int64_t ranks) {
  if (ranks < 2) return 0;
  std::string plain;
  for (const char c : name)
    if (c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto is = [&](std::string_view part) { return plain.find(part) != std::string::npos; };
  const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  if (is("allreduce")) return 2 * others;
  if (is("allgather") || is("reducescatter") || is("alltoall")) return others;
  if (is("broadcast") || is("reduce")) return 1;
  return 0;
}

// The facts of a collective that its work tells or, around the launch, the operator; null if
// neither does.
const CollectiveFact* fact_of(const Trace& trace, const DeviceWork& work,
                              const HostNesting& nesting) {
  if (const CollectiveFact* fact = collective_of(trace, work.row)) return fact;
  if (work.call == no_row) return nullptr;
  for (Row row = work.call; row != no_row; row = nesting.parent_of(row))
    if (const CollectiveFact* fact = collective_of(trace, row)) return fact;
  return nullptr;
}

// The same collective on each rank: an index into the work of each.
using Together = std::vector<std::size_t>;

std::vector<Together> matched(std::span<const std::vector<CollectiveWork>> work_of_ranks,
                              std::uint64_t& unmatched) {
  using Key = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;
  std::map<Key, std::vector<std::vector<std::size_t>>> by_key;
  const std::size_t ranks = work_of_ranks.size();
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < work_of_ranks[r].size(); ++i) {
      const CollectiveWork& one = work_of_ranks[r][i];
      auto& indices = by_key[{one.name, one.group, one.bytes, one.group_size}];
      indices.resize(ranks);
      indices[r].push_back(i);
    }
  std::vector<Together> all;
  for (const auto& [_, indices] : by_key) {
    const std::size_t count = indices.front().size();
    if (!std::ranges::all_of(indices, [&](const auto& of) { return of.size() == count; })) {
      for (const auto& of : indices) unmatched += of.size();
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      Together one;
      for (const auto& of : indices) one.push_back(of[i]);
      all.push_back(std::move(one));
    }
  }
  std::ranges::sort(all, {}, [](const Together& one) { return one.front(); });
  return all;
}

// The times of one collective by the ranks' clocks, set by `arrivals`.
struct Transfer {
  double us = 0, waited_us = 0;
};

Transfer transfer_of(std::span<const std::vector<CollectiveRun>> runs, std::size_t i,
                     const Arrivals& arrivals) {
  std::vector<std::int64_t> begins, ends;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    begins.push_back(runs[r][i].begin_ns - arrivals.ahead_ns[r]);
    ends.push_back(runs[r][i].end_ns - arrivals.ahead_ns[r]);
  }
  const std::int64_t last = std::ranges::max(begins);
  const std::int64_t end = std::max(std::ranges::max(ends), last);
  return {static_cast<double>(end - last) * 1e-3,
          static_cast<double>(last - std::ranges::min(begins)) * 1e-3};
}

}  // namespace

std::vector<CollectiveWork> collective_work(const Trace& trace, const Work& work,
                                            const HostNesting& nesting) {
  std::vector<CollectiveWork> all;
  for (const DeviceWork& one : work.device) {
    if (one.work != WorkClass::communication) continue;
    CollectiveWork collective;
    collective.time = {trace.events.begin_ns[one.row], trace.events.end_ns(one.row)};
    collective.name = short_kernel_name(trace.name(one.row));
    if (const CollectiveFact* fact = fact_of(trace, one, nesting)) {
      collective.name = trace.texts[fact->name];
      collective.group = trace.texts[fact->group];
      collective.group_size = fact->group_size;
      collective.bytes = std::max(fact->in_elements, fact->out_elements) *
                         bytes_of_dtype(trace.texts[fact->dtype]);
    }
    all.push_back(std::move(collective));
  }
  return all;
}

std::optional<RanksTogether> ranks_together(
    std::span<const std::vector<CollectiveWork>> work_of_ranks) {
  if (work_of_ranks.size() < 2) return std::nullopt;
  RanksTogether together;
  const std::vector<Together> matches = matched(work_of_ranks, together.unmatched);
  if (matches.empty()) return std::nullopt;
  std::vector<std::vector<CollectiveRun>> runs(work_of_ranks.size());
  for (const Together& match : matches)
    for (std::size_t r = 0; r < match.size(); ++r)
      runs[r].push_back(work_of_ranks[r][match[r]].time);
  together.arrivals = arrivals_of(runs);

  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::vector<Transfer>> transfers;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const CollectiveWork& one = work_of_ranks.front()[matches[i].front()];
    transfers[{one.name, one.bytes, one.group_size}].push_back(
        transfer_of(runs, i, together.arrivals));
  }
  for (auto& [key, times] : transfers) {
    const auto& [name, bytes, group_size] = key;
    RanksTogether::Collective sum{
        .name = name, .bytes = bytes, .group_size = group_size, .count = times.size()};
    for (const Transfer& time : times) sum.waited_us += time.waited_us;
    std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2, {}, &Transfer::us);
    sum.median_us = times[times.size() / 2].us;
    if (sum.median_us > 0)
      sum.bus_bandwidth =
          static_cast<double>(bytes) * bus_factor(name, group_size) / (sum.median_us * 1e-6);
    together.collectives.push_back(std::move(sum));
  }
  std::ranges::stable_sort(together.collectives, std::greater(),
                           [](const RanksTogether::Collective& one) {
                             return one.median_us * static_cast<double>(one.count);
                           });
  return together;
}

std::size_t latest_of(const Arrivals& arrivals) {
  const auto latest = std::ranges::max_element(arrivals.ranks, {}, &Arrivals::OfRank::caused_ns);
  return static_cast<std::size_t>(latest - arrivals.ranks.begin());
}

}  // namespace ridge::trace
