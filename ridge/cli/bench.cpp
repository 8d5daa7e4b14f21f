// `ridge bench`, also called micro_benchmarking_pytorch.

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/tables.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/bench_list.h"
#include "ridge/cli/bench_profile.h"
#include "ridge/cli/bench_request.h"
#include "ridge/cli/bench_tables.h"
#include "ridge/cli/bench_text.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/profiling.h"
#include "ridge/cli/ranks.h"
#include "ridge/cli/rocm_output.h"
#include "ridge/cli/run_text.h"
#include "ridge/device/gathered.h"
#include "ridge/profile/card_watch.h"
#include "ridge/report/chain_sources.h"
#include "ridge/session/devices.h"
#include "ridge/session/json.h"
#include "ridge/session/weights.h"

namespace ridge {
namespace {

int print_list(bool as_json) {
  Terminal().lines(as_json ? network_list_json() : network_list_text());
  return 0;
}

// In watts; 0 of a card that does not tell.
double mean_power(const std::vector<CardState>& states) {
  std::vector<double> watts;
  for (const CardState& state : states)
    if (state.power_w > 0) watts.push_back(state.power_w);
  return statistics_of(watts).mean;
}

// Prints the iterations as they are done, those that warm up apart, and what they come to.
class BenchNarrator final : public TerminalListener {
 public:
  BenchNarrator(Terminal& terminal, const BenchRequest& request, const RunPlan& plan,
                const Session& session, RunKeeper& keeper)
      : TerminalListener(terminal),
        request_(request),
        session_(session),
        keeper_(keeper),
        warmup_(request.options.warmup_steps),
        window_(plan.recording ? plan.recording->window : ProfileWindow{}) {
    keeper_.begin(session, plan.loop.last_step);
    if (warmup_ > 0) {
      terminal_.line(fmt::format("Warming up ({} iterations)...", warmup_));
    } else {
      watch_power();
      terminal_.line("Running timed iterations...");
    }
  }

  void after_step(Session&, const StepReport& report, std::size_t peak, Record&) override {
    keeper_.step(report, peak);
    const bool warms = report.step <= warmup_;
    const std::vector<double> times = of_all_ranks(report.device_seconds);
    for (std::size_t rank = 0; rank < times.size(); ++rank)
      terminal_.line(fmt::format("{}{} {}: Loss = {}, Time = {:.4f} seconds{}", label(rank),
                                 warms ? "Warmup iteration" : "Epoch",
                                 warms ? report.step - 1 : report.step - warmup_ - 1,
                                 format_loss(report.loss), times[rank],
                                 window_.contains(report.step) ? " [PROFILING]" : ""));
    if (report.step != warmup_) return;
    watch_power();
    for (std::size_t rank = 0; rank < times.size(); ++rank)
      terminal_.line(label(rank) + "Warmup complete.");
    terminal_.line("");
    terminal_.line("Running timed iterations...");
  }
  void ended(Session& session, const Record& record, const Summary& summary,
             LastWords& last_words) override {
    if (record.outcome != Outcome::failed) last_words.attempt([&] { keep_model(session, record); });
    if (summary.steps <= warmup_) return;
    if (card_) costs_.watts = mean_power(card_->stop());
    terminal_.line("");
    terminal_.lines(bench_summary_text(record, summary, session.device().is_gpu(), costs_));
  }
  void analyzed(const ProfileContent& content) override {
    if (request_.rocm) write_rocm_files(request_.rocm, content, *this, terminal_);
    profile_ = print_bench_profile(request_, content, summarize(content.record), *this, terminal_);
    if (request_.options.profiling()) TerminalListener::analyzed(content);
  }
  void finished(const Record& record, const Summary& summary, LastWords& last_words) override {
    if (summary.steps <= warmup_) return;
    const auto write = [&](const std::string& file, const std::string& text) {
      if (file.empty()) return;
      last_words.attempt([&] {
        write_text_file(file, text);
        wrote(file);
      });
    };
    write(request_.times_file, times_csv(record));
    nlohmann::ordered_json json = json_of(record, summary);
    if (!profile_.is_null()) json["profile"] = std::move(profile_);
    if (costs_.price_per_hour)
      json["price_of_1000"] = price_of_thousand(summary.samples_per_second, *costs_.price_per_hour);
    if (costs_.watts > 0) json["joules_per_sample"] = joules_per_sample(costs_, record, summary);
    const std::string text = text_of(json);
    write(request_.json_file, text);
    last_words.attempt([&] { keeper_.keep(session_, record, text, terminal_); });
  }

