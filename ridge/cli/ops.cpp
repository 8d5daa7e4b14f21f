#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/tensor_operators.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/base/statistics.h"
#include "ridge/base/system.h"
#include "ridge/base/text_table.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/ops_space.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

struct OpsRequest {
  std::string op, op_type, first, second;  // empty: not given
  std::string dtype = "fp32", device = "auto", json_file;
  bool in_place = false, predefined = false, models = false, list = false;
  std::int64_t iterations = 20, warmup = 5, threads = 0;
  bool of_space = false;
  SpaceRequest space;
  std::vector<Flag> space_flags;  // those that only --space takes
};

struct Measured {
  OperatorCase what;
  std::vector<double> seconds;
  std::string failure;  // in words, if it did not fit
};

DType dtype_of(const OpsRequest& request) {
  for (const auto& [name, dtype] : {std::pair{"fp32", DType::f32}, std::pair{"fp16", DType::f16},
                                    std::pair{"bf16", DType::bf16}})
    if (request.dtype == name) return dtype;
  throw UsageError("--dtype is '{}'; choose one of fp32, fp16, bf16", request.dtype);
}

void check(const OpsRequest& request) {
  check_range("num-iters", request.iterations, 1, 1'000'000);
  check_range("num-warmup-iters", request.warmup, 0, 1'000'000);
  check_range("threads", request.threads, 0, 4096);
  if (request.predefined && request.models)
    throw UsageError("--run-predefined and --run-model-ops are two lists: choose one");
  if (request.models && request.in_place)
    throw UsageError("--run-model-ops says itself what is in place: leave --inplace out");
  // What a list says itself.
  const std::string_view list = request.models ? "--run-model-ops" : "--run-predefined";
  const auto refuse = [&](bool said, const std::string& value, std::string_view flag) {
    if (said && !value.empty())
      throw UsageError("{} is a list that excludes {}: leave one out", list, flag);
  };
  const bool listed = request.predefined || request.models;
  refuse(listed, request.op, "--op");
  refuse(listed, request.op_type, "--op-type");
  refuse(request.models, request.first, "--input1-dim");
  refuse(request.models, request.second, "--input2-dim");
}

std::string operator_of(const OpsRequest& request) {
  return request.op.empty() ? "add" : request.op;
}

// Its type follows from an operator's name; who gives it wants to be told of a mistake, as who
// gives a second operand to an operator of one.
void check_type(const OpsRequest& request) {
  const std::string op = operator_of(request);
  const std::string_view name = std::string_view(op).substr(0, op.size() - op.ends_with('_'));
  std::vector<std::string_view> types;
  for (const TensorOpName& known : tensor_operators())
    if (known.name == name) types.push_back(name_of(known.type));
  if (types.empty()) return;  // of no operator: tensor_operator() names those there are
  if (!request.op_type.empty() && std::ranges::find(types, request.op_type) == types.end())
    throw UsageError("--op-type is '{}', but {} is {}", request.op_type, name,
                     fmt::join(types, " or "));
  if (!request.second.empty() && (types[0] == "unary" || types[0] == "reduction"))
    throw UsageError("--input2-dim is '{}', but {} is {}: it has one operand", request.second, name,
                     types[0]);
  if (request.op_type == "sparse" && request.second.empty())
    throw UsageError(
        "--op-type sparse adds rows to --input1-dim ROWS-COLUMNS: --input2-dim ROWS says how many");
}

std::vector<TensorOpRequest> wanted(const OpsRequest& request) {
  const DType dtype = dtype_of(request);
  if (request.models) return model_operators(dtype);
  const Shape first =
      shape_from_dims(request.first.empty() ? "64-1024-1024" : request.first, "--input1-dim");
  const Shape second =
      request.second.empty() ? first : shape_from_dims(request.second, "--input2-dim");
  if (!request.predefined)
    return {{operator_of(request), first, second, dtype, request.in_place,
             request.op_type == "sparse"}};
  std::vector<TensorOpRequest> all = predefined_operators(first, second, dtype);
  const std::vector<TensorOpName> names = tensor_operators();
  for (std::size_t i = 0; i < all.size(); ++i)  // the benchmark reduces into new tensors anyway
    all[i].in_place = request.in_place && names[i].type != TensorOpType::reduction;
  return all;
}

// The ceilings of the machine file; without them there are no shares of the roofline.
std::optional<Roof> roof_over(const Device& device, Terminal& terminal) {
  KeptRoof kept = kept_roof(device.name(), device.hardware(), device.threads());
  if (!kept.roof) terminal.line(fmt::format("No shares of the roofline: {}", kept.source));
  return kept.roof;
}

