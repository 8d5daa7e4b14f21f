#pragma once

// Kept runs as series: those of equal configuration on one machine, in the order of time.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ridge/study/store.h"

namespace ridge {

// Which sets of options are the same configuration (study/configuration.h). Remembers those that it
// has read, since a store of many runs has thousands. May be used by several threads.
class Configurations {
 public:
  // A number for each id of the store's sets of options, the same for the same configuration.
  std::unordered_map<std::int64_t, std::uint32_t> numbers(Store& store);

 private:
  std::mutex mutex_;
  std::unordered_map<std::int64_t, std::uint32_t> by_hash_;
  std::map<std::string, std::uint32_t, std::less<>> by_text_;
};

struct RunSeries {
  std::uint32_t configuration = 0;
  std::int64_t machine = 0;
  std::vector<std::uint32_t> points;  // indices, in order
};
// Points, which are by time, by configuration and machine; the longest series first, of equal ones
// the newest.
std::vector<RunSeries> series_of(std::span<const SeriesPoint> points,
                                 const std::unordered_map<std::int64_t, std::uint32_t>& numbers);

}  // namespace ridge