 private:
  // By rank. All of them have to ask.
  std::vector<double> of_all_ranks(double own) const {
    Communicator* const communicator = session_.device().communicator();
    return communicator ? gathered(*communicator, own) : std::vector{own};
  }
  // What the line of a rank begins with; nothing where there is one alone.
  std::string label(std::size_t rank) const { return rank_label(session_.device(), rank); }

  // From the first iteration that is timed.
  void watch_power() {
    if (costs_.energy) card_ = std::make_unique<CardWatch>(session_.device());
  }

  // What training made of the model.
  void keep_model(Session& session, const Record& record) {
    if (!request_.weights_file.empty()) {
      save_weights(request_.weights_file, session.graph(), session.executor());
      wrote(request_.weights_file);
    }
    if (record.validation.empty() || !record.validation.back().evaluation.right) return;
    const Evaluation& found = record.validation.back().evaluation;
    terminal_.line(fmt::format("Held-out accuracy: {:.2f} % of {} {}s, {:.2f} % in int8",
                               100 * found.accuracy(), found.samples, record.workload.sample,
                               100 * session.evaluate_in("int8", 0).accuracy()));
  }

  const BenchRequest& request_;
  const Session& session_;
  RunKeeper& keeper_;
  std::int64_t warmup_;
  ProfileWindow window_;
  BenchCosts costs_{.price_per_hour = request_.price_per_hour, .energy = request_.energy};
  std::unique_ptr<CardWatch> card_;
  nlohmann::ordered_json profile_;  // of the record
};

// Where the model computes in another type than that of its parameters.
bool converts(const Precision& p) {
  return p.compute != p.master || p.products == Precision::Products::int8;
}

std::unique_ptr<Session> load(const BenchRequest& request, Device& device, Terminal& terminal) {
  const RunOptions& options = request.options;
  const bool converting = converts(options.precision());
  const bool compiles = !schedule_row(options.version).passes.empty();
  if (converting)
    terminal.line(fmt::format("Converting model to {}...", upper_case(options.dtype)));
  if (compiles) terminal.line(fmt::format("Compiling model (mode={})...", options.version));
  terminal.busy("Loading model...");
  const auto start = std::chrono::steady_clock::now();
  auto session =
      std::make_unique<Session>(options, device, SessionHooks{.trying = tuning_on(terminal)});
  const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
  if (compiles)
    terminal.line(
        fmt::format("Compilation complete in {}", format_duration(session->compile_seconds())));
  print_kernel_choices(terminal, *session);
  if (!request.kernels_directory.empty()) {
    const std::size_t count = write_chain_sources(session->graph(), request.kernels_directory);
    terminal.line(fmt::format("Wrote the sources of {} generated kernels to {}", count,
                              request.kernels_directory));
  }
  if (converting) terminal.line("Model conversion complete.");
  terminal.line(fmt::format("Model loaded in {}: {} parameters", format_duration(loading.count()),
                            format_count(session->parameters())));
  terminal.line("");
  return session;
}

RunPlan plan_of(const BenchRequest& request) {
  const RunOptions& options = request.options;
  RunPlan plan{.loop = {.last_step = options.warmup_steps + options.num_steps, .runs_ahead = false},
               .by_device = true,
               .recording = recorder_config(options, {.operators = request.records_operators(),
                                                      .flops_iteration = request.flops_prof_step})};
  if (options.profiling()) {
    plan.profile_dir = options.profile_dir;
    plan.summary_dirs.push_back(plan.profile_dir);
  }
  return plan;
}

// One workload, timed on a device.
int run(const BenchRequest& request, const RunPlan& plan, Device& device, Terminal& terminal) {
  const bool leads = device.rank() == 0;
  RunKeeper keeper(leads ? &request.keep : nullptr, device);
  print_configuration(terminal, request, device);
  const std::unique_ptr<Session> session = load(request, device, terminal);
  note_interrupts();
  BenchNarrator narrator(terminal, request, plan, *session, keeper);
  return exit_code_of(run_profiled(*session, plan, narrator));
}

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
void prepare_files(const BenchRequest& request, const RunPlan& plan) {
  for (const std::filesystem::path& file :
       {std::filesystem::path(request.times_file), std::filesystem::path(request.json_file),
        std::filesystem::path(request.weights_file), request.trace_file()})
    if (!file.empty()) probe_writing(file);
  if (!request.kernels_directory.empty()) make_directories(request.kernels_directory);
  prepare_directories(plan);
}

// All that is asked for, on a device.
int bench_on(const BenchRequest& request, Device& device) {
  RunPlan plan = plan_of(request);
  if (request.rocm) record_for_rocm(request.rocm, device, plan);
  plan.loop.stop = [&device] { return on_any_rank(device.communicator(), interrupt_noted() != 0); };
  if (device.rank() > 0) leave_profile_of_rank(plan, device.rank());
  prepare_files(request, plan);
  Terminal terminal;
  if (request.rocm) begin_rocm_profile(request.rocm, terminal);
  if (const auto table = bench_table(request, device, terminal)) return *table;
  try {
    return run(request, plan, device, terminal);
  } catch (const OutOfMemoryError& error) {  // by now the device has all memory back
    throw OutOfMemoryError("{}", with_batch_advice(error.what(), request.options, device));
  }
}

// The first rank alone writes the files that have a name of their own.
void name_no_files(BenchRequest& request) {
  for (std::string* file : {&request.json_file, &request.times_file, &request.weights_file,
                            &request.profile_file, &request.kernels_directory})
    file->clear();
  request.kineto = false;
  request.rocm.files.clear();
}

int bench(BenchRequest& request) {
  if (request.list || request.list_json) return print_list(request.list_json);
  request.resolve();
  check_files(request);
  if (const std::optional<Rank> rank = one_of_several()) {
    request.refuse_tables_on_ranks();
    return run_as_rank(*rank, request.options, [&](const RunOptions& options, Device& device) {
      request.options = options;
      if (device.rank() > 0) name_no_files(request);
      return bench_on(request, device);
    });
  }
  if (request.options.ranks > 1) {
    request.refuse_tables_on_ranks();
    return run_ranks(request.options, 0);
  }
  return bench_on(request, *open_device(request.options));
}

constexpr const char* bench_footer =
    R"(Weights and inputs are random, unless files are named: they decide neither the time nor the
memory.

Examples:
  ridge bench --network resnet50 --batch-size 32 --iterations 20
  ridge bench --network resnet50 --batch-size 64 --compile --compileContext "{'mode': 'max-autotune'}"
  ridge bench --network resnet50 --mode training --batch-size 64 --dtype bf16
  ridge bench --network tiny_llama --batch-size 4 --seq-len 512 --dtype int8 --compile
  ridge bench --network vit_b_16 --batch-size 16 --dtype bf16 --export-json vit.json
  ridge bench --network resnet50 --batch-size 32 --iterations 10 --autograd-profiler --kineto
  ridge bench --network resnet50 --batch-size 32 --iterations 20 --flops-prof-step 10
  ridge bench --network resnet50 --batch-size 32 --enable-all-profiling --profile-dir ./profiles
  ridge bench --network resnet50 --batch-size 64 --compare-modes
  ridge bench --network resnet50 --batch-size 32 --precisions fp32,bf16
  ridge bench --network resnet50 --batch-sizes 8,32,128,256 --latency-limit 50
  ridge bench --network resnet50 --precisions fp32,bf16 --modes none,default
  ridge bench --networks resnet18,resnet50,mobilenet_v2 --compare-modes --price-per-hour 2.50
  ridge bench --network resnet50 --find-max-batch --max-batch-for 4GB
  ridge bench --network resnet50 --batch-size 128 --ranks 2
  ridge bench --network resnet50 --batch-size 128 --gpus 2 --mode training --dtype bf16
  ridge bench --list
The workshop's exercises with these commands: docs/workshop in the sources.)";

}  // namespace

void add_bench_command(Command program, Action& action) {
  const Command command = program.add_subcommand("bench", "Time a network");
  const auto request = std::make_shared<BenchRequest>(command);
  command.footer(bench_footer);
  command.callback([request, &action] { action = [request] { return bench(*request); }; });
}

}  // namespace ridge
