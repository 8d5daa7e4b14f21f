#include "ridge/analyze/operator_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ridge/analyze/recorded_step.h"
#include "ridge/base/text_table.h"

namespace ridge {
namespace {

// Before the recorded ones: first steps load code, and a GPU captures its launches after two.
constexpr int warmup_steps = 4, recorded_steps = 5;
constexpr std::size_t shown_operands = 3;

std::string operands_of(const Graph& graph, const Node& node) {
  std::string text;
  for (std::size_t i = 0; i < std::min(node.inputs.size(), shown_operands); ++i)
    text += (i > 0 ? " " : "") + graph.info(node.inputs[i]).type.to_string();
  return text + (node.inputs.size() > shown_operands ? " .." : "");
}

// What a rate is told in: products by their FLOPs, all else by the bytes that it moves.
std::string rate_text(const Timed& timed) {
  if (timed.seconds <= 0) return "";
  if (timed.compute_floor > timed.memory_floor)
    return fmt::format("{:.2f} TFLOP/s",
                       static_cast<double>(timed.cost.flops) / timed.seconds * 1e-12);
  return fmt::format("{:.1f} GB/s", static_cast<double>(timed.cost.bytes()) / timed.seconds * 1e-9);
}

}  // namespace

std::vector<SpaceRow> operators_of_steps(Session& session, std::string_view workload,
                                         const Roof& roof) {
  for (int i = 0; i < warmup_steps; ++i) session.step();
  std::map<std::pair<std::string, std::string>, SpaceRow> found;
  const auto use = [&](const Recording&, const Recording& recording) {
    const BottleneckReport report = analyze_bottlenecks(recording, roof);
    for (const NodeBottleneck& bottleneck : report.nodes) {
      const Node& node = recording.graph->nodes()[bottleneck.node];
      const std::string op(name_of(*node.op)), operands = operands_of(*recording.graph, node);
      SpaceRow& row = found[{op, operands}];
      row.workload = workload, row.op = op, row.operands = operands;
      row.timed += bottleneck.timed;
      row.share = report.share(row.timed.seconds);
    }
  };
  record_step(session, use, recorded_steps);
  std::vector<SpaceRow> rows;
  for (auto& [key, row] : found) rows.push_back(std::move(row));
  sort_by_loss(rows);
  return rows;
}

void sort_by_loss(std::vector<SpaceRow>& rows) {
  std::ranges::stable_sort(rows, std::greater{}, &SpaceRow::lost);
}

bool is_slow(const SpaceRow& row, double share) {
  return row.share >= share && row.of_floor() < 0.5;
}

std::string operator_space_text(const std::vector<SpaceRow>& rows, std::size_t top, double share) {
  const TextColumn columns[] = {{.header = "Operator", .left = true},
                                {.header = "Operands", .left = true},
                                {.header = "Workload", .left = true},
                                {.header = "Calls"},
                                {.header = "us a call"},
                                {.header = "Rate"},
                                {.header = "Floor"},
                                {.header = "Step"},
                                {.header = "Lost"}};
  std::vector<TextRow> cells;
  const std::size_t shown = top == 0 ? rows.size() : std::min(top, rows.size());
  for (const SpaceRow& row : std::span(rows).first(shown))
    cells.push_back({row.op, row.operands, row.workload, fmt::format("{:g}", row.timed.calls),
                     fmt::format("{:.2f}", row.timed.seconds / row.timed.calls * 1e6),
                     rate_text(row.timed), fmt::format("{:.0f} %", 100 * row.of_floor()),
                     fmt::format("{:.1f} %", 100 * row.share),
                     fmt::format("{:.1f} %", 100 * row.lost())});
  std::set<std::string_view> workloads;
  for (const SpaceRow& row : rows) workloads.insert(row.workload);
  const auto slow =
      std::ranges::count_if(rows, [&](const SpaceRow& r) { return is_slow(r, share); });
  return text_table(columns, cells) +
         fmt::format(
             "Floor: the part of its time that it explains. Step: the part of the step that it "
             "takes. "
             "Lost: the part\nof the step above the floor.\n"
             "{} operators of {} workload{}{}. {} of them take{} {:g} % or more of their step, and "
             "twice their floor.\n",
             rows.size(), workloads.size(), workloads.size() == 1 ? "" : "s",
             shown < rows.size() ? fmt::format(", {} shown", shown) : "", slow,
             slow == 1 ? "s" : "", 100 * share);
}

std::string operator_space_json(const std::vector<SpaceRow>& rows, double share) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SpaceRow& row : rows)
    list.push_back({{"operator", row.op},
                    {"operands", row.operands},
                    {"workload", row.workload},
                    {"calls_per_step", row.timed.calls},
                    {"seconds_per_step", row.timed.seconds},
                    {"floor_seconds_per_step", row.timed.floor},
                    {"flops_per_step", row.timed.cost.flops},
                    {"bytes_per_step", row.timed.cost.bytes()},
                    {"share_of_step", row.share},
                    {"lost_share_of_step", row.lost()},
                    {"slow", is_slow(row, share)}});
  return nlohmann::ordered_json{{"operators", list}}.dump(2) + "\n";
}

}  // namespace ridge
