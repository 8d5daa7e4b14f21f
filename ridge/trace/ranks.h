#pragma once

// Several traces of one run, one of each rank, side by side.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/dist/arrivals.h"
#include "ridge/trace/device_work.h"

namespace ridge::trace {

// A collective that a rank took part in.
struct CollectiveWork {
  std::string name;             // "allreduce"; the kernel's name if the trace tells no other
  std::string group;            // of processes; empty if the trace does not say
  std::int64_t bytes = 0;       // that the rank gives or gets, whichever is more; 0 if unknown
  std::int64_t group_size = 0;  // ranks; 0 if unknown
  CollectiveRun time;
};

// In the order of time.
std::vector<CollectiveWork> collective_work(const Trace& trace, const Work& work,
                                            const HostNesting& nesting);

struct RanksTogether {
  // Collectives of one name and size.
  struct Collective {
    std::string name;
    std::int64_t bytes = 0, group_size = 0;
    std::uint64_t count = 0;
    double median_us = 0;  // from the begin of the last rank to the end
    double waited_us = 0;  // by the first rank to come for the last, in all
    // What a link would have to carry in each direction, in bytes a second: NCCL's bus bandwidth
    // (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). 0 if the size or what
    // the collective does is unknown.
    double bus_bandwidth = 0;
  };
  Arrivals arrivals;
  std::vector<Collective> collectives;  // most time first
  std::uint64_t unmatched = 0;          // that not all ranks have, in all of them
};

// Collectives belong together that are the n-th of their name, group and size on every rank; those
// that some rank has more often than another are left out. None for fewer than two ranks or if
// they have no collective together.
std::optional<RanksTogether> ranks_together(
    std::span<const std::vector<CollectiveWork>> work_of_ranks);

// The rank for which the others wait longest.
std::size_t latest_of(const Arrivals& arrivals);

}  // namespace ridge::trace
