#include "ridge/study/run_series.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/study/configuration.h"

namespace ridge {
namespace {

std::string configuration_text(const std::string& options) {
  try {
    return configuration_of(options);
  } catch (const FormatError&) {
    return options;  // of a store that somebody else wrote
  }
}

}  // namespace

std::unordered_map<std::int64_t, std::uint32_t> Configurations::numbers(Store& store) {
  const std::lock_guard lock(mutex_);
  std::unordered_map<std::int64_t, std::uint32_t> numbers;
  for (const auto& [id, hash] : store.option_sets()) {
    auto known = by_hash_.find(hash);
    if (known == by_hash_.end()) {
      const auto next = static_cast<std::uint32_t>(by_text_.size());
      const auto text = by_text_.try_emplace(configuration_text(store.options(id)), next).first;
      known = by_hash_.emplace(hash, text->second).first;
    }
    numbers.emplace(id, known->second);
  }
  return numbers;
}

std::vector<RunSeries> series_of(std::span<const SeriesPoint> points,
                                 const std::unordered_map<std::int64_t, std::uint32_t>& numbers) {
  // Ids count from 1: a list of them is looked up faster than a table, a million times.
  constexpr std::uint32_t unknown = ~0u;
  constexpr std::size_t longest_list = std::size_t{1} << 22;
  std::vector<std::uint32_t> by_id;
  for (const auto& [id, number] : numbers) {
    if (id < 0 || std::cmp_greater_equal(id, longest_list)) continue;
    const auto place = static_cast<std::size_t>(id);
    if (by_id.size() <= place) by_id.resize(place + 1, unknown);
    by_id[place] = number;
  }
  std::vector<RunSeries> all;
  std::unordered_map<std::uint64_t, std::size_t> places;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const SeriesPoint& point = points[i];
    const auto id = static_cast<std::size_t>(point.options);
    const std::uint32_t configuration = id < by_id.size() ? by_id[id] : unknown;
    const auto key =
        (std::uint64_t{configuration} << 32) ^ static_cast<std::uint64_t>(point.machine);
    const auto [place, is_new] = places.try_emplace(key, all.size());
    if (is_new) all.push_back({.configuration = configuration, .machine = point.machine});
    all[place->second].points.push_back(static_cast<std::uint32_t>(i));
  }
  std::ranges::sort(all, std::ranges::greater(), [&](const RunSeries& series) {
    return std::pair(series.points.size(), points[series.points.back()].created);
  });
  return all;
}

}  // namespace ridge
