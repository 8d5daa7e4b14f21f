#include "ridge/analyze/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/device/packing.h"
#include "ridge/ops/op.h"
#include "ridge/plan/arena.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/run/arena_needs.h"
#include "ridge/run/autotuner.h"

namespace ridge {
namespace {

std::optional<Place> place_of(const Graph& graph, NodeId n) {
  if (n == no_node) return std::nullopt;
  const Node& node = graph.nodes()[n];
  return Place{std::string(name_of(node.phase)), graph.scope_name(node.scope),
               std::string(name_of(*node.op))};
}

// Each node's work fits 63 bits because tensors are bounded; that of many absurd ones may not.
StepCost checked_cost(const Graph& graph, std::int64_t accumulation) {
  constexpr double most = 0x1p62;
  double flops = 0, bytes = 0;
  for (const Node& node : graph.nodes()) {
    const Cost once = cost(graph, node);
    flops += static_cast<double>(once.flops);
    bytes += static_cast<double>(once.bytes());
  }
  if (const double work = std::max(flops, bytes) * static_cast<double>(accumulation); work > most)
    throw UsageError(
        "a step of {}FLOPs that moves {}B is beyond what can be counted: make the model, the batch "
        "or --gradient-accumulation-steps smaller",
        format_si(flops * static_cast<double>(accumulation)),
        format_si(bytes * static_cast<double>(accumulation)));
  return cost_of_step(graph, accumulation);
}

// A step's graph, and what its kernels want: those that the session's tuner will choose if it finds
// what it chose in earlier runs.
struct Planned {
  Graph graph;
  Schedule schedule;
  std::int64_t parameters = 0;
  KernelNeeds needs;

  Planned(const RunOptions& options, Device& device) {
    BuiltGraph built = build_graph(graph, options, device.target());
    schedule = std::move(built.schedule);
    parameters = built.parameters;
    KernelChoice choice = execution_of(schedule).kernels;
    Autotuner tuner = remembered_choices(device);
    if (schedule.has(tuned_products)) choice.tuner = &tuner;
    needs = kernel_needs(graph, device, choice);
  }

  MemoryPlan memory() const {
    return plan_memory(graph, lifetimes_of(graph), needs.workspace, needs.packed_bytes);
  }
  std::size_t device_bytes(const Device& device) const {
    if (!schedule.has(planned_memory)) return memory().peak_bytes;
    return plan_arena(graph, lifetimes_of(graph), needs.workspace,
                      arena_needs(device, schedule.has(concurrent_kernels)))
               .bytes +
           needs.packed_bytes;
  }
};

std::size_t need_of(const RunOptions& options, Device& device) {
  return Planned(options, device).device_bytes(device);
}

std::int64_t in_place_nodes(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) {
    if (only_renames(*node.op)) return false;
    const std::vector<TensorType> types = graph.types_of(node.inputs);
    for (std::uint32_t o = 0; o < node.outputs.size(); ++o)
      if (aliased_input(*node.op, o, types)) return true;
    return false;
  });
}

// The kind of layer that a node is part of; null for any other.
LayerUse* layer_of(StepPlan& plan, const Graph& graph, ScopeId scope) {
  if (graph.enclosing(scope, ScopeKind::attention)) return &plan.attention;
  if (graph.enclosing(scope, ScopeKind::feed_forward)) return &plan.feed_forward;
  return nullptr;
}

void add_bytes_at_peak(StepPlan& plan, const Graph& graph, const KernelNeeds& needs) {
  const NodeId peak = plan.memory.peak_node;
  if (peak == no_node) return;
  const Lifetimes lifetimes = lifetimes_of(graph);
  const auto count = [&](ValueId storage, bool is_born) {
    const NodeId producer = graph.info(storage).producer;
    if (producer == no_node) return;
    LayerUse* const layer = layer_of(plan, graph, graph.nodes()[producer].scope);
    if (layer && is_born) layer->bytes_at_peak += lifetimes.bytes[storage];
    if (layer && !is_born) layer->bytes_at_peak -= lifetimes.bytes[storage];
  };
  for (NodeId n = 0; n <= peak; ++n) {
    for (const ValueId storage : lifetimes.born[n]) count(storage, true);
    if (n == peak) break;
    for (const ValueId storage : lifetimes.dead[n]) count(storage, false);
  }
  if (LayerUse* const layer = layer_of(plan, graph, graph.nodes()[peak].scope))
    layer->bytes_at_peak += needs.workspace[peak];
}

}  // namespace

