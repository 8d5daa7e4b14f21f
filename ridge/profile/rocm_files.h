#pragma once

#include <filesystem>
#include <string>

#include "ridge/profile/counted_nodes.h"
#include "ridge/profile/recording.h"

namespace ridge {

// Files in the forms of ROCm's profilers, beside those of kernel_stats.h. Columns are those of the
// documentation of rocprofiler 6.2 (rocprof, rocprofv2) and rocprofiler-sdk (rocprofv3). Times are
// nanoseconds since 1970. What only a GPU has is 0 on the CPU; vector registers are registers per
// thread, LDS is shared memory, scratch is local memory.

// Writes rocprof's table of calls, in order. A dispatch is taken to begin when the kernel does, and
// to be complete when it ends.
void write_rocprof_calls(const Recording& recording, const std::filesystem::path& path);
// Returns the text of its NAME.stats.csv: kernels by time, most first.
std::string rocprof_stats_csv(const Recording& recording);

// Writes rocprofv2's table of calls with what was counted behind it, which is the form of
// rocprof-compute's pmc_perf.csv too. Where a node has several kernels each of them has the node's
// counts. A field is empty where nothing was counted.
void write_rocprof_dispatches(const Recording& recording, const std::filesystem::path& path,
                              const CountedNodes& counted = {});

// The texts of rocprofv3's *_domain_stats.csv, all kernels together, and *_agent_info.csv, of which
// only columns are there that are known: the processors' and the card's number, kind and name.
std::string domain_stats_csv(const Recording& recording);
std::string agent_info_csv(const Recording& recording);

// The table of kernels by time that rocprofv3 --summary prints.
std::string kernel_summary_text(const Recording& recording);

}  // namespace ridge
