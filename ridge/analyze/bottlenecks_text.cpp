#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/analyze/machine_file.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/device/data_sheets.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

TextRow time_row(const BottleneckReport& report, const std::string& name, const Timed& t) {
  return {name,
          format_duration(t.seconds),
          format_percent(report.share(t.seconds)),
          format_duration(t.floor),
          t.floor > 0 ? fmt::format("{:.1f}x", t.ratio()) : "",
          format_duration(t.above_floor()),
          fmt::format("{:.2f}", t.intensity()),
          std::string(name_of(t.bound()))};
}

std::string time_table(const BottleneckReport& report, const std::string& what,
                       const std::vector<NamedTime>& rows) {
  const TextColumn columns[] = {{what, true, 48}, {"Time"},          {"Share"},
                                {"Floor"},        {"Ratio"},         {"Above floor"},
                                {"FLOP/byte"},    {"Bound by", true}};
  std::vector<TextRow> cells;
  for (const NamedTime& row : rows) cells.push_back(time_row(report, row.name, row.timed));
  return text_table(columns, cells);
}

std::vector<NamedTime> first(std::vector<NamedTime> rows, std::size_t top) {
  if (rows.size() > top) rows.resize(top);
  return rows;
}

std::vector<NamedTime> worst_nodes(const BottleneckReport& report, std::size_t top) {
  std::vector<NamedTime> rows;
  for (const NodeBottleneck& node : report.nodes) rows.push_back({node.name, node.timed});
  std::ranges::stable_sort(rows, std::greater{},
                           [](const NamedTime& row) { return row.timed.above_floor(); });
  return first(std::move(rows), top);
}

double bound_share(const BottleneckReport& report, Bound bound) {
  return report.share(report.all.seconds_by_bound[static_cast<std::size_t>(bound)]);
}

// The workshop's three classes.
std::string_view class_of(double intensity) {
  return intensity < 10     ? "memory-bound, below 10"
         : intensity <= 100 ? "mixed, 10 to 100"
                            : "compute-bound, above 100";
}

std::string ranked_rewrites(const BottleneckReport& report) {
  std::vector<std::string> words;
  for (const Finding& f : report.findings)
    if (f.kind == Finding::Kind::rewrite)
      words.push_back(fmt::format("{} {}", f.name, format_percent(report.share(f.seconds_saved))));
  return words.empty() ? "none of those known"
                       : fmt::format("{}; any other less than 0.5 %", fmt::join(words, ", "));
}

// Bytes of operands and results over the time of the step, beside what memory could deliver. Much
// of it comes from caches, so it may be more than that.
std::string traffic(const BottleneckReport& report) {
  const auto bytes = static_cast<double>(report.all.cost.bytes());
  const double rate = report.step_seconds > 0 ? bytes / report.step_seconds : 0;
  std::string text = fmt::format("{} a step, {:.1f} GB/s", format_megabytes(bytes), rate / 1e9);
  if (!report.roof.levels.empty()) {
    const Roof::Level& farthest = report.roof.levels.back();
    text += fmt::format(", {} of the {:.1f} GB/s of {}",
                        format_percent(rate / farthest.bytes_per_second),
                        farthest.bytes_per_second / 1e9, farthest.name);
  }
  return text;
}

std::string ranked_memory(const MemoryUse& m) {
  std::vector<std::pair<std::int64_t, std::string>> savings{
      {m.saved_by_checkpointing, "gradient checkpointing"}, {m.saved_by_bf16, "bf16 activations"}};
  for (const auto& [pass, bytes] : m.saved_by_pass) savings.emplace_back(bytes, pass);
  std::ranges::stable_sort(savings, std::greater{});
  std::vector<std::string> words;
  for (const auto& [bytes, name] : savings)
    if (bytes > 0) words.push_back(fmt::format("{} {}", name, format_megabytes(bytes)));
  return words.empty() ? "nothing known" : fmt::format("{}", fmt::join(words, ", "));
}

