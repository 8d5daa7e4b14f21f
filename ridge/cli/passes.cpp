#include "ridge/passes/passes.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ridge/analyze/plan.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/train_request.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
  explicit Request(CLI::App& command) : training(command) {}

  TrainRequest training;
  bool json = false;
};

// A training step once a pass has run, after all those above it.
struct Row {
  std::string name, description, versions;
  TrainingPlan plan;
};

// "v2 v3 v4"
std::string versions_with(std::string_view pass) {
  std::string names;
  for (const Version& version : versions())
    if (std::ranges::find(version.passes, pass) != version.passes.end())
      names += fmt::format("{}{}", names.empty() ? "" : " ", version.name);
  return names;
}

// The passes that the options ask for, in the order in which the versions bring them.
std::vector<std::string_view> passes_of(const Schedule& schedule) {
  std::vector<std::string_view> names;
  for (const std::string_view name : versions().back().passes)
    if (schedule.passes.contains(name)) names.push_back(name);
  for (const std::string_view name : schedule.passes)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

std::vector<Row> effects(TrainOptions options, Device& device) {
  const Schedule schedule = options.schedule();
  const Recompute recompute = schedule.recompute;
  options.version = "v1";
  options.enable_pass = options.disable_pass = "";
  options.recompute = "none";
  std::vector<Row> rows{{"(none)", "one kernel an operator", "v1", plan_training(options, device)}};
  for (const std::string_view name : passes_of(schedule)) {
    options.enable_pass += fmt::format("{}{}", options.enable_pass.empty() ? "" : ",", name);
    rows.push_back({std::string(name), std::string(pass_named(name).description),
                    versions_with(name), plan_training(options, device)});
  }
  if (recompute != Recompute::none) {
    options.recompute = name_of(recompute);
    rows.push_back({"recompute " + options.recompute,
                    "what the backward pass needs is computed again", "",
                    plan_training(options, device)});
  }
  return rows;
}

void print(const TrainOptions& options, const std::vector<Row>& rows) {
  Terminal terminal;
  terminal.line(fmt::format(
      "One training step of {}, {}, batch {} of {} tokens, after each pass and those above it:",
      options.version, options.dtype, options.batch_size, options.seq_len));
  const std::vector<TextColumn> columns{
      {"Pass", true}, {"Versions", true}, {"Kernels"},           {"GFLOP"},
      {"MB moved"},   {"Peak MB"},        {"What it does", true}};
  std::vector<TextRow> cells;
  for (const Row& row : rows) {
    const Cost work = row.plan.cost.total();
    cells.push_back({row.name, row.versions, format_count(row.plan.launches),
                     fmt::format("{:.3f}", static_cast<double>(work.flops) / 1e9),
                     fmt::format("{:.1f}", static_cast<double>(work.bytes()) / 1e6),
                     fmt::format("{:.1f}", static_cast<double>(row.plan.memory.peak_bytes) / 1e6),
                     row.description});
  }
  const std::string text = text_table(columns, cells);
  terminal.line(std::string_view(text).substr(0, text.size() - 1));
  terminal.line("GFLOP count attention in full; bytes count each operand of each kernel once.");
}

Json json_of(const Row& row) {
  const Cost work = row.plan.cost.total();
  return {{"pass", row.name},         {"description", row.description},
          {"versions", row.versions}, {"kernels", row.plan.launches},
          {"flops", work.flops},      {"causal_flops", work.causal_flops},
          {"bytes", work.bytes()},    {"peak_bytes", row.plan.memory.peak_bytes}};
}

int list_passes(const Request& request) {
  const TrainOptions options = request.training.options();
  const std::unique_ptr<Device> device = open_device(options);
  const std::vector<Row> rows = effects(options, *device);
  if (!request.json) {
    print(options, rows);
    return 0;
  }
  Json json = Json::array();
  for (const Row& row : rows) json.push_back(json_of(row));
  Terminal().line(json.dump(2));
  return 0;
}

}  // namespace

void add_passes_command(CLI::App& program, Action& action) {
  CLI::App& command =
      *program.add_subcommand("passes", "The rewrites of the graph, and what each does to it");
  const auto request = std::make_shared<Request>(command);
  command.add_flag("--json", request->json, "Print JSON")->group("Output");
  command.footer(
      R"(Takes the flags of ridge train and builds its step's graph, one pass more at a time, without
running it. Passes are switched in any run by --enable-pass and --disable-pass.

Examples:
  ridge passes --version v4
  ridge passes --version v2 --enable-pass flash-attention
  ridge passes --version v3 --seq-len 1024 --recompute block)");
  command.callback([request, &action] { action = [request] { return list_passes(*request); }; });
}

}  // namespace ridge
