#include "ridge/cli/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/base/lines.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

std::string ratio_text(double x) { return fmt::format("{:.2f}", x); }

std::string seconds_text(const std::optional<LeastTime>& time) {
  return time ? format_duration(time->total()) : "-";
}

std::string exact(std::size_t bytes) {
  return fmt::format("{} ({} bytes)", format_bytes(bytes),
                     format_count(static_cast<std::int64_t>(bytes)));
}

// Of each size: memory and its growth, by what holds it, and the rate that the ceilings allow.
std::string sizes_table(const PlanSearch& search, std::string_view against) {
  const bool is_held = !against.empty();
  std::vector<TextColumn> columns{{search.of},   {"Needs"},     {"Factor"}, {"Average"},
                                  {"Fixed"},     {"Attention"}, {"Other"},  {"Least time"},
                                  {"Samples/s"}, {"Gain"}};
  if (is_held)
    for (const std::string_view header : {"Needs", "Ratio", "Least time", "Ratio"})
      columns.push_back({header == "Ratio" ? "Ratio" : fmt::format("{} {}", header, against)});
  std::vector<TextRow> rows;
  for (std::size_t i = 0; i < search.sizes.size(); ++i) {
    const PlannedSize& one = search.sizes[i];
    const PlannedSize* const before = i > 0 ? &search.sizes[i - 1] : nullptr;
    TextRow row{
        format_count(one.size), format_bytes(one.plan.device_bytes),
        before ? ratio_text(real(one.plan.device_bytes) / real(before->plan.device_bytes)) : "",
        format_bytes(static_cast<std::uint64_t>(one.plan.memory.mean_bytes))};
    for (const auto& [name, bytes] : peak_by_component(one.plan))
      row.push_back(format_bytes(static_cast<std::uint64_t>(bytes)));
    row.push_back(seconds_text(one.plan.at_best));
    const double rate = one.samples_per_second();
    row.push_back(rate > 0 ? fmt::format("{:.4g}", rate) : "-");
    row.push_back(before && before->samples_per_second() > 0
                      ? fmt::format("{:+.1f} %", 100 * (rate / before->samples_per_second() - 1))
                      : "");
    if (is_held && one.against) {
      row.push_back(format_bytes(one.against->device_bytes));
      row.push_back(ratio_text(real(one.against->device_bytes) / real(one.plan.device_bytes)));
      row.push_back(seconds_text(one.against->at_best));
      row.push_back(one.plan.at_best && one.against->at_best
                        ? ratio_text(one.against->at_best->total() / one.plan.at_best->total())
                        : "-");
    }
    rows.push_back(std::move(row));
  }
  return text_table(columns, rows);
}

// Which component grows most over the last doubling that was planned.
void tell_growth(Lines& line, const PlanSearch& search) {
  if (search.sizes.size() < 3) return;
  const PlannedSize &from = search.sizes[search.sizes.size() - 3],
                    &to = search.sizes[search.sizes.size() - 2];
  const auto a = peak_by_component(from.plan), b = peak_by_component(to.plan);
  std::vector<std::pair<double, std::string>> growth;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].second > 0) growth.emplace_back(b[i].second / a[i].second, std::string(a[i].first));
  std::ranges::stable_sort(growth, std::greater{}, &std::pair<double, std::string>::first);
  std::string parts;
  for (const auto& [factor, name] : growth)
    parts += fmt::format("{}{} {:.2f} times", parts.empty() ? "" : ", ", name, factor);
  const double whole = real(to.plan.device_bytes) / real(from.plan.device_bytes);
  line("From {} to {} memory grows {:.2f} times, a power of {:.2f}: {}.", format_count(from.size),
       format_count(to.size), whole,
       std::log2(whole) / std::log2(static_cast<double>(to.size) / static_cast<double>(from.size)),
       parts);
  constexpr double alike = 1.02;  // factors no further apart
  if (growth.size() > 1 && growth[0].first > alike * growth[1].first)
    line("{} grows steepest.", growth.front().second);
}

