#include "ridge/profile/communication.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/device/gathered.h"
#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using Run = CollectiveRun;

std::int64_t sent_by(const Graph& graph, NodeId n) { return sent_bytes(graph, graph.nodes()[n]); }

// What a device did for other ranks: kernels of NCCL, whose names begin so wherever it is built,
// and copies that are part of a run of an operator that sends. Reading its result is not.
bool communicates(const Recording& recording, const Activity& activity) {
  if (activity.kind == Activity::Kind::kernel)
    return recording.activity_names[activity.name].find("ncclDevKernel") != std::string::npos ||
           recording.activity_names[activity.name].find("ncclKernel") != std::string::npos;
  return activity.kind == Activity::Kind::copy && activity.node != no_node &&
         activity.run != Activity::no_run && sent_by(*recording.graph, activity.node) > 0;
}

// Intervals that come by begin, joined where they touch.
std::vector<Run> joined(const std::vector<Run>& intervals) {
  std::vector<Run> result;
  for (const Run& one : intervals) {
    if (!result.empty() && one.begin_ns <= result.back().end_ns)
      result.back().end_ns = std::max(result.back().end_ns, one.end_ns);
    else
      result.push_back(one);
  }
  return result;
}

std::int64_t length_of(const std::vector<Run>& apart) {
  std::int64_t ns = 0;
  for (const Run& one : apart) ns += one.end_ns - one.begin_ns;
  return ns;
}

std::int64_t length_of_both(const std::vector<Run>& a, const std::vector<Run>& b) {
  std::int64_t ns = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t begin = std::max(a[i].begin_ns, b[j].begin_ns);
    const std::int64_t end = std::min(a[i].end_ns, b[j].end_ns);
    if (end > begin) ns += end - begin;
    ++(a[i].end_ns < b[j].end_ns ? i : j);
  }
  return ns;
}

// Adds up what each operator sends, by the runs of its nodes.
class Collectives {
 public:
  explicit Collectives(const Recording& recording) : recording_(recording) {}

  void add_run(NodeId node) {
    CommunicationReport::Collective& one = of(node);
    ++one.calls;
    one.bytes += sent_by(*recording_.graph, node);
  }
  void add_time(NodeId node, std::int64_t ns) { of(node).ns += ns; }

  std::vector<CommunicationReport::Collective> all() const {
    std::vector<CommunicationReport::Collective> rows;
    for (const auto& [op, row] : by_op_) rows.push_back(row);
    std::ranges::stable_sort(rows, std::greater{}, &CommunicationReport::Collective::bytes);
    return rows;
  }

 private:
  CommunicationReport::Collective& of(NodeId node) {
    const std::string op(name_of(*recording_.graph->nodes()[node].op));
    CommunicationReport::Collective& row = by_op_[op];
    row.op = op;
    return row;
  }

  const Recording& recording_;
  std::map<std::string, CommunicationReport::Collective> by_op_;
};

std::string percent_of(std::int64_t part, std::int64_t whole) {
  if (whole <= 0) return "-";
  return format_percent(static_cast<double>(part) / static_cast<double>(whole));
}

std::string per_step(std::int64_t ns, std::int64_t steps) {
  return format_duration(static_cast<double>(ns) * 1e-9 /
                         static_cast<double>(std::max<std::int64_t>(steps, 1)));
}

}  // namespace

double CommunicationReport::hidden_fraction() const {
  if (communication_ns <= 0) return 0;
  return static_cast<double>(hidden_ns) / static_cast<double>(communication_ns);
}

