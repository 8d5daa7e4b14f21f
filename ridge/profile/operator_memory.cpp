#include "ridge/profile/operator_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/base/text_table.h"
#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

// The node an allocation was made for; no_node for what no node computes.
NodeId node_of(const Graph& graph, const Recording::MemoryChange& change) {
  return change.workspace ? change.owner : graph.info(change.owner).producer;
}

}  // namespace

std::vector<OperatorMemory> operator_memory(const Recording& recording) {
  const Graph& graph = *recording.graph;
  std::map<std::string, OperatorMemory> by_op;
  for (const Recording::MemoryChange& change : recording.memory) {
    const bool in_a_step = std::ranges::find(recording.steps, change.step,
                                             &Recording::Step::step) != recording.steps.end() &&
                           change.time_ns >= recording.steps.front().begin_ns;
    const NodeId node = node_of(graph, change);
    if (change.bytes <= 0 || !in_a_step || node == no_node) continue;
    const std::string op(name_of(*graph.nodes()[node].op));
    OperatorMemory& memory = by_op.try_emplace(op, OperatorMemory{.op = op}).first->second;
    const auto bytes = static_cast<std::uint64_t>(change.bytes);
    ++memory.allocations;
    (change.workspace ? memory.workspace : memory.results) += bytes;
    memory.largest = std::max(memory.largest, bytes);
  }
  std::vector<OperatorMemory> rows;
  for (auto& [op, memory] : by_op) rows.push_back(std::move(memory));
  std::ranges::stable_sort(rows, std::greater{}, &OperatorMemory::all);
  return rows;
}

std::string operator_memory_text(const Recording& recording, std::size_t top) {
  const std::vector<OperatorMemory> rows = operator_memory(recording);
  const auto steps = static_cast<double>(std::max<std::size_t>(recording.steps.size(), 1));
  const auto megabytes = [](double bytes) {
    return bytes > 0 ? fmt::format("{:.2f} MB", bytes * 1e-6) : std::string("-");
  };
  const TextColumn columns[] = {
      {"Operation", true, 48}, {"Allocations"}, {"Results"}, {"Workspace"}, {"Largest"}};
  std::vector<TextRow> cells;
  for (const OperatorMemory& row : rows) {
    if (cells.size() == top) break;
    cells.push_back({row.op, fmt::format("{:.0f}", static_cast<double>(row.allocations) / steps),
                     megabytes(static_cast<double>(row.results) / steps),
                     megabytes(static_cast<double>(row.workspace) / steps),
                     megabytes(static_cast<double>(row.largest))});
  }
  std::string text = text_table(columns, cells);
  if (rows.size() > cells.size())
    text += fmt::format("and {} more operations\n", rows.size() - cells.size());
  return text;
}

}  // namespace ridge
