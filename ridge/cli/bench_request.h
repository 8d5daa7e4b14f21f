#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/bench/options.h"
#include "ridge/session/options.h"

namespace CLI {
class App;
}

namespace ridge {

// What the flags of `ridge bench` ask for.
struct BenchRequest {
  BenchOptions bench;

  // The workshop's ways to choose a precision and a compile mode, of which resolve() makes
  // bench.dtype and bench.compile; so it does with the learning rate, which is for training alone.
  std::optional<std::string> dtype;
  std::optional<std::int64_t> fp16, amp_opt_level;
  std::optional<double> learning_rate;
  bool compile = false;
  std::string compile_context;

  bool list = false, list_json = false;

  bool autograd_profiler = false, kineto = false;
  std::optional<std::int64_t> flops_prof_step;  // the number of an iteration as it is printed

  // Tables in place of a single benchmark.
  bool compare_modes = false, find_max_batch = false;
  std::vector<std::string> precisions;
  std::vector<std::int64_t> batch_sizes;
  std::string max_batch_for;

  std::string json_file, times_file, profile_file;
  std::string weights_file;  // to write after training
  std::string kernels_directory;

  std::vector<std::string> notes;  // about flags that mean something else here, by resolve()

  // UsageError for flags that make no sense, or not together.
  void resolve();
  bool records_operators() const { return autograd_profiler || kineto || !profile_file.empty(); }
  bool profiles() const { return records_operators() || flops_prof_step.has_value(); }
};

// `request` outlives the parsing.
void add_bench_flags(CLI::App& command, BenchRequest& request);

// UsageError for images or a batch that the network cannot take.
void check_network(const BenchOptions& options);

// What a device is opened by.
TrainOptions device_options(const BenchOptions& bench);

}  // namespace ridge