KernelNeeds kernel_needs(const Graph& graph, Device& device, const KernelChoice& choice) {
  struct Prepared {
    const Op* op;
    std::vector<TensorType> in, out;
    std::size_t workspace;
    bool has_kernel;
    PackingKernel::Packed packed = {};
  };
  const std::vector<bool> packable = seldom_written(graph, lifetimes_of(graph));
  // The layers of a model repeat each other: few of its nodes differ.
  std::map<std::pair<std::string_view, std::int64_t>, std::vector<Prepared>> seen;
  KernelNeeds needs;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorType> in = graph.types_of(node.inputs), out = graph.types_of(node.outputs);
    std::vector<Prepared>& alike = seen[{name_of(*node.op), out.empty() ? 0 : out[0].numel()}];
    auto known = std::ranges::find_if(alike, [&](const Prepared& p) {
      return p.op->variant() == node.op->variant() && p.in == in && p.out == out;
    });
    if (known == alike.end()) {
      const PreparedKernel kernel = device.prepare(*node.op, in, out, choice);
      alike.push_back({node.op.get(), std::move(in), std::move(out), kernel.workspace,
                       kernel.kernel != nullptr});
      if (const auto* packing = dynamic_cast<const PackingKernel*>(kernel.kernel.get()))
        alike.back().packed = packing->packed();
      known = std::prev(alike.end());
    }
    const PackingKernel::Packed& packed = known->packed;
    const bool packs = packed.bytes > 0 && packable[node.inputs[packed.input]];
    if (packs) needs.packed_bytes += packed.bytes;
    needs.workspace.push_back(packs ? packed.workspace : known->workspace);
    needs.has_kernel.push_back(known->has_kernel);
  }
  return needs;
}

LeastTime LeastTime::operator+(const LeastTime& other) const {
  return {computing + other.computing, moving + other.moving, starting + other.starting,
          sending + other.sending};
}

LeastTime LeastTime::operator*(double times) const {
  return {computing * times, moving * times, starting * times, sending * times};
}

LeastTime least_time(const Graph& graph, const Node& node, const Roof& roof, bool captured) {
  const Cost work = cost(graph, node);
  const double rate = roof.flops(compute_precision(graph, node, roof));
  const Roof::Level& level = roof.level_of(static_cast<std::uint64_t>(work.bytes()));
  LeastTime time{.computing = static_cast<double>(work.causal_flops) / rate,
                 .moving = static_cast<double>(work.bytes()) / level.bytes_per_second,
                 .starting = roof.captured_seconds};
  (time.computing > time.moving ? time.moving : time.computing) = 0;
  if (!captured) time.starting += std::max(0.0, roof.launch_seconds - time.total());
  return time;
}

LeastTime least_time_of_step(const Graph& graph, const Roof& roof, const Schedule& schedule,
                             std::int64_t batches) {
  const bool captured = schedule.has(captured_launches);
  LeastTime sum;
  for (const Node& node : graph.nodes()) {
    if (only_renames(*node.op)) continue;
    const std::int64_t times = node.phase == Phase::optimizer ? 1 : batches;
    sum = sum + least_time(graph, node, roof, captured) * static_cast<double>(times);
  }
  return sum;
}

Roof roof_for(Roof roof, const Schedule& schedule) {
  roof.tf32 = schedule.precision.products == Precision::Products::tf32;
  roof.split_bf16 = schedule.has(split_bf16_products);
  return roof;
}

StepPlan plan_step(const RunOptions& options, Device& device, const Roof* roof) {
  Planned planned(options, device);
  Graph& graph = planned.graph;
  const std::int64_t batches = options.batches_per_step();
  StepPlan plan;
  plan.parameter_count = planned.parameters;
  plan.memory = planned.memory();
  plan.device_bytes = planned.device_bytes(device);
  plan.where = place_of(graph, plan.memory.peak_node);
  plan.cost = checked_cost(graph, batches);
  plan.nodes_in_place = in_place_nodes(graph);
  const bool captured = planned.schedule.has(captured_launches);
  const Roof over = roof ? roof_for(*roof, planned.schedule) : Roof{};
  LeastTime at_best;
  const LinkCeiling* const link = over.link_of(options.ranks);
  if (link) plan.sending_seconds = 0;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    if (!planned.needs.has_kernel[n]) continue;
    const Node& node = graph.nodes()[n];
    const std::int64_t times = node.phase == Phase::optimizer ? 1 : batches;
    const std::int64_t flops = times * cost(graph, node).flops;
    plan.launches += times;
    if (const std::int64_t sent = times * sent_bytes(graph, node)) {
      plan.sent_bytes += sent;
      if (link)
        *plan.sending_seconds += static_cast<double>(sent) / link->bytes_per_second +
                                 static_cast<double>(times) * link->message_seconds;
    }
    if (LayerUse* const layer = layer_of(plan, graph, node.scope)) layer->flops += flops;
    if (!roof) continue;
    at_best = at_best + least_time(graph, node, over, captured) * static_cast<double>(times);
    plan.seconds_at_peak_rate +=
        static_cast<double>(flops) / over.flops(compute_precision(graph, node, over));
  }
  add_bytes_at_peak(plan, graph, planned.needs);
  const bool sends_beside_kernels = captured && device.is_gpu();
  const double sending = plan.sending_seconds.value_or(0);
  at_best.sending = sends_beside_kernels ? std::max(0.0, sending - at_best.total()) : sending;
  if (roof) plan.at_best = at_best;
  return plan;
}

