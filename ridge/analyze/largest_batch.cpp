#include "ridge/analyze/largest_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/session/json.h"

namespace ridge {

using Json = nlohmann::ordered_json;

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
  return static_cast<double>(options.samples_per_step()) / seconds;
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
