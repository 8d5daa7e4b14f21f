#include "ridge/trace/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/base/units.h"
#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

constexpr double worth_telling = 0.01;  // of the span

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

using Findings = std::vector<Finding>;

bool is_data_loader(std::string_view name) { return contains(name, "DataLoader"); }

// Calls by which an allocator takes memory from the card or gives it back.
bool is_allocation(std::string_view name) {
  return contains(name, "Malloc") || contains(name, "Free") || contains(name, "MemAlloc");
}

constexpr std::string_view optimizer_step = "Optimizer.step#";

// The slices of the host whose names are chosen, of calls or of annotations.
template <class Select>
Intervals host_slices(const FoundIn& in, EventKind kind, const Select& select) {
  std::vector<bool> chosen(in.trace.texts.size());
  for (TextPool::Id id = 0; id < in.trace.texts.size(); ++id)
    chosen[id] = select(in.trace.texts[id]);
  std::vector<Interval> slices;
  for (Row row = 0; row < in.trace.events.size(); ++row)
    if (in.trace.events.kind[row] == kind && chosen[in.trace.events.name[row]])
      slices.push_back({in.trace.events.begin_ns[row], in.trace.events.end_ns(row)});
  return merged(std::move(slices));
}

double common_us(const Intervals& a, const Intervals& b) {
  return us(length_ns(a) - length_ns(without(a, b)));
}

// The time for which the card waited for launches of the host.
Intervals late_launches(const FoundIn& in) {
  std::vector<Interval> late;
  for (const IdleStretch& stretch : in.idle.stretches)
    if (stretch.cause == IdleCause::host_late || stretch.cause == IdleCause::step_end)
      late.push_back(stretch.time);
  return merged(std::move(late));
}

// The kernels of an optimizer that updates each parameter by kernels of its own.
struct UnfusedOptimizer {
  std::int64_t kernels = 0, steps = 0;
  double us = 0;

  bool is_one() const {
    constexpr std::int64_t many = 50;  // kernels a step, where a fused optimizer has a few
    return steps > 0 && kernels >= many * steps;
  }
};

UnfusedOptimizer unfused_optimizer(const FoundIn& in) {
  UnfusedOptimizer optimizer;
  const Trace& trace = in.trace;
  for (Row row = 0; row < trace.events.size(); ++row)
    optimizer.steps += trace.events.kind[row] == EventKind::annotation &&
                       trace.name(row).starts_with(optimizer_step);
  if (optimizer.steps == 0) return optimizer;
  for (const DeviceWork& one : in.work.device) {
    if (one.call == no_row || one.work != WorkClass::compute) continue;
    Row row = one.call;
    while (row != no_row && !trace.name(row).starts_with(optimizer_step))
      row = in.nesting.parent_of(row);
    if (row == no_row || contains(trace.name(one.row), "multi_tensor_apply") ||
        contains(trace.name(one.row), "Fused"))
      continue;
    optimizer.us += us(trace.events.duration_ns[one.row]);
    ++optimizer.kernels;
  }
  return optimizer;
}

Intervals optimizer_slices(const FoundIn& in) {
  return host_slices(in, EventKind::annotation,
                     [](const std::string& name) { return name.starts_with(optimizer_step); });
}

// Facts of the host that several findings ask for.
struct HostTime {
  Intervals late;         // the card waited for launches
  Intervals allocations;  // memory was taken from the card or given back
  Intervals optimizer_steps;
  UnfusedOptimizer optimizer;

  explicit HostTime(const FoundIn& in)
      : late(late_launches(in)),
        allocations(host_slices(in, EventKind::call, is_allocation)),
        optimizer_steps(optimizer_slices(in)),
        optimizer(unfused_optimizer(in)) {}
};

void find_data_loader(const FoundIn& in, Findings& found) {
  double gain = 0;
  std::uint64_t stretches = 0;
  std::string name;
  for (const IdleTime::HostShare& share : in.idle.host) {
    if (!is_data_loader(share.name)) continue;
    if (name.empty()) name = share.name;
    gain += share.us;
    stretches += share.stretches;
  }
  if (gain == 0) return;
  found.push_back({"data-loader",
                   fmt::format("The card waits {} for the data loader, in {}.", time(gain),
                               counted(static_cast<std::int64_t>(stretches), "stretch")),
                   "Give the DataLoader more num_workers, persistent_workers=True, pin_memory=True "
                   "and a larger prefetch_factor, or do its work before training.",
                   fmt::format("Look for \"{}\" on the host while no kernel runs.", name), gain});
}

