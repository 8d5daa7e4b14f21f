#include "ridge/analyze/largest_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/bench/calibration.h"
#include "ridge/bench/schedule.h"
#include "ridge/bench/session.h"
#include "ridge/passes/freeze.h"
#include "ridge/plan/arena.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/plan/memory.h"
#include "ridge/run/arena_needs.h"
#include "ridge/run/autotuner.h"

namespace ridge {

std::optional<std::size_t> bytes_needed(const BenchOptions& options, Device& device) {
  try {
    options.check();
    Graph graph;
    std::unique_ptr<VisionTraining> training;
    if (options.trains()) training = std::make_unique<VisionTraining>(options);
    const VisionModel model =
        build_vision(graph, options.network, network_options(options, training.get(), device));
    rewrite_for_benchmark(graph, model, training.get(), options, device);
    if (options.dtype == int8_dtype) int8_layers(graph, int8_rules(device), {});
    // What is computed once is gone again before the passes begin.
    if (mode_of(options).frozen && !training) freeze(graph, FrozenInputs::conversions);
    Execution execution = execution_of(options);
    Autotuner tuner = remembered_choices(device);
    if (mode_of(options).tuned) execution.kernels.tuner = &tuner;
    const KernelNeeds needs = kernel_needs(graph, device, execution.kernels);
    const Lifetimes lifetimes = lifetimes_of(graph);
    if (execution.planned)
      return plan_arena(graph, lifetimes, needs.workspace,
                        arena_needs(device, execution.concurrent))
                 .bytes +
             needs.packed_bytes;
    return peak_live_bytes(graph, lifetimes, needs.workspace) + needs.packed_bytes;
  } catch (const UsageError&) {
    return std::nullopt;
  } catch (const ShapeError&) {
    return std::nullopt;
  }
}

std::size_t usable_memory(Device& device) {
  const std::size_t available = device.available_memory();
  return available - available / (device.asynchronous() ? 32 : 4);
}

LargestBatch find_largest_batch(const BenchOptions& options, Device& device, std::size_t budget,
                                const std::function<bool()>& stop) {
  LargestBatch found{.options = options, .planned = {}, .budget = budget};
  const auto needed = [&](std::int64_t batch) {
    BenchOptions with = options;
    with.batch_size = batch;
    return bytes_needed(with, device);
  };
  std::int64_t& batch = found.options.batch_size;
  try {
    found.planned = largest_batch(needed, budget, "use smaller images or a smaller network");
  } catch (const OutOfMemoryError& error) {
    batch = 0;
    found.fault = error.what();
    return found;
  }
  const auto stopped = [&] { return stop && stop(); };
  for (batch = found.planned.batch_size; batch >= found.planned.least_batch_size;
       batch -= std::max<std::int64_t>(1, batch / 16)) {
    if (stopped()) {
      found.fault = "interrupted before a batch ran";
      break;
    }
    try {
      BenchSession session(found.options, device);
      found.seconds = session.iterate().seconds;
      if (!stopped()) found.seconds = session.iterate().seconds;
      const MemoryStats& memory = session.executor().memory();
      found.measured_peak =
          compile_mode(options.compile).planned ? memory.reserved : memory.peak_live;
      found.fault.clear();  // of the larger ones
      return found;
    } catch (const OutOfMemoryError& error) {
      found.fault = error.what();
    }
  }
  batch = 0;
  return found;
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
    if (one.planned.batch_size == 0) {
      row.emplace_back("none");
      continue;
    }
    const std::int64_t batch = one.options.batch_size;
    row.push_back(format_count(one.planned.batch_size));
    row.push_back(count(one.planned.peak_bytes));
    row.push_back(one.planned.next_peak_bytes ? count(*one.planned.next_peak_bytes) : "-");
    row.push_back(batch > 0 ? format_count(batch) : "none");
    row.push_back(batch > 0 ? count(one.measured_peak) : "-");
    row.push_back(batch > 0 ? fmt::format("{:.1f}", static_cast<double>(batch) / one.seconds)
                            : "-");
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
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const LargestBatch& one : found)
    rows.push_back({{"network", one.options.network},
                    {"dtype", one.options.dtype},
                    {"compile", one.options.compile},
                    {"budget_bytes", one.budget},
                    {"planned_batch_size", one.planned.batch_size},
                    {"planned_peak_bytes", one.planned.peak_bytes},
                    {"next_peak_bytes",
                     one.planned.next_peak_bytes ? Json(*one.planned.next_peak_bytes) : Json()},
                    {"batch_size", one.options.batch_size},
                    {"measured_peak_bytes", one.measured_peak},
                    {"seconds", one.seconds},
                    {"fault", one.fault.empty() ? Json() : Json(one.fault)}});
  const Json json{{"kind", "largest_batches"}, {"rows", std::move(rows)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