std::optional<CommunicationReport> communication_report(const Recording& recording) {
  CommunicationReport report;
  report.steps = static_cast<std::int64_t>(recording.steps.size());
  for (const Recording::Step& step : recording.steps) report.step_ns += step.end_ns - step.begin_ns;
  Collectives collectives(recording);
  std::vector<Run> talks, works;
  bool any = false;
  for (const Recording::NodeRun& run : recording.nodes) {
    if (sent_by(*recording.graph, run.node) == 0) continue;
    any = true;
    collectives.add_run(run.node);
    if (!recording.activities.empty()) continue;
    talks.push_back({run.begin_ns, run.end_ns});
    collectives.add_time(run.node, run.end_ns - run.begin_ns);
  }
  if (!any) return std::nullopt;
  for (const Activity& activity : recording.activities) {
    if (communicates(recording, activity)) {
      talks.push_back({activity.begin_ns, activity.end_ns});
      if (activity.node != no_node)
        collectives.add_time(activity.node, activity.end_ns - activity.begin_ns);
    } else if (activity.kind == Activity::Kind::kernel) {
      works.push_back({activity.begin_ns, activity.end_ns});
    }
  }
  const std::vector<Run> talking = joined(talks), working = joined(works);
  report.communication_ns = length_of(talking);
  report.hidden_ns = length_of_both(talking, working);
  report.collectives = collectives.all();
  for (const Run& run : talks)
    report.runs.push_back({run.begin_ns + recording.epoch_ns, run.end_ns + recording.epoch_ns});
  return report;
}

RanksReport compare_ranks(std::span<const CommunicationReport> reports,
                          std::span<const std::uint64_t> peak_bytes) {
  RanksReport all;
  all.steps = reports.front().steps;
  std::vector<std::vector<Run>> runs;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    all.ranks.push_back({.step_ns = reports[r].step_ns,
                         .communication_ns = reports[r].communication_ns,
                         .hidden_ns = reports[r].hidden_ns,
                         .peak_bytes = peak_bytes[r]});
    runs.push_back(reports[r].runs);
  }
  all.arrivals = arrivals_of(runs);
  return all;
}

RanksReport compare_ranks(const CommunicationReport& own, std::uint64_t peak_bytes,
                          Communicator& communicator) {
  struct Head {
    std::int64_t steps, step_ns, communication_ns, hidden_ns, runs;
    std::uint64_t peak_bytes;
  };
  const Head head{own.steps,     own.step_ns,          own.communication_ns,
                  own.hidden_ns, std::ssize(own.runs), peak_bytes};
  const std::vector<Head> heads = gathered(communicator, head);
  std::vector<std::int64_t> bytes;
  std::size_t runs = 0, before = 0;
  for (const Head& h : heads) {
    if (std::ssize(bytes) < communicator.rank()) before += static_cast<std::size_t>(h.runs);
    bytes.push_back(h.runs * static_cast<std::int64_t>(sizeof(Run)));
    runs += static_cast<std::size_t>(h.runs);
  }
  std::vector<Run> of_all(runs);
  std::ranges::copy(own.runs, of_all.begin() + static_cast<std::ptrdiff_t>(before));
  communicator.all_gather_parts(std::as_writable_bytes(std::span(of_all)), bytes);
  std::vector<CommunicationReport> reports;
  std::vector<std::uint64_t> peaks;
  auto next = of_all.begin();
  for (const Head& h : heads) {
    reports.push_back({.steps = h.steps,
                       .step_ns = h.step_ns,
                       .communication_ns = h.communication_ns,
                       .hidden_ns = h.hidden_ns,
                       .collectives = {},
                       .runs = {next, next + h.runs}});
    next += h.runs;
    peaks.push_back(h.peak_bytes);
  }
  return compare_ranks(reports, peaks);
}

