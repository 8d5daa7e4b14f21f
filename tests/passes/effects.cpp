#include "tests/passes/effects.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "ridge/gpu/device/target.h"
#include "ridge/ops/op.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/plan/memory.h"
#include "ridge/session/session.h"

namespace ridge::testing {
namespace {

constexpr const char* path = RIDGE_SOURCE_DIR "/tests/passes/effects.tsv";

// The counts as columns, in the order of the file.
struct Column {
  const char* name;
  std::int64_t Counts::*count;
};
constexpr Column columns[] = {{"kernels", &Counts::kernels},   {"new", &Counts::added},
                              {"products", &Counts::products}, {"casts", &Counts::casts},
                              {"adds", &Counts::adds},         {"permutes", &Counts::permutes},
                              {"in_place", &Counts::in_place}, {"flops", &Counts::flops},
                              {"bytes", &Counts::bytes},       {"peak", &Counts::peak}};

using Change = void (*)(RunOptions&);

Configuration llama(std::string name, std::string_view dtype, Change change = nullptr) {
  RunOptions o;    // by default 4 key heads for 8 heads
  o.n_layers = 3;  // in 8 bits are the products of inner blocks alone
  o.vocab_size = 1024;
  o.dtype = dtype;
  if (change) change(o);
  o.resolve();
  return {"llama" + name, o, "v4", dtype == "fp8"};
}

Configuration network(std::string_view name, std::string_view mode, std::string_view dtype) {
  RunOptions o = default_options(name);
  o.mode = mode;
  o.dtype = dtype;
  o.resolve();
  return {fmt::format("{}-{}-{}", name, mode, dtype), o, "max-autotune"};
}

bool is_in_place(const Graph& graph, const Node& node) {
  const std::vector<TensorType> types = graph.types_of(node.inputs);
  for (std::uint32_t o = 0; o < node.outputs.size(); ++o)
    if (aliased_input(*node.op, o, types)) return true;
  return false;
}

Schedule schedule_of(RunOptions options, std::string_view row, std::string_view enable,
                     const Target& target) {
  options.version = row;
  options.enable_pass = enable;
  return options.schedule(target);
}

// Builds the graph of a run under a schedule that may be no row's.
void build(Graph& graph, const RunOptions& options, const Schedule& schedule) {
  build_graph(graph, workload_of(options), schedule, accumulation_of(options));
}

Counts counts_of(const Graph& graph) {
  Counts counts;
  for (const Node& node : graph.nodes()) {
    if (only_renames(*node.op)) continue;
    const std::string_view op = name_of(*node.op);
    const Cost once = cost(graph, node);
    ++counts.kernels;
    counts.products += once.macs > 0;
    counts.casts += op == "cast";
    counts.adds += op == "add";
    counts.permutes += op == "permute";
    counts.in_place += is_in_place(graph, node);
    counts.flops += once.flops;
    counts.bytes += once.bytes();
  }
  const std::vector<std::size_t> no_workspace(graph.nodes().size(), 0);
  counts.peak =
      static_cast<std::int64_t>(plan_memory(graph, lifetimes_of(graph), no_workspace).peak_bytes);
  return counts;
}

// By name and types: the operators of a graph's kernels.
using Kernels = std::map<std::string, std::vector<const Op*>>;

Kernels kernels_of(const Graph& graph) {
  Kernels kernels;
  for (const Node& node : graph.nodes()) {
    if (only_renames(*node.op)) continue;
    std::string key(name_of(*node.op));
    for (const auto* ids : {&node.inputs, &node.outputs})
      for (const ValueId id : *ids) key += " " + graph.info(id).type.to_string();
    kernels[key].push_back(node.op.get());
  }
  return kernels;
}

// How many kernels of a graph the other one does not have.
std::int64_t kernels_beyond(const Graph& graph, const Graph& other) {
  std::int64_t count = 0;
  Kernels there = kernels_of(other);
  for (const auto& [key, ops] : kernels_of(graph)) {
    std::vector<const Op*>& left = there[key];
    for (const Op* op : ops) {
      const auto like = std::ranges::find_if(left, [&](const Op* o) { return *o == *op; });
      if (like == left.end())
        ++count;
      else
        left.erase(like);
    }
  }
  return count;
}

// What a pass changes where a schedule has it: the difference to the same without it.
std::optional<Counts> change_by(const Pass& pass, const RunOptions& options, Schedule schedule) {
  if (!schedule.has(pass.name)) return std::nullopt;
  Graph with, without;
  build(with, options, schedule);
  std::erase(schedule.passes, &pass);
  build(without, options, schedule);
  Counts change = counts_of(with) - counts_of(without);
  change.added = kernels_beyond(with, without);
  return change;
}

std::string trimmed(std::string_view cell) {
  const std::size_t end = cell.find_last_not_of(' ');
  const std::size_t begin = cell.find_first_not_of(' ');
  return begin == cell.npos ? "" : std::string(cell.substr(begin, end - begin + 1));
}

std::vector<std::string> cells_of(const EffectRow& row) {
  std::vector<std::string> cells{row.configuration, row.target, row.schedule, row.pass};
  for (const Column& column : columns) {
    const std::int64_t count = row.counts.*column.count;
    cells.push_back(row.is_of_pass() && count != 0 ? fmt::format("{:+}", count)
                                                   : fmt::format("{}", count));
  }
  cells.push_back(row.why);
  return cells;
}

bool same_row(const EffectRow& a, const EffectRow& b) {
  return a.configuration == b.configuration && a.target == b.target && a.schedule == b.schedule &&
         a.pass == b.pass;
}

}  // namespace

Counts operator-(const Counts& a, const Counts& b) {
  Counts difference;
  for (const Column& column : columns) difference.*column.count = a.*column.count - b.*column.count;
  return difference;
}

std::string EffectRow::name() const {
  return fmt::format("{}, {}, {}{}{}", configuration, target, schedule, is_of_pass() ? ": " : "",
                     pass);
}

Target a_cpu() { return {}; }

Target a_gpu() { return gpu::target_of({.compute_capability = 90}, "a card of sm90"); }

std::vector<Configuration> AllConfigurations() {
  std::vector<Configuration> all{
      llama("", "fp32"),
      llama("-equal-heads", "fp32", [](RunOptions& o) { o.n_kv_heads = o.n_heads; }),
      llama("-one-kv-head-bf16", "bf16", [](RunOptions& o) { o.n_kv_heads = 1; }),
      llama("-tied-clipped-bf16", "bf16",
            [](RunOptions& o) {
              o.tie_embeddings = true;
              o.max_grad_norm = 1;
            }),
      llama("-accumulation", "fp32",
            [](RunOptions& o) {
              o.gradient_accumulation_steps = 4;
              o.max_grad_norm = 1;
            }),
      llama("-accumulation-tied-bf16", "bf16",
            [](RunOptions& o) {
              o.gradient_accumulation_steps = 4;
              o.tie_embeddings = true;
            }),
      llama("-bf16", "bf16"),
      llama("-fp16", "fp16"),
      llama("-fp8", "fp8"),
      llama("-tf32", "tf32"),
      llama("-sgd-bf16", "bf16", [](RunOptions& o) { o.optimizer = "sgd"; }),
      llama("-odd-bf16", "bf16",
            [](RunOptions& o) {
              o.vocab_size = 1021;
              o.intermediate_dim = 510;
              o.seq_len = 127;
            }),
      llama("-many-parameters-bf16", "bf16",
            [](RunOptions& o) {
              o.hidden_dim = 1024;
              o.intermediate_dim = 4096;
              o.n_layers = 6;
              o.batch_size = 1;
            }),
      llama("-recompute-attention", "fp32", [](RunOptions& o) { o.recompute = "attention"; }),
      llama("-recompute-block-bf16", "bf16", [](RunOptions& o) { o.recompute = "block"; }),
      llama("-recompute-block:2", "fp32", [](RunOptions& o) { o.recompute = "block:2"; }),
      llama("-2-ranks", "fp32", [](RunOptions& o) { o.ranks = 2; }),
      llama("-2-ranks-bf16", "bf16", [](RunOptions& o) { o.ranks = 2, o.zero = 1; }),
      llama("-4-ranks-accumulation-bf16", "bf16",
            [](RunOptions& o) {
              o.ranks = 4;
              o.gradient_accumulation_steps = 2;
            }),
      llama("-4-ranks-zero", "fp32", [](RunOptions& o) { o.ranks = 4, o.zero = 3; }),
      llama("-2-ranks-zero-bf16", "bf16", [](RunOptions& o) {
        o.ranks = 2, o.zero = 3;
        o.max_grad_norm = 1;
        o.gradient_accumulation_steps = 2;
      })};
  for (const char* dtype : {"fp32", "bf16", "int8"})
    all.push_back(llama(fmt::format("-inference-{}", dtype), dtype,
                        [](RunOptions& o) { o.mode = "inference"; }));
  for (const char* name : {"resnet18", "vit_b_32", "mobilenet_v2", "swin_t"}) {
    for (const char* dtype : {"fp32", "bf16", "int8"})
      all.push_back(network(name, "inference", dtype));
    for (const char* dtype : {"fp32", "bf16"}) all.push_back(network(name, "training", dtype));
  }
  // What the four have no work for: narrow bottlenecks, squeeze and excitation, dense blocks.
  all.push_back(network("resnet50", "inference", "bf16"));
  all.push_back(network("mobilenet_v3_small", "inference", "fp32"));
  all.push_back(network("densenet121", "inference", "fp32"));
  // And for pointwise chains and equal nodes beside all other passes.
  all.push_back(network("squeezenet1_1", "training", "fp32"));
  all.push_back(network("swin_v2_t", "training", "bf16"));
  all.push_back(network("resnet18", "training", "fp32"));
  all.back().name += "-2-ranks";
  all.back().options.ranks = 2;
  all.back().options.sync_batch_norm = true;
  return all;
}

Configuration configuration_named(std::string_view name) {
  std::vector<Configuration> all = AllConfigurations();
  return *std::ranges::find(all, name, &Configuration::name);
}

Counts counts_of(const RunOptions& options, const Schedule& schedule) {
  Graph graph;
  build(graph, options, schedule);
  return counts_of(graph);
}

std::vector<EffectRow> effects_of(const Configuration& c) {
  std::vector<EffectRow> rows;
  for (const Target& target : {a_cpu(), a_gpu()}) {
    if (c.needs_gpu && !target.is_gpu()) continue;
    for (const ScheduleRow& row : schedules())
      rows.push_back({c.name, target.is_gpu() ? "gpu" : "cpu", std::string(row.name), "",
                      counts_of(c.options, schedule_of(c.options, row.name, "", target))});
  }
  for (const Pass& pass : passes()) {
    if (!pass.apply || (pass.use && *pass.use != c.options.use())) continue;
    const bool cpu = pass.where == DeviceKind::cpu;
    if (cpu && c.needs_gpu) continue;
    const auto change_in = [&](std::string_view row, std::string_view enable) {
      return change_by(pass, c.options,
                       schedule_of(c.options, row, enable, cpu ? a_cpu() : a_gpu()));
    };
    const auto add = [&](std::string_view row, const Counts& counts) {
      rows.push_back(
          {c.name, cpu ? "cpu" : "gpu", std::string(row), std::string(pass.name), counts});
    };
    const auto full = change_in(c.full_row, "");
    if (full) add(c.full_row, *full);
    const bool by_name = pass.chosen_by == ChosenBy::schedule;
    const auto alone = change_in("v1", by_name ? pass.name : "");
    if (alone && (!full || *alone != Counts{})) add("v1", *alone);
  }
  return rows;
}

std::vector<std::string> differences(const std::vector<EffectRow>& expected,
                                     const std::vector<EffectRow>& found) {
  std::vector<std::string> lines;
  for (const EffectRow& row : found) {
    const auto known = std::ranges::find_if(
        expected, [&](const EffectRow& other) { return same_row(row, other); });
    if (known == expected.end()) {
      lines.push_back(row.name() + ": not in the table");
      continue;
    }
    std::string line;
    for (const Column& column : columns)
      if (const auto was = known->counts.*column.count, is = row.counts.*column.count; was != is)
        line += fmt::format("{} {} {} for {}", line.empty() ? "" : ",", column.name, is, was);
    if (!line.empty()) lines.push_back(row.name() + ":" + line);
  }
  for (const EffectRow& row : expected)
    if (std::ranges::none_of(found, [&](const EffectRow& other) { return same_row(row, other); }))
      lines.push_back(row.name() + ": in the table, and there no more");
  return lines;
}

EffectsFile::EffectsFile() {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // headings
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, '\t');) cells.push_back(trimmed(cell));
    cells.resize(4 + std::size(columns) + 1);
    EffectRow row{cells[0], cells[1], cells[2], cells[3], {}, cells.back()};
    for (std::size_t i = 0; i < std::size(columns); ++i)
      row.counts.*columns[i].count = std::stoll(cells[4 + i]);
    rows_.push_back(std::move(row));
  }
}

