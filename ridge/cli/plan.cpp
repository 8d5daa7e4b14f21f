#include "ridge/analyze/plan.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ridge/analyze/machine_file.h"
#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/plan_search.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

struct PlanRequest {
  explicit PlanRequest(Command command) : run(command) {}

  RunRequest run;
  std::string budget, recompute_budget, search, memory;
  std::vector<std::string> against;
  std::string machine_file;
  bool json = false;
};

struct Answer {
  StepPlan plan;
  std::size_t available = 0;
  std::string device, device_description;
  std::size_t budget = 0;
  std::optional<SizeLimit> limit;  // if a budget was given
  std::size_t recompute_budget = 0;
  std::optional<LeastRecompute> recompute;  // likewise
  std::optional<PlanSearch> search;
  std::optional<PlanDifference> difference;
  std::string ceilings;  // where they are from, or why there are none
};

// The ceilings for a step's least time; without them the rest of the plan is as good. A file that
// was asked for must have them.
KeptRoof known_roof(const PlanRequest& request, const Device& device) {
  if (request.machine_file.empty())
    return kept_roof(device.name(), device.hardware(), device.threads());
  return {roof_from_file(request.machine_file, device.name(), device.hardware(), device.threads()),
          request.machine_file};
}

Json json_of(const TensorBytes& use) {
  return {{"parameters", use.parameters},       {"gradients", use.gradients},
          {"optimizer", use.optimizer_state},   {"inputs", use.inputs},
          {"intermediates", use.intermediates}, {"workspace", use.workspace},
          {"packed_weights", use.packed}};
}

Json json_of(const Cost& cost) {
  return {{"flops", cost.flops},
          {"causal_flops", cost.causal_flops},
          {"bytes_read", cost.bytes_read},
          {"bytes_written", cost.bytes_written}};
}

Json json_of(const std::optional<Place>& where) {
  if (!where) return nullptr;
  return {{"phase", where->phase}, {"module", where->module}, {"operator", where->op}};
}

std::string json_text(const RunOptions& options, const Answer& answer) {
  const StepPlan& plan = answer.plan;
  constexpr std::string_view names[] = {"network", "mode",       "version",
                                        "dtype",   "batch-size", "gradient-accumulation-steps"};
  Json json = json_of(options, names);
  json.update(json_of(options, workload_of(options).info.work_options));
  json.update({{"device", answer.device},
               {"parameter_count", plan.parameter_count},
               {"peak_bytes", plan.memory.peak_bytes},
               {"peak_at", json_of(plan.where)},
               {"bytes_at_peak", json_of(plan.memory.at_peak)},
               {"bytes_at_most", json_of(plan.memory.at_most)},
               {"available_bytes", answer.available},
               {"kernel_launches", plan.launches},
               {"sent_bytes", plan.sent_bytes},
               {"sending_seconds", plan.sending_seconds ? Json(*plan.sending_seconds) : Json()},
               {"forward", json_of(plan.cost.forward)},
               {"backward", json_of(plan.cost.backward)},
               {"optimizer", json_of(plan.cost.optimizer)},
               {"total", json_of(plan.cost.total())},
               {"predicted_step_seconds", nullptr},
               {"predicted_seconds", nullptr}});
  if (const auto& time = plan.at_best) {
    json["predicted_step_seconds"] = time->total();
    json["predicted_seconds"] = {{"computing", time->computing},
                                 {"moving", time->moving},
                                 {"starting", time->starting},
                                 {"sending", time->sending}};
  }
  if (answer.limit) {
    Json& limit = json["max_batch"];
    limit = {{"budget_bytes", answer.budget},
             {"batch_size", answer.limit->size},
             {"peak_bytes", answer.limit->peak_bytes},
             {"next_peak_bytes", nullptr}};
    if (answer.limit->next_peak_bytes) limit["next_peak_bytes"] = *answer.limit->next_peak_bytes;
  }
  if (answer.recompute)
    json["least_recompute"] = {{"budget_bytes", answer.recompute_budget},
                               {"recompute", answer.recompute->recompute},
                               {"peak_bytes", answer.recompute->peak_bytes}};
  if (answer.search) json["search"] = json_of(*answer.search);
  if (answer.difference) json["against"] = json_of(*answer.difference);
  return text_of(json);
}

