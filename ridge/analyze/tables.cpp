#include "ridge/analyze/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "ridge/analyze/table_answers.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr double giga = 1e9;

double median_ms(const TimedVariant& result) { return 1e3 * result.median_seconds(); }
double megabytes(const TimedVariant& result) { return real(result.peak_tensor_bytes) / mega; }

// Why rows have no figures, below the table.
std::string faults(std::span<const TimedVariant> results) {
  std::string text;
  for (const TimedVariant& result : results)
    if (!result.fault.empty()) text += fmt::format("{}: {}\n", result.variant.name, result.fault);
  return text;
}

std::string_view kind_of_fault(const TimedVariant& result) {
  if (result.fault.empty()) return "not run";
  return result.variant.refusal.empty() ? "out of memory" : "refused";
}

bool is_compiled(const TimedVariant& result) {
  return !schedule_row(result.variant.options.version).passes.empty();
}

// A column of figures, of results that were measured.
struct Figure {
  std::string header;
  std::function<std::string(const TimedVariant&)> cell;
};

// The figures that tables choose from.
Figure batch_ms() {
  return {"ms/batch", [](const TimedVariant& r) { return fmt::format("{:.3f}", median_ms(r)); }};
}
Figure rate() {
  return {"Samples/s",
          [](const TimedVariant& r) { return fmt::format("{:.1f}", r.samples_per_second()); }};
}
Figure memory() {
  return {"Memory MB", [](const TimedVariant& r) { return fmt::format("{:.1f}", megabytes(r)); }};
}
Figure flop_rate() {
  return {"GFLOP/s",
          [](const TimedVariant& r) { return fmt::format("{:.1f}", r.flops_per_second() / giga); }};
}
Figure kernels() {
  return {"Kernels", [](const TimedVariant& r) { return format_count(r.kernels); }};
}
Figure moved() {
  return {"MB moved",
          [](const TimedVariant& r) { return fmt::format("{:.1f}", real(r.work.bytes()) / mega); }};
}
Figure speedup(std::span<const TimedVariant> results) {
  return {"Speedup", [results](const TimedVariant& r) {
            const TimedVariant& first = baseline_of(results, r);
            return &first == &r ? "1.00x" : speedup_text(speedup_over(first, r));
          }};
}

// Those that there is something to say in only if it was measured, or asked for.
void add_optional(std::vector<Figure>& figures, std::span<const TimedVariant> results,
                  const TableTerms& terms) {
  if (std::ranges::any_of(results, [](const TimedVariant& r) { return r.peak_flops > 0; }))
    figures.push_back({"% of peak", [](const TimedVariant& r) {
                         return r.peak_flops > 0 ? fmt::format("{:.1f}", 100 * r.efficiency())
                                                 : std::string("-");
                       }});
  if (terms.price_per_hour)
    figures.push_back({"Price of 1000", [price = *terms.price_per_hour](const TimedVariant& r) {
                         return price_text(price_of_thousand(r.samples_per_second(), price));
                       }});
}

// One row a result: what it is called by its `names`, then its figures, or the kind of its fault.
std::string table_of(std::span<const TimedVariant> results, std::vector<TextColumn> columns,
                     const std::function<TextRow(const TimedVariant&)>& names,
                     const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) columns.push_back({figure.header});
  std::vector<TextRow> rows;
  for (const TimedVariant& result : results) {
    TextRow& row = rows.emplace_back(names(result));
    if (!result.measured()) {
      row.emplace_back(kind_of_fault(result));
      continue;
    }
    for (const Figure& figure : figures) row.push_back(figure.cell(result));
  }
  return text_table(columns, rows);
}

TextRow own_name(const TimedVariant& result) { return {result.variant.name}; }

std::string legend(std::span<const TimedVariant> results) {
  std::size_t rounds = 0;
  for (const TimedVariant& result : results) rounds = std::max(rounds, result.rounds.size());
  std::string text = fmt::format(
      "Medians over {} rounds in which all take turns; memory is that of tensors.\n", rounds);
  text += rounds >= 6 ? "Speedups are those within each round, with their 95 % interval.\n"
                      : "Fewer than 6 rounds give no interval: ask for more --iterations.\n";
  return text;
}

}  // namespace

std::string speedup_text(const Ratio& ratio) {
  if (ratio.value <= 0) return "-";
  if (!ratio.interval) return fmt::format("{:.2f}x", ratio.value);
  return fmt::format("{:.2f}x [{:.2f}, {:.2f}]", ratio.value, ratio.interval->low,
                     ratio.interval->high);
}

double price_of_thousand(double samples_per_second, double price_per_hour) {
  constexpr double seconds_per_hour = 3600, thousand = 1000;
  return samples_per_second > 0
             ? thousand * price_per_hour / (seconds_per_hour * samples_per_second)
             : 0;
}

