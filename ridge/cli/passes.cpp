#include "ridge/passes/passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/plan.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

struct PassesRequest {
  explicit PassesRequest(Command command) : run(command) {}

  RunRequest run;
  bool json = false;
};

std::vector<std::string_view> schedules_with(const Pass& pass) {
  std::vector<std::string_view> names;
  for (const ScheduleRow& row : schedules())
    if (std::ranges::find(row.passes, pass.name) != row.passes.end()) names.push_back(row.name);
  return names;
}

// The first version, or compile mode, that has a pass; later ones of its kind have it too.
std::string first_with(const Pass& pass, ScheduleRow::Kind kind) {
  for (const ScheduleRow& row : schedules())
    if (row.kind == kind && std::ranges::find(row.passes, pass.name) != row.passes.end())
      return std::string(row.name);
  return pass.chosen_by == ChosenBy::precision   ? "--dtype"
         : pass.chosen_by == ChosenBy::recompute ? "--recompute"
                                                 : "";
}

// "training, CPU"
std::string conditions_of(const Pass& pass) {
  std::vector<std::string_view> conditions;
  if (pass.use) conditions.push_back(name_of(*pass.use));
  if (pass.where) conditions.push_back(*pass.where == DeviceKind::gpu ? "GPU" : "CPU");
  return fmt::format("{}", fmt::join(conditions, ", "));
}

void print_table() {
  const std::vector<TextColumn> columns{
      {"Pass", true}, {"Version", true}, {"Mode", true}, {"For", true}, {"What it does", true}};
  std::vector<TextRow> rows;
  for (const Pass& pass : passes())
    rows.push_back({std::string(pass.name), first_with(pass, ScheduleRow::Kind::version),
                    first_with(pass, ScheduleRow::Kind::compile_mode), conditions_of(pass),
                    std::string(pass.description)});
  Terminal terminal;
  terminal.line("All passes, in the order in which they run:");
  terminal.lines(text_table(columns, rows));
  terminal.line(
      "Version, Mode: the first that has the pass, as have those after it (v1 to v4; none, "
      "default,\nreduce-overhead, max-autotune). Passes of neither are there for --enable-pass. "
      "What they do to\na workload's graph: ridge passes --version v4");
}

Json table_json() {
  Json list = Json::array();
  for (const Pass& pass : passes())
    list.push_back(
        {{"pass", pass.name},
         {"description", pass.description},
         {"stage", name_of(pass.stage)},
         {"use", pass.use ? Json(name_of(*pass.use)) : Json()},
         {"device", pass.where ? Json(*pass.where == DeviceKind::gpu ? "gpu" : "cpu") : Json()},
         {"schedules", schedules_with(pass)}});
  return list;
}

// A step once a pass has run, after all those above it.
struct PassRow {
  std::string name, description;
  const Pass* pass = nullptr;  // null: before the first
  StepPlan plan;
};

// The passes of a schedule, in the order in which the rows of the table bring them.
std::vector<const Pass*> in_order_of_rows(const Schedule& schedule) {
  std::vector<const Pass*> ordered;
  const auto add = [&](std::string_view name) {
    const Pass& pass = pass_named(name);
    if (schedule.has(name) && std::ranges::find(ordered, &pass) == ordered.end())
      ordered.push_back(&pass);
  };
  for (const std::string_view name : schedule_row(schedule.row).passes) add(name);
  for (const Pass* pass : schedule.passes) add(pass->name);
  std::erase_if(ordered, [](const Pass* pass) { return pass->chosen_by != ChosenBy::schedule; });
  return ordered;
}

std::vector<PassRow> effects(RunOptions options, const Schedule& schedule, Device& device) {
  options = without_schedule(std::move(options));
  std::vector<std::string> meant;
  if (std::ranges::any_of(schedule.passes,
                          [](const Pass* pass) { return pass->chosen_by == ChosenBy::precision; }))
    meant.push_back("--dtype " + options.dtype);
  if (options.ranks > 1) meant.push_back(fmt::format("--ranks {}", options.ranks));
  if (options.ranks > 1 && options.zero > 0)
    meant.push_back(fmt::format("--zero {}", options.zero));
  std::vector<PassRow> rows{{"(none)",
                             meant.empty()
                                 ? "one kernel an operator"
                                 : fmt::format("only what {} mean{}", fmt::join(meant, " and "),
                                               meant.size() == 1 ? "s" : ""),
                             nullptr, plan_step(options, device)}};
  for (const Pass* pass : in_order_of_rows(schedule)) {
    options.enable_pass += fmt::format("{}{}", options.enable_pass.empty() ? "" : ",", pass->name);
    rows.push_back({std::string(pass->name), std::string(pass->description), pass,
                    plan_step(options, device)});
  }
  if (schedule.recompute != Recompute::none) {
    options.recompute = name_of(schedule.recompute);
    rows.push_back({"recompute " + options.recompute, "compute again what the backward pass needs",
                    nullptr, plan_step(options, device)});
  }
  return rows;
}

