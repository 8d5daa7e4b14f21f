#include "ridge/analyze/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyRequest {
  explicit VerifyRequest(Command command) : run(command, {.defaults = small_options}) {}

  RunRequest run;
  bool this_model = false;                 // the one that the flags describe, alone
  const WorkloadFamily* family = nullptr;  // whose models are asked for, by a flag of its name
  std::int64_t curve_steps = 50;
  std::vector<std::string> only_schedules, only_dtypes;
  bool list = false;  // what would be verified, instead of its verdicts
  bool json = false;
};

std::vector<VerifiedSchedule> chosen_schedules(const std::vector<std::string>& names, Use use,
                                               std::int64_t ranks) {
  if (names.empty()) return verified_schedules(use, ranks);
  std::vector<VerifiedSchedule> chosen;
  for (const std::string& name : names) chosen.push_back(schedule_named(name));
  return chosen;
}

std::vector<std::string> chosen_dtypes(const std::vector<std::string>& names, const Device& device,
                                       Use use) {
  std::vector<std::string> all = verified_dtypes(device, use);
  if (names.empty()) return all;
  std::vector<std::string> chosen;
  for (const std::string& name : names) {
    if (std::ranges::find(all, name) == all.end())
      throw UsageError("there is no dtype '{}' to verify on the {}; there are {}", name,
                       device.name(), fmt::join(all, ", "));
    chosen.emplace_back(name);
  }
  return chosen;
}

// A model, and what it computes in.
struct Task {
  RunOptions configuration;
  std::vector<std::string> dtypes;
};

// Each model once, with all that takes it: its reference takes longest.
std::vector<Task> tasks_of(const std::vector<RunOptions>& models,
                           const std::vector<std::string>& dtypes) {
  std::vector<Task> tasks;
  for (const std::string& dtype : dtypes)
    for (const RunOptions& model : taken_in(dtype, models)) {
      auto task = std::ranges::find(tasks, model, &Task::configuration);
      if (task == tasks.end()) task = tasks.insert(task, {model, {}});
      task->dtypes.push_back(dtype);
    }
  return tasks;
}

// A network that is named, other than the one that every command takes for granted, is the one to
// verify, and so is that with --this-model. The sets are of models of their own: how they are used
// and where they run is all that there is to say.
std::vector<RunOptions> chosen_models(const VerifyRequest& request, const RunOptions& asked) {
  const bool is_named = asked.network != RunOptions{}.network;
  if (request.this_model || (is_named && !request.family)) return {asked};
  constexpr std::string_view of_any_model[] = {
      "device", "threads", "mode", "ranks", "zero", "sync-batch-norm", "gpus", "ranks-per-gpu"};
  for (const std::string& name : request.run.given())
    if (std::ranges::find(of_any_model, name) == std::end(of_any_model))
      throw UsageError(
          "--{} is about one model: give --this-model, or --network and its name, or leave it out",
          name);
  const WorkloadFamily& family = request.family ? *request.family : family_of(asked.network);
  std::vector<RunOptions> models = family.verified(asked.use());
  if (asked.ranks > 1)
    for (RunOptions& model : models) model = shared_by_ranks(model, asked);
  return models;
}

// Takes out the networks of which ranks do not compute what one does, and returns their names.
std::vector<std::string> leave_out_batch_norms(std::vector<RunOptions>& models) {
  std::vector<std::string> names;
  std::erase_if(models, [&](const RunOptions& model) {
    if (model.ranks == 1 || model.sync_batch_norm || !normalizes_by_batch(model)) return false;
    names.push_back(model.network);
    return true;
  });
  return names;
}

// A request verifies each model in its dtypes, in each of the schedules.
struct Work {
  std::vector<Task> tasks;
  std::vector<VerifiedSchedule> schedules;

  std::size_t runs() const {
    std::size_t dtypes = 0;
    for (const Task& task : tasks) dtypes += task.dtypes.size();
    return dtypes * schedules.size();
  }
};

