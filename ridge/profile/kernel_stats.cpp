#include "ridge/profile/kernel_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/base/file.h"
#include "ridge/graph/op_rules.h"
#include "ridge/profile/text_table.h"

namespace ridge {
namespace {

std::string_view kernel_name(const Recording& recording, const Recording::NodeRun& run) {
  return name_of(*recording.graph->nodes()[run.node].op);
}

}  // namespace

std::vector<KernelStats> kernel_stats(const Recording& recording) {
  std::map<std::string, KernelStats, std::less<>> by_name;
  std::int64_t total_ns = 0;
  for (const Recording::NodeRun& run : recording.nodes) {
    const std::string_view name = kernel_name(recording, run);
    auto it = by_name.find(name);
    if (it == by_name.end()) it = by_name.emplace(name, KernelStats{std::string(name)}).first;
    KernelStats& stats = it->second;
    const std::int64_t ns = run.end_ns - run.begin_ns;
    stats.min_ns = stats.calls == 0 ? ns : std::min(stats.min_ns, ns);
    stats.max_ns = std::max(stats.max_ns, ns);
    stats.total_ns += ns;
    total_ns += ns;
    ++stats.calls;
  }
  for (auto& [name, stats] : by_name) {
    stats.average_ns = static_cast<double>(stats.total_ns) / static_cast<double>(stats.calls);
    if (total_ns > 0)
      stats.percentage = 100 * static_cast<double>(stats.total_ns) / static_cast<double>(total_ns);
  }
  // A second pass, since squares of times minus the square of their mean would cancel.
  for (const Recording::NodeRun& run : recording.nodes) {
    KernelStats& stats = by_name.find(kernel_name(recording, run))->second;
    const double off = static_cast<double>(run.end_ns - run.begin_ns) - stats.average_ns;
    stats.std_dev_ns += off * off;
  }
  std::vector<KernelStats> sorted;
  for (auto& [name, stats] : by_name) {
    stats.std_dev_ns =
        stats.calls > 1 ? std::sqrt(stats.std_dev_ns / static_cast<double>(stats.calls - 1)) : 0;
    sorted.push_back(std::move(stats));
  }
  std::ranges::stable_sort(sorted, std::greater{}, &KernelStats::total_ns);
  return sorted;
}

std::string kernel_stats_csv(const Recording& recording) {
  std::string csv =
      "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\",\"MinNs\",\"MaxNs\","
      "\"StdDev\"\n";
  for (const KernelStats& s : kernel_stats(recording))
    csv += fmt::format("{},{},{},{:.6f},{:.6f},{},{},{:.6f}\n", csv_quoted(s.name), s.calls,
                       s.total_ns, s.average_ns, s.percentage, s.min_ns, s.max_ns, s.std_dev_ns);
  return csv;
}

std::size_t write_kernel_trace(const Recording& recording, const std::filesystem::path& path,
                               std::size_t max_rows) {
  AtomicFile file(path);
  file.write(
      "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Stream_Id\",\"Thread_Id\",\"Dispatch_Id\","
      "\"Kernel_Id\",\"Kernel_Name\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\","
      "\"LDS_Block_Size\",\"Scratch_Size\",\"VGPR_Count\",\"Accum_VGPR_Count\",\"SGPR_Count\","
      "\"Workgroup_Size_X\",\"Workgroup_Size_Y\",\"Workgroup_Size_Z\",\"Grid_Size_X\","
      "\"Grid_Size_Y\",\"Grid_Size_Z\"\n");
  std::string agent = recording.device;
  for (char& c : agent) c = 'a' <= c && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  agent = csv_quoted(agent);
  std::map<std::string, std::size_t, std::less<>> ids;  // from 1, in order of first appearance
  const std::size_t rows = std::min(max_rows, recording.nodes.size());
  for (std::size_t i = 0; i < rows; ++i) {
    const Recording::NodeRun& run = recording.nodes[i];
    const std::string_view name = kernel_name(recording, run);
    auto it = ids.find(name);
    if (it == ids.end()) it = ids.emplace(name, ids.size() + 1).first;
    file.write(
        fmt::format("\"KERNEL_DISPATCH\",{},0,0,{},{},{},{},{},{},{},0,0,0,0,0,0,0,0,0,0,0\n",
                    agent, recording.thread_id, i + 1, it->second, csv_quoted(name), i + 1,
                    recording.epoch_ns + run.begin_ns, recording.epoch_ns + run.end_ns));
  }
  file.commit();
  return recording.nodes.size() - rows;
}

}  // namespace ridge
