// Comparisons as tables and as JSON.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "ridge/analyze/comparison.h"
#include "ridge/analyze/interleaved.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

double median_ms(const VariantResult& result) { return 1e3 * percentile(result.seconds(), 0.5); }
double megabytes(const VariantResult& result) {
  return static_cast<double>(result.peak_tensor_bytes) / 1e6;
}

std::string speedup_text(const Ratio& ratio) {
  if (ratio.value <= 0) return "-";
  if (!ratio.interval) return fmt::format("{:.2f}x", ratio.value);
  return fmt::format("{:.2f}x [{:.2f}, {:.2f}]", ratio.value, ratio.interval->low,
                     ratio.interval->high);
}

// Why rows have no figures, below the table.
std::string faults(std::span<const VariantResult> results) {
  std::string text;
  for (const VariantResult& result : results)
    if (!result.fault.empty()) text += fmt::format("{}: {}\n", result.variant.name, result.fault);
  return text;
}

std::string_view kind_of_fault(const VariantResult& result) {
  if (result.fault.empty()) return "not run";
  return result.variant.refusal.empty() ? "out of memory" : "refused";
}

// A row's figures where it was measured; else its fault's kind alone.
template <class Figures>
TextRow row_of(const VariantResult& result, const Figures& figures) {
  TextRow row{result.variant.name};
  if (!result.measured()) {
    row.emplace_back(kind_of_fault(result));
    return row;
  }
  for (std::string cell : figures()) row.push_back(std::move(cell));
  return row;
}

std::string legend(std::span<const VariantResult> results) {
  std::size_t rounds = 0;
  for (const VariantResult& result : results) rounds = std::max(rounds, result.rounds.size());
  std::string text = fmt::format(
      "Medians over {} rounds in which all take turns; memory is that of tensors.\n", rounds);
  text += rounds >= 6 ? "Speedups are those within each round, with their 95 % interval.\n"
                      : "Fewer than 6 rounds give no interval: ask for more --iterations.\n";
  return text;
}

}  // namespace

std::string modes_table(std::span<const VariantResult> results) {
  const TextColumn columns[] = {{"Mode", true}, {"Compilation"}, {"ms/batch"},
                                {"Samples/s"},  {"Memory MB"},   {"Speedup"}};
  std::vector<TextRow> rows;
  for (const VariantResult& result : results)
    rows.push_back(row_of(result, [&]() -> TextRow {
      const bool first = &result == &results.front();
      return {
          result.variant.options.compile == "none" ? "-" : format_duration(result.compile_seconds),
          fmt::format("{:.3f}", median_ms(result)),
          fmt::format("{:.1f}", result.samples_per_second()),
          fmt::format("{:.1f}", megabytes(result)),
          first ? "1.00x" : speedup_text(speedup_over(results.front(), result))};
    }));
  return text_table(columns, rows) + legend(results) + faults(results);
}