std::string price_text(double price) { return fmt::format("{:.4g}", price); }

const TimedVariant& baseline_of(std::span<const TimedVariant> results, const TimedVariant& result) {
  const RunOptions& o = result.variant.options;
  return *std::ranges::find_if(results, [&](const TimedVariant& other) {
    return other.variant.options.network == o.network &&
           other.variant.options.batch_size == o.batch_size;
  });
}

Difference difference_of(const TimedVariant& first, const TimedVariant& result) {
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

std::string modes_table(std::span<const TimedVariant> results, const TableTerms& terms) {
  std::vector<Figure> figures{{"Compilation",
                               [](const TimedVariant& r) {
                                 return is_compiled(r) ? format_duration(r.compile_seconds)
                                                       : std::string("-");
                               }},
                              batch_ms(),
                              rate(),
                              memory(),
                              speedup(results),
                              kernels(),
                              moved(),
                              {"Pays after", [&](const TimedVariant& r) {
                                 const auto steps = steps_to_pay(results.front(), r);
                                 return steps ? batches_text(*steps) : std::string("-");
                               }}};
  if (std::ranges::any_of(results,
                          [](const TimedVariant& r) { return r.second_compile.has_value(); }))
    figures.push_back({"Second start", [](const TimedVariant& r) {
                         return r.second_compile ? format_duration(*r.second_compile)
                                                 : std::string("-");
                       }});
  add_optional(figures, results, terms);
  return table_of(results, {{"Mode", true}}, own_name, figures) + legend(results) +
         mode_answers(results) + faults(results);
}

namespace {

// The table of precisions stands on its side: a row a metric, and for each result but the first
// what has become of it.
class PrecisionRows {
 public:
  explicit PrecisionRows(std::span<const TimedVariant> results) : results_(results) {
    columns_.push_back({"Metric", true});
    for (std::size_t i = 0; i < results.size(); ++i) {
      columns_.push_back({upper_case(results[i].variant.name)});
      if (i > 0) columns_.push_back({"Improvement"});
    }
  }

  using Cell = std::function<std::string(const TimedVariant&, std::size_t)>;
  void add(std::string metric, const Cell& figure, const Cell& improvement = {}) {
    TextRow row{std::move(metric)};
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const bool there = results_[i].measured();
      row.push_back(there ? figure(results_[i], i) : std::string(kind_of_fault(results_[i])));
      if (i > 0)
        row.push_back(there && improvement && results_.front().measured()
                          ? improvement(results_[i], i)
                          : std::string("-"));
    }
    rows_.push_back(std::move(row));
  }
  // Bytes, or what takes the place of them.
  void add_bytes(const std::string& metric,
                 const std::function<std::size_t(const TimedVariant&)>& bytes) {
    if (std::ranges::none_of(results_, [&](const TimedVariant& r) { return bytes(r) > 0; })) return;
    add(
        metric,
        [&](const TimedVariant& r, std::size_t) {
          return fmt::format("{:.1f}", real(bytes(r)) / mega);
        },
        [&](const TimedVariant& r, std::size_t) {
          const double before = real(bytes(results_.front())), after = real(bytes(r));
          if (before <= 0 || before == after) return std::string(before == after ? "same" : "-");
          return fmt::format("{:.0f} % {}", 100 * std::abs(1 - after / before),
                             after < before ? "less" : "more");
        });
  }
  // Seconds of a recorded pass.
  void add_recorded(const std::string& metric,
                    const std::function<double(const ProfileAnswers&)>& seconds) {
    const auto of = [&](const TimedVariant& r) { return r.pass ? seconds(*r.pass) : 0; };
    if (std::ranges::none_of(results_, [&](const TimedVariant& r) { return of(r) > 0; })) return;
    add(
        metric,
        [&](const TimedVariant& r, std::size_t) { return fmt::format("{:.3f}", 1e3 * of(r)); },
        [&](const TimedVariant& r, std::size_t) {
          return of(r) > 0 ? fmt::format("{:.2f}x", of(results_.front()) / of(r))
                           : std::string("-");
        });
  }
  std::string text() const { return text_table(columns_, rows_); }

 private:
  std::span<const TimedVariant> results_;
  std::vector<TextColumn> columns_;
  std::vector<TextRow> rows_;
};

void add_times(PrecisionRows& rows, std::span<const TimedVariant> results) {
  const TimedVariant& first = results.front();
  rows.add(
      "Throughput (samples/s)",
      [](const TimedVariant& r, std::size_t) {
        return fmt::format("{:.1f}", r.samples_per_second());
      },
      [&](const TimedVariant& r, std::size_t) { return speedup_text(speedup_over(first, r)); });
  rows.add("Time per batch (ms)",
           [](const TimedVariant& r, std::size_t) { return fmt::format("{:.3f}", median_ms(r)); });
  rows.add_recorded("  in convolutions",
                    [](const ProfileAnswers& pass) { return pass.convolution_seconds; });
  rows.add_recorded("  in the slowest kernel", [](const ProfileAnswers& pass) {
    return pass.slowest.empty() ? 0 : pass.slowest.front().seconds;
  });
  rows.add("Kernels", [](const TimedVariant& r, std::size_t) { return format_count(r.kernels); });
  rows.add("GFLOP/s", [](const TimedVariant& r, std::size_t) {
    return fmt::format("{:.1f}", r.flops_per_second() / giga);
  });
  if (std::ranges::any_of(results, [](const TimedVariant& r) { return r.peak_flops > 0; }))
    rows.add("  % of the measured peak of the precision", [](const TimedVariant& r, std::size_t) {
      return fmt::format("{:.1f}", 100 * r.efficiency());
    });
}

void add_memory(PrecisionRows& rows) {
  rows.add_bytes("Memory (MB)", [](const TimedVariant& r) { return r.peak_tensor_bytes; });
  constexpr TensorBytes every{1, 1, 1, 1, 1, 1, 1};  // for the names of all
  for (const auto& [name, one] : every.parts())
    rows.add_bytes(fmt::format("  {}", name),
                   [name](const TimedVariant& r) { return bytes_named(r.at_peak, name); });
}

void add_results(PrecisionRows& rows, std::span<const Difference> differences) {
  rows.add(
      "Loss", [](const TimedVariant& r, std::size_t) { return fmt::format("{:.4f}", r.loss); },
      [&](const TimedVariant&, std::size_t i) {
        return fmt::format("differs by {:.4f}", differences[i].loss);
      });
  rows.add("Largest difference of logits over their rms", [&](const TimedVariant&, std::size_t i) {
    return i == 0 ? std::string("-") : fmt::format("{:.1e}", differences[i].logits);
  });
  rows.add("Same class chosen", [&](const TimedVariant&, std::size_t i) {
    return i == 0 ? std::string("-")
                  : fmt::format("{} of {}", differences[i].same, differences[i].all);
  });
}

}  // namespace

