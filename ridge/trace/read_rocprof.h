#pragma once

// The files of rocprofv3, the profiler of ROCm: JSON (`--output-format json`), and CSV, a file for
// each kind of event. The fields are those of its sources (rocprofiler-sdk, source/lib/output). Of
// its predecessors rocprof and rocprofv2 the tables of calls are read too. All times are whole
// nanoseconds.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/trace/read.h"
#include "ridge/trace/trace.h"

namespace ridge::trace {

// Whether a text begins as rocprofv3's JSON does: {"rocprofiler-sdk-tool": ...
bool is_rocprof_json(std::string_view text);

// Whether the first line of a text is the header of one of the tables that are read: kernels,
// copies, calls and ranges.
bool is_rocprof_csv(std::string_view text);

// Adds the events of such JSON: dispatches, copies, calls of HIP, HSA and RCCL, and ranges of
// ROCTX. Of several processes, tracks and correlations stay apart. What is cut short is read as far
// as it goes. The file is taken in twice, in pieces: what names its records stands behind them in
// some. FormatError if no event can be read.
void read_rocprof_json(const std::filesystem::path& file, const ReadOptions& options, Trace& trace);
void read_rocprof_json(std::string_view file, const ReadOptions& options, Trace& trace);

// Adds the events of such a table, or the names of the cards of *_agent_info.csv. Rows that have
// not the header's fields are left out, and Trace::damage says so. FormatError if it is another
// table.
void read_rocprof_csv(std::string_view text, Trace& trace);

// The files that rocprofv3 wrote beside such a table, itself among them: those of the same folder
// with the same begin, as *_kernel_trace.csv and *_hip_api_trace.csv.
std::vector<std::filesystem::path> rocprof_tables_of(const std::filesystem::path& table);

// Whether a file is named as the tables of kernels are: the others stand beside it.
bool is_named_as_kernel_table(const std::filesystem::path& file);

}  // namespace ridge::trace
