#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/cli/command.h"

namespace ridge {

// The forms in which ROCm's profilers write what they saw.
enum class RocmForm : std::uint8_t {
  calls,         // rocprof's NAME.csv: a row for each call of a kernel
  stats,         // rocprof's NAME.stats.csv: kernels by time
  dispatches,    // rocprofv2's CSV: the calls, in its columns
  counters,      // the same with counters behind them, as rocprof-compute's pmc_perf.csv
  kernel_trace,  // rocprofv3's *_kernel_trace.csv
  kernel_stats,  // rocprofv3's *_kernel_stats.csv
  domain_stats,  // rocprofv3's *_domain_stats.csv: all kernels together
  agent_info,    // rocprofv3's *_agent_info.csv: the devices
  chrome,        // a Chrome trace, JSON
  perfetto       // Perfetto's protobuf
};

// What a call of rocprof, rocprofv2, rocprofv3 or rocprof-compute asks for of a run.
struct RocmProfile {
  struct File {
    std::filesystem::path path;
    RocmForm form;
  };
  std::string tool;           // "rocprof"; empty: there is no such call
  std::vector<File> files;    // in the order in which they are told
  bool truncates = false;     // kernels are named without template arguments and parameters
  bool prints_table = false;  // of kernels by time, as rocprofv3 --summary does
  bool counts = false;        // in hardware

  explicit operator bool() const { return !tool.empty(); }
};

// The words of such a call, its own name first, up to the program that it starts, whose index in
// `words` is `program`. UsageError for a flag that this tool has not here, or if no program
// follows.
struct RocmCall {
  RocmProfile profile;
  std::size_t program = 0;
};
RocmCall parse_rocm_call(std::span<const std::string> words);

bool is_rocm_profiler(std::string_view program);
// The text of --help if a call asks for that before the program that it starts.
std::optional<std::string> rocm_help(std::string_view program,
                                     std::span<const std::string> arguments);

// A flag of `ridge train` and `ridge bench`, in no help, whose value is the words of such a call
// before the program. Under the names of the tools it is added.
inline constexpr std::string_view rocm_flag = "--rocm-profiler";
std::string rocm_flag_of(std::span<const std::string> words);  // with its value
void add_rocm_flag(Command command, std::string& words);
// What the value of that flag asks for; nothing if it is empty. UsageError as of parse_rocm_call().
RocmProfile rocm_profile(const std::string& words);

}  // namespace ridge
