#include "ridge/cli/bench_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/analyze/comparison.h"
#include "ridge/analyze/largest_batch.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/bench/schedule.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/turn_taking.h"

namespace ridge {
namespace {

void print_start(Terminal& terminal, const BenchOptions& o, const Device& device,
                 std::string_view varied) {
  terminal.line(fmt::format("Using network: {}", o.network));
  if (varied != "batch size") terminal.line(fmt::format("Batch size: {}", o.batch_size));
  terminal.line(fmt::format("Iterations: {}", o.iterations));
  if (varied != "precision") terminal.line(fmt::format("Precision: {}", o.dtype));
  terminal.line(fmt::format("Mode: {}", o.mode));
  if (varied != "compile mode") terminal.line(fmt::format("Compile: {}", o.compile));
  terminal.line(fmt::format("Device: {}", device.description()));
  terminal.line("");
}

int exit_code() { return interrupt_noted() == 0 ? 0 : 128 + interrupt_noted(); }

void write_json(Terminal& terminal, const BenchRequest& request, const std::string& json) {
  if (request.json_file.empty()) return;
  write_text_file(request.json_file, json);
  terminal.line(fmt::format("Wrote {}", request.json_file));
}

std::vector<VariantResult> measure(const std::vector<BenchVariant>& variants, Device& device,
                                   Terminal& terminal, bool keep_logits = false) {
  note_interrupts();
  terminal.busy(fmt::format("Preparing {} variants...", variants.size()));
  ComparisonHooks hooks{.keep_logits = keep_logits,
                        .session = tuning_on(terminal),
                        .progress = progress_on(terminal).progress,
                        .stop = [] { return interrupt_noted() != 0; }};
  std::vector<VariantResult> results = time_variants(variants, device, hooks);
  if (interrupt_noted() != 0) terminal.line("Interrupted");
  for (const std::string& warning : device.warnings()) terminal.line(warning);
  return results;
}

int compare_modes(const BenchRequest& request, Device& device, Terminal& terminal) {
  std::vector<BenchVariant> variants;
  for (const CompileMode& mode : compile_modes()) {
    variants.push_back({std::string(mode.name), request.bench});
    variants.back().options.compile = mode.name;
  }
  variants.front().name = "no compile";
  print_start(terminal, request.bench, device, "compile mode");
  const std::vector<VariantResult> results = measure(variants, device, terminal);
  terminal.lines(modes_table(results));
  write_json(terminal, request, comparison_json("compile_modes", results));
  return exit_code();
}

// The extents of the logits behind the batch: classes, and all the rest together.
std::pair<std::int64_t, std::int64_t> logits_extents(const BenchOptions& options) {
  Graph graph;
  const VisionModel model =
      build_vision(graph, options.network, {.image_size = options.image_size});
  const std::int64_t classes = model.logits.shape()[1];
  return {classes, model.logits.type().numel() / classes};
}

int compare_precisions(const BenchRequest& request, Device& device, Terminal& terminal) {
  std::vector<BenchVariant> variants;
  for (const std::string& precision : request.precisions) {
    variants.push_back({precision, request.bench});
    variants.back().options.dtype = precision;
  }
  print_start(terminal, request.bench, device, "precision");
  const std::vector<VariantResult> results = measure(variants, device, terminal, true);
  const auto [classes, inner] = logits_extents(request.bench);
  std::vector<Difference> differences;
  for (const VariantResult& result : results)
    differences.push_back(result.measured() && results.front().measured()
                              ? difference_of(results.front(), result, classes, inner)
                              : Difference{});
  terminal.lines(precisions_table(results, differences));
  write_json(terminal, request, comparison_json("precisions", results, differences));
  return exit_code();
}

int compare_batch_sizes(const BenchRequest& request, Device& device, Terminal& terminal) {
  std::vector<BenchVariant> variants;
  for (const std::int64_t size : request.batch_sizes) {
    variants.push_back({fmt::to_string(size), request.bench});
    variants.back().options.batch_size = size;
    try {
      check_network(variants.back().options);
    } catch (const UsageError& error) {
      variants.back().refusal = error.what();
    }
  }
  print_start(terminal, request.bench, device, "batch size");
  const std::vector<VariantResult> results = measure(variants, device, terminal);
  terminal.lines(batch_sizes_table(results));
  write_json(terminal, request, comparison_json("batch_sizes", results));
  return exit_code();
}

int find_max_batch(const BenchRequest& request, Device& device, Terminal& terminal) {
  note_interrupts();
  print_start(terminal, request.bench, device, "batch size");
  const std::size_t budget =
      request.max_batch_for.empty() ? usable_memory(device) : parse_bytes(request.max_batch_for);
  std::vector<std::string> precisions = request.precisions;
  if (precisions.empty()) precisions.push_back(request.bench.dtype);
  const auto interrupted = [] { return interrupt_noted() != 0; };
  std::vector<LargestBatch> found;
  for (const std::string& precision : precisions) {
    if (!found.empty() && interrupted()) break;
    BenchOptions options = request.bench;
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

BenchHooks tuning_on(Terminal& terminal) {
  return {.trying = [&terminal](std::string_view work, std::size_t number, std::size_t of) {
    terminal.busy(fmt::format("Testing kernel variant {}/{} of {}...", number, of, work));
  }};
}

std::optional<int> bench_table(const BenchRequest& request, Device& device, Terminal& terminal) {
  for (const std::string& precision : request.precisions) {  // all, before the first is measured
    BenchOptions options = request.bench;
    options.dtype = precision;
    check_precision(options, device);
  }
  if (request.compare_modes) return compare_modes(request, device, terminal);
  if (request.find_max_batch) return find_max_batch(request, device, terminal);
  if (!request.precisions.empty()) return compare_precisions(request, device, terminal);
  if (!request.batch_sizes.empty()) return compare_batch_sizes(request, device, terminal);
  return std::nullopt;
}

}  // namespace ridge