// "40.1 MB + 10.55 MB x batch-size"
std::string law_text(const GrowthLaw& law) {
  std::string text =
      fmt::format("{} + {:.4g} MB x {}", format_megabytes(law.fixed), law.linear / 1e6, law.of);
  if (law.quadratic != 0)
    text += fmt::format(" {} {:.4g} MB x {}^2", law.quadratic < 0 ? '-' : '+',
                        std::abs(law.quadratic) / 1e6, law.of);
  return fmt::format("{} (from plans at {} to {})", text, law.at, law.to);
}

std::string growth_text(const MemoryUse& m) {
  std::vector<std::string> laws;
  for (const GrowthLaw& law : m.growth) laws.push_back(law_text(law));
  return laws.empty() ? "not known" : fmt::format("its peak is {}", fmt::join(laws, "; "));
}

// What the hardware's data sheet promises, and what of it the step and the measured ceilings reach.
std::string against_data_sheet(const BottleneckReport& report) {
  if (const auto peak = report.roof.vendor.flops_per_second)
    return fmt::format("{} of the {:.4g} TFLOP/s that ridge roofline --peak-tflops was given",
                       format_percent(report.vendor_mfu()), *peak / 1e12);
  const DataSheet* const sheet = data_sheet_of(report.roof.hardware);
  if (!sheet)
    return fmt::format(
        "no data sheet of '{}' is known here: ridge roofline --peak-tflops X --peak-bandwidth Y "
        "takes "
        "its figures; of the measured peak it is {}",
        printable(report.roof.hardware), format_percent(report.mfu()));
  const double f32 = sheet->flops(ProductKind::f32, report.roof.threads);
  return fmt::format(
      "MFU {} by the rates of {} ({}: {:.4g} TFLOP/s in f32, {:.0f} GB/s); the measured ceilings "
      "are {} "
      "and {} of these",
      format_percent(report.share(report.data_sheet_seconds)), sheet->name, sheet->source,
      f32 / 1e12, sheet->bytes_per_second / 1e9,
      format_percent(report.roof.flops(ProductKind::f32) / f32),
      format_percent(report.roof.memory().bytes_per_second / sheet->bytes_per_second));
}

// Kernels that each take less than a thousandth of the step.
std::string small_kernels(const BottleneckReport& report) {
  constexpr double small = 1e-3;
  double all = 0, few = 0;
  Timed timed;
  for (const NodeBottleneck& node : report.nodes) {
    all += node.timed.calls;
    if (node.timed.seconds > small * report.step_seconds * node.timed.calls) continue;
    few += node.timed.calls;
    timed += node.timed;
  }
  return fmt::format(
      "{:.0f} of {:.0f} kernels take less than 0.1 % of the step each, {} together; they reach {} "
      "of "
      "their ceilings, all kernels {}",
      few, all, format_percent(report.share(timed.seconds)),
      format_percent(timed.seconds > 0 ? timed.floor / timed.seconds : 0),
      format_percent(report.all.seconds > 0 ? report.all.floor / report.all.seconds : 0));
}

// What of a step does not grow with the batch: launches, the optimizer, what passes between
// kernels.
std::string larger_batch(const BottleneckReport& report) {
  double fixed =
      report.between_nodes + report.all.seconds_by_bound[static_cast<std::size_t>(Bound::overhead)];
  for (const NamedTime& part : report.parts)
    if (part.name == "optimizer")
      fixed += part.timed.seconds -
               part.timed.seconds_by_bound[static_cast<std::size_t>(Bound::overhead)];
  fixed = std::min(fixed, report.step_seconds);
  const double gain =
      report.step_seconds > 0 ? 2 * report.step_seconds / (2 * report.step_seconds - fixed) - 1 : 0;
  return fmt::format(
      "{}: launches, the optimizer and what passes between operators are {} of the step and do not "
      "grow with the batch; twice the batch would gain an estimated {} of the samples per second "
      "(ridge plan --search batch-size says what fits)",
      gain > 0.05 ? "yes" : "little", format_percent(report.share(fixed)), format_percent(gain));
}

// The workshop's four classes.
std::string mfu_class(const BottleneckReport& report) {
  const double mfu = 100 * report.mfu();
  return fmt::format("{:.1f} % of the measured peak: {}", mfu,
                     mfu < 20   ? "below 20 %, poor"
                     : mfu < 40 ? "20 to 40 %, fair"
                     : mfu < 60 ? "40 to 60 %, good"
                                : "above 60 %, excellent");
}

