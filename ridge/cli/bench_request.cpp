#include "ridge/cli/bench_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/bench/compile_context.h"
#include "ridge/bench/training.h"
#include "ridge/cli/flags.h"
#include "ridge/graph/graph.h"
#include "ridge/models/vision/vision.h"

namespace ridge {
namespace {

// --dtype, --fp16 and --amp-opt-level all choose a precision; those given must agree.
void resolve_precision(BenchRequest& request) {
  if (request.fp16) check_range("fp16", *request.fp16, 0, 1);
  if (request.amp_opt_level) check_range("amp-opt-level", *request.amp_opt_level, 0, 3);
  const bool amp = request.amp_opt_level.value_or(0) > 0;
  const bool half = request.fp16.value_or(0) == 1;
  const std::string asked = request.dtype.value_or(half || amp ? "fp16" : "fp32");
  if (request.fp16 && half != (asked == "fp16"))
    throw UsageError("--fp16 {} and {} exclude each other", *request.fp16,
                     request.dtype ? fmt::format("--dtype {}", asked)
                                   : fmt::format("--amp-opt-level {}", *request.amp_opt_level));
  if (amp && asked != "fp16" && asked != "bf16")
    throw UsageError("--amp-opt-level {} is mixed precision: it excludes --dtype {}",
                     *request.amp_opt_level, asked);
  request.bench.dtype = asked;
  if (amp)
    request.notes.push_back(fmt::format(
        "AMP level {}: {} in products and between layers, fp32 in parameters, sums and statistics; "
        "levels 1 to 3 are one here",
        *request.amp_opt_level, asked));
}

void resolve_compile(BenchRequest& request) {
  if (!request.compile_context.empty() && !request.compile)
    throw UsageError("--compileContext says how to compile: give --compile too, or leave both out");
  if (!request.compile) return;
  request.bench.compile = "default";
  if (request.compile_context.empty()) return;
  const CompileContext context = parse_compile_context(request.compile_context);
  request.bench.compile = context.mode;
  request.notes.insert(request.notes.end(), context.notes.begin(), context.notes.end());
}

// At most one table, and nothing beside it that only a single benchmark has.
void check_tables(const BenchRequest& request) {
  std::vector<std::string_view> tables, single;
  const auto add = [](std::vector<std::string_view>& list, bool given, std::string_view flag) {
    if (given) list.push_back(flag);
  };
  add(tables, request.compare_modes, "--compare-modes");
  add(tables, !request.batch_sizes.empty(), "--batch-sizes");
  add(tables, request.find_max_batch, "--find-max-batch");
  // --find-max-batch takes several precisions, as one table.
  add(tables, !request.precisions.empty() && !request.find_max_batch, "--precisions");
  add(single, request.autograd_profiler, "--autograd-profiler");
  add(single, request.kineto, "--kineto");
  add(single, request.flops_prof_step.has_value(), "--flops-prof-step");
  add(single, !request.profile_file.empty(), "--export-profile");
  add(single, !request.times_file.empty(), "--export-times");
  add(single, !request.kernels_directory.empty(), "--export-kernels");
  add(single, !request.weights_file.empty(), "--save-weights");
  if (tables.size() > 1)
    throw UsageError("{} exclude each other: each prints a table of its own",
                     fmt::join(tables, " and "));
  if (!tables.empty() && !single.empty())
    throw UsageError("{} excludes {}, which is about one benchmark", tables[0], single[0]);
  if (request.compare_modes && request.compile)
    throw UsageError("--compare-modes excludes --compile: it goes through all modes");
  if (!request.precisions.empty() && (request.dtype || request.fp16 || request.amp_opt_level))
    throw UsageError("--precisions excludes --dtype, --fp16 and --amp-opt-level");
  if (!request.max_batch_for.empty() && !request.find_max_batch)
    throw UsageError("--max-batch-for is the memory for --find-max-batch: give that too");
  if (!request.max_batch_for.empty()) parse_bytes(request.max_batch_for);
}

}  // namespace

void check_network(const BenchOptions& options) {
  Graph graph;
  build_vision(graph, options.network, vision_options(options));
}

void BenchRequest::resolve() {
  if (!weights_file.empty() && !bench.trains())
    throw UsageError("--save-weights is for --mode training");
  if (learning_rate && !bench.trains()) throw UsageError("--learning-rate is for --mode training");
  bench.learning_rate = learning_rate.value_or(bench.learning_rate);
  resolve_precision(*this);
  resolve_compile(*this);
  check_tables(*this);
  bench.check();
  // What a table varies is checked in its place: of those, the network is asked for one image.
  BenchOptions network = bench;
  if (!batch_sizes.empty() || find_max_batch) {
    network.batch_size = 1;
    network.mode = "inference";
  }
  check_network(network);
  // All is right but what they vary.
  const auto check_variant = [](std::string_view flag, const auto& value,
                                const BenchOptions& variant) {
    try {
      variant.check();
    } catch (const UsageError& error) {
      throw UsageError("{} {}: {}", flag, value, error.what());
    }
  };
  for (const std::string& precision : precisions) {
    BenchOptions with = bench;
    with.dtype = precision;
    check_variant("--precisions", precision, with);
  }
  for (const std::int64_t size : batch_sizes) {
    BenchOptions with = bench;
    with.batch_size = size;
    check_variant("--batch-sizes", size, with);
  }
  if (flops_prof_step && (*flops_prof_step < 0 || *flops_prof_step >= bench.iterations))
    throw UsageError(
        "--flops-prof-step is {}, but with --iterations {} there are only iterations 0 to {}",
        *flops_prof_step, bench.iterations, bench.iterations - 1);
}

TrainOptions device_options(const BenchOptions& bench) {
  TrainOptions options;
  options.device = bench.device;
  options.threads = bench.threads;
  return options;
}

namespace {

class Flags {
 public:
  Flags(CLI::App& command, std::string group) : command_(command), group_(std::move(group)) {}

