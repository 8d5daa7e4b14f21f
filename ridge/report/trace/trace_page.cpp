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

Json json_of(const DrawnTimeline& drawn) {
  const trace::Timeline& timeline = drawn.timeline;
  // Names by numbers of their own, in the order in which they come.
  std::vector<std::int64_t> number(drawn.names.size(), -1);
  Json names = Json::array(), lanes = Json::array(), steps = Json::array();
  for (const trace::Lane& lane : timeline.lanes) {
    Json name = Json::array(), work = Json::array();
    for (const auto id : lane.name) {
      if (number[id] < 0) {
        number[id] = static_cast<std::int64_t>(names.size());
        names.push_back(drawn.names[id]);
      }
      name.push_back(number[id]);
    }
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
  Json detail;
  if (timeline.detail)
    detail = {timeline.detail->begin_ns - timeline.begin_ns,
              timeline.detail->end_ns - timeline.begin_ns};
  return {{"duration_ns", timeline.duration_ns}, {"resolution_ns", timeline.resolution_ns},
          {"detail", std::move(detail)},         {"names", std::move(names)},
          {"steps", std::move(steps)},           {"lanes", std::move(lanes)}};
}

// A page shows as many rows as anyone scrolls through.
void shorten(Json& rows) {
  if (rows.size() > most_rows) rows.erase(rows.begin() + most_rows, rows.end());
}

}  // namespace

DrawnTimeline::DrawnTimeline(const trace::Trace& trace, const trace::Work& work)
    : timeline(trace::timeline_of(trace, work, most_slices)),
      names(trace.texts.size()),
      steps(work.steps) {
  for (const trace::Lane& lane : timeline.lanes)
    for (const auto id : lane.name)
      if (names[id].empty())
        names[id] = trace.tracks[lane.track].device ? trace::short_kernel_name(trace.texts[id])
                                                    : trace.texts[id];
  for (const trace::Track& track : trace.tracks) tracks.push_back(name_of(trace, track));
}

std::string trace_page(const trace::RunReport& run, const DrawnTimeline& drawn) {
  Json document = Json::parse(trace::report_json(run));
  for (Json& rank : document["ranks"])
    for (const char* table : {"operators", "kernels_by_name"}) shorten(rank[table]);
  document["timeline"] = json_of(drawn);
  const std::string style = std::string(page_style) + std::string(trace_style);
  const std::string_view scripts[] = {page_common, trace_view, trace_tables, trace_timeline};
  return page_of(document, style, scripts, "drawTrace()");
}

}  // namespace ridge