// Questions of the workshop's exercises, answered by this run.
std::vector<std::pair<std::string, std::string>> answers(const BottleneckReport& report) {
  const MemoryUse& m = report.memory;
  std::vector<std::string> parts;
  for (const NamedTime& part : report.parts)
    parts.push_back(
        fmt::format("{} {}", part.name, format_percent(report.share(part.timed.seconds))));
  std::vector<std::pair<std::string, std::string>> list{
      {"What holds the step back?", primary_bottleneck(report)},
      {"Where does its time go?", fmt::format("{}", fmt::join(parts, ", "))},
      {"Which changes to the graph would help, by estimated time?", ranked_rewrites(report)},
      {"Are there many small operations?", small_kernels(report)},
      {"Would a larger batch help?", larger_batch(report)},
      {"How good is its use of the device (MFU)?", mfu_class(report)},
      {"How does it do against the data sheet?", against_data_sheet(report)},
      {"How many bytes do its kernels read and write?", traffic(report)},
      {"How many FLOPs does it do per byte?",
       fmt::format("{:.1f} ({})", report.all.intensity(), class_of(report.all.intensity()))},
      {"How does its memory grow?", growth_text(m)},
      {"What would save memory, by bytes not kept?", ranked_memory(m)}};
  if (m.peak_bytes > 0)
    list.emplace_back("When is memory at its peak?",
                      fmt::format("at {} in the {} phase, when {} was allocated",
                                  format_megabytes(static_cast<double>(m.peak_bytes)),
                                  name_of(m.peak_phase), printable(m.peak_owner)));
  return list;
}

std::string utilization(const BottleneckReport& report) {
  std::string text = fmt::format("{:.1f} GFLOP/s, MFU {} of the measured peak",
                                 report.flops_per_second() / 1e9, format_percent(report.mfu()));
  if (report.vendor_mfu() > 0)
    text += fmt::format(", {} of the vendor's", format_percent(report.vendor_mfu()));
  return text;
}

Json timed_json(const BottleneckReport& report, const Timed& t) {
  return {{"calls", t.calls},
          {"seconds", t.seconds},
          {"share", report.share(t.seconds)},
          {"floor_seconds", t.floor},
          {"compute_floor_seconds", t.compute_floor},
          {"memory_floor_seconds", t.memory_floor},
          {"ratio", t.ratio()},
          {"above_floor_seconds", t.above_floor()},
          {"flops", t.cost.flops},
          {"necessary_flops", t.cost.causal_flops},
          {"bytes_read", t.cost.bytes_read},
          {"bytes_written", t.cost.bytes_written},
          {"arithmetic_intensity", t.intensity()},
          {"bound", name_of(t.bound())}};
}

Json rows_json(const BottleneckReport& report, const std::vector<NamedTime>& rows) {
  Json json = Json::array();
  for (const NamedTime& row : rows) {
    Json entry{{"name", row.name}};
    entry.update(timed_json(report, row.timed));
    json.push_back(std::move(entry));
  }
  return json;
}

Json nodes_json(const BottleneckReport& report) {
  Json json = Json::array();
  for (const NodeBottleneck& node : report.nodes) {
    Json entry{{"node", node.node}, {"name", node.name}, {"working_set_fits", node.level}};
    entry.update(timed_json(report, node.timed));
    json.push_back(std::move(entry));
  }
  return json;
}

Json findings_json(const BottleneckReport& report) {
  constexpr std::string_view kinds[] = {"rewrite", "kernel", "dispatch", "feeding", "option"};
  Json json = Json::array();
  for (const Finding& f : report.findings)
    json.push_back({{"kind", kinds[static_cast<std::size_t>(f.kind)]},
                    {"name", f.name},
                    {"text", f.text},
                    {"share", f.share},
                    {"seconds", f.seconds},
                    {"ratio", f.ratio},
                    {"estimated_seconds_saved", f.seconds_saved},
                    {"estimated_share_saved", report.share(f.seconds_saved)},
                    {"floor_seconds_saved", f.floor_saved},
                    {"bytes_saved", f.bytes_saved},
                    {"kernels_saved", f.kernels_saved},
                    {"activation_bytes_saved", f.activation_bytes}});
  return json;
}