std::optional<std::size_t> bytes_needed(RunOptions options, Device& device) {
  try {
    options.resolve();
    return need_of(options, device);
  } catch (const UsageError&) {
    return std::nullopt;
  } catch (const ShapeError&) {
    return std::nullopt;
  }
}

SizeLimit largest_size(const BytesNeeded& needed, std::size_t budget, std::string_view what,
                       std::string_view remedy, std::int64_t unit) {
  std::int64_t least = unit;
  std::optional<std::size_t> least_bytes = needed(least);
  if (!least_bytes) least_bytes = needed(least += unit);
  if (!least_bytes)
    throw UsageError("neither {} of {} nor one of {} is accepted; {}", what, unit, least, remedy);
  if (*least_bytes > budget)
    throw OutOfMemoryError("not even {} of {} fits in {}: it needs {}; {}", what, least,
                           format_bytes(budget), format_bytes(*least_bytes), remedy);
  SizeLimit limit{.size = least,
                  .peak_bytes = *least_bytes,
                  .next_peak_bytes = {},
                  .least = least,
                  .unit = unit};
  // Everything grows with the size, so that the sizes that fit are all those up to the limit.
  std::int64_t too_many = 0;  // once known
  for (std::int64_t step = unit; too_many - limit.size != unit;) {
    const std::int64_t size =
        too_many == 0 ? limit.size + step : limit.size + (too_many - limit.size) / unit / 2 * unit;
    const std::optional<std::size_t> peak = needed(size);
    if (peak && *peak <= budget) {
      limit.size = size;
      limit.peak_bytes = *peak;
      step *= 2;
    } else {
      too_many = size;
      limit.next_peak_bytes = peak;
    }
  }
  return limit;
}

namespace {

// Returns whether the micro-batches follow from the batch, so that another batch has others.
bool derives_micro_batches(const RunOptions& options) {
  return options.micro_batches == options.derived_micro_batches;
}

}  // namespace

std::int64_t batch_unit(const RunOptions& options) {
  return std::lcm(options.ranks, derives_micro_batches(options) ? 1 : options.micro_batches);
}

SizeLimit largest_batch(const RunOptions& options, Device& device, std::size_t budget) {
  RunOptions asked = options;
  const auto needed = [&](std::int64_t batch) {
    asked.batch_size = batch;
    return bytes_needed(asked, device);
  };
  // Derived micro-batches are taken as given here, so that a larger batch needs more memory. Where
  // one sample in each does not fit, half as many are tried.
  asked.derived_micro_batches = 0;
  for (;;) {
    const std::int64_t unit = std::lcm(options.ranks, asked.micro_batches);
    try {
      return largest_size(
          needed, budget, "a batch",
          fmt::format("use a smaller model or {}", workload_of(options).info.sample), unit);
    } catch (const OutOfMemoryError&) {
      if (!derives_micro_batches(options) || asked.micro_batches <= options.ranks) throw;
    }
    asked.micro_batches /= 2;
  }
}

std::size_t usable_memory(Device& device, const RunOptions& options) {
  const std::size_t available = device.available_memory();
  // Not for tensors: the code of kernels and what libraries allocate and, where memory is not
  // planned, what lies free between tensors in pieces too small for the next: up to a fifth in
  // small models.
  const bool planned = options.schedule(device.target()).has(planned_memory);
  return available - available / (device.is_gpu() && planned ? 32 : 4);
}

namespace {

// The law through the peaks at x and 2 x, or, if it has a square, at 3 x too.
GrowthLaw law_from(std::string_view size, std::int64_t x, bool quadratic,
                   const std::function<double(std::int64_t)>& peak_at) {
  GrowthLaw law{.of = std::string(size), .at = x, .to = (quadratic ? 3 : 2) * x};
  const auto x0 = static_cast<double>(x);
  const double y1 = peak_at(x), y2 = peak_at(2 * x);
  law.linear = (y2 - y1) / x0;
  if (quadratic) {
    const double y3 = peak_at(3 * x);
    law.quadratic = (y3 - 2 * y2 + y1) / (2 * x0 * x0);
    law.linear -= 3 * law.quadratic * x0;
  }
  law.fixed = y1 - law.linear * x0 - law.quadratic * x0 * x0;
  return law;
}

}  // namespace