void print_memory(Terminal& terminal, const StepPlan& plan) {
  terminal.line(
      terminal.bold(fmt::format("{:<18}{:>14}{:>14}", "Tensors", "at the peak", "at most")));
  const auto row = [&](std::string_view name, std::size_t TensorBytes::*part,
                       std::string_view remark = "") {
    terminal.line(fmt::format("  {:<16}{:>14}{:>14}  {}", name,
                              format_bytes(plan.memory.at_peak.*part),
                              format_bytes(plan.memory.at_most.*part), remark));
  };
  row("Parameters", &TensorBytes::parameters,
      fmt::format("{} numbers", format_count(plan.parameter_count)));
  row("Packed weights", &TensorBytes::packed, "copies in the order that kernels read");
  row("Gradients", &TensorBytes::gradients);
  row("Optimizer state", &TensorBytes::optimizer_state);
  row("Inputs", &TensorBytes::inputs);
  row("Intermediates", &TensorBytes::intermediates, "activations and their gradients");
  row("Workspace", &TensorBytes::workspace);
  terminal.line(terminal.bold(
      fmt::format("  {:<16}{:>14}{:>14}  {} bytes", "All", format_bytes(plan.memory.peak_bytes), "",
                  format_count(static_cast<std::int64_t>(plan.memory.peak_bytes)))));
  if (plan.where)
    terminal.line(fmt::format("The peak is in the {} phase, at {} of {}", plan.where->phase,
                              plan.where->op,
                              plan.where->module.empty() ? "the model" : plan.where->module));
}

void print_work(Terminal& terminal, const StepPlan& plan, std::int64_t ranks) {
  terminal.line(terminal.bold(fmt::format("{:<18}{:>14}{:>14}{:>14}{:>14}", "Work of a step",
                                          "FLOPs", "causal", "bytes", "FLOPs/byte")));
  const auto row = [&](std::string_view name, const Cost& cost) {
    const double intensity = static_cast<double>(cost.flops) /
                             static_cast<double>(std::max<std::int64_t>(1, cost.bytes()));
    terminal.line(fmt::format("  {:<16}{:>14}{:>14}{:>14}{:>14.1f}", name,
                              format_si(static_cast<double>(cost.flops)),
                              format_si(static_cast<double>(cost.causal_flops)),
                              format_bytes(static_cast<std::uint64_t>(cost.bytes())), intensity));
  };
  row("Forward", plan.cost.forward);
  if (plan.cost.backward.bytes() > 0) row("Backward", plan.cost.backward);
  if (plan.cost.optimizer.bytes() > 0) row("Optimizer", plan.cost.optimizer);
  row("All", plan.cost.total());
  terminal.line(fmt::format("{} kernels; bytes count each operand of each kernel once",
                            format_count(plan.launches)));
  if (plan.sent_bytes > 0)
    terminal.line(fmt::format(
        "Each rank sends {} to others, and receives as much{}",
        format_bytes(static_cast<std::uint64_t>(plan.sent_bytes)),
        plan.sending_seconds
            ? fmt::format(", in {} or more", format_duration(*plan.sending_seconds))
            : fmt::format("; ridge roofline --ranks {} measures how long that takes", ranks)));
}

void print_limit(Terminal& terminal, const std::string& budget, const Answer& answer) {
  const SizeLimit& limit = *answer.limit;
  terminal.line(fmt::format("Largest batch for {}: {}, with a peak of {} ({} bytes)", budget,
                            format_count(limit.size), format_bytes(limit.peak_bytes),
                            format_count(static_cast<std::int64_t>(limit.peak_bytes))));
  if (limit.next_peak_bytes)
    terminal.line(fmt::format("A batch of {} needs {} ({} bytes)",
                              format_count(limit.size + limit.unit),
                              format_bytes(*limit.next_peak_bytes),
                              format_count(static_cast<std::int64_t>(*limit.next_peak_bytes))));
  else
    terminal.line("Larger batches are refused, whatever the memory");
}

void print(const RunOptions& options, const PlanRequest& request, const Answer& answer) {
  Terminal terminal;
  const WorkloadInfo workload = workload_of(options).info;
  const ScheduleRow& schedule = schedule_row(options.version);
  terminal.line(
      fmt::format("{} {}, {} in {}: {}{}", workload.title, schedule.title, options.mode,
                  options.dtype, workload.description,
                  options.gradient_accumulation_steps > 1
                      ? fmt::format(", {} batches a step", options.gradient_accumulation_steps)
                      : ""));
  terminal.line(fmt::format("Device: {}", answer.device_description));
  terminal.line("");
  print_memory(terminal, answer.plan);
  const bool fits = answer.plan.memory.peak_bytes <= answer.available;
  terminal.line(fmt::format("Memory left on the {}: {}; {}", answer.device,
                            format_bytes(answer.available), fits ? "it fits" : "it does not fit"));
  terminal.line("");
  print_work(terminal, answer.plan, options.ranks);
  if (const auto& time = answer.plan.at_best)
    terminal.line(fmt::format(
        "Step time: {} if every kernel reaches the ceilings\n"
        "  {} computing, {} moving data, {} starting kernels{}; ceilings: {}",
        format_duration(time->total()), format_duration(time->computing),
        format_duration(time->moving), format_duration(time->starting),
        time->sending > 0 ? fmt::format(", {} sending", format_duration(time->sending)) : "",
        answer.ceilings));
  else
    terminal.line(fmt::format("Step time: {}", answer.ceilings));
  if (answer.difference) {
    terminal.line("");
    terminal.lines(difference_text(*answer.difference));
  }
  if (answer.search) {
    terminal.line("");
    terminal.lines(
        search_text(options, *answer.search, answer.difference ? answer.difference->changes : ""));
  }
  if (answer.limit || answer.recompute) terminal.line("");
  if (answer.limit) print_limit(terminal, request.budget, answer);
  if (answer.recompute)
    terminal.line(
        fmt::format("Least recomputation for {}: --recompute {}, with a peak of {} ({} bytes)",
                    request.recompute_budget, answer.recompute->recompute,
                    format_bytes(answer.recompute->peak_bytes),
                    format_count(static_cast<std::int64_t>(answer.recompute->peak_bytes))));
}