Json memory_json(const MemoryUse& m) {
  Json saved = Json::object(), growth = Json::array();
  for (const auto& [pass, bytes] : m.saved_by_pass) saved[pass] = bytes;
  for (const GrowthLaw& law : m.growth)
    growth.push_back({{"of", law.of},
                      {"at", law.at},
                      {"fixed_bytes", law.fixed},
                      {"bytes_per_unit", law.linear},
                      {"bytes_per_unit_squared", law.quadratic}});
  return {{"peak_bytes", m.peak_bytes},
          {"peak_phase", name_of(m.peak_phase)},
          {"peak_owner", m.peak_owner},
          {"parameter_bytes", m.parameters},
          {"gradient_bytes", m.gradients},
          {"optimizer_state_bytes", m.optimizer_state},
          {"activation_bytes", m.activations},
          {"saved_by_checkpointing", m.saved_by_checkpointing},
          {"saved_by_bf16", m.saved_by_bf16},
          {"saved_by_pass", saved},
          {"growth", growth}};
}

}  // namespace

std::string primary_bottleneck(const BottleneckReport& report) {
  std::vector<std::pair<double, std::string>> shares{
      {bound_share(report, Bound::memory), "memory bandwidth"},
      {bound_share(report, Bound::compute), "compute"},
      {bound_share(report, Bound::overhead) + report.share(report.between_nodes),
       "launch overhead"},
      {report.share(report.outside_phases), "data loading"}};
  std::ranges::stable_sort(shares, std::greater{});
  std::vector<std::string> words;
  for (const auto& [share, name] : shares)
    words.push_back(fmt::format("{} {}", name, format_percent(share)));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string findings_text(const BottleneckReport& report, std::size_t top) {
  std::string text;
  for (std::size_t i = 0; i < std::min(top, report.findings.size()); ++i)
    text += fmt::format("{:>3}. {}\n", i + 1, report.findings[i].text);
  return text.empty() ? "  none\n" : text;
}

std::string bottleneck_text(const BottleneckReport& report, std::size_t top) {
  std::string text = fmt::format("Bottlenecks: {} a step over {} steps, floor {}, {}\n",
                                 format_duration(report.step_seconds), report.steps,
                                 format_duration(report.all.floor), utilization(report));
  for (const std::string& note : report.notes) text += fmt::format("Note: {}\n", note);
  text += "\n" + time_table(report, "Part", report.parts);
  text += fmt::format("Between operators {}, outside the phases {}\n",
                      format_percent(report.share(report.between_nodes)),
                      format_percent(report.share(report.outside_phases)));
  text += "\n" + time_table(report, "Operator", first(report.operators, top));
  text += "\n" + time_table(report, "Node", worst_nodes(report, top));
  text += "\nFindings, by estimated worth:\n" + findings_text(report, report.findings.size());
  text += "\nQuestions:\n";
  for (const auto& [question, answer] : answers(report))
    text += fmt::format("  {}\n    {}\n", question, answer);
  return text;
}

std::string bottleneck_json(const BottleneckReport& report) {
  Json questions = Json::array();
  for (const auto& [question, answer] : answers(report))
    questions.push_back({{"question", question}, {"answer", answer}});
  const Json json{
      {"steps", report.steps},
      {"step_seconds", report.step_seconds},
      {"between_operators_seconds", report.between_nodes},
      {"outside_phases_seconds", report.outside_phases},
      {"flops_per_second", report.flops_per_second()},
      {"mfu", report.mfu()},
      {"data_sheet_mfu",
       report.data_sheet_seconds > 0 ? Json(report.share(report.data_sheet_seconds)) : Json()},
      {"vendor_mfu", report.vendor_mfu() > 0 ? Json(report.vendor_mfu()) : Json()},
      {"roof", Json::parse(roof_json(report.roof))},
      {"notes", report.notes},
      {"all", timed_json(report, report.all)},
      {"parts", rows_json(report, report.parts)},
      {"operators", rows_json(report, report.operators)},
      {"findings", findings_json(report)},
      {"questions", questions},
      {"memory", memory_json(report.memory)},
      {"nodes", nodes_json(report)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
