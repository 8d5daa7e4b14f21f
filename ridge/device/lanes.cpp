#include "ridge/device/lanes.h"

#include <algorithm>
#include <limits>

namespace ridge {
namespace {

// The works of each lane, in order.
using Lanes = std::vector<std::vector<std::size_t>>;

// By lane, how many of its first works are done before a work.
using Done = std::vector<std::size_t>;

// Of the lanes whose last work is done, the one whose last work came latest, and an empty one only
// where there is no other; if none is done, the one whose last work came earliest.
std::size_t choose_lane(const Lanes& lanes, const Done& done) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  std::size_t free = none, oldest = 0;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    if (done[l] == lanes[l].size()) {
      const bool better = free == none || lanes[free].empty() ||
                          (!lanes[l].empty() && lanes[l].back() > lanes[free].back());
      if (better) free = l;
    } else if (free == none && lanes[l].back() < lanes[oldest].back()) {
      oldest = l;
    }
  }
  return free == none ? oldest : free;
}

}  // namespace

std::vector<std::vector<std::size_t>> follow_in_lanes(std::span<const DeviceWork> works,
                                                      std::size_t lanes) {
  std::vector<std::vector<std::size_t>> after;
  std::vector<Done> done(works.size(), Done(lanes, 0));
  const auto follow = [&done](std::size_t work, std::size_t before) {
    std::ranges::transform(done[work], done[before], done[work].begin(),
                           [](std::size_t a, std::size_t b) { return std::max(a, b); });
  };
  Lanes in_lane(lanes);
  for (std::size_t i = 0; i < works.size(); ++i) {
    after.push_back(works[i].after);
    for (const std::size_t j : after[i]) follow(i, j);
    const std::size_t l = choose_lane(in_lane, done[i]);
    std::vector<std::size_t>& lane = in_lane[l];
    if (done[i][l] < lane.size()) {
      after[i].push_back(lane.back());
      follow(i, lane.back());
    }
    lane.push_back(i);
    done[i][l] = lane.size();
  }
  return after;
}

}  // namespace ridge