Work work_of(const VerifyRequest& request, const RunOptions& asked, const Device& device,
             Terminal& terminal) {
  std::vector<RunOptions> models = chosen_models(request, asked);
  if (const auto left_out = leave_out_batch_norms(models); !left_out.empty()) {
    const std::string why = fmt::format(
        "{} normaliz{} by the statistics of a batch, of which each of --ranks {} takes those of "
        "its "
        "part",
        fmt::join(left_out, ", "), left_out.size() == 1 ? "es" : "e", asked.ranks);
    if (models.empty()) throw UsageError("{}: there is nothing to verify", why);
    if (!request.json) terminal.line(fmt::format("Left out: {}", why));
  }
  return {.tasks = tasks_of(models, chosen_dtypes(request.only_dtypes, device, asked.use())),
          .schedules = chosen_schedules(request.only_schedules, asked.use(), asked.ranks)};
}

std::vector<Verdict> verdicts_of(const VerifyRequest& request, Terminal& terminal) {
  const RunOptions asked = request.run.options();
  const std::unique_ptr<Device> device = open_device(asked);
  const Work work = work_of(request, asked, *device, terminal);
  std::vector<Verdict> verdicts;
  const auto progress = progress_on(terminal);
  for (const Task& task : work.tasks) {
    const Reference reference(task.configuration, *device);
    for (const std::string& dtype : task.dtypes) {
      const Baseline baseline = baseline_of(reference, dtype, *device, request.curve_steps);
      for (const VerifiedSchedule& schedule : work.schedules) {
        verdicts.push_back(verify(reference, schedule, dtype, *device, baseline));
        progress(static_cast<std::int64_t>(verdicts.size()),
                 static_cast<std::int64_t>(work.runs()));
      }
    }
  }
  return verdicts;
}

// The worst of one schedule and dtype over all configurations.
struct VerifyRow {
  Verdict worst;
  std::int64_t configurations = 0, right = 0, cut = 0;
};

std::vector<VerifyRow> rows_of(const std::vector<Verdict>& verdicts) {
  std::vector<VerifyRow> rows;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (const Verdict& v : verdicts) {
    const auto [place, added] = places.emplace(std::pair(v.schedule, v.dtype), rows.size());
    if (added) rows.push_back({.worst = {.schedule = v.schedule, .dtype = v.dtype}});
    VerifyRow& row = rows[place->second];
    ++row.configurations;
    row.right += v.failure.empty();
    row.cut += static_cast<std::int64_t>(v.cut.size());
    for (double Verdict::*error : {&Verdict::loss_error, &Verdict::logits_error,
                                   &Verdict::gradient_error, &Verdict::curve_error})
      row.worst.*error = std::max(row.worst.*error, v.*error);
  }
  return rows;
}

// The limits of each precision, and where for one model they are wider or the curve is shorter.
void print_limits(Terminal& terminal, const std::vector<Verdict>& verdicts,
                  std::int64_t curve_steps) {
  std::set<std::string> dtypes;
  for (const Verdict& v : verdicts) {
    if (!dtypes.insert(v.dtype).second) continue;
    const Tolerance t = tolerance_of(v.network, precision_named(v.dtype));
    terminal.line(fmt::format("Limits in {}: loss {:.0e}, logits {:.0e}, gradients {:.0e}, curve "
                              "{:.0e}",
                              v.dtype, t.loss, t.logits, t.gradient, t.curve) +
                  (t.times_baseline > 0
                       ? fmt::format(", or {:g} times v1's{}{} if that is more", t.times_baseline,
                                     t.baseline.empty() ? "" : " in ", t.baseline)
                       : ""));
  }
  std::set<std::string> lines;
  const auto print_once = [&](const std::string& line) {
    if (lines.insert(line).second) terminal.line(line);
  };
  for (const Verdict& v : verdicts) {
    if (v.curve_steps < curve_steps)
      print_once(fmt::format("Curve of {} step{} in {}, after which rounding decides: {}",
                             v.curve_steps, v.curve_steps == 1 ? "" : "s", v.dtype,
                             v.configuration));
    const Tolerance usual = tolerance_of(v.network, precision_named(v.dtype));
    std::vector<std::string> wider;
    const auto compare = [&](std::string_view name, double limit, double usual_limit) {
      if (limit > usual_limit) wider.push_back(fmt::format("{} {:.1e}", name, limit));
    };
    compare("loss", v.limit.loss, usual.loss);
    compare("logits", v.limit.logits, usual.logits);
    compare("gradients", v.limit.gradient, usual.gradient);
    compare("curve", v.limit.curve, usual.curve);
    if (wider.empty()) continue;
    print_once(fmt::format("Wider in {}, by what v1 itself is off: {} ({})", v.dtype,
                           fmt::join(wider, ", "), v.configuration));
  }
}

