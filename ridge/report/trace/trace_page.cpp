#include "ridge/report/trace/trace_page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ridge/report/page/assets.h"
#include "ridge/report/page_template.h"
#include "ridge/report/trace/page/trace_assets.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_slices = 150'000;  // some 4 MB of page
constexpr std::size_t most_rows = 5'000;      // of a table

std::string name_of(const trace::Trace& trace, const trace::Track& track) {
  const auto process = trace.process_names.find(track.process);
  if (track.device) return fmt::format("card {}, stream {}", track.process, track.thread);
  std::string name =
      track.thread_name.empty() ? fmt::format("thread {}", track.thread) : track.thread_name;
  if (process != trace.process_names.end()) name = process->second + ", " + name;
  return name;
}

// Texts by numbers of a page's own, in the order in which they come.
class PageNames {
 public:
  explicit PageNames(const std::vector<std::string>& texts)
      : texts_(texts), number_(texts.size(), -1) {}

  std::int64_t operator()(trace::TextPool::Id id) {
    if (number_[id] < 0) {
      number_[id] = static_cast<std::int64_t>(names_.size());
      names_.push_back(texts_[id]);
    }
    return number_[id];
  }
  std::int64_t add(const std::string& text) {
    names_.push_back(text);
    return static_cast<std::int64_t>(names_.size()) - 1;
  }
  Json take() { return std::move(names_); }

 private:
  const std::vector<std::string>& texts_;
  std::vector<std::int64_t> number_;
  Json names_ = Json::array();
};

Json json_of(const DrawnPath& drawn, const trace::PathLane& lane, PageNames& names) {
  std::vector<std::int64_t> name_of_share(drawn.path.shares.size(), -1);
  Json name = Json::array(), kind = Json::array(), held_by = Json::array(),
       waited_for = Json::array(), lanes = Json::array();
  for (std::size_t i = 0; i < drawn.slices.size(); ++i) {
    const DrawnPath::Slice& slice = drawn.slices[i];
    const trace::PathShare& share = drawn.path.shares[slice.share];
    std::int64_t& number = name_of_share[slice.share];
    if (number < 0) number = names.add(share.name);
    name.push_back(number);
    kind.push_back(static_cast<int>(share.kind));
    held_by.push_back(static_cast<int>(slice.held_by));
    waited_for.push_back(slice.waited_for == 0 ? -1 : names(slice.waited_for));
    const std::uint32_t at = lane.lane[i];
    lanes.push_back(at == trace::PathLane::no_lane ? -1 : static_cast<std::int64_t>(at));
  }
  Json kinds = Json::array(), words = Json::array();
  for (int one = 0; one <= static_cast<int>(trace::PathKind::unknown); ++one) {
    kinds.push_back(trace::path_kind_name(static_cast<trace::PathKind>(one)));
    words.push_back(trace::path_kind_words(static_cast<trace::PathKind>(one)));
  }
  return {{"begin_ns", lane.slices.begin_ns},
          {"duration_ns", lane.slices.duration_ns},
          {"name", std::move(name)},
          {"count", lane.slices.count},
          {"kind", std::move(kind)},
          {"held_by", std::move(held_by)},
          {"waited_for", std::move(waited_for)},
          {"lane", std::move(lanes)},
          {"kinds", std::move(kinds)},
          {"words", std::move(words)}};
}

Json json_of(const DrawnTimeline& drawn) {
  const trace::Timeline& timeline = drawn.timeline;
  PageNames names(drawn.names);
  Json lanes = Json::array(), steps = Json::array();
  for (const trace::Lane& lane : timeline.lanes) {
    Json name = Json::array(), work = Json::array();
    for (const auto id : lane.name) name.push_back(names(id));
    for (const trace::WorkClass one : lane.work) work.push_back(static_cast<int>(one));
    lanes.push_back({{"track", drawn.tracks[lane.track]},
                     {"depth", lane.depth},
                     {"begin_ns", lane.begin_ns},
                     {"duration_ns", lane.duration_ns},
                     {"name", std::move(name)},
                     {"count", lane.count},
                     {"work", std::move(work)}});
  }
  for (const trace::Step& step : drawn.steps)
    steps.push_back({{"step", step.number},
                     {"begin_ns", step.host.begin_ns - timeline.begin_ns},
                     {"end_ns", step.host.end_ns - timeline.begin_ns}});
  Json detail, path;
  if (timeline.detail)
    detail = {timeline.detail->begin_ns - timeline.begin_ns,
              timeline.detail->end_ns - timeline.begin_ns};
  if (drawn.path) path = json_of(*drawn.path, timeline.path, names);
  return {{"duration_ns", timeline.duration_ns},
          {"resolution_ns", timeline.resolution_ns},
          {"detail", std::move(detail)},
          {"names", names.take()},
          {"steps", std::move(steps)},
          {"path", std::move(path)},
          {"lanes", std::move(lanes)}};
}

// A page shows as many rows as anyone scrolls through.
void shorten(Json& rows) {
  if (rows.size() > most_rows) rows.erase(rows.begin() + most_rows, rows.end());
}

}  // namespace

DrawnTimeline::DrawnTimeline(const trace::Trace& trace, const trace::Work& work,
                             const trace::HostNesting& nesting)
    : names(trace.texts.size()), steps(work.steps) {
  std::optional<trace::CriticalPath> found;
  if (!work.of_host && !work.device.empty()) found = trace::critical_path(trace, work, nesting);
  timeline = trace::timeline_of(trace, work, most_slices, found ? &*found : nullptr);
  for (const trace::Lane& lane : timeline.lanes)
    for (const auto id : lane.name) name(trace, id, lane.track);
  for (const trace::Track& track : trace.tracks) tracks.push_back(name_of(trace, track));
  if (found) keep_path(trace, std::move(*found));
}

void DrawnTimeline::name(const trace::Trace& trace, trace::TextPool::Id id, std::uint32_t track) {
  if (names[id].empty())
    names[id] =
        trace.tracks[track].device ? trace::short_kernel_name(trace.texts[id]) : trace.texts[id];
}

void DrawnTimeline::keep_path(const trace::Trace& trace, trace::CriticalPath&& found) {
  path.emplace();
  for (const auto number : timeline.path.slices.name) {
    const trace::PathPiece& piece = found.pieces[number];
    DrawnPath::Slice& slice =
        path->slices.emplace_back(DrawnPath::Slice{piece.share, piece.held_by, 0});
    if (piece.waited_for == trace::no_row) continue;
    slice.waited_for = trace.events.name[piece.waited_for];
    name(trace, slice.waited_for, trace.events.track[piece.waited_for]);
  }
  found.pieces = {};
  path->path = std::move(found);
}

std::string trace_page(const trace::RunReport& run, const DrawnTimeline& drawn) {
  Json document = Json::parse(trace::report_json(run));
  for (Json& rank : document["ranks"])
    for (const char* table : {"operators", "kernels_by_name"}) shorten(rank[table]);
  document["timeline"] = json_of(drawn);
  if (drawn.path) {
    document["critical_path"] = Json::parse(trace::critical_path_json(drawn.path->path));
    shorten(document["critical_path"]["shares"]);
  }
  const std::string style = std::string(page_style) + std::string(trace_style);
  const std::string_view scripts[] = {page_common, trace_view, trace_tables, trace_timeline,
                                      trace_path};
  return page_of(document, style, scripts, "drawTrace()");
}

}  // namespace ridge