// Tells by the operators around a blocking call which words of a user led to it.
std::string blocking_source(const FoundIn& in, Row call) {
  const std::string& name = in.trace.name(call);
  if (is_allocation(name)) return "allocator";
  for (Row row = call; row != no_row; row = in.nesting.parent_of(row)) {
    const std::string& around = in.trace.name(row);
    if (around == "aten::item" || around == "aten::_local_scalar_dense") return "item";
    if (around == "aten::nonzero" || around == "aten::masked_select" || contains(around, "unique"))
      return "nonzero";
    if (around == "aten::to" || around == "aten::_to_copy" || around == "aten::copy_")
      return "copy";
  }
  return "call";
}

// An allocator that finds no room among what it keeps gives its free blocks back to the card and
// takes anew, within the operator that asked; torch.cuda.empty_cache() is called by no operator.
std::int64_t retried_allocations(const FoundIn& in) {
  std::int64_t retries = 0;
  Row last = no_row;
  for (Row row = 0; row < in.trace.events.size(); ++row) {
    if (in.trace.events.kind[row] != EventKind::call || in.trace.name(row) != "cudaFree") continue;
    const Row around = in.nesting.operation_of(row);
    if (around == row || around == no_row || around == last) continue;
    last = around;
    ++retries;
  }
  return retries;
}

// The memory that the allocator kept and did not use, at most, in words; "" if the trace has no
// memory.
std::string unused_memory(const Trace& trace) {
  const MemoryInstant* worst = nullptr;
  for (const MemoryInstant& instant : trace.memory)
    if (instant.device >= 0 &&
        (!worst || instant.reserved - instant.allocated > worst->reserved - worst->allocated))
      worst = &instant;
  if (!worst || worst->reserved <= 0) return "";
  const auto bytes = [](std::int64_t size) {
    return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 0)));
  };
  return fmt::format(" Of {} that it holds at most, as much as {} is not in use.",
                     bytes(worst->reserved), bytes(worst->reserved - worst->allocated));
}

// The card waits for a call that blocks, and while such a call takes its time and nothing is left
// to run.
void find_allocator(const FoundIn& in, const HostTime& host, Findings& found) {
  if (host.allocations.empty()) return;
  double gain = common_us(host.late, host.allocations);
  for (const IdleStretch& stretch : in.idle.stretches)
    if (stretch.cause == IdleCause::synchronization &&
        is_allocation(in.trace.name(stretch.blocking)))
      gain += us(stretch.time.length());
  if (gain == 0) return;
  if (const std::int64_t retries = retried_allocations(in); retries > 0) {
    found.push_back(
        {"fragmentation",
         fmt::format(
             "The allocator finds no room among what it holds, and gives memory back to the "
             "card to take it anew, in {}: the card stays idle for {}.{}",
             counted(retries, "operator"), time(gain), unused_memory(in.trace)),
         "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, run the largest batch first, pad "
         "what varies to a few sizes, or take a smaller batch.",
         "Look for cudaFree within an operator, and cudaMalloc behind it.", gain});
    return;
  }
  found.push_back(
      {"synchronization-allocator",
       fmt::format("Memory is taken from the card or given back to it within the run: the card "
                   "stays idle for {} in {}.",
                   time(gain),
                   counted(static_cast<std::int64_t>(host.allocations.size()), "such call")),
       "Do not call torch.cuda.empty_cache() in the loop; try "
       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; allocate what varies once at its "
       "largest.",
       "Look for cudaMalloc and cudaFree on the host, and the gap on the card behind them.", gain});
}