std::vector<EffectRow> EffectsFile::rows_of(std::string_view configuration) const {
  std::vector<EffectRow> found;
  std::ranges::copy_if(rows_, std::back_inserter(found),
                       [&](const EffectRow& row) { return row.configuration == configuration; });
  return found;
}

void EffectsFile::replace(std::string_view configuration, std::vector<EffectRow> rows) {
  const std::vector<EffectRow> before = rows_of(configuration);
  for (EffectRow& row : rows) {
    if (!row.is_of_pass() || row.counts != Counts{}) continue;
    const auto known =
        std::ranges::find_if(before, [&](const EffectRow& other) { return same_row(row, other); });
    row.why = known == before.end() || known->why.empty() ? "?" : known->why;
  }
  // In the order of the configurations; those that there are no more leave.
  std::vector<EffectRow> all;
  for (const Configuration& c : AllConfigurations())
    std::ranges::copy(c.name == configuration ? rows : rows_of(c.name), std::back_inserter(all));
  rows_ = std::move(all);
  write();
}

void EffectsFile::write() const {
  std::vector<std::vector<std::string>> table{{"configuration", "target", "schedule", "pass"}};
  for (const Column& column : columns) table[0].emplace_back(column.name);
  table[0].emplace_back("why");
  for (const EffectRow& row : rows_) table.push_back(cells_of(row));
  std::vector<std::size_t> widths(table[0].size());
  for (const auto& cells : table)
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  std::ofstream file(path);
  for (const auto& cells : table) {
    std::string line;
    for (std::size_t i = 0; i + 1 < cells.size(); ++i)
      line += i < 4 ? fmt::format("{:<{}}\t", cells[i], widths[i])
                    : fmt::format("{:>{}}\t", cells[i], widths[i]);
    line += cells.back();
    file << line.substr(0, line.find_last_not_of(" \t") + 1) << '\n';
  }
}

}  // namespace ridge::testing
