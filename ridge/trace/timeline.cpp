#include "ridge/trace/timeline.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

namespace ridge::trace {
namespace {

constexpr int most_depth = 12;  // lanes of a thread

struct DrawnSlice {
  std::int64_t begin, end;
  TextPool::Id name;
  WorkClass work;
};
using LaneKey = std::tuple<bool, std::uint32_t, int>;  // host, track, depth
using Lanes = std::map<LaneKey, std::vector<DrawnSlice>>;

// The depths at which rows of the critical path stand on their threads.
class PathDepths {
 public:
  PathDepths(const Trace& trace, const CriticalPath* path)
      : wanted_(path ? trace.events.size() : 0) {
    if (!path) return;
    for (const PathPiece& piece : path->pieces)
      if (piece.row != no_row) wanted_[piece.row] = true;
  }
  void note(Row row, int depth) {
    if (!wanted_.empty() && wanted_[row]) depths_[row] = depth;
  }
  std::optional<int> of(Row row) const {
    const auto at = depths_.find(row);
    return at == depths_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  std::vector<bool> wanted_;
  std::unordered_map<Row, int> depths_;
};

void add_device_lanes(const Trace& trace, const Work& work, Lanes& lanes) {
  if (work.of_host) return;
  for (const DeviceWork& one : work.device)
    lanes[{false, trace.events.track[one.row], 0}].push_back(
        {trace.events.begin_ns[one.row], trace.events.end_ns(one.row), trace.events.name[one.row],
         one.work});
}

// Python's functions are many and deep: where there are operators, only modules' stand among them.
bool is_module(const Trace& trace, Row row) { return trace.name(row).starts_with("nn.Module"); }

std::map<std::uint32_t, std::vector<Row>> rows_of_threads(const Trace& trace) {
  std::map<std::uint32_t, std::vector<Row>> rows, functions;
  for (Row row = 0; row < trace.events.size(); ++row) {
    const EventKind kind = trace.events.kind[row];
    const std::uint32_t track = trace.events.track[row];
    if (kind == EventKind::python && !is_module(trace, row))
      functions[track].push_back(row);
    else if (kind == EventKind::operation || kind == EventKind::call ||
             kind == EventKind::annotation || kind == EventKind::python)
      rows[track].push_back(row);
  }
  for (auto& [track, of_track] : functions) rows.try_emplace(track, std::move(of_track));
  return rows;
}

// Each slice in the lane below those that it begins within.
void add_host_lanes(const Trace& trace, Lanes& lanes, PathDepths& depths) {
  const EventColumns& events = trace.events;
  auto threads = rows_of_threads(trace);
  for (auto& [track, rows] : threads) {
    sort_outer_first(events, rows);
    std::vector<std::int64_t> ends;
    for (const Row row : rows) {
      const std::int64_t begin = events.begin_ns[row];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      const int depth = static_cast<int>(ends.size());
      const std::int64_t end =
          ends.empty() ? events.end_ns(row) : std::min(events.end_ns(row), ends.back());
      if (end <= begin) continue;
      if (depth < most_depth) {
        lanes[{true, track, depth}].push_back({begin, end, events.name[row], WorkClass::compute});
        depths.note(row, depth);
      }
      ends.push_back(end);
    }
  }
}

// Joins neighbours that are shorter than the resolution.
class LaneBuilder {
 public:
  LaneBuilder(Lane& lane, std::int64_t zero, std::int64_t resolution,
              const std::optional<Interval>& detail)
      : lane_(lane), zero_(zero), resolution_(resolution), detail_(detail) {}

  void add(const DrawnSlice& slice) {
    const bool alone = slice.end - slice.begin >= resolution_ || is_in_detail(slice);
    const bool joins = !alone && open_ && slice.begin - end_ <= resolution_ &&
                       slice.end - begin_ <= 2 * resolution_;
    if (!joins) flush();
    if (!open_) {
      open_ = true;
      begin_ = slice.begin;
      longest_ = slice;
      count_ = 0;
    }
    if (slice.end - slice.begin > longest_.end - longest_.begin) longest_ = slice;
    end_ = std::max(end_, slice.end);
    ++count_;
    if (alone) flush();
  }
  void flush() {
    if (!open_) return;
    lane_.begin_ns.push_back(begin_ - zero_);
    lane_.duration_ns.push_back(end_ - begin_);
    lane_.name.push_back(longest_.name);
    lane_.work.push_back(longest_.work);
    lane_.count.push_back(count_);
    open_ = false;
    end_ = std::numeric_limits<std::int64_t>::min();
  }

 private:
  bool is_in_detail(const DrawnSlice& slice) const {
    return detail_ && slice.end > detail_->begin_ns && slice.begin < detail_->end_ns;
  }