void find_synchronization(const FoundIn& in, Findings& found) {
  struct Source {
    double gain = 0;
    std::int64_t stretches = 0;
    Row call = no_row;
  };
  std::map<std::string, Source> sources;
  for (const IdleStretch& stretch : in.idle.stretches) {
    if (stretch.cause != IdleCause::synchronization) continue;
    const std::string kind = blocking_source(in, stretch.blocking);
    if (kind == "allocator") continue;  // which find_allocator() tells of
    Source& source = sources[kind];
    source.gain += us(stretch.time.length());
    source.call = stretch.blocking;
    ++source.stretches;
  }
  static const std::map<std::string, std::pair<const char*, const char*>> words = {
      {"item",
       {".item() reads a number from the card",
        "Keep losses and metrics on the card (detach() and add them up there) and read them once "
        "in "
        "many steps, not within the loop."}},
      {"copy",
       {"A copy between card and host blocks",
        "Copy with non_blocking=True from and to pinned memory, and read the result later."}},
      {"nonzero",
       {"An operator whose result's size depends on data (nonzero, masked_select, unique) blocks",
        "Use torch.where or a mask of fixed shape."}},
      {"call",
       {"A call waits for the card",
        "Leave out torch.cuda.synchronize() and what reads values from the card within the "
        "loop."}}};
  for (const auto& [kind, source] : sources) {
    const auto& [what, remedy] = words.at(kind);
    found.push_back(
        {"synchronization-" + kind,
         fmt::format("{}: the card runs dry and stays idle {}, {}.", what, time(source.gain),
                     source.stretches == 1
                         ? "once"
                         : fmt::format("{} times", format_count(source.stretches))),
         remedy,
         fmt::format("Look for {} on the host, and the gap on the card behind it.",
                     in.trace.name(source.call)),
         source.gain});
  }
}

// The time in which nothing but these rows ran.
template <class Select>
double alone_us(const FoundIn& in, const Select& select) {
  std::vector<Interval> chosen, others;
  for (const DeviceWork& one : in.work.device) {
    const Interval time{in.trace.events.begin_ns[one.row], in.trace.events.end_ns(one.row)};
    (select(one) ? chosen : others).push_back(time);
  }
  return us(length_ns(without(merged(std::move(chosen)), merged(std::move(others)))));
}

void find_pageable_copies(const FoundIn& in, Findings& found) {
  const double gain = alone_us(in, [&](const DeviceWork& one) {
    return one.work == WorkClass::copy && contains(in.trace.name(one.row), "Pageable");
  });
  if (gain == 0) return;
  found.push_back(
      {"pageable-copies",
       fmt::format("Copies from or to pageable memory run alone for {}.", time(gain)),
       "Set pin_memory=True in the DataLoader, or pin_memory() the tensor, and copy with "
       "non_blocking=True.",
       "Look for copies named \"Pageable\" while no kernel runs.", gain});
}

void find_exposed_communication(const FoundIn& in, Findings& found) {
  if (in.use.exposed_communication == 0) return;
  found.push_back(
      {"exposed-communication",
       fmt::format("Collectives run {} in which no kernel computes, of {} in all.",
                   time(in.use.exposed_communication), time(in.use.communication)),
       "Let DistributedDataParallel overlap them with the backward pass (bucket_cap_mb, "
       "gradient_as_bucket_view=True, static_graph=True), reduce less often (no_sync() while "
       "gradients accumulate), or look for a rank that comes late.",
       "Look for nccl kernels while the other streams are empty.", in.use.exposed_communication});
}

// Channels first, convolutions change the layout back and forth, and run slower, as do batch norms.
void find_layout_changes(const FoundIn& in, Findings& found) {
  double changes = 0, slow = 0;
  for (const KernelSum& kernel : in.kernels)
    if (contains(kernel.name, "nchwToNhwc") || contains(kernel.name, "nhwcToNchw"))
      changes += kernel.us;
  if (changes == 0) return;
  // The part of its floor that PyTorch comes to channels last.
  constexpr double of_convolutions = 0.4, of_batch_norms = 0.2;
  for (const OperatorSum& sum : in.operators) {
    if (sum.floor_us == 0) continue;
    const double part = contains(sum.name, "convolution")  ? of_convolutions
                        : contains(sum.name, "batch_norm") ? of_batch_norms
                                                           : 1;
    if (part < 1) slow += std::max(0.0, sum.device_us - sum.floor_us / part);
  }
  found.push_back(
      {"channels-last",
       fmt::format("Convolutions change the layout of images for {}, and they and batch "
                   "norms take longer than channels last by {}.",
                   time(changes), time(std::max(0.0, slow - changes))),
       "Convert model and images once: .to(memory_format=torch.channels_last).",
       "Look for kernels named nchwToNhwc and nhwcToNchw.", std::max(changes, slow)});
}

