#include "ridge/profile/kernel_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

KernelCalls traced_calls(const Recording& recording) {
  KernelCalls result;
  for (const std::string& name : recording.activity_names) result.names.push_back(demangled(name));
  for (const Activity& activity : recording.activities)
    if (activity.kind == Activity::Kind::kernel)
      result.calls.push_back(
          {activity.name, activity.begin_ns, activity.end_ns, activity.node, &activity});
  return result;
}

}  // namespace

KernelCalls kernel_calls(const Recording& recording) {
  if (!recording.activities.empty()) return traced_calls(recording);
  KernelCalls result;
  std::map<std::string_view, std::size_t> index;
  for (const Recording::NodeRun& run : recording.nodes) {
    const std::string_view name = name_of(*recording.graph->nodes()[run.node].op);
    const auto [it, added] = index.try_emplace(name, result.names.size());
    if (added) result.names.emplace_back(name);
    result.calls.push_back({it->second, run.begin_ns, run.end_ns, run.node, nullptr});
  }
  return result;
}

std::string truncated_kernel_name(std::string_view name) {
  // Backwards from the end: brackets and what is in them, then the name, up to a space or a scope.
  std::size_t end = name.size();
  for (int open = 0; end > 0; --end) {
    const char c = name[end - 1];
    const bool closes = c == ')' || c == '>' || c == ']';
    if (open == 0 && !closes && c != ' ') break;
    if (closes) ++open;
    if (c == '(' || c == '<' || c == '[') --open;
  }
  const std::string_view rest = name.substr(0, end);
  const std::size_t begin = rest.find_last_of(" :*&");
  const std::string_view last = begin == std::string_view::npos ? rest : rest.substr(begin + 1);
  return std::string(last.empty() ? name : last);
}

Recording with_truncated_names(Recording recording) {
  for (std::string& name : recording.activity_names) name = truncated_kernel_name(demangled(name));
  return recording;
}

std::vector<KernelStats> kernel_stats(const Recording& recording) {
  const KernelCalls kernels = kernel_calls(recording);
  std::map<std::string_view, KernelStats> by_name;
  std::int64_t total_ns = 0;
  for (const KernelCall& call : kernels.calls) {
    KernelStats& stats = by_name[kernels.names[call.name]];
    const std::int64_t ns = call.end_ns - call.begin_ns;
    stats.min_ns = stats.calls == 0 ? ns : std::min(stats.min_ns, ns);
    stats.max_ns = std::max(stats.max_ns, ns);
    stats.total_ns += ns;
    total_ns += ns;
    ++stats.calls;
  }
  for (auto& [name, stats] : by_name) {
    stats.name = name;
    stats.average_ns = static_cast<double>(stats.total_ns) / static_cast<double>(stats.calls);
    if (total_ns > 0)
      stats.percentage = 100 * static_cast<double>(stats.total_ns) / static_cast<double>(total_ns);
  }
  // A second pass, since squares of times minus the square of their mean would cancel.
  for (const KernelCall& call : kernels.calls) {
    KernelStats& stats = by_name[kernels.names[call.name]];
    const double off = static_cast<double>(call.end_ns - call.begin_ns) - stats.average_ns;
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
  const KernelCalls kernels = kernel_calls(recording);
  std::map<std::string_view, std::size_t> ids;  // from 1, in order of first appearance
  const std::size_t rows = std::min(max_rows, kernels.calls.size());
  for (std::size_t i = 0; i < rows; ++i) {
    const KernelCall& call = kernels.calls[i];
    const std::string& name = kernels.names[call.name];
    const std::size_t id = ids.try_emplace(name, ids.size() + 1).first->second;
    const Activity none{.correlation = static_cast<std::uint32_t>(i + 1)};
    const Activity& a = call.activity ? *call.activity : none;
    // rocprof's grid counts threads.
    const auto threads = [&](std::size_t d) { return std::uint64_t{a.grid[d]} * a.block[d]; };
    file.write(fmt::format(
        "\"KERNEL_DISPATCH\",{},0,{},{},{},{},{},{},{},{},{},{},{},0,0,{},{},{},{},{},{}\n", agent,
        a.stream, recording.thread_id, i + 1, id, csv_quoted(name), a.correlation,
        recording.epoch_ns + call.begin_ns, recording.epoch_ns + call.end_ns,
        a.static_shared + a.dynamic_shared, a.local_memory, a.registers, a.block[0], a.block[1],
        a.block[2], threads(0), threads(1), threads(2)));
  }
  file.commit();
  return kernels.calls.size() - rows;
}

}  // namespace ridge