void tell_best_batch(Lines& line, const PlanSearch& search) {
  if (search.sizes.back().samples_per_second() <= 0) {
    line("The best batch is not known without ceilings: ridge roofline measures them.");
    return;
  }
  if (const PlannedSize* const best = best_batch(search))
    line(
        "Best --batch-size: {}, which needs {}: by the ceilings, doubling it gains {:.0f} % of the "
        "samples per second or less, there and beyond.",
        format_count(best->size), format_bytes(best->plan.device_bytes), 100 * worthwhile_gain);
  else
    line(
        "Best --batch-size: the largest, {}: by the ceilings, doubling still gains more than "
        "{:.0f} % of the samples per second.",
        format_count(search.limit.size), 100 * worthwhile_gain);
  line("ridge study --vary batch-size=A,B,.. measures it.");
}

void tell_savings(Lines& line, const PlanSearch& search, std::string_view against) {
  const auto tell = [&](std::string_view what, const PlannedSize* from) {
    if (from)
      line("{} saves {:.0f} % of {} or more from a --{} of {} on.", against,
           100 * worthwhile_saving, what, search.of, format_count(from->size));
    else
      line("{} saves {:.0f} % of {} at no --{} up to {}.", against, 100 * worthwhile_saving, what,
           search.of, format_count(search.limit.size));
  };
  tell("memory", saves_memory_from(search));
  if (search.sizes.back().plan.at_best) tell("the least time", saves_time_from(search));
}

std::string model_flags(const RunOptions& o) {
  return fmt::format(
      "--hidden-dim {} --n-layers {} --n-heads {} --n-kv-heads {} "
      "--intermediate-dim {}",
      o.hidden_dim, o.n_layers, o.n_heads, o.n_kv_heads, o.intermediate_dim);
}

void tell_models(Lines& line, const PlanSearch& search) {
  const auto model = [](const RunOptions& options, const PlannedSize& one) {
    return fmt::format("{} parameters, {}", format_count(one.size), model_flags(options));
  };
  line("Largest model for {}: {}", format_bytes(search.budget),
       model(*search.model, search.sizes.front()));
  line("  It needs {}; a step takes {} at the ceilings.",
       exact(search.sizes.front().plan.device_bytes),
       seconds_text(search.sizes.front().plan.at_best));
  if (search.next_model)
    line("  The next, {}, needs {}.", model(*search.next_model, search.sizes.back()),
         exact(search.sizes.back().plan.device_bytes));
  line(
      "Models are scaled as the workshop's are from tiny to very_large: layers by the power 0.65 "
      "of "
      "the width, heads by 0.5, the rest in proportion.");
}

Json limit_json(const SizeLimit& limit) {
  return {{"size", limit.size},
          {"needed_bytes", limit.peak_bytes},
          {"next_needed_bytes", limit.next_peak_bytes ? Json(*limit.next_peak_bytes) : Json()}};
}

Json seconds_json(const std::optional<LeastTime>& time) {
  return time ? Json(time->total()) : Json();
}

Json json_of(const StepPlan& plan) {
  Json peak = Json::object();
  for (const auto& [name, bytes] : peak_by_component(plan)) peak[std::string(name)] = bytes;
  return {{"parameter_count", plan.parameter_count},
          {"needed_bytes", plan.device_bytes},
          {"peak_bytes", plan.memory.peak_bytes},
          {"mean_bytes", plan.memory.mean_bytes},
          {"bytes_at_peak", peak},
          {"flops", plan.cost.total().flops},
          {"bytes_moved", plan.cost.total().bytes()},
          {"kernel_launches", plan.launches},
          {"predicted_step_seconds", seconds_json(plan.at_best)}};
}

std::string change_text(double from, double to) {
  if (from <= 0) return "";
  const double change = 100 * (to / from - 1);
  return fmt::format("{:.1f} % {}", std::abs(change), change < 0 ? "less" : "more");
}

}  // namespace