  Lane& lane_;
  std::int64_t zero_, resolution_;
  const std::optional<Interval>& detail_;
  bool open_ = false;
  std::int64_t begin_ = 0, end_ = std::numeric_limits<std::int64_t>::min();
  std::uint32_t count_ = 0;
  DrawnSlice longest_{};
};

std::size_t fill(Timeline& timeline, const Lanes& lanes) {
  timeline.lanes.clear();
  std::size_t slices = 0;
  for (const auto& [key, of_lane] : lanes) {
    Lane& lane = timeline.lanes.emplace_back();
    lane.track = std::get<1>(key);
    lane.depth = std::get<2>(key);
    LaneBuilder builder(lane, timeline.begin_ns, timeline.resolution_ns, timeline.detail);
    for (const DrawnSlice& slice : of_lane) builder.add(slice);
    builder.flush();
    slices += lane.begin_ns.size();
  }
  return slices;
}

std::vector<DrawnSlice> slices_of(const CriticalPath* path) {
  std::vector<DrawnSlice> slices;
  if (!path) return slices;
  for (std::uint32_t i = 0; i < path->pieces.size(); ++i)
    slices.push_back({path->pieces[i].begin_ns, path->pieces[i].end_ns, i, WorkClass::compute});
  return slices;
}

std::size_t fill_path(Timeline& timeline, const std::vector<DrawnSlice>& slices) {
  timeline.path = {};
  LaneBuilder builder(timeline.path.slices, timeline.begin_ns, timeline.resolution_ns,
                      timeline.detail);
  for (const DrawnSlice& slice : slices) builder.add(slice);
  builder.flush();
  return timeline.path.slices.begin_ns.size();
}

void find_lanes(const Trace& trace, const CriticalPath& path, const PathDepths& depths,
                const Lanes& lanes, PathLane& drawn) {
  const auto lane_of = [&](Row row) {
    const std::uint32_t track = trace.events.track[row];
    const std::optional<int> depth = depths.of(row);
    const auto at = is_on_device(trace.events.kind[row]) ? lanes.find({false, track, 0})
                    : depth                              ? lanes.find({true, track, *depth})
                                                         : lanes.end();
    return at == lanes.end() ? PathLane::no_lane
                             : static_cast<std::uint32_t>(std::distance(lanes.begin(), at));
  };
  for (std::size_t i = 0; i < drawn.slices.name.size(); ++i) {
    const Row row = path.pieces[drawn.slices.name[i]].row;
    drawn.lane.push_back(drawn.slices.count[i] == 1 && row != no_row ? lane_of(row)
                                                                     : PathLane::no_lane);
  }
}

// The step in the middle, as card and host have it.
std::optional<Interval> middle_step(const Trace& trace, const Work& work) {
  if (work.steps.empty()) return std::nullopt;
  const Step& step = work.steps[work.steps.size() / 2];
  Interval whole = step.host;
  for (const DeviceWork& one : work.device) {
    if (one.step != step.number) continue;
    whole.begin_ns = std::min(whole.begin_ns, trace.events.begin_ns[one.row]);
    whole.end_ns = std::max(whole.end_ns, trace.events.end_ns(one.row));
  }
  return whole;
}

std::size_t slices_within(const Lanes& lanes, const Interval& window) {
  std::size_t count = 0;
  for (const auto& [_, of_lane] : lanes)
    count += static_cast<std::size_t>(std::ranges::count_if(of_lane, [&](const DrawnSlice& slice) {
      return slice.end > window.begin_ns && slice.begin < window.end_ns;
    }));
  return count;
}

}  // namespace

Timeline timeline_of(const Trace& trace, const Work& work, std::size_t most_slices,
                     const CriticalPath* path) {
  Lanes lanes;
  PathDepths depths(trace, path);
  add_device_lanes(trace, work, lanes);
  add_host_lanes(trace, lanes, depths);
  Timeline timeline;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (auto& [_, of_lane] : lanes) {
    std::ranges::stable_sort(of_lane, {}, &DrawnSlice::begin);
    begin = std::min(begin, of_lane.front().begin);
    for (const DrawnSlice& slice : of_lane) end = std::max(end, slice.end);
  }
  if (lanes.empty()) return timeline;
  timeline.begin_ns = begin;
  timeline.duration_ns = std::max<std::int64_t>(end - begin, 1);
  const std::vector<DrawnSlice> on_path = slices_of(path);
  const auto fill_all = [&] { return fill(timeline, lanes) + fill_path(timeline, on_path); };
  if (fill_all() > most_slices) {
    timeline.detail = middle_step(trace, work);
    if (timeline.detail && slices_within(lanes, *timeline.detail) > most_slices / 2)
      timeline.detail.reset();
    timeline.resolution_ns = std::max<std::int64_t>(timeline.duration_ns / 1'000'000, 1);
    while (fill_all() > most_slices && timeline.resolution_ns < timeline.duration_ns)
      timeline.resolution_ns *= 2;
  }
  if (path) find_lanes(trace, *path, depths, lanes, timeline.path);
  return timeline;
}

}  // namespace ridge::trace
