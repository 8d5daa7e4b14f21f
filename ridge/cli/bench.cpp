// `ridge bench`, also called micro_benchmarking_pytorch.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/bench/chain_sources.h"
#include "ridge/bench/facts.h"
#include "ridge/bench/session.h"
#include "ridge/bench/summary.h"
#include "ridge/bench/weights.h"
#include "ridge/cli/bench_list.h"
#include "ridge/cli/bench_profiling.h"
#include "ridge/cli/bench_request.h"
#include "ridge/cli/bench_tables.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/last_words.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/run/autotuner.h"

namespace ridge {
namespace {

int print_list(bool as_json) {
  Terminal().lines(as_json ? network_list_json() : network_list_text());
  return 0;
}

std::string iteration_line(std::string_view name, std::int64_t number, const BenchIteration& done) {
  return fmt::format("{} {}: Loss = {}, Time = {:.4f} seconds", name, number,
                     format_loss(done.loss), done.seconds);
}

// One network, timed on a device.
class Benchmark {
 public:
  Benchmark(const BenchRequest& request, Device& device, Terminal& terminal)
      : request_(request), options_(request.bench), device_(device), terminal_(terminal) {}

  int run() {
    print_configuration();
    const std::unique_ptr<BenchSession> session = load();
    BenchProfiling profiling(request_, *session);
    note_interrupts();
    warm_up(*session);
    measure(*session, profiling);
    if (interrupt_noted() != 0) terminal_.line("Interrupted");
    LastWords last_words;
    last_words.attempt([&] { keep(*session); });
    if (!record_.seconds.empty()) report(profiling, last_words);
    last_words.throw_fault();
    return interrupt_noted() == 0 ? 0 : 128 + interrupt_noted();
  }

 private:
  void print_configuration() {
    terminal_.line(fmt::format("Using network: {}", options_.network));
    terminal_.line(fmt::format("Batch size: {}", options_.batch_size));
    terminal_.line(fmt::format("Iterations: {}", options_.iterations));
    terminal_.line(fmt::format("FP16: {}", options_.dtype == "fp16" ? "True" : "False"));
    terminal_.line(fmt::format("Precision: {}", options_.dtype));
    terminal_.line(fmt::format("Mode: {}", options_.mode));
    if (options_.compile == "none")
      terminal_.line("Compile: off");
    else
      terminal_.line(fmt::format("Compile: ENABLED (mode={})", options_.compile));
    for (const std::string& note : request_.notes) terminal_.line("  " + note);
    terminal_.line(fmt::format("Device: {}", device_.description()));
    terminal_.line("");
  }

  std::unique_ptr<BenchSession> load() {
    const bool converts = options_.dtype != "fp32" && options_.dtype != "tf32";
    const bool compiles = options_.compile != "none";
    std::string precision = options_.dtype;
    for (char& c : precision) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (converts) terminal_.line(fmt::format("Converting model to {}...", precision));
    if (compiles) terminal_.line(fmt::format("Compiling model (mode={})...", options_.compile));
    terminal_.busy("Loading model...");
    const auto start = std::chrono::steady_clock::now();
    auto session = std::make_unique<BenchSession>(options_, device_, tuning_on(terminal_));
    const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
    if (compiles) {
      record_.compile_seconds = session->compile_seconds();
      terminal_.line(
          fmt::format("Compilation complete in {}", format_duration(record_.compile_seconds)));
    }
    if (session->tuner()) print_tuning(*session->tuner());
    for (const std::string& warning : device_.warnings()) terminal_.line(warning);
    if (!request_.kernels_directory.empty()) {
      const std::size_t count = write_chain_sources(session->graph(), request_.kernels_directory);
      terminal_.line(fmt::format("Wrote the sources of {} generated kernels to {}", count,
                                 request_.kernels_directory));
    }
    if (converts) terminal_.line("Model conversion complete.");
    const NetworkFacts facts = facts_of(options_);
    record_.parameters = facts.parameters;
    terminal_.line(fmt::format("Model loaded in {}: {} parameters",
                               format_duration(loading.count()), format_count(facts.parameters)));
    terminal_.line("");
    return session;
  }

  void print_tuning(const Autotuner& tuner) {
    for (const std::string& warning : tuner.warnings()) terminal_.line(warning);
    terminal_.line(fmt::format("Kernels chosen: {} by timing, {} as they were before ({})",
                               tuner.searched(), tuner.cached(), tuning_cache_text()));
  }

  void warm_up(BenchSession& session) {
    if (options_.warmup == 0) return;
    terminal_.line(fmt::format("Warming up ({} iterations)...", options_.warmup));
    for (std::int64_t i = 0; i < options_.warmup; ++i) {
      if (interrupt_noted() != 0) return;
      terminal_.line(iteration_line("Warmup iteration", i, session.iterate()));
    }
    terminal_.line("Warmup complete.");
    terminal_.line("");
  }

