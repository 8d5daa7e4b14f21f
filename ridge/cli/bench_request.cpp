#include "ridge/cli/bench_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "ridge/analyze/plan.h"
#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/cli/command.h"
#include "ridge/cli/compile_context.h"
#include "ridge/cli/flags.h"
#include "ridge/session/workload.h"

namespace ridge {
namespace {

// A benchmark leaves nothing behind to go on with, and has its own words for some of the rest.
const OptionFilter is_bench_option = all_but({"resume", "save-every", "eval-every", "output-dir",
                                              "log-interval", "flops", "flops-profile-step"});

}  // namespace

RunOptions bench_defaults(std::string_view network) {
  RunOptions options = default_options(network);
  options.mode = name_of(Use::inference);
  options.version = "none";
  options.batch_size = family_of(network).benchmark_batch;
  options.num_steps = 20;
  options.warmup_steps = 5;
  return options;
}

// --dtype, --fp16 and --amp-opt-level all choose a precision; those given must agree.
void BenchRequest::resolve_precision(RunOptions& o) {
  if (fp16) check_range("fp16", *fp16, 0, 1);
  if (amp_opt_level) check_range("amp-opt-level", *amp_opt_level, 0, 3);
  const bool amp = amp_opt_level.value_or(0) > 0, half = fp16.value_or(0) == 1;
  const bool has_dtype = run.was_given("dtype") || run.was_given("use-amp");
  if (!has_dtype && (half || amp)) o.dtype = "fp16";
  const Precision precision = o.precision();
  o.dtype = precision.name;
  o.use_amp = false;
  if (fp16 && half != (precision.compute == DType::f16))
    throw UsageError("--fp16 {} and {} exclude each other", *fp16,
                     has_dtype ? fmt::format("--dtype {}", o.dtype)
                               : fmt::format("--amp-opt-level {}", *amp_opt_level));
  const bool mixed =
      precision.compute != precision.master && precision.products == Precision::Products::same;
  if (amp && !mixed)
    throw UsageError("--amp-opt-level {} is mixed precision: it excludes --dtype {}",
                     *amp_opt_level, o.dtype);
  if (amp)
    notes.push_back(fmt::format(
        "AMP level {}: {} in products and between layers, fp32 in parameters, sums and statistics; "
        "levels 1 to 3 are one here",
        *amp_opt_level, o.dtype));
}

void BenchRequest::resolve_compile(RunOptions& o) {
  if (!compile_context.empty() && !compile)
    throw UsageError("--compileContext says how to compile: give --compile too, or leave both out");
  if (!compile) return;
  if (run.was_given("version"))
    throw UsageError("--compile and --version {} exclude each other: both name a schedule",
                     o.version);
  o.version = "default";
  if (compile_context.empty()) return;
  const CompileContext context = parse_compile_context(compile_context);
  o.version = context.mode;
  notes.insert(notes.end(), context.notes.begin(), context.notes.end());
}

std::vector<std::string_view> BenchRequest::varied() const {
  std::vector<std::string_view> flags;
  if (!networks.empty()) flags.emplace_back("--networks");
  if (!batch_sizes.empty()) flags.emplace_back("--batch-sizes");
  if (!precisions.empty()) flags.emplace_back("--precisions");
  if (compare_modes || !modes.empty())
    flags.emplace_back(compare_modes ? "--compare-modes" : "--modes");
  return flags;
}

// Nothing beside a table that only a single benchmark has.
void BenchRequest::check_tables() const {
  std::vector<std::string_view> tables = varied(), single;
  const auto add = [](std::vector<std::string_view>& to, bool given, std::string_view flag) {
    if (given) to.push_back(flag);
  };
  if (find_max_batch) {
    // It takes several precisions, as one table.
    std::erase(tables, "--precisions");
    tables.insert(tables.begin(), "--find-max-batch");
    if (tables.size() > 1)
      throw UsageError("{} exclude each other: each prints a table of its own",
                       fmt::join(tables, " and "));
  }
  add(single, autograd_profiler, "--autograd-profiler");
  add(single, kineto, "--kineto");
  add(single, flops_prof_step.has_value(), "--flops-prof-step");
  add(single, !profile_file.empty(), "--export-profile");
  add(single, !times_file.empty(), "--export-times");
  add(single, !kernels_directory.empty(), "--export-kernels");
  add(single, !weights_file.empty(), "--save-weights");
  add(single, options.profiling(), "--profile");
  add(single, keep.record, "--record");
  add(single, !keep.store.empty(), "--store");
  add(single, !keep.tags.empty(), "--tag");
  add(single, energy, "--energy");
  add(single, static_cast<bool>(rocm), rocm.tool);
  if (!tables.empty() && !single.empty())
    throw UsageError("{} excludes {}, which is about one benchmark", tables[0], single[0]);
  const std::string_view of_modes = compare_modes ? "--compare-modes" : "--modes";
  if (!modes.empty() && (compile || run.was_given("version")))
    throw UsageError("{} excludes --compile and --version: it goes through modes", of_modes);
  if (!networks.empty() && run.was_given("network"))
    throw UsageError("--networks excludes --network: name all of them in one");
  if (latency_limit && (tables.empty() || find_max_batch))
    throw UsageError("--latency-limit is for a table of batches: give --batch-sizes too");
  if (!precisions.empty() && (run.was_given("dtype") || fp16 || amp_opt_level))
    throw UsageError("--precisions excludes --dtype, --fp16 and --amp-opt-level");
  if (!max_batch_for.empty() && !find_max_batch)
    throw UsageError("--max-batch-for is the memory for --find-max-batch: give that too");
  if (!max_batch_for.empty()) parse_bytes(max_batch_for);
}

void BenchRequest::refuse_tables_on_ranks() const {
  std::vector<std::string_view> tables = varied();
  if (find_max_batch) tables.emplace_back("--find-max-batch");
  if (!tables.empty())
    throw UsageError("{} is for one rank: time each combination by itself on several", tables[0]);
}

// What a table varies. That a network cannot take a batch is part of the table.
void BenchRequest::check_variants() const {
  constexpr std::size_t most_variants = 100;
  const auto count = [](const auto& values) { return std::max<std::size_t>(1, values.size()); };
  const std::size_t all = count(networks) * count(batch_sizes) * count(precisions) * count(modes);
  if (all > most_variants)
    throw UsageError("{} are {} combinations: a table has {} at most", fmt::join(varied(), " and "),
                     all, most_variants);
  for (const std::string& mode : modes) schedule_row(mode);
  for (const RunOptions& network : of_networks)
    for (const std::string& precision : precisions) {
      RunOptions with = network;
      with.dtype = precision;
      try {
        with.resolve();
      } catch (const UsageError& error) {
        throw UsageError("--precisions {}: {}", precision, error.what());
      }
    }
  if (latency_limit) check_real("latency-limit", *latency_limit, 1e-6, 1e9);
  if (price_per_hour) check_real("price-per-hour", *price_per_hour, 1e-9, 1e12);
  for (const std::int64_t size : batch_sizes) check_range("batch-sizes", size, 1, 1 << 20);
}

RunOptions BenchRequest::resolved(std::string_view network) {
  return run.options_of_network(network, [this](RunOptions& o) {
    const bool trains = o.use() == Use::training;
    if (!weights_file.empty() && !trains) throw UsageError("--save-weights is for --mode training");
    if (!weights_file.empty() && !family_of(o.network).has_weights_files)
      throw UsageError(
          "--save-weights is not for {}, which has no such files; ridge train saves it", o.network);
    if (run.was_given("learning-rate") && !trains)
      throw UsageError("--learning-rate is for --mode training");
    resolve_precision(o);
    resolve_compile(o);
    // A table varies the batch: check the other options with one that every network takes.
    if (!batch_sizes.empty() || find_max_batch) o.batch_size = 2;
  });
}

void BenchRequest::resolve() {
  if (compare_modes && !modes.empty())
    throw UsageError("--compare-modes and --modes exclude each other: the one is all of the other");
  if (compare_modes)
    for (const ScheduleRow& row : schedules())
      if (row.kind == ScheduleRow::Kind::compile_mode) modes.emplace_back(row.name);
  std::vector<std::string_view> names(networks.begin(), networks.end());
  if (names.empty()) names.emplace_back();
  for (const std::string_view name : names) {
    notes.clear();  // each says the same
    of_networks.push_back(resolved(name));
  }
  options = of_networks.front();
  rocm = rocm_profile(rocm_words);
  check_tables();
  check_variants();
  if (flops_prof_step && (*flops_prof_step < 0 || *flops_prof_step >= options.num_steps))
    throw UsageError(
        "--flops-prof-step is {}, but with --iterations {} there are only iterations 0 to {}",
        *flops_prof_step, options.num_steps, options.num_steps - 1);
}

std::filesystem::path BenchRequest::trace_file() const {
  if (!profile_file.empty()) return profile_file;
  return kineto ? options.network + "_trace.json" : "";
}

namespace {

class Flags {
 public:
  Flags(Command command, std::string group) : command_(command), group_(std::move(group)) {}