std::string precisions_table(std::span<const VariantResult> results,
                             std::span<const Difference> differences) {
  std::vector<TextColumn> columns{{"Metric", true}};
  for (std::size_t i = 0; i < results.size(); ++i) {
    columns.push_back({upper(results[i].variant.name)});
    if (i > 0) columns.push_back({"Improvement"});
  }
  const VariantResult& first = results.front();
  std::vector<TextRow> rows;
  const auto add = [&](std::string metric, const auto& figure, const auto& improvement) {
    TextRow row{std::move(metric)};
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool there = results[i].measured();
      row.push_back(there ? figure(results[i], i) : std::string(kind_of_fault(results[i])));
      if (i > 0)
        row.push_back(there && first.measured() ? improvement(results[i], i) : std::string("-"));
    }
    rows.push_back(std::move(row));
  };
  const auto none = [](const VariantResult&, std::size_t) { return std::string("-"); };
  add(
      "Throughput (samples/s)",
      [](const VariantResult& r, std::size_t) {
        return fmt::format("{:.1f}", r.samples_per_second());
      },
      [&](const VariantResult& r, std::size_t) { return speedup_text(speedup_over(first, r)); });
  add(
      "Time per batch (ms)",
      [](const VariantResult& r, std::size_t) { return fmt::format("{:.3f}", median_ms(r)); },
      none);
  add(
      "Memory (MB)",
      [](const VariantResult& r, std::size_t) { return fmt::format("{:.1f}", megabytes(r)); },
      [&](const VariantResult& r, std::size_t) {
        const double less = 100 * (1 - megabytes(r) / megabytes(first));
        return fmt::format("{:.0f} % {}", std::abs(less), less >= 0 ? "less" : "more");
      });
  add(
      "Loss", [](const VariantResult& r, std::size_t) { return fmt::format("{:.4f}", r.loss); },
      [&](const VariantResult&, std::size_t i) {
        return fmt::format("differs by {:.4f}", differences[i].loss);
      });
  add(
      "Largest difference of logits over their rms",
      [&](const VariantResult&, std::size_t i) {
        return i == 0 ? std::string("-") : fmt::format("{:.1e}", differences[i].logits);
      },
      none);
  add(
      "Same class chosen",
      [&](const VariantResult&, std::size_t i) {
        return i == 0 ? std::string("-")
                      : fmt::format("{} of {}", differences[i].same, differences[i].all);
      },
      none);
  return text_table(columns, rows) + legend(results) + faults(results);
}

std::string batch_sizes_table(std::span<const VariantResult> results) {
  const TextColumn columns[] = {{"Batch size"}, {"ms/batch"},  {"us/sample"},
                                {"Samples/s"},  {"Memory MB"}, {"Samples/s per GB"}};
  std::vector<TextRow> rows;
  for (const VariantResult& result : results)
    rows.push_back(row_of(result, [&]() -> TextRow {
      const double ms = median_ms(result);
      return {
          fmt::format("{:.3f}", ms),
          fmt::format("{:.1f}", 1e3 * ms / static_cast<double>(result.variant.options.batch_size)),
          fmt::format("{:.1f}", result.samples_per_second()),
          fmt::format("{:.1f}", megabytes(result)),
          fmt::format("{:.1f}", result.samples_per_second_per_gb())};
    }));
  return text_table(columns, rows) +
         "Times are medians; memory is that of tensors, a GB of it 10^9 bytes.\n" + faults(results);
}

std::string comparison_json(std::string_view kind, std::span<const VariantResult> results,
                            std::span<const Difference> differences) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const VariantResult& result = results[i];
    const BenchOptions& options = result.variant.options;
    Json row{{"name", result.variant.name},
             {"network", options.network},
             {"batch_size", options.batch_size},
             {"dtype", options.dtype},
             {"mode", options.mode},
             {"compile", options.compile},
             {"fault", result.fault.empty() ? Json() : Json(result.fault)}};
    if (result.measured()) {
      const Ratio speedup = speedup_over(results.front(), result);
      row["seconds"] = result.rounds;
      row["median_seconds"] = percentile(result.seconds(), 0.5);
      row["samples_per_second"] = result.samples_per_second();
      row["samples_per_second_per_gb"] = result.samples_per_second_per_gb();
      row["peak_memory_mb"] = megabytes(result);
      row["compile_seconds"] = result.compile_seconds;
      row["loss"] = result.loss;
      row["speedup"] = {{"ratio", speedup.value}, {"low", nullptr}, {"high", nullptr}};
      if (speedup.interval) {
        row["speedup"]["low"] = speedup.interval->low;
        row["speedup"]["high"] = speedup.interval->high;
      }
      if (i < differences.size())
        row["difference"] = {{"loss", differences[i].loss},
                             {"logits_over_rms", differences[i].logits},
                             {"same_class", differences[i].same},
                             {"of", differences[i].all}};
    }
    rows.push_back(std::move(row));
  }
  const Json json{{"kind", kind}, {"rows", std::move(rows)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
