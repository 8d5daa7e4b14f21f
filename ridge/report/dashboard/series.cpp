#include "ridge/report/dashboard/series.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "ridge/study/change_points.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t points_drawn = 6000;       // of all series together
constexpr std::size_t points_searched = 10'000;  // of a series, for changes: the newest

// Positions of commits in a list that names each once.
class Commits {
 public:
  explicit Commits(Store& store) : store_(store) {}
  std::size_t of(std::int64_t program) {
    const auto [place, is_new] = places_.try_emplace(program, names_.size());
    if (is_new) names_.push_back(store_.commit(program));
    return place->second;
  }
  const std::string& name(std::int64_t program) { return names_[of(program)]; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  Store& store_;
  std::unordered_map<std::int64_t, std::size_t> places_;
  std::vector<std::string> names_;
};

Json changes_json(std::span<const SeriesPoint> points, Commits& commits) {
  std::vector<double> values;
  for (const SeriesPoint& point : points) values.push_back(point.value);
  Json changes = Json::array();
  for (const ChangePoint& change : change_points(values)) {
    const SeriesPoint &before = points[change.index - 1], &after = points[change.index];
    const double relative =
        change.mean_before != 0 ? change.mean_after / change.mean_before - 1 : 0;
    changes.push_back({{"run", after.run},
                       {"created", after.created},
                       {"commit", commits.name(after.program)},
                       {"run_before", before.run},
                       {"created_before", before.created},
                       {"commit_before", commits.name(before.program)},
                       {"mean_before", change.mean_before},
                       {"mean_after", change.mean_after},
                       {"change", relative},
                       {"p_value", change.p_value}});
  }
  return changes;
}

Json points_json(std::span<const SeriesPoint> points, std::size_t at_most, Commits& commits) {
  Json run = Json::array(), created = Json::array(), commit = Json::array(), value = Json::array();
  for (const std::size_t i : sampled(points, at_most)) {
    run.push_back(points[i].run);
    created.push_back(points[i].created);
    commit.push_back(commits.of(points[i].program));
    value.push_back(points[i].value);
  }
  return {{"run", std::move(run)},
          {"created", std::move(created)},
          {"commit", std::move(commit)},
          {"value", std::move(value)}};
}

// Options under which runs differ from each other, hardware aside.
std::set<std::string> differing_options(std::span<const Json> options) {
  std::set<std::string> names;
  for (const Json& one : options)
    for (const auto& [name, value] : one.items())
      for (const Json& other : options)
        if (other.value(name, Json()) != value) names.insert(name);
  return names;
}

Json options_of_run(Store& store, std::int64_t run) {
  Json json = Json::parse(store.options_of_run(run), nullptr, false);
  return json.is_object() ? json : Json::object();
}

// "tiny_llama training v4 bf16, batch 8 × 128"
std::string label_of(const RunRow& run) {
  std::string label = fmt::format("{} {} {} {}", run.workload, run.mode, run.version, run.dtype);
  if (run.batch_size) label += fmt::format(", batch {}", *run.batch_size);
  if (run.image_size)
    label += fmt::format(" of {0} × {0}", *run.image_size);
  else if (run.seq_len)
    label += fmt::format(" × {}", *run.seq_len);
  return label;
}

// Makes equal labels differ, by what their runs' options and machines have different.
void tell_apart(Store& store, std::span<const RunRow> runs, std::vector<std::string>& labels) {
  std::map<std::string, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < labels.size(); ++i) alike[labels[i]].push_back(i);
  for (const auto& [label, members] : alike) {
    if (members.size() == 1) continue;
    std::vector<Json> options;
    std::set<std::string> machines;
    for (const std::size_t i : members) {
      options.push_back(options_of_run(store, runs[i].id));
      machines.insert(runs[i].machine);
    }
    const std::set<std::string> names = differing_options(options);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const RunRow& run = runs[members[m]];
      std::string& text = labels[members[m]];
      for (const std::string& name : names)
        if (options[m].contains(name))
          text += fmt::format(", {} {}", name, one_line(options[m][name]));
      if (machines.size() > 1) text += ", " + hardware_of(run);
    }
  }
}

}  // namespace

std::vector<std::size_t> sampled(std::span<const SeriesPoint> points, std::size_t at_most) {
  std::vector<std::size_t> kept;
  if (points.size() <= at_most) {
    for (std::size_t i = 0; i < points.size(); ++i) kept.push_back(i);
    return kept;
  }
  const std::size_t spans = std::max<std::size_t>(1, (at_most - 2) / 2);
  const double begin = static_cast<double>(points.front().created);
  const double width = std::max(1.0, static_cast<double>(points.back().created) - begin + 1) /
                       static_cast<double>(spans);
  const auto span_of = [&](std::size_t i) {
    return static_cast<std::size_t>((static_cast<double>(points[i].created) - begin) / width);
  };
  kept.push_back(0);
  for (std::size_t i = 0; i < points.size();) {
    std::size_t least = i, largest = i, end = i;
    for (; end < points.size() && span_of(end) == span_of(i); ++end) {
      if (points[end].value < points[least].value) least = end;
      if (points[end].value > points[largest].value) largest = end;
    }
    for (const std::size_t one : {std::min(least, largest), std::max(least, largest)})
      if (one != kept.back()) kept.push_back(one);
    i = end;
  }
  if (kept.back() != points.size() - 1) kept.push_back(points.size() - 1);
  return kept;
}

Json trend_json(Store& store, Configurations& configurations, std::string_view filter,
                std::string_view metric, std::size_t most) {
  const std::vector<SeriesPoint> points = store.series(filter, metric);
  const std::vector<RunSeries> all = series_of(points, configurations.numbers(store));
  const std::size_t drawn = std::min(all.size(), most);
  Commits commits(store);
  std::vector<RunRow> newest;
  std::vector<std::string> labels;
  for (const RunSeries& one : std::span(all).first(drawn)) {
    newest.push_back(store.find(std::to_string(points[one.points.back()].run)));
    labels.push_back(label_of(newest.back()));
  }
  tell_apart(store, newest, labels);
  Json series = Json::array();
  std::size_t shown = 0;
  for (std::size_t i = 0; i < drawn; ++i) {
    std::vector<SeriesPoint> of;
    for (const std::uint32_t place : all[i].points) of.push_back(points[place]);
    const auto searched = std::span(of).last(std::min(of.size(), points_searched));
    Json one{{"label", labels[i]},
             {"runs", of.size()},
             {"newest", newest[i].id},
             {"machine", newest[i].machine},
             {"points", points_json(of, points_drawn / drawn, commits)},
             {"searched", searched.size()},
             {"changes", changes_json(searched, commits)}};
    shown += one["points"]["run"].size();
    series.push_back(std::move(one));
  }
  return {{"metric", metric},     {"runs", points.size()},      {"shown", shown},
          {"groups", all.size()}, {"commits", commits.names()}, {"series", std::move(series)}};
}

}  // namespace ridge
