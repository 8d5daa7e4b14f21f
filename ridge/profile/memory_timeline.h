#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/profile/recording.h"

namespace ridge {

// What memory is used for. Gradients are those of parameters; what the backward phase computes on
// its way to them is temporary. `unknown` is what the recording has no room to explain.
enum class MemoryGroup : std::uint8_t {
  parameters,
  optimizer,
  inputs,
  gradients,
  activations,
  temporaries,
  workspace,
  unknown
};
inline constexpr std::size_t memory_groups = 8;
std::string_view name_of(MemoryGroup group);

using MemoryByGroup = std::array<std::uint64_t, memory_groups>;  // bytes

// The groups of a graph's storages, and names for them: those of the values people named where any
// of the values that share a storage has a name.
class MemoryOwners {
 public:
  explicit MemoryOwners(const Graph& graph);
  MemoryGroup group_of(const Recording::MemoryChange& change) const;
  std::string name_of(const Recording::MemoryChange& change) const;
  const std::string& module_of(const Recording::MemoryChange& change) const;  // a scope's path

 private:
  const Graph* graph_;
  std::vector<MemoryGroup> group_;  // by storage
  std::vector<ValueId> named_;      // by storage
};

// What the allocator takes for a change of `bytes`: a multiple of its alignment.
std::uint64_t allocated_for(std::int64_t bytes);

// What was allocated from `time_ns` on, until the next point.
struct MemoryPoint {
  std::int64_t time_ns = 0;
  std::int32_t step = 0;
  std::uint64_t live = 0, reserved = 0;  // as the allocator counted them
  MemoryByGroup groups{};                // adds up to `live`
};

struct MemoryTimeline {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<MemoryPoint> points;  // in order of time; the first at begin_ns
  bool complete = true;             // else downsampled
};

// Memory between two moments. No more than `max_points` changes are all kept; of more, each of
// max_points / 4 equal stretches of time keeps its first, its lowest, its highest and its last, so
// that every peak remains as high as it was and at its moment.
MemoryTimeline memory_timeline(const Recording& recording, std::int64_t begin_ns,
                               std::int64_t end_ns, std::size_t max_points = 8000);

// The moments between which steps were recorded; of a recording without steps, all of it.
struct TimeSpan {
  std::int64_t begin_ns = 0, end_ns = 0;
};
TimeSpan recorded_span(const Recording& recording);

// One stay of a tensor or a workspace in memory, within a stretch of time.
struct Allocation {
  Recording::MemoryChange change;  // that took the memory
  std::uint64_t bytes = 0;         // alignment included
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Everything that was allocated between two moments, the largest first and then by time; of more
// than `max_count`, the largest, and how many were left out.
struct Allocations {
  std::vector<Allocation> all;
  std::uint64_t left_out = 0;
};
Allocations allocations(const Recording& recording, std::int64_t begin_ns, std::int64_t end_ns,
                        std::size_t max_count = 20000);

// memory_timeline.json: the whole recording's, and who held the memory when.
std::string memory_timeline_json(const Recording& recording, std::size_t max_points = 8000,
                                 std::size_t max_allocations = 20000);

}  // namespace ridge
