// The workshop's launch_performance_study.sh: one training run of a named size, and its files.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ridge/analyze/plan.h"
#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/bench_text.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/passes/schedules.h"
#include "ridge/session/devices.h"
#include "ridge/study/definition.h"
#include "ridge/study/variant_plan.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::milliseconds watch_every{100};
constexpr std::chrono::seconds farewell{10};
constexpr std::size_t max_summary_bytes = std::size_t{256} << 20;
const std::string banner_rule(80, '=');

struct WorkshopStudyRequest {
  explicit WorkshopStudyRequest(Command command) : run(command, {.has = is_measured_option}) {}

  RunRequest run;
  std::vector<std::string> sizes;
  bool profilers = false;
};

StudyVariant variant_of(const WorkshopStudyRequest& request) {
  if (request.sizes.size() != 1)
    throw UsageError(
        "launch a study of which size? name one of tiny, small, medium, large, "
        "very_large");
  study_size(request.sizes.front());
  RunOptions base;
  const RunOptions resolved = request.run.options([&](RunOptions& options) { base = options; });
  base.device = resolved.device;
  return variants_of(base, request.sizes, {}, request.run.set_options()).front();
}

// What is to be run: the size, or what of it fits on the device.
struct Launched {
  StudyVariant variant;
  VariantPlan plan;
  std::string memory_passes;  // that it needs to fit; empty if it fits without
};

Launched fit(const WorkshopStudyRequest& request) {
  Launched launched{.variant = variant_of(request), .plan = {}, .memory_passes = {}};
  StudyVariant& variant = launched.variant;
  const auto plan_it = [&] {
    launched.plan = plan_variants(std::span(&variant, 1)).front();
    return launched.plan.fits();
  };
  if (plan_it()) return launched;
  const std::unique_ptr<Device> device = open_device(variant.options);
  const VariantPlan plan = launched.plan;
  if (const auto passes =
          memory_passes(variant.options, *device, usable_memory(*device, variant.options),
                        request.run.set_options())) {
    variant.options = passes->options;
    launched.memory_passes =
        fmt::format("{} (without, it {})", passes->flags, shortage_text(variant, plan));
    if (plan_it()) return launched;
  }
  const std::vector<std::string> changes = fitting_changes(variant_of(request).options, *device);
  throw OutOfMemoryError("{} {}; {}", variant.size, shortage_text(variant, plan),
                         changes.empty()
                             ? "take a smaller size"
                             : fmt::format("it would fit with {}; or take a smaller size",
                                           fmt::join(changes, ", or with ")));
}

// "performance_results_tiny_20251014_123456", which is new.
fs::path make_results_directory(std::string_view size) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d_%H%M%S", &local);
  const std::string name = fmt::format("performance_results_{}_{}", size, time);
  std::error_code fault;
  for (int number = 1;; ++number) {
    const fs::path directory = number == 1 ? name : fmt::format("{}_{}", name, number);
    if (fs::create_directory(directory, fault)) return directory;
    if (fault) throw IoError("cannot make {}: {}", directory.string(), fault.message());
  }
}

// Returns "V1 Baseline", or the name of a compile mode.
std::string title_of(const RunOptions& options) {
  std::string title(schedule_row(options.version).title);
  if (const auto dash = title.find(" - "); dash != std::string::npos) title.replace(dash, 3, " ");
  return title;
}

void print_banner(Terminal& terminal, const Launched& launched, const fs::path& directory,
                  bool profilers) {
  const StudyVariant& variant = launched.variant;
  const VariantPlan& plan = launched.plan;
  const RunOptions& o = variant.options;
  const StudySize& size = study_size(variant.size);
  const auto field = [&](std::string_view name, const auto& value) {
    terminal.line(fmt::format("  {:<20} {}", fmt::format("{}:", name), value));
  };
  terminal.line(banner_rule);
  const std::string title = title_of(o);
  terminal.line(terminal.bold(fmt::format(
      "CASTILLE AI WORKSHOP - {} PERFORMANCE STUDY",
      title.starts_with("V") ? "VERSION " + upper_case(title.substr(1)) : upper_case(title))));
  terminal.line(banner_rule);
  terminal.line("");
  terminal.line(fmt::format("Problem Size: {}", upper_case(variant.size)));
  terminal.line("Configuration:");
  field("Hidden Dimension", o.hidden_dim);
  field("Number of Layers", o.n_layers);
  field("Sequence Length", o.seq_len);
  field("Batch Size", o.batch_size);
  field("Training Steps", o.num_steps);
  field("Parameters", format_count(plan.parameters));
  field("Est. Parameters", fmt::format("{} (as the workshop says)", size.claimed_parameters));
  field("Expected Time", fmt::format("{} (as the workshop says)", size.claimed_time));
  field("Memory of Tensors", fmt::format("{} of {}", format_bytes(plan.needed_bytes),
                                         format_bytes(plan.available_bytes)));
  if (!launched.memory_passes.empty()) field("Memory Passes", launched.memory_passes);
  field("Version, Precision", fmt::format("{}, {}", o.version, o.dtype));
  field("Profilers Enabled", profilers);
  terminal.line("");
  terminal.line(fmt::format("Output Directory: {}", directory.string()));
  terminal.line(banner_rule);
  terminal.line("");
}