bool is_same(const StepPlan& a, const StepPlan& b) {
  return a.launches == b.launches && a.cost.total() == b.cost.total() &&
         a.memory.peak_bytes == b.memory.peak_bytes && a.nodes_in_place == b.nodes_in_place;
}

void print(const RunOptions& options, const Schedule& schedule, const std::vector<PassRow>& rows) {
  Terminal terminal;
  const WorkloadInfo workload = workload_of(options).info;
  terminal.line(fmt::format("{} of {} under {} in {} ({}), after each pass and those above it:",
                            options.use() == Use::training ? "One training step" : "One pass",
                            workload.title, options.version, options.dtype, workload.description));
  const std::vector<TextColumn> columns{
      {"Pass", true}, {"Since", true}, {"Kernels"},           {"GFLOP"},
      {"MB moved"},   {"Peak MB"},     {"What it does", true}};
  std::vector<TextRow> cells;
  std::vector<std::string_view> without_effect;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PassRow& row = rows[i];
    if (row.pass && row.pass->stage != Stage::run && is_same(row.plan, rows[i - 1].plan)) {
      without_effect.push_back(row.name);
      continue;
    }
    const Cost work = row.plan.cost.total();
    cells.push_back({row.name,
                     row.pass ? first_with(*row.pass, schedule_row(options.version).kind) : "",
                     format_count(row.plan.launches),
                     fmt::format("{:.3f}", static_cast<double>(work.flops) / 1e9),
                     fmt::format("{:.1f}", static_cast<double>(work.bytes()) / 1e6),
                     fmt::format("{:.1f}", static_cast<double>(row.plan.memory.peak_bytes) / 1e6),
                     row.description});
  }
  terminal.lines(text_table(columns, cells));
  terminal.line("GFLOP count attention in full; bytes count each operand of each kernel once.");
  if (!without_effect.empty())
    terminal.line(fmt::format("Find nothing here: {}", fmt::join(without_effect, ", ")));
  std::map<std::string, std::vector<std::string_view>> left_out;
  for (const Schedule::LeftOut& left : schedule.left_out)
    left_out[left.why].push_back(left.pass->name);
  for (const auto& [why, names] : left_out)
    terminal.line(fmt::format("Left out, {}: {}", why, fmt::join(names, ", ")));
}

Json json_of(const PassRow& row) {
  const Cost work = row.plan.cost.total();
  return {{"pass", row.name},
          {"description", row.description},
          {"schedules", row.pass ? Json(schedules_with(*row.pass)) : Json::array()},
          {"kernels", row.plan.launches},
          {"flops", work.flops},
          {"causal_flops", work.causal_flops},
          {"bytes", work.bytes()},
          {"in_place", row.plan.nodes_in_place},
          {"peak_bytes", row.plan.memory.peak_bytes}};
}

int list_passes(const PassesRequest& request) {
  if (request.run.given().empty()) {
    if (request.json)
      Terminal().line(table_json().dump(2));
    else
      print_table();
    return 0;
  }
  const RunOptions options = request.run.options();
  const std::unique_ptr<Device> device = open_device(options);
  const Schedule schedule = options.schedule(device->target());
  const std::vector<PassRow> rows = effects(options, schedule, *device);
  if (!request.json) {
    print(options, schedule, rows);
    return 0;
  }
  Json json = Json::array();
  for (const PassRow& row : rows) json.push_back(json_of(row));
  Terminal().line(json.dump(2));
  return 0;
}

}  // namespace

void add_passes_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("passes", "List the passes, or show what each does to a graph");
  const auto request = std::make_shared<PassesRequest>(command);
  command.add_flag("--json", request->json, "Print JSON").group("Output");
  command.footer(
      R"(Without a flag, it lists all passes. With flags of ridge train, or --mode inference, it builds the
graph of that run, one pass more at a time, without running it. --enable-pass and --disable-pass
switch passes in any run.

Examples:
  ridge passes
  ridge passes --version v4
  ridge passes --network resnet50 --mode inference --version max-autotune
  ridge passes --version v2 --enable-pass flash-attention
  ridge passes --version v3 --seq-len 1024 --recompute block)");
  command.callback([request, &action] { action = [request] { return list_passes(*request); }; });
}

}  // namespace ridge
