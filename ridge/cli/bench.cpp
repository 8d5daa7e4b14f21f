// `ridge bench`, also called micro_benchmarking_pytorch.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/bench_list.h"
#include "ridge/cli/bench_profile.h"
#include "ridge/cli/bench_request.h"
#include "ridge/cli/bench_tables.h"
#include "ridge/cli/bench_text.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/profiling.h"
#include "ridge/cli/run_text.h"
#include "ridge/report/chain_sources.h"
#include "ridge/session/devices.h"
#include "ridge/session/loop.h"
#include "ridge/session/weights.h"

namespace ridge {
namespace {

constexpr const char* summary_name = "performance_summary.json";

int print_list(bool as_json) {
  Terminal().lines(as_json ? network_list_json() : network_list_text());
  return 0;
}

// Prints the iterations as they are done, those that warm up apart.
class Narrator final : public LoopObserver {
 public:
  Narrator(Terminal& terminal, const RunOptions& options, const ProfileWindow& window)
      : terminal_(terminal), warmup_(options.warmup_steps), window_(window) {
    if (warmup_ > 0)
      terminal_.line(fmt::format("Warming up ({} iterations)...", warmup_));
    else
      terminal_.line("Running timed iterations...");
  }

  void after_step(Session&, const StepReport& report, std::size_t, Record&) override {
    const bool warms = report.step <= warmup_;
    terminal_.line(fmt::format(
        "{} {}: Loss = {}, Time = {:.4f} seconds{}", warms ? "Warmup iteration" : "Epoch",
        warms ? report.step - 1 : report.step - warmup_ - 1, format_loss(report.loss),
        report.device_seconds, window_.contains(report.step) ? " [PROFILING]" : ""));
    if (report.step != warmup_) return;
    terminal_.line("Warmup complete.");
    terminal_.line("");
    terminal_.line("Running timed iterations...");
  }

 private:
  Terminal& terminal_;
  std::int64_t warmup_;
  ProfileWindow window_;
};

// One workload, timed on a device.
class Benchmark {
 public:
  Benchmark(const BenchRequest& request, Device& device, Terminal& terminal)
      : request_(request), options_(request.options), device_(device), terminal_(terminal) {}

  int run() {
    print_configuration(terminal_, request_, device_);
    const std::unique_ptr<Session> session = load();
    std::unique_ptr<StepRecorder> recorder;
    ProfileWindow window;
    std::vector<LoopObserver*> observers;
    if (request_.records()) {
      const StepRecorder::Config config = bench_recorder_config(request_);
      recorder = recorder_of(*session, config, terminal_);
      window = config.window;
      observers.push_back(recorder.get());
    }
    note_interrupts();
    Narrator narrator(terminal_, options_, window);
    observers.push_back(&narrator);
    Loop loop(*session,
              {.last_step = options_.warmup_steps + options_.num_steps,
               .runs_ahead = false,
               .stop = [] { return interrupt_noted() != 0; }},
              observers, last_words_);
    Record record = loop.run();
    record.by_device = true;
    if (record.outcome == Outcome::interrupted) terminal_.line("Interrupted");
    if (record.outcome == Outcome::failed) terminal_.line("The device failed");
    if (!loop.fault()) last_words_.attempt([&] { keep(*session, record); });
    if (record.steps.size() > static_cast<std::size_t>(options_.warmup_steps))
      report(*session, record, recorder.get());
    if (loop.fault()) std::rethrow_exception(loop.fault());
    last_words_.throw_fault();
    return record.outcome == Outcome::interrupted ? 128 + interrupt_noted() : 0;
  }

 private:
  std::unique_ptr<Session> load() {
    const bool converts = options_.dtype != "fp32" && options_.dtype != "tf32";
    const bool compiles = options_.version != "none" && options_.version != "v1";
    if (converts)
      terminal_.line(fmt::format("Converting model to {}...", upper_case(options_.dtype)));
    if (compiles) terminal_.line(fmt::format("Compiling model (mode={})...", options_.version));
    terminal_.busy("Loading model...");
    const auto start = std::chrono::steady_clock::now();
    auto session =
        std::make_unique<Session>(options_, device_, SessionHooks{.trying = tuning_on(terminal_)});
    const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
    if (compiles)
      terminal_.line(
          fmt::format("Compilation complete in {}", format_duration(session->compile_seconds())));
    print_kernel_choices(terminal_, *session);
    if (!request_.kernels_directory.empty()) {
      const std::size_t count = write_chain_sources(session->graph(), request_.kernels_directory);
      terminal_.line(fmt::format("Wrote the sources of {} generated kernels to {}", count,
                                 request_.kernels_directory));
    }
    if (converts) terminal_.line("Model conversion complete.");
    terminal_.line(fmt::format("Model loaded in {}: {} parameters",
                               format_duration(loading.count()),
                               format_count(session->parameters())));
    terminal_.line("");
    return session;
  }