std::string search_text(const RunOptions& options, const PlanSearch& search,
                        std::string_view against) {
  Lines line;
  if (search.of == "model") {
    tell_models(line, search);
    return line.text;
  }
  line("Largest --{} for {}: {}, which needs {}", search.of, format_bytes(search.budget),
       format_count(search.limit.size), exact(search.limit.peak_bytes));
  if (search.limit.next_peak_bytes)
    line("  {} would need {}", format_count(search.limit.size + search.limit.unit),
         exact(*search.limit.next_peak_bytes));
  else
    line("  Larger ones are refused, whatever the memory");
  if (search.of != "batch-size")
    line("  The batch there is {}{}", options.batch_size,
         search.alone ? fmt::format("; with a batch of 1 the largest is {}",
                                    format_count(search.alone->size))
                      : "");
  line("");
  line.text += sizes_table(search, against);
  line(
      "Needs: memory of the device; of its peak, Fixed is parameters, gradients and optimizer, "
      "Attention what its layers computed.");
  tell_growth(line, search);
  if (search.of == "batch-size") tell_best_batch(line, search);
  if (!against.empty()) tell_savings(line, search, against);
  return line.text;
}

Json json_of(const PlanSearch& search) {
  Json sizes = Json::array();
  for (const PlannedSize& one : search.sizes) {
    Json row{{"size", one.size}, {"samples_per_second", one.samples_per_second()}};
    row.update(json_of(one.plan));
    if (one.against) row["against"] = json_of(*one.against);
    sizes.push_back(std::move(row));
  }
  Json json{
      {"of", search.of}, {"budget_bytes", search.budget}, {"largest", limit_json(search.limit)}};
  if (search.alone) json["largest_with_batch_1"] = limit_json(*search.alone);
  if (const PlannedSize* const best = search.of == "batch-size" ? best_batch(search) : nullptr)
    json["best"] = best->size;
  if (search.model)
    json["model"] = {{"hidden_dim", search.model->hidden_dim},
                     {"n_layers", search.model->n_layers},
                     {"n_heads", search.model->n_heads},
                     {"n_kv_heads", search.model->n_kv_heads},
                     {"intermediate_dim", search.model->intermediate_dim}};
  json["sizes"] = std::move(sizes);
  return json;
}

std::string difference_text(const PlanDifference& d) {
  const TextColumn columns[] = {
      {"A step", true}, {"as planned"}, {"with " + d.changes}, {"ratio"}, {"change"}};
  std::vector<TextRow> rows;
  const auto row = [&](std::string_view name, double from, double to, const auto& text) {
    rows.push_back({std::string(name), text(from), text(to), from > 0 ? ratio_text(to / from) : "",
                    change_text(from, to)});
  };
  const auto bytes = [](double x) { return format_bytes(static_cast<std::uint64_t>(x)); };
  const auto number = [](double x) { return format_count(static_cast<std::int64_t>(x)); };
  row("Memory needed", real(d.from.device_bytes), real(d.to.device_bytes), bytes);
  row("Peak of tensors", real(d.from.memory.peak_bytes), real(d.to.memory.peak_bytes), bytes);
  row("Average of tensors", d.from.memory.mean_bytes, d.to.memory.mean_bytes, bytes);
  row("Bytes moved", static_cast<double>(d.from.cost.total().bytes()),
      static_cast<double>(d.to.cost.total().bytes()), bytes);
  row("FLOPs", static_cast<double>(d.from.cost.total().flops),
      static_cast<double>(d.to.cost.total().flops), [](double x) { return format_si(x); });
  row("Kernels", static_cast<double>(d.from.launches), static_cast<double>(d.to.launches), number);
  if (d.from.at_best && d.to.at_best)
    row("Least time", d.from.at_best->total(), d.to.at_best->total(),
        [](double x) { return format_duration(x); });
  row(fmt::format("Largest batch in {}", format_bytes(d.budget)),
      static_cast<double>(d.from_batch.size), static_cast<double>(d.to_batch.size), number);
  return text_table(columns, rows) +
         "Bytes moved are operands and results of each kernel; the least time is at the ceilings "
         "of "
         "the device.\n";
}

Json json_of(const PlanDifference& d) {
  return {{"changes", d.changes},
          {"budget_bytes", d.budget},
          {"as_planned", json_of(d.from)},
          {"changed", json_of(d.to)},
          {"largest_batch_as_planned", limit_json(d.from_batch)},
          {"largest_batch_changed", limit_json(d.to_batch)}};
}

}  // namespace ridge