std::string communication_text(const CommunicationReport& report) {
  const auto steps = static_cast<double>(std::max<std::int64_t>(report.steps, 1));
  std::string text = fmt::format(
      "Communication: {} of a step of {}; {} of it is hidden behind other work, {} a step is not\n",
      per_step(report.communication_ns, report.steps), per_step(report.step_ns, report.steps),
      percent_of(report.hidden_ns, report.communication_ns),
      per_step(report.communication_ns - report.hidden_ns, report.steps));
  const std::vector<TextColumn> columns{
      {"Operator", true}, {"Calls a step"}, {"Sent a step"}, {"Time a step"}, {"Bus bandwidth"}};
  std::vector<TextRow> rows;
  for (const CommunicationReport::Collective& one : report.collectives)
    rows.push_back(
        {one.op, fmt::format("{:.1f}", static_cast<double>(one.calls) / steps),
         format_bytes(static_cast<std::uint64_t>(static_cast<double>(one.bytes) / steps)),
         one.ns > 0 ? per_step(one.ns, report.steps) : "-",
         one.ns > 0 ? fmt::format("{:.1f} GB/s", one.bus_bandwidth() * 1e-9) : "-"});
  return text + text_table(columns, rows);
}

std::string ranks_text(const RanksReport& report) {
  const std::vector<TextColumn> columns{{"Rank"},          {"Step"},       {"Communication"},
                                        {"Hidden"},        {"Waited"},     {"Came last"},
                                        {"Others waited"}, {"Peak memory"}};
  std::vector<TextRow> rows;
  const auto time = [&](std::int64_t ns) { return per_step(ns, report.steps); };
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const RanksReport::OfRank& of = report.ranks[r];
    const Arrivals::OfRank& came = report.arrivals.ranks[r];
    const bool knows = report.arrivals.collectives > 0;
    rows.push_back({fmt::format("{}", r), time(of.step_ns), time(of.communication_ns),
                    percent_of(of.hidden_ns, of.communication_ns),
                    knows ? time(came.waited_ns) : "-",
                    knows ? percent_of(came.last, report.arrivals.collectives) : "-",
                    knows ? time(came.caused_ns) : "-", format_bytes(of.peak_bytes)});
  }
  std::string text = "All ranks, a step:\n" + text_table(columns, rows);
  const Arrivals& arrivals = report.arrivals;
  if (arrivals.collectives == 0) return text;
  const auto latest = std::ranges::max_element(arrivals.ranks, {}, &Arrivals::OfRank::caused_ns);
  if (latest->caused_ns * 100 < report.ranks.front().step_ns)
    return text +
           "No rank keeps the others waiting: for the latest they wait less than 1 % of a step.\n";
  return text + fmt::format(
                    "Rank {} comes last to {} of the collectives; for it the first wait {} "
                    "a step.\n",
                    latest - arrivals.ranks.begin(), percent_of(latest->last, arrivals.collectives),
                    time(latest->caused_ns));
}

std::string communication_json(const CommunicationReport& report, const RanksReport& ranks) {
  Json collectives = Json::array(), of_ranks = Json::array();
  for (const CommunicationReport::Collective& one : report.collectives)
    collectives.push_back({{"operator", one.op},
                           {"calls", one.calls},
                           {"sent_bytes", one.bytes},
                           {"ns", one.ns},
                           {"bus_bytes_per_second", one.bus_bandwidth()}});
  for (std::size_t r = 0; r < ranks.ranks.size(); ++r) {
    const RanksReport::OfRank& of = ranks.ranks[r];
    const Arrivals::OfRank& came = ranks.arrivals.ranks[r];
    of_ranks.push_back({{"step_ns", of.step_ns},
                        {"communication_ns", of.communication_ns},
                        {"hidden_ns", of.hidden_ns},
                        {"waited_ns", came.waited_ns},
                        {"came_last", came.last},
                        {"others_waited_ns", came.caused_ns},
                        {"peak_bytes", of.peak_bytes}});
  }
  const Json json = {{"steps", report.steps},
                     {"step_ns", report.step_ns},
                     {"communication_ns", report.communication_ns},
                     {"hidden_ns", report.hidden_ns},
                     {"hidden_fraction", report.hidden_fraction()},
                     {"collectives", std::move(collectives)},
                     {"collectives_compared", ranks.arrivals.collectives},
                     {"ranks", std::move(of_ranks)}};
  return json.dump(2) + "\n";
}

}  // namespace ridge