std::string precisions_table(std::span<const TimedVariant> results,
                             std::span<const Difference> differences, const TableTerms& terms) {
  PrecisionRows rows(results);
  add_times(rows, results);
  add_memory(rows);
  if (terms.price_per_hour)
    rows.add("Price of 1,000 samples", [&](const TimedVariant& r, std::size_t) {
      return price_text(price_of_thousand(r.samples_per_second(), *terms.price_per_hour));
    });
  add_results(rows, differences);
  return rows.text() + legend(results) + precision_answers(results) + faults(results);
}

std::string batch_sizes_table(std::span<const TimedVariant> results, const TableTerms& terms) {
  std::vector<Figure> figures{
      batch_ms(),
      {"us/sample",
       [](const TimedVariant& r) {
         return fmt::format("{:.1f}", 1e3 * median_ms(r) / real(r.samples));
       }},
      rate(),
      memory(),
      {"Samples/s per GB",
       [](const TimedVariant& r) { return fmt::format("{:.1f}", r.samples_per_second_per_gb()); }},
      {"GFLOP",
       [](const TimedVariant& r) { return fmt::format("{:.2f}", real(r.work.flops) / giga); }},
      flop_rate()};
  add_optional(figures, results, terms);
  return table_of(results, {{"Batch size"}}, own_name, figures) +
         "Times are medians; memory is that of tensors, a GB of it 10^9 bytes.\n" +
         batch_size_answers(results, terms) + faults(results);
}

namespace {

// An option in which results may differ, as a column.
struct Varied {
  std::string header;
  std::string (*text)(const RunOptions&);
};

std::vector<Varied> varied_in(std::span<const TimedVariant> results) {
  const std::vector<Varied> all{
      {"Network", [](const RunOptions& o) { return o.network; }},
      {"Batch size", [](const RunOptions& o) { return std::to_string(o.batch_size); }},
      {"Precision", [](const RunOptions& o) { return o.dtype; }},
      {"Mode", [](const RunOptions& o) { return o.version; }}};
  std::vector<Varied> varied;
  for (const Varied& one : all)
    if (std::ranges::any_of(results, [&](const TimedVariant& r) {
          return one.text(r.variant.options) != one.text(results.front().variant.options);
        }))
      varied.push_back(one);
  if (varied.empty()) varied.push_back(all.front());
  return varied;
}

}  // namespace

