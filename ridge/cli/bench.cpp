#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/bench/session.h"
#include "ridge/bench/summary.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/last_words.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/profile/text_table.h"

namespace ridge {
namespace {

struct Request {
  BenchOptions bench;
  bool list = false, list_json = false;
  std::string json_file, times_file;
};

// The list of networks --------------------------------------------------------------------------

struct Listed {
  VisionNetwork network;
  std::int64_t parameters = 0, macs = 0;  // the latter of one image
};

std::vector<Listed> all_listed() {
  std::vector<Listed> all;
  for (const VisionNetwork& network : vision_networks()) {
    Graph graph;
    build_vision(graph, network.name, {});
    all.push_back({network, parameter_count(graph), total_cost(graph).macs});
  }
  return all;
}

std::string list_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Listed& entry : all_listed())
    list.push_back({{"name", entry.network.name},
                    {"aliases", entry.network.aliases},
                    {"parameters", entry.parameters},
                    {"macs", entry.macs},
                    {"input_size", entry.network.input_size},
                    {"classes", entry.network.classes}});
  return list.dump(2);
}

std::string list_text() {
  const TextColumn columns[] = {{.header = "Network", .left = true},
                                {.header = "Parameters"},
                                {.header = "GMACs"},
                                {.header = "Input"},
                                {.header = "Classes"},
                                {.header = "Also", .left = true}};
  std::vector<TextRow> rows;
  for (const Listed& entry : all_listed()) {
    const VisionNetwork& network = entry.network;
    rows.push_back({std::string(network.name), format_count(entry.parameters),
                    fmt::format("{:.3f}", static_cast<double>(entry.macs) / 1e9),
                    fmt::format("{0} x {0}", network.input_size), fmt::to_string(network.classes),
                    fmt::format("{}", fmt::join(network.aliases, ", "))});
  }
  return text_table(columns, rows);
}

int print_list(const Request& request) {
  std::string text = request.list_json ? list_json() : list_text();
  if (text.ends_with('\n')) text.pop_back();
  Terminal().line(text);
  return 0;
}

// A benchmark -----------------------------------------------------------------------------------

// What a device is opened by.
TrainOptions device_options(const BenchOptions& bench) {
  TrainOptions options;
  options.device = bench.device;
  options.threads = bench.threads;
  return options;
}

void print_start(Terminal& terminal, const BenchOptions& options, const Device& device) {
  terminal.line(fmt::format("Using network: {}", options.network));
  terminal.line(fmt::format("Batch size: {}", options.batch_size));
  terminal.line(fmt::format("Iterations: {}", options.iterations));
  terminal.line(fmt::format("Precision: {}", options.dtype));
  terminal.line(fmt::format("Device: {}", device.description()));
  terminal.line("");
}

std::string iteration_line(std::string_view name, std::int64_t number, const BenchIteration& done) {
  return fmt::format("{} {}: Loss = {:.4f}, Time = {:.4f} seconds", name, number, done.loss,
                     done.seconds);
}

// Whether it was interrupted.
bool warm_up(Terminal& terminal, const BenchOptions& options, BenchSession& session) {
  if (options.warmup == 0) return false;
  terminal.line(fmt::format("Warming up ({} iterations)...", options.warmup));
  for (std::int64_t i = 0; i < options.warmup; ++i) {
    if (interrupt_noted() != 0) return true;
    terminal.line(iteration_line("Warmup iteration", i, session.iterate()));
  }
  terminal.line("Warmup complete.");
  terminal.line("");
  return false;
}

BenchRecord measure(Terminal& terminal, const BenchOptions& options, BenchSession& session) {
  BenchRecord record;
  terminal.line("Running timed iterations...");
  for (std::int64_t i = 0; i < options.iterations && interrupt_noted() == 0; ++i) {
    const BenchIteration done = session.iterate();
    record.seconds.push_back(done.seconds);
    record.losses.push_back(done.loss);
    terminal.line(iteration_line("Epoch", i, done));
  }
  const MemoryStats& memory = session.executor().memory();
  record.peak_tensor_bytes = memory.peak_live;
  record.reserved_bytes = memory.reserved;
  record.parameters = parameter_count(session.graph());
  record.macs = total_cost(session.graph()).macs / options.batch_size;
  return record;
}