std::vector<GrowthLaw> growth_laws(const RunOptions& options, Device& device) {
  // Small steps have their peak where the optimizer works, which no size changes: a law through
  // such a peak and larger ones would fall.
  constexpr int most_doublings = 5;
  const auto law_of = [&](std::string_view size, bool quadratic) {
    std::map<std::int64_t, double> peaks;
    const auto peak_at = [&](std::int64_t value) {
      const auto [peak, is_new] = peaks.try_emplace(value);
      if (is_new) {
        RunOptions with = options;
        integer_option(with, size) = value;
        with.resolve();
        peak->second = static_cast<double>(Planned(with, device).memory().peak_bytes);
      }
      return peak->second;
    };
    RunOptions now = options;
    std::int64_t x = integer_option(now, size);
    GrowthLaw law = law_from(size, x, quadratic, peak_at);
    try {
      for (int doubling = 0; doubling < most_doublings && law.linear <= 0; ++doubling)
        law = law_from(size, x *= 2, quadratic, peak_at);
    } catch (const UsageError&) {  // larger sizes are refused as absurd
    }
    return law;
  };
  std::vector<GrowthLaw> laws{law_of("batch-size", false)};
  for (const std::string_view size : workload_of(options).info.sample_options())
    laws.push_back(law_of(size, true));
  return laws;
}

LeastRecompute least_recompute(const RunOptions& options, Device& device, std::size_t budget) {
  RunOptions asked = options;
  LeastRecompute least;
  Graph graph;
  build_graph(graph, options, device.target());
  const auto all_blocks = static_cast<std::int64_t>(graph.blocks().size());
  const auto fits = [&](Recompute recompute) {
    asked.recompute = name_of(recompute);
    least = {asked.recompute, need_of(asked, device)};
    return least.peak_bytes <= budget;
  };
  if (fits(Recompute::none)) return least;
  for (const Recompute::Part part : {Recompute::attention, Recompute::block})
    for (std::int64_t blocks = 1; blocks <= all_blocks; ++blocks)
      if (fits({part, blocks})) return least;
  throw OutOfMemoryError(
      "not even with --recompute block does a step fit in {}: it needs {}; use a smaller batch, {} "
      "or model",
      format_bytes(budget), format_bytes(least.peak_bytes), workload_of(options).info.sample);
}

namespace {

std::string batch_advice(const RunOptions& options, Device& device) {
  try {
    const std::size_t available = device.available_memory();
    const SizeLimit limit = largest_batch(options, device, usable_memory(device, options));
    if (limit.size < options.batch_size)
      return fmt::format("--batch-size {} would fit in the {} that are left", limit.size,
                         format_bytes(available));
    return fmt::format(
        "by its plan --batch-size {} fits in the {} that are left now: what was missing was held "
        "by other programs, or in pieces",
        options.batch_size, format_bytes(available));
  } catch (const OutOfMemoryError& error) {  // of the search: not even one sample fits
    return error.what();
  } catch (const Error& error) {  // kernels that cannot be prepared, a device that does not answer
    return fmt::format("what would fit is not known: {}", error.what());
  }
}

}  // namespace

std::string with_batch_advice(std::string_view message, const RunOptions& options, Device& device) {
  return fmt::format("{}; {}", message, batch_advice(options, device));
}

std::size_t parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 11> units{{{"", 1},
                                        {"B", 1},
                                        {"KB", 1e3},
                                        {"kB", 1e3},
                                        {"MB", 1e6},
                                        {"GB", 1e9},
                                        {"TB", 1e12},
                                        {"KiB", 0x1p10},
                                        {"MiB", 0x1p20},
                                        {"GiB", 0x1p30},
                                        {"TiB", 0x1p40}}};
  double number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  suffix.remove_prefix(std::min(suffix.find_first_not_of(' '), suffix.size()));
  const auto* const unit = std::ranges::find(units, suffix, &Unit::name);
  if (fault != std::errc() || unit == units.end())
    throw UsageError("'{}' is no amount of memory; write it as 16GB, 1.5GiB or 500MB", text);
  const double bytes = number * unit->bytes;
  if (!(bytes >= 1 && bytes < 0x1p63))
    throw UsageError("'{}' is not between 1 byte and 2^63", text);
  return static_cast<std::size_t>(bytes);
}

}  // namespace ridge
