#include "ridge/plan/launch_order.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace ridge {
namespace {

// A launch can wait if its longest chain is at least this many launches shorter than the longest.
constexpr std::size_t enough_slack = 3;

// For each launch, the longest chains that lead to it and that follow it, in launches.
struct Chains {
  std::vector<std::size_t> before, behind;

  // `order` respects `after`.
  Chains(const Precedence& after, std::span<const std::size_t> order)
      : before(after.size(), 0), behind(after.size(), 0) {
    for (const std::size_t i : order)
      for (const std::size_t j : after[i]) before[i] = std::max(before[i], before[j] + 1);
    for (std::size_t k = order.size(); k-- > 0;)
      for (const std::size_t j : after[order[k]])
        behind[j] = std::max(behind[j], behind[order[k]] + 1);
  }
  std::size_t through(std::size_t i) const { return before[i] + behind[i]; }
};

std::vector<std::size_t> any_order(const Precedence& after) {
  std::vector<std::size_t> order, open(after.size()), ready;
  std::vector<std::vector<std::size_t>> followers(after.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    open[i] = after[i].size();
    if (open[i] == 0) ready.push_back(i);
    for (const std::size_t j : after[i]) followers[j].push_back(i);
  }
  while (!ready.empty()) {
    order.push_back(ready.back());
    ready.pop_back();
    for (const std::size_t i : followers[order.back()])
      if (--open[i] == 0) ready.push_back(i);
  }
  return order;
}

// Whether one launch follows another, directly or not.
bool follows(const Precedence& after, std::size_t piece, std::size_t other) {
  std::vector<bool> seen(after.size(), false);
  std::vector<std::size_t> open{piece};
  while (!open.empty()) {
    const std::size_t i = open.back();
    open.pop_back();
    if (i == other) return true;
    for (const std::size_t j : after[i]) {
      if (!seen[j]) open.push_back(j);
      seen[j] = true;
    }
  }
  return false;
}

}  // namespace

std::vector<bool> defer_background(Precedence& after, std::span<const Footprint> footprints) {
  const Precedence given = after;
  const Chains chains(given, any_order(given));
  std::size_t longest = 0;
  for (std::size_t i = 0; i < given.size(); ++i) longest = std::max(longest, chains.through(i));
  std::vector<bool> background(given.size(), false);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (footprints[i] != Footprint::some || chains.through(i) + enough_slack > longest) continue;
    background[i] = true;
    for (std::size_t room = i + 1; room < given.size(); ++room) {
      if (footprints[room] != Footprint::few || follows(after, room, i)) continue;
      for (const std::size_t j : given[room])
        if (std::ranges::find(after[i], j) == after[i].end()) after[i].push_back(j);
      break;
    }
  }
  return background;
}

std::vector<std::size_t> critical_first(const Precedence& after) {
  const Chains chains(after, any_order(after));
  std::vector<std::size_t> open(after.size()), order;
  std::vector<std::vector<std::size_t>> followers(after.size());
  using Entry = std::pair<std::size_t, std::size_t>;  // what follows, and how early it was given
  std::priority_queue<Entry> ready;
  const auto add = [&](std::size_t i) { ready.push({chains.behind[i], after.size() - i}); };
  for (std::size_t i = 0; i < after.size(); ++i) {
    open[i] = after[i].size();
    if (open[i] == 0) add(i);
    for (const std::size_t j : after[i]) followers[j].push_back(i);
  }
  while (!ready.empty()) {
    const std::size_t next = after.size() - ready.top().second;
    ready.pop();
    order.push_back(next);
    for (const std::size_t i : followers[next])
      if (--open[i] == 0) add(i);
  }
  return order;
}

}  // namespace ridge