  // What training made of the model.
  void keep(Session& session, const Record& record) {
    if (!request_.weights_file.empty()) {
      save_weights(request_.weights_file, session.graph(), session.executor());
      terminal_.line(fmt::format("Wrote {}", request_.weights_file));
    }
    if (record.validation.empty() || !record.validation.back().evaluation.right) return;
    const Evaluation& found = record.validation.back().evaluation;
    terminal_.line(fmt::format("Held-out accuracy: {:.2f} % of {} images, {:.2f} % in int8",
                               100 * found.accuracy(), found.samples,
                               100 * session.evaluate_in("int8", 0).accuracy()));
  }

  void report(Session& session, const Record& record, StepRecorder* recorder) {
    const Summary summary = summarize(record);
    terminal_.line("");
    terminal_.lines(bench_summary_text(record, summary, device_.is_gpu()));
    const auto write = [&](const std::filesystem::path& file, const std::string& text) {
      if (file.empty()) return;
      last_words_.attempt([&] {
        write_text_file(file, text);
        terminal_.line(fmt::format("Wrote {}", file.string()));
      });
    };
    std::string profile;
    if (recorder && recorder->finish()) {
      last_words_.attempt(
          [&] { profile = print_bench_profile(request_, session, summary, *recorder, terminal_); });
    } else if (recorder) {
      terminal_.line(fmt::format("Nothing was profiled: the run ended before iteration {}",
                                 recorder->window().first - 1 - options_.warmup_steps));
    }
    if (options_.profiling()) {
      write(std::filesystem::path(options_.profile_dir) / summary_name,
            record_json(record, summary));
      last_words_.attempt([&] { finish_profile(*recorder, session, record, terminal_); });
    }
    write(request_.times_file, times_csv(record));
    write(request_.json_file, record_json(record, summary, profile));
  }

  const BenchRequest& request_;
  const RunOptions& options_;
  Device& device_;
  Terminal& terminal_;
  LastWords last_words_;
};

// UsageError if two of them are one, of which only the last would be left.
void check_files(const BenchRequest& request) {
  const std::pair<std::string_view, std::filesystem::path> files[] = {
      {"--export-times", request.times_file},
      {"--export-json", request.json_file},
      {"--save-weights", request.weights_file},
      {request.profile_file.empty() ? "--kineto" : "--export-profile", request.trace_file()}};
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

// Now, not after the measurement, is the time to learn that files cannot be written.
void prepare_files(const BenchRequest& request) {
  for (const std::filesystem::path& file :
       {std::filesystem::path(request.times_file), std::filesystem::path(request.json_file),
        std::filesystem::path(request.weights_file), request.trace_file()})
    if (!file.empty()) probe_writing(file);
  if (!request.kernels_directory.empty()) make_directories(request.kernels_directory);
  if (!request.options.profiling()) return;
  make_directories(request.options.profile_dir);
  remove_abandoned_files(request.options.profile_dir);
  probe_writing(std::filesystem::path(request.options.profile_dir) / summary_name);
}

int bench(BenchRequest& request) {
  if (request.list || request.list_json) return print_list(request.list_json);
  request.resolve();
  check_files(request);
  prepare_files(request);
  const std::unique_ptr<Device> device = open_device(request.options);
  Terminal terminal;
  if (const auto table = bench_table(request, *device, terminal)) return *table;
  try {
    return Benchmark(request, *device, terminal).run();
  } catch (const OutOfMemoryError& error) {  // by now the device has all memory back
    throw OutOfMemoryError("{}", with_batch_advice(error.what(), request.options, *device));
  }
}

void configure(CLI::App& command, std::string_view name, Action& action) {
  const auto request = std::make_shared<BenchRequest>(command);
  command.footer(fmt::format(
      R"(Weights and inputs are random, unless files are named: they decide neither the time nor the
memory.

Examples:
  {0} --network resnet50 --batch-size 32 --iterations 20
  {0} --network resnet50 --batch-size 64 --compile --compileContext "{{'mode': 'max-autotune'}}"
  {0} --network resnet50 --mode training --batch-size 64 --dtype bf16
  {0} --network tiny_llama --batch-size 4 --seq-len 512 --dtype int8 --compile
  {0} --network vit_b_16 --batch-size 16 --dtype bf16 --export-json vit.json
  {0} --network resnet50 --batch-size 32 --iterations 10 --autograd-profiler --kineto
  {0} --network resnet50 --batch-size 32 --iterations 20 --flops-prof-step 10
  {0} --network resnet50 --batch-size 32 --enable-all-profiling --profile-dir ./profiles
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
  configure(*program.add_subcommand("bench", "Time a vision network or the LLaMA"), "ridge bench",
            action);
}

void configure_as_bench(CLI::App& program, Action& action) {
  program.description("Times a vision network, with the flags of the workshop.");
  configure(program, program.get_name(), action);
}

}  // namespace ridge
