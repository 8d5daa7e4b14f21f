#include "ridge/cli/bench_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ridge/analyze/largest_batch.h"
#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/recorded_step.h"
#include "ridge/analyze/table_answers.h"
#include "ridge/analyze/tables.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cli/bench_text.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/second_start.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

constexpr std::int64_t most_table_rounds = 10;
constexpr std::size_t recorded_rounds =
    3;  // of those of a table that shows what passes are made of

bool interrupted() { return interrupt_noted() != 0; }
int exit_code() { return interrupted() ? 128 + interrupt_noted() : 0; }

void write_json(Terminal& terminal, const BenchRequest& request, const std::string& json) {
  if (request.json_file.empty()) return;
  write_text_file(request.json_file, json);
  terminal.line(fmt::format("Wrote {}", request.json_file));
}

TableTerms terms_of(const BenchRequest& request) {
  TableTerms terms{.price_per_hour = request.price_per_hour};
  if (request.latency_limit) terms.latency_limit = 1e-3 * *request.latency_limit;
  return terms;
}

// One of what varies: how it is called, and what it does to the options of a run.
struct Choice {
  std::string name;
  std::function<void(RunOptions&)> set;
};
using Axis = std::vector<Choice>;

std::vector<Axis> axes_of(const BenchRequest& request) {
  std::vector<Axis> axes;
  const auto add = [&](const auto& values, const auto& choice) {
    if (values.empty()) return;
    Axis& axis = axes.emplace_back();
    for (const auto& value : values) axis.push_back(choice(value));
  };
  add(request.networks.empty() ? std::vector<RunOptions>{} : request.of_networks,
      [](const RunOptions& of_network) -> Choice {
        return {of_network.network, [of_network](RunOptions& o) { o = of_network; }};
      });
  add(request.batch_sizes, [](std::int64_t size) -> Choice {
    return {fmt::to_string(size), [size](RunOptions& o) { o.batch_size = size; }};
  });
  add(request.precisions, [](const std::string& dtype) -> Choice {
    return {dtype, [dtype](RunOptions& o) { o.dtype = dtype; }};
  });
  add(request.modes, [](const std::string& mode) -> Choice {
    return {schedule_row(mode).passes.empty() ? "no compile" : mode,
            [mode](RunOptions& o) { o.version = mode; }};
  });
  return axes;
}

// All combinations of what varies, the last varying fastest. That a network cannot take a batch is
// part of the table.
std::vector<Variant> variants_of(const BenchRequest& request) {
  std::vector<Variant> variants{{"", request.options}};
  for (const Axis& axis : axes_of(request)) {
    std::vector<Variant> longer;
    for (const Variant& variant : variants)
      for (const Choice& choice : axis) {
        Variant& added = longer.emplace_back(variant);
        added.name += (added.name.empty() ? "" : ", ") + choice.name;
        choice.set(added.options);
      }
    variants = std::move(longer);
  }
  for (Variant& variant : variants) {
    try {
      variant.options.resolve();
    } catch (const UsageError& error) {
      variant.refusal = error.what();
    }
  }
  return variants;
}

// The recorded pass whose time is the median of all.
std::optional<ProfileAnswers> typical(std::vector<ProfileAnswers> passes) {
  if (passes.empty()) return std::nullopt;
  std::ranges::stable_sort(passes, {}, &ProfileAnswers::pass_seconds);
  return passes[passes.size() / 2];
}

struct Measuring {
  bool keep_logits = false;
  bool record_passes = false;
};

std::vector<TimedVariant> measure(const BenchRequest& request, Device& device, Terminal& terminal,
                                  const Measuring& what) {
  note_interrupts();
  const std::vector<Variant> variants = variants_of(request);
  print_configuration(terminal, request, device);
  terminal.busy(fmt::format("Preparing {} variants...", variants.size()));
  const RunOptions& o = request.options;
  const Rounds rounds =
      rounds_of(std::min(most_table_rounds, o.num_steps), o.num_steps, o.warmup_steps);
  const KeptRoof kept = kept_roof(device.name(), device.hardware(), device.threads());
  std::vector<std::vector<ProfileAnswers>> passes(variants.size());
  bool can_record = what.record_passes;
  const auto record = [&](std::size_t i, Session& session) {
    if (!can_record || passes[i].size() == recorded_rounds || interrupted()) return;
    try {
      record_step(session, [&](const Recording& host, const Recording& on_device) {
        passes[i].push_back(profile_answers(host, on_device));
      });
    } catch (
        const DeviceError& error) {  // a device that cannot be traced, which may run all the same
      can_record = false;
      terminal.line(fmt::format("No pass is recorded: {}", error.what()));
    }
  };
  TurnHooks hooks{.keep_logits = what.keep_logits,
                  .roof = kept.roof ? &*kept.roof : nullptr,
                  .trying = tuning_on(terminal),
                  .progress = progress_on(terminal),
                  .stop = interrupted};
  if (can_record) hooks.after = record;
  std::vector<TimedVariant> results = time_interleaved(variants, device, rounds, hooks);
  for (std::size_t i = 0; i < results.size(); ++i) results[i].pass = typical(passes[i]);
  if (interrupted()) terminal.line("Interrupted");
  for (const std::string& warning : device.tools().warnings()) terminal.line(warning);
  return results;
}

