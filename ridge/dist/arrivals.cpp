#include "ridge/dist/arrivals.h"

#include <algorithm>

namespace ridge {
namespace {

using Runs = std::vector<CollectiveRun>;

// The median of how much later one rank's clock has the ends than another's.
std::int64_t ahead_of(const Runs& runs, const Runs& first) {
  std::vector<std::int64_t> differences;
  for (std::size_t i = 0; i < runs.size(); ++i)
    differences.push_back(runs[i].end_ns - first[i].end_ns);
  const auto middle = differences.begin() + std::ssize(differences) / 2;
  std::nth_element(differences.begin(), middle, differences.end());
  return differences.empty() ? 0 : *middle;
}

}  // namespace

Arrivals arrivals_of(std::span<const Runs> runs_of_ranks) {
  Arrivals all;
  all.ranks.resize(runs_of_ranks.size());
  all.ahead_ns.assign(runs_of_ranks.size(), 0);
  if (runs_of_ranks.empty()) return all;
  const std::size_t runs = runs_of_ranks.front().size();
  const auto has_as_many = [&](const Runs& of_rank) { return of_rank.size() == runs; };
  if (!std::ranges::all_of(runs_of_ranks, has_as_many)) return all;
  all.collectives = static_cast<std::int64_t>(runs);
  for (std::size_t r = 0; r < runs_of_ranks.size(); ++r)
    all.ahead_ns[r] = ahead_of(runs_of_ranks[r], runs_of_ranks.front());
  for (std::size_t i = 0; i < runs; ++i) {
    std::vector<std::int64_t> begins;
    for (std::size_t r = 0; r < runs_of_ranks.size(); ++r)
      begins.push_back(runs_of_ranks[r][i].begin_ns - all.ahead_ns[r]);
    const auto last = std::ranges::max_element(begins);
    for (std::size_t r = 0; r < begins.size(); ++r) all.ranks[r].waited_ns += *last - begins[r];
    constexpr std::int64_t at_once_ns = 1000;
    const std::int64_t waited = *last - std::ranges::min(begins);
    if (waited <= at_once_ns) continue;
    Arrivals::OfRank& late = all.ranks[static_cast<std::size_t>(last - begins.begin())];
    ++late.last;
    late.caused_ns += waited;
  }
  return all;
}

}  // namespace ridge