void print(Terminal& terminal, const std::vector<Verdict>& verdicts, const VerifyRequest& request) {
  const std::vector<TextColumn> columns{{"Schedule", true}, {"dtype", true}, {"Right"},
                                        {"Loss"},           {"Logits"},      {"Gradients"},
                                        {"Without"},        {"Curve"}};
  std::vector<TextRow> cells;
  for (const VerifyRow& row : rows_of(verdicts))
    cells.push_back(
        {row.worst.schedule, row.worst.dtype, fmt::format("{}/{}", row.right, row.configurations),
         fmt::format("{:.1e}", row.worst.loss_error), fmt::format("{:.1e}", row.worst.logits_error),
         fmt::format("{:.1e}", row.worst.gradient_error), fmt::format("{}", row.cut),
         fmt::format("{:.1e}", row.worst.curve_error)});
  terminal.lines(text_table(columns, cells));
  terminal.line(fmt::format(
      "Largest errors over all configurations, against the double-precision reference of v1's "
      "graph:\nnorm of the difference over norm of the reference; gradients: of the worst "
      "parameter. Without:\nparameters without gradient. Curve: largest difference to v1's loss "
      "in {} steps.",
      request.curve_steps));
  print_limits(terminal, verdicts, request.curve_steps);
  std::size_t wrong = 0;
  for (const Verdict& v : verdicts) {
    if (v.failure.empty()) continue;
    ++wrong;
    terminal.line(
        fmt::format("WRONG  {} in {}: {} ({})", v.schedule, v.dtype, v.failure, v.configuration));
  }
  terminal.line(wrong == 0 ? fmt::format("All {} runs are right.", verdicts.size())
                           : fmt::format("{} of {} runs are wrong.", wrong, verdicts.size()));
}

Json json_of(const Verdict& v) {
  return {{"configuration", v.configuration},
          {"schedule", v.schedule},
          {"dtype", v.dtype},
          {"right", v.failure.empty()},
          {"failure", v.failure},
          {"loss_error", v.loss_error},
          {"loss_limit", v.limit.loss},
          {"logits_error", v.logits_error},
          {"logits_limit", v.limit.logits},
          {"gradient_error", v.gradient_error},
          {"gradient_limit", v.limit.gradient},
          {"worst_parameter", v.worst_parameter},
          {"parameters_without_gradient", v.cut},
          {"curve_steps", v.curve_steps},
          {"curve_error", v.curve_error},
          {"curve_limit", v.limit.curve},
          {"losses", v.losses},
          {"baseline_losses", v.baseline_losses}};
}