void report(Terminal& terminal, const Request& request, const Device& device,
            const BenchRecord& record) {
  const BenchOptions& options = request.bench;
  const BenchSummary summary = summarize(options, record);
  terminal.line("");
  terminal.line(summary_text(options, record, summary, device.name() != "cpu"));
  LastWords last_words;
  const auto write = [&](const std::string& file, const std::string& text) {
    if (file.empty()) return;
    last_words.attempt([&] {
      write_text_file(file, text);
      terminal.line(fmt::format("Wrote {}", file));
    });
  };
  write(request.times_file, times_csv(record));
  write(request.json_file,
        bench_json(options, record, summary, system_info(device, device_options(options)),
                   utc_timestamp()));
  last_words.throw_fault();
}

int bench(const Request& request) {
  if (request.list || request.list_json) return print_list(request);
  const BenchOptions& options = request.bench;
  options.check();
  // Now, not after the measurement, is the time to learn that they cannot be written.
  for (const std::string& file : {request.times_file, request.json_file})
    if (!file.empty()) probe_writing(file);
  const std::unique_ptr<Device> device = open_device(device_options(options));
  Terminal terminal;
  print_start(terminal, options, *device);
  terminal.busy("Loading model...");
  const auto start = std::chrono::steady_clock::now();
  BenchSession session(options, *device);
  const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
  terminal.line(fmt::format("Model loaded in {}: {} parameters", format_duration(loading.count()),
                            format_count(parameter_count(session.graph()))));
  terminal.line("");
  note_interrupts();
  const bool stopped = warm_up(terminal, options, session);
  const BenchRecord record = stopped ? BenchRecord{} : measure(terminal, options, session);
  if (interrupt_noted() != 0) terminal.line("Interrupted");
  if (!record.seconds.empty()) report(terminal, request, *device, record);
  return interrupt_noted() == 0 ? 0 : 128 + interrupt_noted();
}

void add_flags(CLI::App& command, Request& request) {
  BenchOptions& o = request.bench;
  const auto add = [&](const char* flag, auto& field, const char* what, const char* type) {
    command.add_option(flag, field, what)->type_name(type)->take_last()->capture_default_str();
  };
  add("--network", o.network, "Which network; see --list", "NAME");
  add("--batch-size", o.batch_size, "Images in a batch", "N");
  add("--iterations", o.iterations, "Forward passes to time", "N");
  add("--warmup", o.warmup, "Forward passes before them", "N");
  add("--image-size", o.image_size, "Rows and columns of an image; 0: the network's own", "N");
  add("--dtype", o.dtype, "fp32, tf32 (fp32 with products that a GPU rounds to 19 bits) or bf16",
      "TEXT");
  add("--device", o.device, "auto (a GPU if there is one), cpu or cuda", "TEXT");
  add("--threads", o.threads, "Processors to use; 0: all this process may", "N");
  add("--seed", o.seed, "Decides weights and images", "N");
  command.add_option("--export-times", request.times_file, "Write every time to this CSV file")
      ->type_name("FILE")
      ->take_last();
  command.add_option("--export-json", request.json_file, "Write the summary to this JSON file")
      ->type_name("FILE")
      ->take_last();
  command.add_flag("--list", request.list, "Print the networks, their parameters and work");
  command.add_flag("--json", request.list_json, "The list as JSON");
}

}  // namespace

void add_bench_command(CLI::App& program, Action& action) {
  CLI::App& command = *program.add_subcommand("bench", "Time the forward pass of a vision network");
  const auto request = std::make_shared<Request>();
  add_flags(command, *request);
  command.footer(R"(Weights and images are random: they decide neither the time nor the memory.

Examples:
  ridge bench --network resnet50 --batch-size 32 --iterations 20
  ridge bench --network vit_b_16 --batch-size 16 --dtype bf16 --export-json vit.json
  ridge bench --list)");
  command.callback([request, &action] { action = [request] { return bench(*request); }; });
}

}  // namespace ridge
