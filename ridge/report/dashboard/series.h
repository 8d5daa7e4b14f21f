#pragma once

// Kept runs as series: runs of equal configuration and machine, drawn over time or over a size.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
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

// Indices, in order, of at most so many points (at least 4) that draw like all: the first, the
// last, and the least and the largest of each of equal spans of time.
std::vector<std::size_t> sampled(std::span<const SeriesPoint> points, std::size_t at_most);

// What a metric of the runs of a filter was over time: of each of the `most` longest series the
// points, fewer of them if there are many, and the changes of its level, each with the runs and the
// commits on both sides. docs/use/dashboard.md describes the members.
nlohmann::ordered_json trend_json(Store& store, Configurations& configurations,
                                  std::string_view filter, std::string_view metric,
                                  std::size_t most = 8);

// "tiny_llama training v4 bf16, batch 8 x 128"
std::string label_of(const RunRow& run);
// Makes equal labels differ, by what their runs' options, but for one, and machines have different.
void tell_apart(Store& store, std::span<const RunRow> runs, std::vector<std::string>& labels,
                std::string_view without = {});

}  // namespace ridge