void find_unfused_optimizer(const HostTime& host, Findings& found) {
  const UnfusedOptimizer& optimizer = host.optimizer;
  if (!optimizer.is_one()) return;
  const double waits = common_us(host.late, host.optimizer_steps);
  found.push_back(
      {"unfused-optimizer",
       fmt::format(
           "The optimizer runs {} kernels a step, {} in all, and the card waits {} for their "
           "launches.",
           format_count(optimizer.kernels / optimizer.steps), time(optimizer.us), time(waits)),
       "Give the optimizer fused=True: it reads and writes each parameter once.",
       "Look for \"Optimizer.step#\" and the many small kernels it launches.",
       optimizer.us / 2 + waits});
}

// A sentence on the kernels that end before the host could launch the next; empty if none does.
std::string short_kernels(const FoundIn& in) {
  if (in.launches.short_kernels == 0) return "";
  return fmt::format(
      " {} of the {} are shorter than {:.0f} µs.",
      part_of(static_cast<double>(in.launches.short_kernels), static_cast<double>(in.use.kernels)),
      counted(static_cast<std::int64_t>(in.use.kernels), "kernel"),
      LaunchStatistics::short_kernel_us);
}

void find_late_host(const FoundIn& in, const HostTime& host, Findings& found) {
  const auto of = [&](IdleCause cause) {
    return in.idle.by_cause[static_cast<std::size_t>(cause)];
  };
  double gain = of(IdleCause::host_late).us + of(IdleCause::step_end).us;
  for (const IdleTime::HostShare& share : in.idle.host)
    if (is_data_loader(share.name)) gain -= share.us;
  // Other findings tell of launches that are late for a reason of their own.
  Intervals explained = host.allocations;
  if (host.optimizer.is_one())
    explained.insert(explained.end(), host.optimizer_steps.begin(), host.optimizer_steps.end());
  gain -= common_us(host.late, merged(std::move(explained)));
  if (gain <= 0 || in.work.of_host) return;
  const std::uint64_t gaps = of(IdleCause::host_late).stretches + of(IdleCause::step_end).stretches;
  found.push_back(
      {"launch-bound",
       fmt::format("The host launches too late: the card waits {} in {}.{}", time(gain),
                   counted(static_cast<std::int64_t>(gaps), "gap"), short_kernels(in)),
       "Launch less: torch.compile(mode=\"reduce-overhead\") or CUDA graphs, an optimizer with "
       "fused=True, a larger batch.",
       "Look for gaps on the card that end a few microseconds after a launch on the host.", gain});
}

// Leaves those that are worth telling, most gain first.
void put_in_order(Findings& found, double span_us) {
  for (Finding& one : found) one.gain_part = one.gain_us / span_us;
  std::erase_if(found, [](const Finding& one) { return one.gain_part < worth_telling; });
  std::ranges::stable_sort(found, std::greater(), &Finding::gain_us);
}

}  // namespace

std::vector<Finding> findings_of(const FoundIn& in) {
  Findings found;
  if (in.use.span <= 0) return found;
  if (!in.work.of_host) {
    find_data_loader(in, found);
    const HostTime host(in);
    find_allocator(in, host, found);
    find_synchronization(in, found);
    find_late_host(in, host, found);
    find_pageable_copies(in, found);
    find_layout_changes(in, found);
    find_unfused_optimizer(host, found);
    find_float32_products(in, found);
    find_slow_operators(in, found);
    find_uneven_kernels(in, found);
    find_unfused_attention(in, found);
    find_short_kernels(in, found);
    find_small_batch(in, found);
  }
  find_exposed_communication(in, found);
  put_in_order(found, in.use.span);
  return found;
}

void add_late_rank(std::vector<Finding>& findings, const LateRank& late, double span_us) {
  if (span_us <= 0) return;
  for (Finding& one : findings)
    if (one.rule == "exposed-communication" && !late.is_this_one)
      one.gain_us = std::max(0.0, one.gain_us - late.waited_us);
  const std::string part = format_percent(late.last_part);
  findings.push_back(
      {"late-rank",
       late.is_this_one
           ? fmt::format(
                 "This rank comes last to {} of the collectives: the first of the others wait "
                 "{} for it.",
                 part, time(late.waited_us))
           : fmt::format("This rank waits {} in collectives for ranks that come later, most of all "
                         "rank {}, which is last in {} of them.",
                         time(late.waited_us), late.name, part),
       "Compare the late rank's idle time, kernels and clocks with another's: its share of the "
       "data "
       "may be larger, its data loader slower, its card hotter or its host busy.",
       "Look for the collective that begins early on one rank and late on another.",
       late.waited_us});
  put_in_order(findings, span_us);
}

}  // namespace ridge::trace