// Prints what would be verified, and verifies nothing: a row for each model, or in JSON an object.
void list(const VerifyRequest& request, Terminal& terminal) {
  const RunOptions asked = request.run.options();
  const Work work = work_of(request, asked, *open_device(asked), terminal);
  std::vector<std::string> schedules;
  for (const VerifiedSchedule& schedule : work.schedules) schedules.push_back(schedule.name);
  Json json = Json::array();
  std::vector<TextRow> rows;
  for (const Task& task : work.tasks) {
    const std::string description = workload_of(task.configuration).info.description;
    json.push_back({{"network", task.configuration.network},
                    {"configuration", description},
                    {"dtypes", task.dtypes},
                    {"schedules", schedules}});
    rows.push_back({description, fmt::format("{}", fmt::join(task.dtypes, " ")),
                    fmt::format("{}", task.dtypes.size() * schedules.size())});
  }
  if (request.json) return terminal.line(json.dump(2));
  const TextColumn columns[] = {{"Model", true}, {"dtypes", true}, {"Runs"}};
  terminal.lines(text_table(columns, rows));
  terminal.line(fmt::format("Schedules of each: {}", fmt::join(schedules, ", ")));
  terminal.line(fmt::format("{} runs in all; nothing was verified.", work.runs()));
}

int run_verify(const VerifyRequest& request) {
  if (request.curve_steps < 1)
    throw UsageError("--curve-steps is {}; it must be at least 1", request.curve_steps);
  Terminal terminal;
  if (request.list) {
    list(request, terminal);
    return 0;
  }
  const std::vector<Verdict> verdicts = verdicts_of(request, terminal);
  terminal.erase();
  if (request.json) {
    Json json = Json::array();
    for (const Verdict& v : verdicts) json.push_back(json_of(v));
    terminal.line(json.dump(2));
  } else {
    print(terminal, verdicts, request);
  }
  return std::ranges::all_of(verdicts, [](const Verdict& v) { return v.failure.empty(); }) ? 0 : 1;
}

}  // namespace

void add_verify_command(Command program, Action& action) {
  const Command command = program.add_subcommand(
      "verify", "Check every version and pass against the double-precision reference");
  const auto request = std::make_shared<VerifyRequest>(command);
  command
      .add_flag("--this-model", request->this_model,
                "Verify the model that the other flags describe instead of a set of models")
      .group("Verify");
  for (const WorkloadFamily& family : workload_families())
    command
        .add_flag(
            fmt::format("--{}", family.name), [request, &family] { request->family = &family; },
            fmt::format("Verify small {} of each kind", family.models))
        .group("Verify");
  add_value(command, "--schedules", request->only_schedules,
            "Verify only these, by commas: v2,v4,\"v1 + swiglu\",\"v4 - tuned-products\", "
            "\"v3 + recompute block\"")
      .type_name("LIST")
      .group("Verify");
  add_value(command, "--dtypes", request->only_dtypes,
            "Verify only these, by commas: fp32,bf16; on a GPU tf32,fp16,fp8; in inference int8")
      .type_name("LIST")
      .group("Verify");
  add_value(command, "--curve-steps", request->curve_steps, "Compare losses over this many steps")
      .type_name("N")
      .default_text("50")
      .group("Verify");
  command.add_flag("--list", request->list, "Print what would be verified, and verify nothing")
      .group("Verify");
  command
      .add_flag("--json", request->json, "Print JSON, one object a run; with --list, one a model")
      .group("Verify");
  command.footer(
      R"(Runs a step of every version, compile mode and pass alone, in every precision that the device
has, and compares loss, logits and the gradient of every parameter with the double-precision
reference, and the losses of some steps with v1's: of small models of the LLaMA in training, unless
told otherwise. With --ranks N, what as many ranks do together, which is the same but for batch
norms. Exit code 1 if any error is beyond its limit.

Examples:
  ridge verify
  ridge verify --schedules v3,v4 --curve-steps 10
  ridge verify --mode inference --dtypes fp32
  ridge verify --network resnet18 --schedules v4,max-autotune --curve-steps 5
  ridge verify --vision --mode inference --curve-steps 2
  ridge verify --vision --list
  ridge verify --ranks 4 --schedules v1,v4 --curve-steps 5
  ridge verify --this-model --hidden-dim 64 --seq-len 100 --json)");
  command.callback([request, &action] { action = [request] { return run_verify(*request); }; });
}

}  // namespace ridge