// Prints what a file has grown by, whole lines of it.
class Follower {
 public:
  Follower(const fs::path& file, Terminal& terminal) : file_(file), terminal_(terminal) {}

  void print(bool is_last = false) {
    std::ifstream file(file_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(printed_));
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!is_last) text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
    if (text.empty()) return;
    printed_ += text.size();
    if (text.ends_with('\n')) text.pop_back();
    terminal_.line(text);
  }

 private:
  fs::path file_;
  Terminal& terminal_;
  std::size_t printed_ = 0;
};

// Trains in a process of its own, whose output is kept and shown; the signal that stopped it, or 0.
int train_in(const fs::path& directory, Terminal& terminal) {
  const fs::path log = directory / "training_output.log";
  ChildProcess child(
      {.words = {this_program, "train", "--config", (directory / "config.json").string()},
       .output = log});
  Follower follower(log, terminal);
  std::optional<ChildEnd> end;
  while (!end) {
    end = child.wait_for(watch_every);
    follower.print();
    if (end || !interrupt_noted()) continue;
    child.send(interrupt_noted());  // so that it writes what there is
    end = child.wait_for(farewell);
    follower.print(true);
    return interrupt_noted();
  }
  follower.print(true);
  if (!end->ok())
    throw Error("the training ended with {}; its output is in {}", to_string(*end), log.string());
  return 0;
}

void print_end(Terminal& terminal, const StudyVariant& variant, const fs::path& directory,
               double seconds, bool profilers) {
  const fs::path file = directory / "performance_summary.json";
  const json record = json::parse(read_text_file(file, max_summary_bytes));
  const json& summary = record.at("performance_summary");
  terminal.line("");
  terminal.line(banner_rule);
  terminal.line(terminal.bold("PERFORMANCE STUDY COMPLETE"));
  terminal.line(banner_rule);
  terminal.line(fmt::format("Total Runtime: {:.0f}s", seconds));
  terminal.line(fmt::format("Throughput: {:.1f} samples/sec",
                            summary.at("samples_per_second").get<double>()));
  terminal.line(fmt::format("Peak Memory: {:.0f} MB", summary.at("peak_memory_mb").get<double>()));
  terminal.line("");
  terminal.line("Next steps:");
  const std::string path = directory.string();
  terminal.line(
      fmt::format("  Read the configuration and the output: {0}/config.json, "
                  "{0}/training_output.log",
                  path));
  if (profilers)
    terminal.line(fmt::format("  Open the profile: ridge report {}/pytorch_profiles", path));
  else
    terminal.line(
        fmt::format("  See where the time goes: launch_performance_study.sh {} "
                    "--enable-profilers",
                    variant.size));
  terminal.line("  Compare sizes, measured in turns: ridge study tiny small medium");
  terminal.line(
      fmt::format("  Find what the batch does: ridge study {} --vary "
                  "batch-size=1,2,4,8,16",
                  variant.size));
}

int launch(const WorkshopStudyRequest& request) {
  Terminal terminal;
  const Launched launched = fit(request);
  const StudyVariant& variant = launched.variant;
  const fs::path directory = make_results_directory(variant.size);
  RunOptions options = variant.options;
  options.output_dir = directory.string();
  if (request.profilers) {
    options.enable_all_profiling = true;
    options.profile_dir = (directory / "pytorch_profiles").string();
  }
  write_text_file(directory / "config.json", to_json(options));
  print_banner(terminal, launched, directory, request.profilers);
  terminal.line(fmt::format("Starting {} training...", title_of(options)));
  note_interrupts();
  const auto begin = Clock::now();
  if (const int signal = train_in(directory, terminal)) return 128 + signal;
  print_end(terminal, variant, directory,
            std::chrono::duration<double>(Clock::now() - begin).count(), request.profilers);
  return 0;
}

}  // namespace

void add_workshop_study_command(Command program, Action& action) {
  const Command command = program.add_subcommand(
      "launch-performance-study", "Train one of the workshop's sizes and write its results");
  command.hide();  // known as launch_performance_study.sh
  const auto request = std::make_shared<WorkshopStudyRequest>(command);
  command.add_option("size", request->sizes, "Train tiny, small, medium, large or very_large")
      .type_name("SIZE");
  command.add_flag("--enable-profilers", request->profilers,
                   "Profile some steps, into pytorch_profiles in the output directory");
  command.footer(
      R"(Writes config.json, training_output.log and performance_summary.json to a new directory,
performance_results_SIZE_DATE_TIME. A size that does not fit is trained with as little recomputation
as will do, or else with version v4 too, and the banner says so; flags that are given stay as they
are. ridge study measures several sizes in turns.

Examples:
  launch_performance_study.sh tiny
  launch_performance_study.sh medium --enable-profilers
  launch_performance_study.sh medium --version v4 --dtype bf16)");
  command.callback([request, &action] { action = [request] { return launch(*request); }; });
}

}  // namespace ridge