// The least time that the machine's ceilings leave, over the time taken.
double share_of(const Roof& roof, const OperatorCase& what, const Cost& work, double seconds) {
  const ProductKind precision =
      work.macs > 0 ? product_kind_of(what.in[0].dtype) : ProductKind::f32;
  const double computing = static_cast<double>(work.flops) / roof.flops(precision);
  const double moving = static_cast<double>(work.bytes()) / roof.memory().bytes_per_second;
  return std::max(computing, moving) / seconds;
}

std::vector<Measured> measure(const OpsRequest& request, Device& device, Terminal& terminal) {
  std::vector<OperatorCase> cases;  // all, so that a mistake is told before anything runs
  for (const TensorOpRequest& one : wanted(request)) cases.push_back(tensor_operator(one));
  std::vector<Measured> measured;
  for (const OperatorCase& one : cases) {
    if (interrupt_noted() != 0) break;
    terminal.busy(fmt::format("{} of {}: {}", measured.size() + 1, cases.size(), one.label));
    measured.push_back({one, {}, ""});
    try {
      measured.back().seconds =
          time_operator(device, one, {.warmup = request.warmup, .repetitions = request.iterations});
    } catch (const OutOfMemoryError& error) {
      if (cases.size() == 1) throw;
      measured.back().failure = error.what();
    }
  }
  terminal.erase();
  return measured;
}

std::string ops_text(const std::vector<Measured>& measured, const std::optional<Roof>& roof) {
  std::vector<TextColumn> columns{{.header = "Operator", .left = true},
                                  {.header = "us"},
                                  {.header = "+-"},
                                  {.header = "GB/s"},
                                  {.header = "GFLOP/s"}};
  if (roof) columns.push_back({.header = "Of roofline"});
  std::vector<TextRow> rows;
  for (const Measured& one : measured) {
    if (one.seconds.empty()) {
      rows.push_back({one.what.label, "-"});
      continue;
    }
    const Statistics time = statistics_of(one.seconds);
    const Cost work = cost_of(one.what);
    rows.push_back({one.what.label, fmt::format("{:.2f}", time.median * 1e6),
                    fmt::format("{:.1f} %", 100 * time.variation()),
                    fmt::format("{:.1f}", static_cast<double>(work.bytes()) / time.median * 1e-9),
                    fmt::format("{:.1f}", static_cast<double>(work.flops) / time.median * 1e-9)});
    if (roof)
      rows.back().push_back(
          fmt::format("{:.0f} %", 100 * share_of(*roof, one.what, work, time.median)));
  }
  std::string text = text_table(columns, rows);
  for (const Measured& one : measured)
    if (!one.failure.empty()) text += fmt::format("{}: {}\n", one.what.label, one.failure);
  return text;
}

std::string json_of(const OpsRequest& request, const std::vector<Measured>& measured,
                    const std::optional<Roof>& roof, const Device& device) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Measured& one : measured) {
    nlohmann::ordered_json row{{"operator", one.what.label}};
    if (one.seconds.empty()) {
      row["failure"] = one.failure;
    } else {
      const Statistics time = statistics_of(one.seconds);
      const Cost work = cost_of(one.what);
      row.update({{"seconds", time.median},
                  {"std_dev", time.std_dev},
                  {"bytes", work.bytes()},
                  {"flops", work.flops}});
      if (roof) row["share_of_roofline"] = share_of(*roof, one.what, work, time.median);
    }
    list.push_back(std::move(row));
  }
  return nlohmann::ordered_json{{"dtype", request.dtype},
                                {"device", device.description()},
                                {"timestamp", utc_timestamp()},
                                {"operators", list}}
             .dump(2) +
         "\n";
}

int print_list() {
  std::vector<TextRow> rows;
  for (const TensorOpName& op : tensor_operators())
    rows.push_back({std::string(op.name), std::string(name_of(op.type))});
  const TextColumn columns[] = {{.header = "Operator", .left = true},
                                {.header = "Type", .left = true}};
  Terminal().lines(text_table(columns, rows));
  return 0;
}

// The operators are those of workloads: what names one of them does not go with it.
int ops_of_space(const OpsRequest& request) {
  if (request.predefined || request.models || !request.op.empty() || !request.first.empty())
    throw UsageError(
        "--space takes the operators of workloads: leave out --op, --input1-dim, --run-predefined "
        "and --run-model-ops");
  SpaceRequest space = request.space;
  space.dtype = request.dtype;
  space.device = request.device;
  space.threads = request.threads;
  space.json_file = request.json_file;
  return ops_space(space);
}

