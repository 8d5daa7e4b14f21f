#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/trace/critical_path.h"
#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kinds = 7;

std::array<double, kinds> us_by_kind(const CriticalPath& path) {
  std::array<double, kinds> sums{};
  for (const PathShare& share : path.shares) sums[static_cast<std::size_t>(share.kind)] += share.us;
  return sums;
}

}  // namespace

std::string path_kind_words(PathKind kind) {
  static constexpr const char* words[] = {"kernels that compute",
                                          "communication",
                                          "copies and fills",
                                          "the host between calls",
                                          "calls",
                                          "latency",
                                          "unknown"};
  return words[static_cast<std::size_t>(kind)];
}

std::string critical_path_text(const CriticalPath& path, std::size_t top) {
  std::string text = fmt::format("The critical path of {}\n", time(path.span_us));
  std::vector<TextRow> rows;
  const auto sums = us_by_kind(path);
  for (std::size_t kind = 0; kind < kinds; ++kind)
    if (sums[kind] > 0)
      rows.push_back({path_kind_words(static_cast<PathKind>(kind)), time(sums[kind]),
                      part_of(sums[kind], path.span_us)});
  const TextColumn by_kind[] = {{"On the path", true}, {"Time"}, {"of it"}};
  text += "\n" + text_table(by_kind, rows);

  rows.clear();
  for (std::size_t i = 0; i < std::min(top, path.shares.size()); ++i) {
    const PathShare& share = path.shares[i];
    rows.push_back({share.name, path_kind_words(share.kind),
                    format_count(static_cast<std::int64_t>(share.count)), time(share.us),
                    part_of(share.us, path.span_us)});
  }
  const TextColumn by_name[] = {{"What", true, 64}, {"Kind", true}, {"Times"}, {"Time"}, {"of it"}};
  text += "\n" + text_table(by_name, rows);

  rows.clear();
  std::string nothing;
  for (const WhatIf& one : path.what_ifs) {
    if (path.span_us - one.span_us < 5e-4 * path.span_us)
      nothing += (nothing.empty() ? "" : "; ") + one.change;
    else
      rows.push_back(
          {one.change, time(one.span_us), part_of(path.span_us - one.span_us, path.span_us)});
  }
  const TextColumn changes[] = {{"With ...", true, 76}, {"it would take"}, {"saved"}};
  if (!rows.empty()) text += "\n" + text_table(changes, rows);
  if (!nothing.empty())
    text +=
        "\n" + wrapped("These would save nothing: " + printable(nothing), sentence_width) + "\n";
  return text;
}

std::string critical_path_json(const CriticalPath& path) {
  Json shares = Json::array(), what_ifs = Json::array(), by_kind = Json::object();
  const auto sums = us_by_kind(path);
  for (std::size_t kind = 0; kind < kinds; ++kind)
    by_kind[path_kind_name(static_cast<PathKind>(kind))] = sums[kind];
  for (const PathShare& share : path.shares)
    shares.push_back({{"kind", path_kind_name(share.kind)},
                      {"name", share.name},
                      {"us", share.us},
                      {"count", share.count}});
  for (const WhatIf& one : path.what_ifs)
    what_ifs.push_back({{"change", one.change},
                        {"span_us", one.span_us},
                        {"saved_us", path.span_us - one.span_us}});
  const Json json = {{"schema", "ridge-critical-path/1"},
                     {"span_us", path.span_us},
                     {"us_by_kind", by_kind},
                     {"shares", shares},
                     {"what_if", what_ifs},
                     {"work_on_path", path.work}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge::trace
