#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridge {

// When a rank was in a collective, by its own clock.
struct CollectiveRun {
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Who comes late to the collectives of a run. The ranks' clocks are set by the ends of the
// collectives, which all ranks have at the same time.
struct Arrivals {
  struct OfRank {
    // From its own begin of a collective to that of the rank which came last.
    std::int64_t waited_ns = 0;
    std::int64_t last = 0;       // collectives to which it came last, by more than a microsecond
    std::int64_t caused_ns = 0;  // that the first to come waited for it then
  };
  std::vector<std::int64_t> ahead_ns;  // each rank's clock of the first one's; 0 if unknown
  std::int64_t collectives = 0;  // that were compared; 0 if the ranks do not have as many each
  std::vector<OfRank> ranks;
};

// The runs of each rank, in the order in which all ranks have them.
Arrivals arrivals_of(std::span<const std::vector<CollectiveRun>> runs_of_ranks);

}  // namespace ridge
