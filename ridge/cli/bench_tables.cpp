#include "ridge/cli/bench_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/analyze/tables.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cli/bench_text.h"
#include "ridge/cli/interrupt.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

constexpr std::int64_t most_rounds = 10;

bool interrupted() { return interrupt_noted() != 0; }
int exit_code() { return interrupted() ? 128 + interrupt_noted() : 0; }

void write_json(Terminal& terminal, const BenchRequest& request, const std::string& json) {
  if (request.json_file.empty()) return;
  write_text_file(request.json_file, json);
  terminal.line(fmt::format("Wrote {}", request.json_file));
}

std::vector<VariantResult> measure(const BenchRequest& request,
                                   const std::vector<Variant>& variants, Device& device,
                                   Terminal& terminal, bool keep_logits = false) {
  note_interrupts();
  terminal.busy(fmt::format("Preparing {} variants...", variants.size()));
  const RunOptions& o = request.options;
  const Rounds rounds = rounds_of(std::min(most_rounds, o.num_steps), o.num_steps, o.warmup_steps);
  std::vector<VariantResult> results = time_interleaved(variants, device, rounds,
                                                        {.keep_logits = keep_logits,
                                                         .trying = tuning_on(terminal),
                                                         .progress = progress_on(terminal),
                                                         .stop = interrupted});
  if (interrupted()) terminal.line("Interrupted");
  for (const std::string& warning : device.tools().warnings()) terminal.line(warning);
  return results;
}

int compare_modes(const BenchRequest& request, Device& device, Terminal& terminal) {
  std::vector<Variant> variants;
  for (const ScheduleRow& row : schedules()) {
    if (row.kind != ScheduleRow::Kind::compile_mode) continue;
    variants.push_back({std::string(row.name), request.options});
    variants.back().options.version = row.name;
  }
  variants.front().name = "no compile";
  print_configuration(terminal, request, device, "compile mode");
  const std::vector<VariantResult> results = measure(request, variants, device, terminal);
  terminal.lines(modes_table(results));
  write_json(terminal, request, variants_json("compile_modes", results));
  return exit_code();
}

int compare_precisions(const BenchRequest& request, Device& device, Terminal& terminal) {
  std::vector<Variant> variants;
  for (const std::string& precision : request.precisions) {
    variants.push_back({precision, request.options});
    variants.back().options.dtype = precision;
    variants.back().options.resolve();
  }
  print_configuration(terminal, request, device, "precision");
  const std::vector<VariantResult> results = measure(request, variants, device, terminal, true);
  std::vector<Difference> differences;
  for (const VariantResult& result : results)
    differences.push_back(difference_of(results.front(), result));
  terminal.lines(precisions_table(results, differences));
  write_json(terminal, request, variants_json("precisions", results, differences));
  return exit_code();
}

int compare_batch_sizes(const BenchRequest& request, Device& device, Terminal& terminal) {
  std::vector<Variant> variants;
  for (const std::int64_t size : request.batch_sizes) {
    variants.push_back({fmt::to_string(size), request.options});
    variants.back().options.batch_size = size;
    try {
      variants.back().options.resolve();
    } catch (const UsageError& error) {
      variants.back().refusal = error.what();
    }
  }
  print_configuration(terminal, request, device, "batch size");
  const std::vector<VariantResult> results = measure(request, variants, device, terminal);
  terminal.lines(batch_sizes_table(results));
  write_json(terminal, request, variants_json("batch_sizes", results));
  return exit_code();
}

int find_max_batch(const BenchRequest& request, Device& device, Terminal& terminal) {
  note_interrupts();
  const std::size_t budget = request.max_batch_for.empty() ? usable_memory(device, request.options)
                                                           : parse_bytes(request.max_batch_for);
  print_configuration(terminal, request, device, "batch size");
  std::vector<std::string> precisions = request.precisions;
  if (precisions.empty()) precisions.push_back(request.options.dtype);
  std::vector<LargestBatch> found;
  for (const std::string& precision : precisions) {
    if (!found.empty() && interrupted()) break;
    RunOptions options = request.options;
    options.dtype = precision;
    terminal.busy(fmt::format("Looking for the largest batch in {}...", precision));
    found.push_back(find_largest_batch(options, device, budget, interrupted));
  }
  if (interrupted()) terminal.line("Interrupted");
  terminal.lines(largest_batches_text(found));
  write_json(terminal, request, largest_batches_json(found));
  if (interrupted()) return exit_code();
  const auto ran = [](const LargestBatch& one) { return one.options.batch_size > 0; };
  return std::ranges::all_of(found, ran) ? 0 : 1;
}

}  // namespace

std::optional<int> bench_table(const BenchRequest& request, Device& device, Terminal& terminal) {
  for (const std::string& precision : request.precisions) {  // all, before the first is measured
    RunOptions options = request.options;
    options.dtype = precision;
    check_device(options, device);
  }
  if (request.compare_modes) return compare_modes(request, device, terminal);
  if (request.find_max_batch) return find_max_batch(request, device, terminal);
  if (!request.precisions.empty()) return compare_precisions(request, device, terminal);
  if (!request.batch_sizes.empty()) return compare_batch_sizes(request, device, terminal);
  return std::nullopt;
}

}  // namespace ridge