  template <class T>
  void value(const char* flag, T& field, const char* what, const char* type) const {
    add_value(command_, flag, field, what).type_name(type).group(group_);
  }
  void on(const char* flag, bool& field, const char* what) const {
    command_.add_flag(flag, field, what).group(group_);
  }

 private:
  Command command_;
  std::string group_;
};

void add_workshop(Command command, BenchRequest& request) {
  const Flags add(command, "Workshop");
  add.value("--fp16", request.fp16, "Use --dtype fp16 if this is 1", "0|1");
  add.value("--amp-opt-level", request.amp_opt_level,
            "Set Apex's level: 0 fp32; 1 to 3 fp16 with fp32 parameters and sums", "0..3");
  add.on("--compile", request.compile, "Rewrite the network and plan its memory before it runs");
  add.value("--compileContext", request.compile_context,
            "Compile with torch.compile's arguments: \"{'mode': 'reduce-overhead'}\" or "
            "'max-autotune'",
            "DICT");
  add.on("--autograd-profiler", request.autograd_profiler,
         "Print tables of operators, kernels and memory, over the last iterations");
  add.on("--kineto", request.kineto, "Profile as --autograd-profiler does and write a trace");
  add.value("--flops-prof-step", request.flops_prof_step,
            "Print FLOPs, time and efficiency of every module in this iteration", "N");
}

void add_tables(Command command, BenchRequest& request) {
  const Flags add(command, "Tables");
  add.value("--networks", request.networks,
            "Time networks side by side, such as resnet18,resnet50: throughput, memory, gains",
            "LIST");
  add.on("--compare-modes", request.compare_modes,
         "Time all compile modes against each other, in turn");
  add.value("--modes", request.modes,
            "Time these compile modes against each other, such as none,default", "LIST");
  add.value("--precisions", request.precisions,
            "Time precisions against each other, such as fp32,fp16: speed, memory, difference of "
            "results",
            "LIST");
  add.value("--batch-sizes", request.batch_sizes,
            "Time batch sizes side by side, such as 8,32,128: throughput, memory, efficiency",
            "LIST");
  add.value("--latency-limit", request.latency_limit,
            "Say which batch is the largest that takes no longer than this", "MS");
  add.on("--find-max-batch", request.find_max_batch,
         "Find the largest batch that fits in memory: planned, then run");
  add.value("--max-batch-for", request.max_batch_for,
            "Find it for this much memory, such as 4GB; default: what the device has left", "SIZE");
  const Flags cost(command, "Cost");
  cost.value("--price-per-hour", request.price_per_hour,
             "Print the price of 1,000 samples, at this price of an hour of the machine in any "
             "currency",
             "PRICE");
  cost.on("--energy", request.energy, "Print the energy of a sample, by the card's own readings");
}

void add_output(Command command, BenchRequest& request) {
  const Flags add(command, "Output");
  add.value("--export-times", request.times_file, "Write every time to this CSV file", "FILE");
  add.value("--export-json", request.json_file, "Write the results to this JSON file", "FILE");
  add.value("--export-profile", request.profile_file,
            "Write the trace to this file: Chrome's JSON, or Perfetto's format if it ends in "
            ".pftrace",
            "FILE");
  add.value("--export-kernels", request.kernels_directory,
            "Write the sources of generated GPU kernels to this directory", "DIR");
  add.value("--save-weights", request.weights_file, "Write the trained weights to this file",
            "FILE");
  add_keep_flags(command, request.keep);
  add_rocm_flag(command, request.rocm_words);
  add.on("--list", request.list, "Print the networks, their parameters and work");
  add.on("--json", request.list_json, "Print the list as JSON");
}

// Known, so that whoever comes from the workshop's benchmark is told of the ways that there are.
void add_distributed(Command command) {
  const auto refuse = [](const std::string&) {
    throw UsageError(
        "ridge bench knows its rank by its launcher: in place of --distributed_dataparallel, "
        "--device_ids, --rank and --world-size give --ranks N, or start it by torchrun, mpirun or "
        "srun");
  };
  for (const char* flag : {"--device-ids", "--rank", "--world-size"})
    command.add_option(flag, refuse, "Use --ranks instead").type_name("N").group("Several ranks");
  command
      .add_flag(
          "--distributed-dataparallel", [refuse] { refuse({}); }, "Use --ranks instead")
      .group("Several ranks");
}

}  // namespace

BenchRequest::BenchRequest(Command command)
    : run(command, {.network = "resnet50", .defaults = bench_defaults, .has = is_bench_option}) {
  add_workshop(command, *this);
  add_tables(command, *this);
  add_output(command, *this);
  add_distributed(command);
}

}  // namespace ridge
