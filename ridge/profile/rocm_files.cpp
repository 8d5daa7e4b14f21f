#include "ridge/profile/rocm_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/profile/kernel_stats.h"

namespace ridge {
namespace {

// A call, as a row of a table tells of it.
struct CallFacts {
  std::uint64_t grid = 0, block = 0;  // threads
  std::uint64_t shared = 0, local = 0, registers = 0;
  std::uint32_t stream = 0, correlation = 0;
};

std::uint64_t product(const std::array<std::uint32_t, 3>& sizes) {
  return std::uint64_t{sizes[0]} * sizes[1] * sizes[2];
}

// `number` is the call's, from 0.
CallFacts facts_of(const KernelCall& call, std::size_t number) {
  if (call.activity == nullptr) return {.correlation = static_cast<std::uint32_t>(number + 1)};
  const Activity& a = *call.activity;
  return {.grid = product(a.grid) * product(a.block),
          .block = product(a.block),
          .shared = std::uint64_t{a.static_shared} + a.dynamic_shared,
          .local = a.local_memory,
          .registers = a.registers,
          .stream = a.stream,
          .correlation = a.correlation};
}

int threads_of_wave(const Recording& recording) {
  return recording.device_kind == DeviceKind::cpu ? 0 : recording.processor.warp_size;
}

}  // namespace

void write_rocprof_calls(const Recording& recording, const std::filesystem::path& path) {
  AtomicFile file(path);
  file.write(
      "\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\",\"queue-index\",\"pid\",\"tid\",\"grd\","
      "\"wgr\",\"lds\",\"scr\",\"arch_vgpr\",\"accum_vgpr\",\"sgpr\",\"wave_size\",\"sig\","
      "\"obj\",\"DispatchNs\",\"BeginNs\",\"EndNs\",\"CompleteNs\",\"DurationNs\"\n");
  const KernelCalls kernels = kernel_calls(recording);
  for (std::size_t i = 0; i < kernels.calls.size(); ++i) {
    const KernelCall& call = kernels.calls[i];
    const CallFacts facts = facts_of(call, i);
    const std::int64_t begin = recording.epoch_ns + call.begin_ns,
                       end = recording.epoch_ns + call.end_ns;
    file.write(fmt::format(
        "{},{},0,{},{},{},{},{},{},{},{},{},0,0,{},\"0x0\",\"0x0\",{},{},{},{},{}\n", i,
        csv_quoted(kernels.names[call.name]), facts.stream, i, recording.process_id,
        recording.thread_id, facts.grid, facts.block, facts.shared, facts.local, facts.registers,
        threads_of_wave(recording), begin, begin, end, end, end - begin));
  }
  file.commit();
}

std::string rocprof_stats_csv(const Recording& recording) {
  std::string csv = "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\"\n";
  for (const KernelStats& s : kernel_stats(recording))
    csv += fmt::format("{},{},{},{:.0f},{:.6f}\n", csv_quoted(s.name), s.calls, s.total_ns,
                       s.average_ns, s.percentage);
  return csv;
}

void write_rocprof_dispatches(const Recording& recording, const std::filesystem::path& path,
                              const CountedNodes& counted) {
  AtomicFile file(path);
  std::string header =
      "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,"
      "Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,"
      "End_Timestamp,Correlation_ID";
  for (const DeviceMetric& metric : counted.metrics) header += "," + csv_quoted(metric.metric);
  file.write(header + "\n");
  std::map<NodeId, std::string> fields;
  for (const RangeCounters::Range& range : counted.nodes)
    for (const double value : range.values)
      fields[static_cast<NodeId>(range.id)] += fmt::format(",{:.6g}", value);
  const std::string not_counted(counted.metrics.size(), ',');
  const KernelCalls kernels = kernel_calls(recording);
  for (std::size_t i = 0; i < kernels.calls.size(); ++i) {
    const KernelCall& call = kernels.calls[i];
    const CallFacts facts = facts_of(call, i);
    std::string row =
        fmt::format("{},0,{},{},{},{},{},{},{},{},0,0,{},{},{},{},{}", i + 1, facts.stream,
                    recording.process_id, recording.thread_id, facts.grid, facts.block,
                    facts.shared, facts.local, facts.registers, threads_of_wave(recording),
                    csv_quoted(kernels.names[call.name]), recording.epoch_ns + call.begin_ns,
                    recording.epoch_ns + call.end_ns, facts.correlation);
    const auto known = fields.find(call.node);
    row += known == fields.end() ? not_counted : known->second;
    file.write(row + "\n");
  }
  file.commit();
}

std::string domain_stats_csv(const Recording& recording) {
  const KernelCalls kernels = kernel_calls(recording);
  double total = 0, squares = 0;
  std::int64_t least = 0, most = 0;
  for (std::size_t i = 0; i < kernels.calls.size(); ++i) {
    const std::int64_t ns = kernels.calls[i].end_ns - kernels.calls[i].begin_ns;
    total += static_cast<double>(ns);
    least = i == 0 ? ns : std::min(least, ns);
    most = std::max(most, ns);
  }
  const auto count = static_cast<double>(kernels.calls.size());
  const double mean = count > 0 ? total / count : 0;
  for (const KernelCall& call : kernels.calls) {
    const double off = static_cast<double>(call.end_ns - call.begin_ns) - mean;
    squares += off * off;
  }
  return fmt::format(
      "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\",\"MinNs\",\"MaxNs\","
      "\"StdDev\"\n\"KERNEL_DISPATCH\",{},{:.0f},{:.6f},{:.6f},{},{},{:.6f}\n",
      kernels.calls.size(), total, mean, count > 0 ? 100.0 : 0.0, least, most,
      count > 1 ? std::sqrt(squares / (count - 1)) : 0);
}

std::string agent_info_csv(const Recording& recording) {
  std::string csv = "\"Node_Id\",\"Logical_Node_Id\",\"Agent_Type\",\"Name\",\"Product_Name\"\n";
  const bool has_card = recording.device_kind != DeviceKind::cpu;
  csv += fmt::format("0,0,\"CPU\",{0},{0}\n", csv_quoted(has_card ? "host" : recording.hardware));
  if (has_card) csv += fmt::format("1,1,\"GPU\",{0},{0}\n", csv_quoted(recording.hardware));
  return csv;
}

std::string kernel_summary_text(const Recording& recording) {
  constexpr std::size_t widest_name = 76;
  const std::vector<TextColumn> columns = {{"NAME", true, widest_name},
                                           {"DOMAIN", true},
                                           {"CALLS"},
                                           {"DURATION (nsec)"},
                                           {"AVERAGE (nsec)"},
                                           {"PERCENT (INC)"},
                                           {"MIN (nsec)"},
                                           {"MAX (nsec)"},
                                           {"STDDEV"}};
  std::vector<TextRow> rows;
  for (const KernelStats& s : kernel_stats(recording))
    rows.push_back({s.name, "KERNEL_DISPATCH", fmt::format("{}", s.calls),
                    fmt::format("{}", s.total_ns), fmt::format("{:.3e}", s.average_ns),
                    fmt::format("{:.6f}", s.percentage), fmt::format("{}", s.min_ns),
                    fmt::format("{}", s.max_ns), fmt::format("{:.3e}", s.std_dev_ns)});
  return "ROCPROFV3 SUMMARY:\n" + text_table(columns, rows);
}

}  // namespace ridge