int ops(const OpsRequest& request) {
  if (request.list) return print_list();
  if (request.of_space) return ops_of_space(request);
  for (const Flag& flag : request.space_flags)
    if (flag.was_given())
      throw UsageError("{} is about --space: add that, or leave it out", flag.name());
  check(request);
  if (!request.predefined && !request.models) check_type(request);
  for (const TensorOpRequest& one : wanted(request)) tensor_operator(one);
  if (!request.json_file.empty()) probe_writing(request.json_file);
  RunOptions options;
  options.device = request.device;
  options.threads = request.threads;
  const std::unique_ptr<Device> device = open_device(options);
  Terminal terminal;
  terminal.line(fmt::format("Device: {}, {}", device->description(), request.dtype));
  const std::optional<Roof> roof = roof_over(*device, terminal);
  note_interrupts();
  const std::vector<Measured> measured = measure(request, *device, terminal);
  terminal.line("");
  if (!measured.empty()) terminal.line(ops_text(measured, roof));
  if (!request.json_file.empty()) {
    write_text_file(request.json_file, json_of(request, measured, roof, *device));
    terminal.line(fmt::format("Wrote {}", request.json_file));
  }
  if (interrupt_noted() == 0) return 0;
  terminal.line("Interrupted");
  return 128 + interrupt_noted();
}

void add_flags(Command command, OpsRequest& r) {
  const auto add = [&](const char* flag, auto& field, const char* what, const char* type) {
    add_value(command, flag, field, what).type_name(type).default_text(fmt::format("{}", field));
  };
  add("--op", r.op, "Time this operator (see --list), in place if it ends in _; default: add",
      "NAME");
  add("--op-type", r.op_type, "State its type: unary, binary, reduction, product or sparse",
      "TYPE");
  add("--dtype", r.dtype, "Compute in fp32, fp16 or bf16", "TEXT");
  add("--input1-dim", r.first, "Set the first operand's extents; default: 64-1024-1024", "DIMS");
  add("--input2-dim", r.second,
      "Set the second operand's extents (default: those of the first), or the number of rows "
      "of "
      "a sparse operand",
      "DIMS");
  command.add_flag("--inplace", r.in_place, "Write the result over the first operand");
  command.add_flag("--run-predefined", r.predefined, "Time the benchmark's list of 18 operators");
  command.add_flag("--run-model-ops", r.models, "Time the operators of BERT and DLRM training");
  add("--num-iters,--iterations", r.iterations, "Measure each this often", "N");
  add("--num-warmup-iters,--warmup", r.warmup, "Discard this many first measurements", "N");
  add("--device", r.device, "Run on auto (a GPU if there is one), cpu, cuda or hip", "TEXT");
  add("--threads", r.threads, "Use this many processors; 0: all available", "N");
  command.add_option("--export-json", r.json_file, "Write the times to this JSON file")
      .type_name("FILE")
      .take_last();
  command.add_flag("--list", r.list, "List the operators");
}

void add_space_flags(Command command, OpsRequest& r) {
  const auto add = [&](const char* flag, auto& field, const char* what, const char* type) {
    r.space_flags.push_back(add_value(command, flag, field, what).type_name(type).group("Space"));
  };
  command
      .add_flag("--space", r.of_space,
                "Time the operators of workloads in their steps, against their floors")
      .group("Space");
  add("--networks", r.space.networks, "Take these, by commas; default: all", "LIST");
  add("--configs", r.space.configs, "Take the runs that these files of options describe", "LIST");
  add("--mode", r.space.mode, "Take inference, training or both; default: both", "TEXT");
  add("--version,--schedule", r.space.version, "Run by this schedule; default: v4", "TEXT");
  add("--batch-size", r.space.batch_size, "Set the batch; default: that of ridge bench", "N");
  add("--top", r.space.top, "Show so many; 0: all; default: 30", "N");
  add("--least-share", r.space.least_share,
      "Count the slow ones from this part of a step on, in percent; default: 3", "X");
}

}  // namespace

void add_ops_command(Command program, Action& action) {
  const Command command = program.add_subcommand("ops", "Time single tensor operators");
  const auto request = std::make_shared<OpsRequest>();
  add_flags(command, *request);
  add_space_flags(command, *request);
  command.footer(
      R"(Times are medians of one launch. Operands rotate over more memory than the last cache holds, so
that every launch finds its own in memory, as within a network. Bytes are those of each operand read
once and the result written once; eq gives 0 and 1 in the dtype of its operands. The share of the
roofline compares with the ceilings that ridge roofline has measured on this machine.

With --space: for each operator of each workload, the time that it takes in a step, the part of that
which its floor explains (the larger of its FLOPs and its bytes at the ceilings), the part of the
step, and the part of the step that is lost above the floor, the most lost first.

Examples:
  ridge ops --op add
  ridge ops --op add_ --input1-dim 32-128-1024 --input2-dim 1024 --dtype bf16
  ridge ops --op matmul --input1-dim 1024-1024 --input2-dim 1024-1024
  ridge ops --op add_ --op-type sparse --input1-dim 1000000-128 --input2-dim 65536
  ridge ops --run-predefined --export-json ops.json
  ridge ops --run-model-ops --dtype fp16 --device cuda
  ridge ops --space --networks resnet50,vit_b_16 --mode inference --device cuda --dtype fp16)");
  command.callback([request, &action] { action = [request] { return ops(*request); }; });
}

}  // namespace ridge