std::string combinations_table(std::span<const TimedVariant> results, const TableTerms& terms) {
  const std::vector<Varied> varied = varied_in(results);
  std::vector<TextColumn> columns;
  for (const Varied& one : varied)
    columns.push_back({.header = one.header, .left = one.header != "Batch size"});
  std::vector<Figure> figures{batch_ms(), rate(), memory()};
  const auto has_convolutions = [](const TimedVariant& r) {
    return r.pass && r.pass->convolution_seconds > 0;
  };
  if (std::ranges::any_of(results, has_convolutions))
    figures.push_back({"Conv. ms", [](const TimedVariant& r) {
                         return r.pass ? fmt::format("{:.3f}", 1e3 * r.pass->convolution_seconds)
                                       : std::string("-");
                       }});
  for (Figure figure : {kernels(), moved(), flop_rate()}) figures.push_back(std::move(figure));
  add_optional(figures, results, terms);
  if (std::ranges::any_of(results,
                          [&](const TimedVariant& r) { return &baseline_of(results, r) != &r; }))
    figures.push_back(speedup(results));
  const auto names = [&](const TimedVariant& result) {
    TextRow row;
    for (const Varied& one : varied) row.push_back(one.text(result.variant.options));
    return row;
  };
  return table_of(results, columns, names, figures) + legend(results) +
         combination_answers(results, terms) + faults(results);
}

namespace {

Json memory_json(const TensorBytes& use) {
  Json json = Json::object();
  for (const auto& [name, bytes] : use.parts()) json[std::string(name)] = bytes;
  return json;
}

// What was measured of a result, added to its row.
void add_measured(Json& row, std::span<const TimedVariant> results, const TimedVariant& result,
                  const TableTerms& terms) {
  const Ratio speedup = speedup_over(baseline_of(results, result), result);
  for (const auto& round : result.rounds) {
    Json& seconds = row["seconds"].emplace_back(Json::array());
    for (const StepReport& step : round) seconds.push_back(result.seconds_of(step));
  }
  row["median_seconds"] = result.median_seconds();
  row["samples_per_second"] = result.samples_per_second();
  row["samples_per_second_per_gb"] = result.samples_per_second_per_gb();
  row["peak_memory_mb"] = megabytes(result);
  row["memory_at_peak_bytes"] = memory_json(result.at_peak);
  row["flops"] = result.work.flops;
  row["bytes_moved"] = result.work.bytes();
  row["kernels"] = result.kernels;
  row["flops_per_second"] = result.flops_per_second();
  row["efficiency"] = result.peak_flops > 0 ? Json(result.efficiency()) : Json();
  row["compile_seconds"] = result.compile_seconds;
  row["second_compile_seconds"] = result.second_compile ? Json(*result.second_compile) : Json();
  if (result.pass) {
    row["convolution_seconds"] = result.pass->convolution_seconds;
    if (!result.pass->slowest.empty())
      row["slowest_kernel"] = {{"name", printable(result.pass->slowest.front().name)},
                               {"seconds", result.pass->slowest.front().seconds}};
  }
  if (terms.price_per_hour)
    row["price_of_1000"] = price_of_thousand(result.samples_per_second(), *terms.price_per_hour);
  row["loss"] = result.loss;
  row["speedup"] = {{"ratio", speedup.value}, {"low", nullptr}, {"high", nullptr}};
  if (!speedup.interval) return;
  row["speedup"]["low"] = speedup.interval->low;
  row["speedup"]["high"] = speedup.interval->high;
}

}  // namespace

std::string variants_json(std::string_view kind, std::span<const TimedVariant> results,
                          std::span<const Difference> differences, const TableTerms& terms,
                          std::string_view answers) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const TimedVariant& result = results[i];
    constexpr std::string_view names[] = {"network", "batch-size", "dtype", "mode", "version"};
    Json row{{"name", result.variant.name}};
    row.update(json_of(result.variant.options, names));
    row["fault"] = result.fault.empty() ? Json() : Json(result.fault);
    if (result.measured()) add_measured(row, results, result, terms);
    if (result.measured() && i < differences.size())
      row["difference"] = {{"loss", differences[i].loss},
                           {"logits_over_rms", differences[i].logits},
                           {"same_class", differences[i].same},
                           {"of", differences[i].all}};
    rows.push_back(std::move(row));
  }
  Json lines = Json::array();
  for (std::size_t end = answers.find('\n'); end != std::string_view::npos;
       answers.remove_prefix(end + 1), end = answers.find('\n'))
    lines.push_back(answers.substr(0, end));
  return text_of({{"kind", kind}, {"rows", std::move(rows)}, {"answers", std::move(lines)}});
}

}  // namespace ridge
