#include "ridge/profile/memory_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <unordered_map>

#include "ridge/graph/op_rules.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

MemoryGroup group_of_value(const Graph& graph, const ValueInfo& info) {
  switch (info.role) {
    case Role::input:
      return MemoryGroup::inputs;
    case Role::parameter:
    case Role::buffer:
      return MemoryGroup::parameters;
    case Role::optimizer_state:
      return MemoryGroup::optimizer;
    case Role::gradient:
      return MemoryGroup::gradients;
    case Role::activation:
      break;
  }
  if (info.producer == no_node) return MemoryGroup::activations;
  switch (graph.nodes()[info.producer].phase) {
    case Phase::backward:
      return MemoryGroup::temporaries;
    case Phase::optimizer:
      return MemoryGroup::optimizer;
    case Phase::forward:
      break;
  }
  return MemoryGroup::activations;
}

// Follows a recording's changes one by one.
class Level {
 public:
  explicit Level(const Recording& recording) : owners_(*recording.graph) {}

  void apply(const Recording::MemoryChange& change) {
    std::uint64_t& group = known_[static_cast<std::size_t>(owners_.group_of(change))];
    const std::uint64_t bytes = allocated_for(change.bytes);
    if (change.bytes > 0)
      group += bytes;
    else
      group -= std::min(group, bytes);
    live_ = change.live;
    reserved_ = change.reserved;
    step_ = change.step;
  }

  MemoryPoint at(std::int64_t time_ns) const {
    MemoryPoint point{
        .time_ns = time_ns, .step = step_, .live = live_, .reserved = reserved_, .groups = known_};
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : known_) sum += bytes;
    if (sum < live_) point.groups[static_cast<std::size_t>(MemoryGroup::unknown)] = live_ - sum;
    return point;
  }

 private:
  MemoryOwners owners_;
  MemoryByGroup known_{};
  std::uint64_t live_ = 0, reserved_ = 0;
  std::int32_t step_ = 0;
};

// What is kept of one stretch of time.
struct TimelineStretch {
  std::array<MemoryPoint, 4> kept;  // first, lowest, highest, last
  std::size_t count = 0;

  void add(const MemoryPoint& point) {
    if (count++ == 0) kept.fill(point);
    if (point.live < kept[1].live) kept[1] = point;
    if (point.live > kept[2].live) kept[2] = point;
    kept[3] = point;
  }

  void move_to(std::vector<MemoryPoint>& points) {
    if (count == 0) return;
    std::ranges::stable_sort(kept, {}, &MemoryPoint::time_ns);
    for (const MemoryPoint& point : kept)
      if (points.empty() || points.back().time_ns != point.time_ns ||
          points.back().groups != point.groups)
        points.push_back(point);
    count = 0;
  }
};

// The allocations as columns, beside a table of the tensors they index.
nlohmann::ordered_json allocations_json(const Recording& recording, const TimeSpan& span,
                                        std::size_t max_count) {
  using Json = nlohmann::ordered_json;
  const MemoryOwners owners(*recording.graph);
  const Allocations found = allocations(recording, span.begin_ns, span.end_ns, max_count);
  Json tensors = Json::array(), tensor = Json::array(), bytes = Json::array(),
       begin = Json::array(), end = Json::array();
  std::map<std::pair<bool, std::uint32_t>, std::size_t> index;
  for (const Allocation& a : found.all) {
    const auto [known, added] =
        index.try_emplace({a.change.workspace, a.change.owner}, tensors.size());
    if (added)
      tensors.push_back(
          {{"name", owners.name_of(a.change)},
           {"group", name_of(owners.group_of(a.change))},
           {"type",
            a.change.workspace ? "" : recording.graph->info(a.change.owner).type.to_string()}});
    tensor.push_back(known->second);
    bytes.push_back(a.bytes);
    begin.push_back(a.begin_ns - span.begin_ns);
    end.push_back(a.end_ns - span.begin_ns);
  }
  return {{"left_out", found.left_out}, {"tensors", tensors}, {"tensor", tensor}, {"bytes", bytes},
          {"begin_ns", begin},          {"end_ns", end}};
}

}  // namespace

std::string_view name_of(MemoryGroup group) {
  constexpr std::string_view names[] = {"parameters",  "optimizer",   "inputs",    "gradients",
                                        "activations", "temporaries", "workspace", "unknown"};
  return names[static_cast<int>(group)];
}

MemoryOwners::MemoryOwners(const Graph& graph) : graph_(&graph) {
  const Lifetimes lifetimes = lifetimes_of(graph);
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    group_.push_back(group_of_value(graph, graph.info(id)));
    named_.push_back(id);
  }
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueId storage = lifetimes.storage[id];
    if (graph.info(id).role == Role::gradient) group_[storage] = MemoryGroup::gradients;
    if (graph.info(named_[storage]).name.empty() && !graph.info(id).name.empty())
      named_[storage] = id;
  }
}

MemoryGroup MemoryOwners::group_of(const Recording::MemoryChange& change) const {
  return change.workspace ? MemoryGroup::workspace : group_[change.owner];
}

std::string MemoryOwners::name_of(const Recording::MemoryChange& change) const {
  if (!change.workspace) return display_name(*graph_, named_[change.owner]);
  const Node& node = graph_->nodes()[change.owner];
  return fmt::format("workspace of {}: {}", graph_->scope_name(node.scope),
                     ridge::name_of(*node.op));
}

const std::string& MemoryOwners::module_of(const Recording::MemoryChange& change) const {
  return graph_->scope_name(change.workspace ? graph_->nodes()[change.owner].scope
                                             : graph_->info(change.owner).scope);
}

