#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/cli/command.h"
#include "ridge/cli/keep_run.h"
#include "ridge/cli/rocm_profiler.h"
#include "ridge/cli/run_request.h"

namespace ridge {

// What the workshop's benchmark takes for granted of a network.
RunOptions bench_defaults(std::string_view network);

// What the flags of `ridge bench` ask for: a run, in the workshop's words or in ours, and what to
// show of it.
struct BenchRequest {
  explicit BenchRequest(Command command);
  BenchRequest(const BenchRequest&) = delete;
  BenchRequest& operator=(const BenchRequest&) = delete;

  RunRequest run;
  RunOptions options;  // resolved, by resolve()

  // The workshop's flags for precision and compile mode, from which resolve() sets dtype
  // and version.
  std::optional<std::int64_t> fp16, amp_opt_level;
  bool compile = false;
  std::string compile_context;

  bool list = false, list_json = false;

  bool autograd_profiler = false, kineto = false;
  std::optional<std::int64_t> flops_prof_step;  // the number of an iteration as it is printed

  // Tables in place of a single benchmark: what varies, of which all combinations are timed.
  bool compare_modes = false, find_max_batch = false;
  std::vector<std::string> networks, precisions, modes;  // resolve() fills `modes` of compare_modes
  std::vector<std::int64_t> batch_sizes;
  std::string max_batch_for;
  std::optional<double> latency_limit;   // of a batch, in milliseconds
  std::optional<double> price_per_hour;  // of the machine
  bool energy = false;
  // Of each of `networks`, resolved; of the one network where it is empty.
  std::vector<RunOptions> of_networks;

  std::string json_file, times_file, profile_file;
  std::string weights_file;  // to write after training
  std::string kernels_directory;

  KeepRequest keep;

  std::string rocm_words;  // of the profiler of ROCm's that the run was started by; see rocm_flag
  RocmProfile rocm;        // what they ask for, by resolve()

  std::vector<std::string> notes;  // about flags that mean something else here, by resolve()

  // UsageError for flags that make no sense, or not together.
  void resolve();
  // UsageError for a table on several ranks.
  void refuse_tables_on_ranks() const;
  // Flags of what varies: "--networks", "--batch-sizes", ..; without that of the largest batch.
  std::vector<std::string_view> varied() const;
  bool records_operators() const { return autograd_profiler || kineto || !profile_file.empty(); }
  // Where the trace of --export-profile or --kineto goes; empty if there is none to write.
  std::filesystem::path trace_file() const;

 private:
  void resolve_precision(RunOptions& options);
  void resolve_compile(RunOptions& options);
  RunOptions resolved(std::string_view network);
  void check_tables() const;
  void check_variants() const;
};

}  // namespace ridge