int plan(const PlanRequest& request) {
  if (!request.memory.empty() && request.search.empty() && request.against.empty())
    throw UsageError("--memory is for --search and --against: give one of them");
  RunOptions options = request.run.options();
  if (options.threads == 0) options.threads = threads_of_rank(static_cast<int>(options.ranks));
  const std::unique_ptr<Device> device = open_device(options);
  const auto [roof, ceilings] = known_roof(request, *device);
  Answer answer{.plan = plan_step(options, *device, roof ? &*roof : nullptr),
                .available = device->available_memory(),
                .device = device->name(),
                .device_description = device->description(),
                .ceilings = ceilings};
  if (!request.budget.empty()) {
    answer.budget = parse_bytes(request.budget);
    answer.limit = largest_batch(options, *device, answer.budget);
  }
  if (!request.recompute_budget.empty()) {
    answer.recompute_budget = parse_bytes(request.recompute_budget);
    answer.recompute = least_recompute(options, *device, answer.recompute_budget);
  }
  const std::size_t memory =
      request.memory.empty() ? answer.available : parse_bytes(request.memory);
  const Roof* const ceiling = roof ? &*roof : nullptr;
  if (!request.against.empty())
    answer.difference = plan_difference(options, request.against, *device, memory, ceiling);
  if (!request.search.empty())
    answer.search = search_plans(options, *device, request.search, memory, ceiling,
                                 answer.difference ? &answer.difference->options : nullptr);
  if (request.json)
    Terminal().lines(json_text(options, answer));
  else
    print(options, request, answer);
  return 0;
}

}  // namespace

void add_plan_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("plan", "Predict what a run will need, without running it");
  const auto request = std::make_shared<PlanRequest>(command);
  const auto add = [&](const char* flag, auto& field, const char* type, const char* help) {
    command.add_option(flag, field, help).type_name(type).group("Plan");
  };
  add("--max-batch-for", request->budget, "SIZE",
      "Find the largest batch for this much memory, such as 16GB or 24GiB");
  add("--recompute-for", request->recompute_budget, "SIZE",
      "Find the least --recompute with which a step fits in this much memory");
  add("--search", request->search, "NAME",
      "Search what fits and what is best over batch-size, a size of the samples "
      "(seq-len, image-size) or model");
  add("--memory", request->memory, "SIZE",
      "Search in this much memory, such as 16GB; default: what the device has left");
  add("--against", request->against, "NAME=VALUE",
      "Plan with this option changed too (recompute=block, dtype=bf16, version=v3) and "
      "show what it saves and costs");
  add("--machine-file", request->machine_file, "FILE",
      "Read the machine's ceilings from this file; default: those of ridge roofline");
  command.add_flag("--json", request->json, "Print JSON").group("Plan");
  command.footer(
      R"(Takes the flags of ridge train, and --mode inference; reads memory and work off the graph of that
run, and takes no memory itself. The peak is the one that the run will report, to the byte.

Examples:
  ridge plan --batch-size 32 --seq-len 512
  ridge plan --hidden-dim 1024 --n-layers 16 --max-batch-for 16GB
  ridge plan --hidden-dim 2048 --n-layers 16 --version v4 --dtype bf16 --recompute-for 12GiB
  ridge plan --search batch-size --memory 16GB
  ridge plan --search seq-len --against version=v3
  ridge plan --search model --dtype bf16 --memory 80GB
  ridge plan --against recompute=block
  ridge plan --network resnet50 --batch-size 64 --mode inference --version max-autotune
  ridge plan --dtype bf16 --json)");
  command.callback([request, &action] { action = [request] { return plan(*request); }; });
}

}  // namespace ridge