std::uint64_t allocated_for(std::int64_t bytes) {
  const auto size = static_cast<std::uint64_t>(bytes < 0 ? -bytes : bytes);
  return std::max<std::uint64_t>((size + tensor_alignment - 1) / tensor_alignment, 1) *
         tensor_alignment;
}

MemoryTimeline memory_timeline(const Recording& recording, std::int64_t begin_ns,
                               std::int64_t end_ns, std::size_t max_points) {
  const auto& changes = recording.memory;
  MemoryTimeline timeline{.begin_ns = begin_ns, .end_ns = end_ns};
  Level level(recording);
  std::size_t next = 0;
  for (; next < changes.size() && changes[next].time_ns <= begin_ns; ++next)
    level.apply(changes[next]);
  timeline.points.push_back(level.at(begin_ns));

  const auto inside = static_cast<std::size_t>(
      std::ranges::partition_point(changes, [&](const auto& c) { return c.time_ns <= end_ns; }) -
      changes.begin());
  timeline.complete = inside - next <= max_points;
  const auto stretches = static_cast<std::int64_t>(std::max<std::size_t>(max_points / 4, 1));
  const std::int64_t stretch_ns = (end_ns - begin_ns) / stretches + 1;
  TimelineStretch stretch;
  std::int64_t current = 0;
  for (; next < inside; ++next) {
    level.apply(changes[next]);
    const MemoryPoint point = level.at(changes[next].time_ns);
    if (timeline.complete) {
      timeline.points.push_back(point);
      continue;
    }
    if (const std::int64_t at = (point.time_ns - begin_ns) / stretch_ns; at != current) {
      stretch.move_to(timeline.points);
      current = at;
    }
    stretch.add(point);
  }
  stretch.move_to(timeline.points);
  return timeline;
}

TimeSpan recorded_span(const Recording& recording) {
  if (!recording.steps.empty())
    return {recording.steps.front().begin_ns, recording.steps.back().end_ns};
  if (recording.memory.empty()) return {};
  return {recording.memory.front().time_ns, recording.memory.back().time_ns};
}

Allocations allocations(const Recording& recording, std::int64_t begin_ns, std::int64_t end_ns,
                        std::size_t max_count) {
  Allocations result;
  const auto keep_largest = [&] {
    std::ranges::stable_sort(result.all, [](const Allocation& a, const Allocation& b) {
      return std::tuple(b.bytes, a.begin_ns, a.change.owner) <
             std::tuple(a.bytes, b.begin_ns, b.change.owner);
    });
    if (result.all.size() <= max_count) return;
    result.left_out += result.all.size() - max_count;
    result.all.resize(max_count);
  };
  const auto add = [&](const Recording::MemoryChange& change, std::int64_t until) {
    if (until < begin_ns || change.time_ns > end_ns) return;
    result.all.push_back({change, allocated_for(change.bytes), std::max(change.time_ns, begin_ns),
                          std::min(until, end_ns)});
    // Now and then, so that a long recording takes no more memory than a short one.
    if (result.all.size() >= 2 * max_count + 1000) keep_largest();
  };
  std::unordered_map<std::uint64_t, const Recording::MemoryChange*> alive;  // by address
  for (const Recording::MemoryChange& change : recording.memory) {
    if (change.bytes > 0) {
      alive.insert_or_assign(change.address, &change);
    } else if (const auto it = alive.find(change.address); it != alive.end()) {
      add(*it->second, change.time_ns);
      alive.erase(it);
    }
  }
  for (const auto& [address, change] : alive) add(*change, end_ns);
  keep_largest();
  return result;
}

std::string memory_timeline_json(const Recording& recording, std::size_t max_points,
                                 std::size_t max_allocations) {
  using Json = nlohmann::ordered_json;
  const auto [begin, end] = recorded_span(recording);
  const MemoryTimeline timeline = memory_timeline(recording, begin, end, max_points);
  Json time = Json::array(), step = Json::array(), live = Json::array(), reserved = Json::array();
  Json groups = Json::object();
  for (std::size_t g = 0; g < memory_groups; ++g)
    groups[std::string(name_of(static_cast<MemoryGroup>(g)))] = Json::array();
  for (const MemoryPoint& point : timeline.points) {
    time.push_back(point.time_ns - begin);
    step.push_back(point.step);
    live.push_back(point.live);
    reserved.push_back(point.reserved);
    for (std::size_t g = 0; g < memory_groups; ++g)
      groups[std::string(name_of(static_cast<MemoryGroup>(g)))].push_back(point.groups[g]);
  }
  Json phases = Json::array(), steps = Json::array();
  const auto listed = [&](const auto& records) {  // no more of these than of points
    return std::span(records).first(std::min(records.size(), max_points));
  };
  for (const Recording::Step& s : listed(recording.steps))
    steps.push_back(
        {{"step", s.step}, {"begin_ns", s.begin_ns - begin}, {"end_ns", s.end_ns - begin}});
  for (const Recording::PhaseRun& p : listed(recording.phases))
    phases.push_back({{"phase", name_of(p.phase)},
                      {"step", p.step},
                      {"begin_ns", p.begin_ns - begin},
                      {"end_ns", p.end_ns - begin}});
  const Json json{{"unit", "bytes"},
                  {"begin_ns_since_1970", recording.epoch_ns + begin},
                  {"duration_ns", end - begin},
                  {"complete", timeline.complete},
                  {"dropped_records", recording.dropped},
                  {"steps_left_out", recording.steps.size() - steps.size()},
                  {"phases_left_out", recording.phases.size() - phases.size()},
                  {"steps", steps},
                  {"phases", phases},
                  {"time_ns", time},
                  {"step", step},
                  {"live_bytes", live},
                  {"reserved_bytes", reserved},
                  {"bytes_by_group", groups},
                  {"allocations", allocations_json(recording, {begin, end}, max_allocations)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