  template <class T>
  void value(const char* flag, T& field, const char* what, const char* type) const {
    add_value(command_, flag, field, what)->type_name(type)->capture_default_str()->group(group_);
  }
  // Without a default to show.
  template <class T>
  void maybe(const char* flag, T& field, const char* what, const char* type) const {
    add_value(command_, flag, field, what)->type_name(type)->group(group_);
  }
  void on(const char* flag, bool& field, const char* what) const {
    command_.add_flag(flag, field, what)->group(group_);
  }

 private:
  CLI::App& command_;
  std::string group_;
};

void add_workload(CLI::App& command, BenchOptions& o) {
  const Flags add(command, "Workload");
  add.value("--network", o.network, "Which network; see --list", "NAME");
  add.value("--batch-size", o.batch_size, "Images in a batch", "N");
  add.value("--iterations", o.iterations, "Passes to time", "N");
  add.value("--warmup", o.warmup, "Passes before them", "N");
  add.value("--image-size", o.image_size, "Rows and columns of an image; 0: the network's own",
            "N");
  add.value("--mode", o.mode, "inference, or training: forward, backward and an SGD step", "TEXT");
  add.maybe("--weights", o.weights,
            "Weights under torchvision's names; without it they are drawn from the seed", "FILE");
  add.value("--seed", o.seed, "Decides weights and images", "N");
}

void add_training(CLI::App& command, BenchRequest& request) {
  BenchOptions& o = request.bench;
  const Flags add(command, "Training");
  add.maybe("--learning-rate", request.learning_rate, "Of SGD with momentum 0.9; default: 0.01",
            "X");
  add.maybe("--data", o.data,
            "Images and labels to train on, a fifth of which is held out: a safetensors file",
            "FILE");
  add.maybe("--save-weights", request.weights_file, "Write the trained weights to this file",
            "FILE");
}

void add_precision(CLI::App& command, BenchRequest& request) {
  const Flags add(command, "Precision");
  add.maybe(
      "--dtype", request.dtype,
      "fp32 (default), tf32 (fp32 with products that a GPU rounds to 19 bits), bf16, fp16, or "
      "int8 (inference, quantised by the range that calibration finds on the batch)",
      "TEXT");
  add.maybe("--fp16", request.fp16, "1 is --dtype fp16; 0 is not", "0|1");
  add.maybe("--amp-opt-level", request.amp_opt_level,
            "Apex's levels: 0 is fp32; 1, 2 and 3 are fp16 with fp32 parameters and sums", "0..3");
}

void add_execution(CLI::App& command, BenchRequest& request) {
  BenchOptions& o = request.bench;
  const Flags add(command, "Execution");
  add.on("--compile", request.compile, "Rewrite the network and plan its memory before it runs");
  add.maybe("--compileContext", request.compile_context,
            "How, as torch.compile's arguments: \"{'mode': 'reduce-overhead'}\" or 'max-autotune'",
            "DICT");
  add.value("--channels-last", o.channels_last, "Images as N, H, W, C: auto, on or off", "TEXT");
  add.value("--device", o.device, "auto (a GPU if there is one), cpu or cuda", "TEXT");
  add.value("--threads", o.threads, "Processors to use; 0: all this process may", "N");
}

void add_profiling(CLI::App& command, BenchRequest& request) {
  const Flags add(command, "Profiling");
  add.on("--autograd-profiler", request.autograd_profiler,
         "Tables of operators, kernels and memory, over the last iterations");
  add.on("--kineto", request.kineto, "The same and a trace");
  add.maybe("--flops-prof-step", request.flops_prof_step,
            "FLOPs, time and efficiency of every module in this iteration", "N");
  add.maybe("--export-profile", request.profile_file,
            "The trace's file: Chrome's JSON, or Perfetto's format if it ends in .pftrace", "FILE");
}

void add_tables(CLI::App& command, BenchRequest& request) {
  const Flags add(command, "Tables");
  add.on("--compare-modes", request.compare_modes,
         "All compile modes against each other, taking turns");
  add.maybe(
      "--precisions", request.precisions,
      "Precisions against each other, such as fp32,fp16: speed, memory, difference of results",
      "LIST");
  add.maybe("--batch-sizes", request.batch_sizes,
            "Batch sizes side by side, such as 8,32,128: throughput and memory", "LIST");
  add.on("--find-max-batch", request.find_max_batch,
         "The largest batch that fits in memory: planned, then run");
  add.maybe("--max-batch-for", request.max_batch_for,
            "In this much memory, such as 4GB; default: what the device has left", "SIZE");
}

void add_output(CLI::App& command, BenchRequest& request) {
  const Flags add(command, "Output");
  add.maybe("--export-times", request.times_file, "Write every time to this CSV file", "FILE");
  add.maybe("--export-json", request.json_file, "Write the results to this JSON file", "FILE");
  add.maybe("--export-kernels", request.kernels_directory,
            "Write the source of each kernel that a GPU compiles for a chain to this directory",
            "DIR");
  add.on("--list", request.list, "Print the networks, their parameters and work");
  add.on("--json", request.list_json, "The list as JSON");
}

// Known, so that a line of the workshop that needs several GPUs is told what is missing.
void add_distributed(CLI::App& command) {
  const auto refuse = [](const CLI::results_t&) -> bool {
    throw UsageError(
        "ridge bench runs on one device: --distributed_dataparallel, --device_ids, --rank and "
        "--world-size are for several, which is not there yet");
  };
  for (const char* flag : {"--device-ids", "--rank", "--world-size"})
    command.add_option(flag, refuse, "Not there yet")->type_name("N")->group("Several GPUs");
  command
      .add_flag_callback(
          "--distributed-dataparallel", [refuse] { refuse({}); }, "Not there yet")
      ->group("Several GPUs");
}

}  // namespace

void add_bench_flags(CLI::App& command, BenchRequest& request) {
  add_workload(command, request.bench);
  add_training(command, request);
  add_precision(command, request);
  add_execution(command, request);
  add_profiling(command, request);
  add_tables(command, request);
  add_output(command, request);
  add_distributed(command);
}

}  // namespace ridge