  void measure(BenchSession& session, BenchProfiling& profiling) {
    if (interrupt_noted() != 0) return;
    terminal_.line("Running timed iterations...");
    for (std::int64_t i = 0; i < options_.iterations && interrupt_noted() == 0; ++i) {
      profiling.before(i);
      const BenchIteration done = session.iterate();
      profiling.after(i, done);
      record_.seconds.push_back(done.seconds);
      record_.losses.push_back(done.loss);
      if (profiling.recorded(i)) record_.recorded.push_back(static_cast<std::size_t>(i));
      terminal_.line(iteration_line("Epoch", i, done) +
                     (profiling.recorded(i) ? " [PROFILING]" : ""));
    }
    const MemoryStats& memory = session.executor().memory();
    record_.peak_tensor_bytes = memory.peak_live;
    record_.reserved_bytes = memory.reserved;
    record_.macs = total_cost(session.graph()).macs / options_.batch_size;
  }

  // What training made of the network.
  void keep(BenchSession& session) {
    if (!request_.weights_file.empty()) {
      save_weights(request_.weights_file, session.graph(), session.executor());
      terminal_.line(fmt::format("Wrote {}", request_.weights_file));
    }
    if (const auto accuracy = session.accuracy())
      terminal_.line(fmt::format("Held-out accuracy: {:.2f} % of {} images, {:.2f} % in int8",
                                 100 * accuracy->share(), accuracy->images,
                                 100 * session.accuracy(/*int8=*/true)->share()));
  }

  void report(BenchProfiling& profiling, LastWords& last_words) {
    const BenchSummary summary = summarize(options_, record_);
    terminal_.line("");
    terminal_.line(summary_text(options_, record_, summary, device_.name() != "cpu"));
    const auto write = [&](const std::string& file, const std::string& text) {
      if (file.empty()) return;
      last_words.attempt([&] {
        write_text_file(file, text);
        terminal_.line(fmt::format("Wrote {}", file));
      });
    };
    last_words.attempt([&] { profiling.finish(terminal_); });
    write(request_.times_file, times_csv(record_));
    write(request_.json_file,
          bench_json(options_, record_, summary, system_info(device_, device_options(options_)),
                     utc_timestamp(), profiling.json()));
  }

  const BenchRequest& request_;
  const BenchOptions& options_;
  Device& device_;
  Terminal& terminal_;
  BenchRecord record_;
};

void make_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw IoError("cannot create {}: {}", directory.string(), error.message());
}

// UsageError if two of them are one, of which only the last would be left.
void check_files(const BenchRequest& request) {
  const std::pair<std::string_view, std::filesystem::path> files[] = {
      {"--export-times", request.times_file},
      {"--export-json", request.json_file},
      {"--save-weights", request.weights_file},
      {request.profile_file.empty() ? "--kineto" : "--export-profile", trace_file(request)}};
  std::map<std::filesystem::path, std::string_view> writers;
  for (const auto& [flag, file] : files) {
    if (file.empty()) continue;
    std::error_code fault;
    std::filesystem::path whole =
        std::filesystem::weakly_canonical(std::filesystem::absolute(file, fault), fault);
    if (fault) continue;  // probing says it better
    const auto [other, added] = writers.emplace(std::move(whole), flag);
    if (!added)
      throw UsageError("{} and {} write one file, {}: name two", other->second, flag,
                       file.string());
  }
}

int bench(BenchRequest request) {
  if (request.list || request.list_json) return print_list(request.list_json);
  request.resolve();
  check_files(request);
  // Now, not after the measurement, is the time to learn that they cannot be written.
  for (const std::string& file :
       {request.times_file, request.json_file, request.weights_file, trace_file(request).string()})
    if (!file.empty()) probe_writing(file);
  if (!request.kernels_directory.empty()) make_directory(request.kernels_directory);
  const std::unique_ptr<Device> device = open_device(device_options(request.bench));
  check_precision(request.bench, *device);
  Terminal terminal;
  if (const auto table = bench_table(request, *device, terminal)) return *table;
  return Benchmark(request, *device, terminal).run();
}

void configure(CLI::App& command, std::string_view name, Action& action) {
  const auto request = std::make_shared<BenchRequest>();
  add_bench_flags(command, *request);
  command.footer(fmt::format(
      R"(Weights and images are random, unless files are named: they decide neither the time nor the
memory.

Examples:
  {0} --network resnet50 --batch-size 32 --iterations 20
  {0} --network resnet50 --batch-size 64 --compile --compileContext "{{'mode': 'max-autotune'}}"
  {0} --network resnet50 --mode training --batch-size 64 --dtype bf16
  {0} --network vit_b_16 --batch-size 16 --dtype bf16 --export-json vit.json
  {0} --network resnet50 --batch-size 32 --iterations 10 --autograd-profiler --kineto
  {0} --network resnet50 --batch-size 32 --iterations 20 --flops-prof-step 10
  {0} --network resnet50 --batch-size 64 --compare-modes
  {0} --network resnet50 --batch-size 32 --precisions fp32,bf16
  {0} --network resnet50 --batch-sizes 8,32,128,256
  {0} --network resnet50 --find-max-batch --max-batch-for 4GB
  {0} --list
The workshop's exercises with these commands: docs/workshop in the sources.)",
      name));
  command.callback([request, &action] { action = [request] { return bench(*request); }; });
}

}  // namespace

void add_bench_command(CLI::App& program, Action& action) {
  configure(*program.add_subcommand("bench", "Time a vision network"), "ridge bench", action);
}

void configure_as_bench(CLI::App& program, Action& action) {
  program.description("Times a vision network, with the flags of the workshop.");
  configure(program, program.get_name(), action);
}

}  // namespace ridge