// Without ceilings there is no efficiency: say once what would give it.
void tell_ceilings(Terminal& terminal, std::span<const TimedVariant> results) {
  const auto has_peak = [](const TimedVariant& r) { return r.peak_flops > 0; };
  const auto is_there = [](const TimedVariant& r) { return r.measured(); };
  if (std::ranges::any_of(results, is_there) && std::ranges::none_of(results, has_peak))
    terminal.line("Efficiency is not known: ridge roofline measures this machine's peaks, once");
}

int compare_modes(const BenchRequest& request, Device& device, Terminal& terminal) {
  std::vector<TimedVariant> results = measure(request, device, terminal, {});
  for (TimedVariant& result : results) {
    if (interrupted()) break;
    if (!result.measured() || schedule_row(result.variant.options.version).passes.empty()) continue;
    terminal.busy(fmt::format("Starting {} once more...", result.variant.name));
    result.second_compile = compile_seconds_of_new_process(result.variant.options);
  }
  const TableTerms terms = terms_of(request);
  terminal.lines(modes_table(results, terms));
  tell_ceilings(terminal, results);
  write_json(terminal, request,
             variants_json("compile_modes", results, {}, terms, mode_answers(results)));
  return exit_code();
}

int compare_precisions(const BenchRequest& request, Device& device, Terminal& terminal) {
  const std::vector<TimedVariant> results =
      measure(request, device, terminal, {.keep_logits = true, .record_passes = true});
  std::vector<Difference> differences;
  for (const TimedVariant& result : results)
    differences.push_back(difference_of(results.front(), result));
  const TableTerms terms = terms_of(request);
  terminal.lines(precisions_table(results, differences, terms));
  tell_ceilings(terminal, results);
  write_json(terminal, request,
             variants_json("precisions", results, differences, terms, precision_answers(results)));
  return exit_code();
}

int compare_batch_sizes(const BenchRequest& request, Device& device, Terminal& terminal) {
  const std::vector<TimedVariant> results = measure(request, device, terminal, {});
  const TableTerms terms = terms_of(request);
  terminal.lines(batch_sizes_table(results, terms));
  tell_ceilings(terminal, results);
  write_json(terminal, request,
             variants_json("batch_sizes", results, {}, terms, batch_size_answers(results, terms)));
  return exit_code();
}

int compare_combinations(const BenchRequest& request, Device& device, Terminal& terminal) {
  const std::vector<TimedVariant> results =
      measure(request, device, terminal, {.record_passes = true});
  const TableTerms terms = terms_of(request);
  terminal.lines(combinations_table(results, terms));
  tell_ceilings(terminal, results);
  write_json(
      terminal, request,
      variants_json("combinations", results, {}, terms, combination_answers(results, terms)));
  return exit_code();
}

int find_max_batch(const BenchRequest& request, Device& device, Terminal& terminal) {
  note_interrupts();
  const std::size_t budget = request.max_batch_for.empty() ? usable_memory(device, request.options)
                                                           : parse_bytes(request.max_batch_for);
  print_configuration(terminal, request, device);
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
  if (request.find_max_batch) return find_max_batch(request, device, terminal);
  const std::vector<std::string_view> varied = request.varied();
  if (varied.empty()) return std::nullopt;
  if (varied.size() > 1 || !request.networks.empty())
    return compare_combinations(request, device, terminal);
  if (!request.modes.empty()) return compare_modes(request, device, terminal);
  if (!request.precisions.empty()) return compare_precisions(request, device, terminal);
  return compare_batch_sizes(request, device, terminal);
}

}  // namespace ridge
