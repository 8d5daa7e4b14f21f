#include "ridge/analyze/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

double median_ms(const VariantResult& result) { return 1e3 * result.median_seconds(); }
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

bool is_compiled(const VariantResult& result) {
  return !schedule_row(result.variant.options.version).passes.empty();
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

Difference difference_of(const VariantResult& first, const VariantResult& result) {
  if (!first.measured() || !result.measured()) return {};
  Difference difference{.loss = std::abs(result.loss - first.loss)};
  // Logits are [outer, classes, inner].
  const std::vector<std::int64_t>& shape = first.logits_shape;
  const std::int64_t classes = shape[first.class_dim];
  std::int64_t inner = 1;
  for (std::size_t d = first.class_dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const std::vector<float>&a = first.logits, &b = result.logits;
  double squares = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    largest = std::max(largest, std::abs(static_cast<double>(b[i]) - static_cast<double>(a[i])));
  }
  if (squares > 0) difference.logits = largest / std::sqrt(squares / static_cast<double>(a.size()));
  const auto best = [&](const std::vector<float>& logits, std::int64_t sample, std::int64_t place) {
    std::int64_t winner = 0;
    const auto at = [&](std::int64_t c) {
      return logits[static_cast<std::size_t>((sample * classes + c) * inner + place)];
    };
    for (std::int64_t c = 1; c < classes; ++c)
      if (at(c) > at(winner)) winner = c;
    return winner;
  };
  const std::int64_t samples = static_cast<std::int64_t>(a.size()) / (classes * inner);
  for (std::int64_t sample = 0; sample < samples; ++sample)
    for (std::int64_t place = 0; place < inner; ++place, ++difference.all)
      difference.same += best(a, sample, place) == best(b, sample, place) ? 1 : 0;
  return difference;
}

std::string modes_table(std::span<const VariantResult> results) {
  const TextColumn columns[] = {{"Mode", true}, {"Compilation"}, {"ms/batch"},
                                {"Samples/s"},  {"Memory MB"},   {"Speedup"}};
  std::vector<TextRow> rows;
  for (const VariantResult& result : results)
    rows.push_back(row_of(result, [&]() -> TextRow {
      const bool first = &result == &results.front();
      return {is_compiled(result) ? format_duration(result.compile_seconds) : "-",
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
      return {fmt::format("{:.3f}", ms),
              fmt::format("{:.1f}", 1e3 * ms / static_cast<double>(result.samples)),
              fmt::format("{:.1f}", result.samples_per_second()),
              fmt::format("{:.1f}", megabytes(result)),
              fmt::format("{:.1f}", result.samples_per_second_per_gb())};
    }));
  return text_table(columns, rows) +
         "Times are medians; memory is that of tensors, a GB of it 10^9 bytes.\n" + faults(results);
}

std::string variants_json(std::string_view kind, std::span<const VariantResult> results,
                          std::span<const Difference> differences) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const VariantResult& result = results[i];
    constexpr std::string_view names[] = {"network", "batch-size", "dtype", "mode", "version"};
    Json row{{"name", result.variant.name}};
    row.update(json_of(result.variant.options, names));
    row["fault"] = result.fault.empty() ? Json() : Json(result.fault);
    if (result.measured()) {
      const Ratio speedup = speedup_over(results.front(), result);
      for (const auto& round : result.rounds) {
        Json& seconds = row["seconds"].emplace_back(Json::array());
        for (const StepReport& step : round) seconds.push_back(result.seconds_of(step));
      }
      row["median_seconds"] = result.median_seconds();
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
  return text_of({{"kind", kind}, {"rows", std::move(rows)}});
}

LargestBatch find_largest_batch(const RunOptions& options, Device& device, std::size_t budget,
                                const std::function<bool()>& stop) {
  LargestBatch found{.options = options, .planned = {}, .budget = budget};
  std::int64_t& batch = found.options.batch_size;
  try {
    found.planned = largest_batch(options, device, budget);
  } catch (const OutOfMemoryError& error) {
    batch = 0;
    found.fault = error.what();
    return found;
  }
  const auto stopped = [&] { return stop && stop(); };
  for (batch = found.planned.size; batch >= found.planned.least;
       batch -= std::max<std::int64_t>(1, batch / 16)) {
    if (stopped()) {
      found.fault = "interrupted before a batch ran";
      break;
    }
    try {
      Session session(found.options, device);
      found.seconds = session.step().device_seconds;
      if (!stopped()) found.seconds = session.step().device_seconds;
      const MemoryStats& memory = session.executor().memory();
      found.measured_peak =
          session.schedule().has(planned_memory) ? memory.reserved : memory.peak_live;
      found.fault.clear();  // of the larger ones
      return found;
    } catch (const OutOfMemoryError& error) {
      found.fault = error.what();
    }
  }
  batch = 0;
  return found;
}

double LargestBatch::samples_per_second() const {
  if (seconds <= 0) return 0;
  return static_cast<double>(options.batch_size * options.batches_per_step()) / seconds;
}

std::string largest_batches_text(std::span<const LargestBatch> found) {
  const TextColumn columns[] = {{"Precision", true}, {"Planned"},  {"Planned peak"},
                                {"One more needs"},  {"Ran with"}, {"Measured peak"},
                                {"Samples/s"}};
  const auto count = [](std::size_t bytes) {
    return format_count(static_cast<std::int64_t>(bytes)) + " B";
  };
  std::vector<TextRow> rows;
  std::string faults;
  for (const LargestBatch& one : found) {
    TextRow& row = rows.emplace_back();
    row = {one.options.dtype};
    if (!one.fault.empty()) faults += fmt::format("{}: {}\n", one.options.dtype, one.fault);
    if (one.planned.size == 0) {
      row.emplace_back("none");
      continue;
    }
    const std::int64_t batch = one.options.batch_size;
    row.push_back(format_count(one.planned.size));
    row.push_back(count(one.planned.peak_bytes));
    row.push_back(one.planned.next_peak_bytes ? count(*one.planned.next_peak_bytes) : "-");
    row.push_back(batch > 0 ? format_count(batch) : "none");
    row.push_back(batch > 0 ? count(one.measured_peak) : "-");
    row.push_back(batch > 0 ? fmt::format("{:.1f}", one.samples_per_second()) : "-");
  }
  std::string text = fmt::format("Largest batches of {} in {} of memory:\n",
                                 found.front().options.network, format_bytes(found.front().budget));
  text += text_table(columns, rows) + faults;
  for (const LargestBatch& one : found.subspan(1))
    if (one.options.batch_size > 0 && found.front().options.batch_size > 0)
      text += fmt::format("{} takes {:.2f} times the batch of {}\n", one.options.dtype,
                          static_cast<double>(one.options.batch_size) /
                              static_cast<double>(found.front().options.batch_size),
                          found.front().options.dtype);
  return text;
}

std::string largest_batches_json(std::span<const LargestBatch> found) {
  constexpr std::string_view names[] = {"network", "dtype", "version"};
  Json rows = Json::array();
  for (const LargestBatch& one : found) {
    Json row = json_of(one.options, names);
    row.update({{"budget_bytes", one.budget},
                {"planned_batch_size", one.planned.size},
                {"planned_peak_bytes", one.planned.peak_bytes},
                {"next_peak_bytes",
                 one.planned.next_peak_bytes ? Json(*one.planned.next_peak_bytes) : Json()},
                {"batch_size", one.options.batch_size},
                {"measured_peak_bytes", one.measured_peak},
                {"seconds", one.seconds},
                {"samples_per_second", one.samples_per_second()},
                {"fault", one.fault.empty() ? Json() : Json(one.fault)}});
    rows.push_back(std::move(row));
  }
  return text_of({{"kind", "largest_batches"}, {"rows", std::move(rows)}});
}

}  // namespace ridge
