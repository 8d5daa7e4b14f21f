#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/profile/recording.h"

namespace ridge {

// A kernel's run: the device's, if that was traced, else that of the node which is one kernel.
struct KernelCall {
  std::size_t name;  // index into KernelCalls::names
  std::int64_t begin_ns, end_ns;
  NodeId node;               // on whose behalf, or no_node
  const Activity* activity;  // in the recording; null if the device was not traced
};
struct KernelCalls {
  std::vector<std::string> names;  // demangled
  std::vector<KernelCall> calls;   // by begin
};
KernelCalls kernel_calls(const Recording& recording);

// All calls of one kernel: as the device's tracing saw them, under the kernel's own name; on the
// CPU a kernel has its operator's name.
struct KernelStats {
  std::string name;
  std::int64_t calls = 0;
  std::int64_t total_ns = 0, min_ns = 0, max_ns = 0;
  double average_ns = 0;
  double percentage = 0;  // of the time of all kernels
  double std_dev_ns = 0;  // of a sample: over calls - 1; 0 for a single call
};

std::vector<KernelStats> kernel_stats(const Recording& recording);  // most time first

// "reduce_rows" of "void ridge::gpu::reduce_rows<float>(float*, int)": the name of a kernel without
// its result, scopes, template arguments and parameters, as rocprofv3 --truncate-kernels has it.
std::string truncated_kernel_name(std::string_view name);
// The recording with all names of kernels truncated.
Recording with_truncated_names(Recording recording);

// The text of kernel_stats.csv, with the columns of rocprofv3.
std::string kernel_stats_csv(const Recording& recording);

// Writes kernel_trace.csv, with the columns of rocprofv3: one row a call, in order, with times in
// nanoseconds since 1970. Shared memory is in the column LDS_Block_Size, local memory per thread in
// Scratch_Size, registers in VGPR_Count; what only a GPU has is 0 on the CPU. Returns how many
// calls were left out because there were more than `max_rows`.
inline constexpr std::size_t max_kernel_trace_rows = std::size_t{1} << 20;
std::size_t write_kernel_trace(const Recording& recording, const std::filesystem::path& path,
                               std::size_t max_rows = max_kernel_trace_rows);

}  // namespace ridge
