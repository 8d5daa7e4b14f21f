#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/base/units.h"
#include "ridge/ops/op.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/profile/memory_report.h"

namespace ridge {
namespace {

// What a well-made kernel reaches of its floor, for estimates of what a better one would save.
constexpr double reachable = 0.7;
constexpr double least_share_of_step = 0.005;  // less is not worth a line

struct Analysis {
  const Graph& graph;
  const BottleneckReport& report;

  double gap_per_call() const {
    return report.all.calls > 0 ? std::max(report.between_nodes, 0.0) / report.all.calls : 0;
  }

  Timed time_of(const std::vector<NodeId>& nodes) const {
    const std::set<NodeId> wanted(nodes.begin(), nodes.end());
    Timed sum;
    for (const NodeBottleneck& node : report.nodes)
      if (wanted.contains(node.node)) sum += node.timed;
    return sum;
  }

  Finding finding(Finding::Kind kind, const std::string& name, const Timed& t) const {
    return {.kind = kind,
            .name = name,
            .share = report.share(t.seconds),
            .seconds = t.seconds,
            .ratio = t.ratio()};
  }

  // "attention scores: 31.0 % of the step, 4.2x its floor"
  static std::string opening(const Finding& f, std::string_view subject) {
    std::string text = fmt::format("{}: {:.1f} % of the step", subject, 100 * f.share);
    if (f.ratio > 0) text += fmt::format(", {:.1f}x its floor", f.ratio);
    return text;
  }

  std::string worth(const Finding& f) const {
    return fmt::format("worth about {} a step ({:.1f} %)", format_duration(f.seconds_saved),
                       100 * report.share(f.seconds_saved));
  }

  bool is_product(NodeId node) const { return ridge::is_product(*graph.nodes()[node].op); }
  ProductKind f32_products() const { return report.roof.f32_products(); }
  DType operand_dtype(NodeId node) const {
    return graph.info(graph.nodes()[node].inputs[0]).type.dtype;
  }

  // By how much products would be faster if their floor fell to `floor_after`.
  static double saved_by_floor(const Timed& products, double floor_after) {
    if (products.floor <= 0) return 0;
    return products.seconds * std::max(0.0, 1 - floor_after / products.floor);
  }

  // Products are expected to gain as their floor falls. Operators that stream through memory gain
  // as their bytes fall; beside products, which take them in, they keep their FLOPs' time alone.
  // What is bound by overhead gains as the number of kernels falls.
  double estimate(const PassEffect& effect, double bytes_kept, double kernels_kept) const {
    std::vector<NodeId> products, others;
    for (const NodeId n : effect.replaced) (is_product(n) ? products : others).push_back(n);
    const Timed p = time_of(products), o = time_of(others);
    const double starting = o.seconds_by_bound[static_cast<std::size_t>(Bound::overhead)];
    const double streaming = o.seconds - starting;
    const double streaming_after =
        products.empty() ? streaming * bytes_kept : std::min(streaming, o.compute_floor);
    return saved_by_floor(p, std::max(p.compute_floor, p.memory_floor * bytes_kept)) + streaming -
           streaming_after + starting * (1 - kernels_kept) +
           (p.calls + o.calls) * (1 - kernels_kept) * gap_per_call();
  }

  // "softmax, causal_mask, scale and 3 others"
  std::string operators_of(const std::vector<NodeId>& nodes) const {
    std::vector<std::pair<double, std::string>> times;  // by operator
    for (const NodeId n : nodes) {
      const std::string name(name_of(*graph.nodes()[n].op));
      auto found = std::ranges::find(times, name, &std::pair<double, std::string>::second);
      if (found == times.end()) found = times.insert(times.end(), {0, name});
      found->first += time_of({n}).seconds;
    }
    std::ranges::stable_sort(times, std::greater{}, &std::pair<double, std::string>::first);
    constexpr std::size_t most = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(most, times.size()); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ", ", times[i].second);
    if (times.size() > most) text += fmt::format(" and {} others", times.size() - most);
    return text;
  }

  Finding of_pass(const PassEffect& effect) const {
    const Timed t = time_of(effect.replaced);
    Finding f = finding(Finding::Kind::rewrite, effect.enable, t);
    const double bytes_kept =
        effect.replaced_bytes > 0
            ? static_cast<double>(effect.added_bytes) / static_cast<double>(effect.replaced_bytes)
            : 1;
    f.kernels_saved = static_cast<double>(effect.kernels_saved());
    const double kernels_kept = t.calls > 0 ? std::max(0.0, 1 - f.kernels_saved / t.calls) : 1;
    const bool narrow = std::ranges::any_of(
        effect.replaced, [&](NodeId n) { return is_product(n) && is_16_bit(operand_dtype(n)); });
    const double recomputed = static_cast<double>(std::max<std::int64_t>(0, effect.extra_flops())) /
                              report.roof.flops(narrow ? ProductKind::bf16 : f32_products());
    const double floor_after = std::max(t.compute_floor + recomputed, t.memory_floor * bytes_kept);
    f.floor_saved = std::max(0.0, t.floor - floor_after);
    f.seconds_saved = std::max(0.0, estimate(effect, bytes_kept, kernels_kept) - recomputed);
    f.bytes_saved = static_cast<double>(effect.bytes_saved());
    f.activation_bytes = effect.activation_bytes;
    f.text = fmt::format("{}: {}", effect.enable, opening(f, operators_of(effect.replaced)));
    if (f.bytes_saved > 0)
      f.text += fmt::format("; moves {} less", format_megabytes(f.bytes_saved));
    if (f.kernels_saved > 0) f.text += fmt::format("; {:.0f} kernels fewer", f.kernels_saved);
    f.text += fmt::format("; {}", worth(f));
    if (f.activation_bytes > 0)
      f.text += fmt::format(", and {} less kept for the backward pass",
                            format_megabytes(static_cast<double>(f.activation_bytes)));
    f.text += fmt::format(" (--enable-pass {})", effect.enable);
    return f;
  }

  // Another option makes of the whole step what its graph and the ceilings say.
  Finding of_change(const OptionChange& change) const {
    const double seconds = report.all.seconds;
    const auto kernels = static_cast<double>(change.kernels);
    Finding f{.kind = Finding::Kind::option,
              .name = change.name,
              .share = report.share(seconds),
              .seconds = seconds,
              .kernels_saved = report.all.calls - kernels};
    // Of as many samples as a step has now.
    const auto samples = static_cast<double>(change.samples_now);
    const double after = change.seconds_per_sample() * samples;
    f.seconds_saved = std::max(0.0, report.step_seconds - after);
    f.bytes_saved =
        static_cast<double>(report.all.cost.bytes()) -
        static_cast<double>(change.work.bytes()) * samples / static_cast<double>(change.samples);
    f.text = fmt::format(
        "{}: a sample in about {} in place of {}, {:.2f}x as fast, if operators stay as near to "
        "their floors; a step has {:.0f} kernels in place of {:.0f}, moves {} in place of {} and "
        "takes {} of memory ({})",
        change.name, format_duration(change.seconds_per_sample()),
        format_duration(report.step_seconds / samples), report.step_seconds / after, kernels,
        report.all.calls, format_megabytes(static_cast<double>(change.work.bytes())),
        format_megabytes(static_cast<double>(report.all.cost.bytes())),
        format_megabytes(static_cast<double>(change.peak_bytes)), change.flags);
    if (change.rounds_otherwise) f.text += "; its results differ, --precisions says by how much";
    return f;
  }

  Finding of_bf16() const {
    std::vector<NodeId> products;
    for (const NodeBottleneck& node : report.nodes)
      if (is_product(node.node) && operand_dtype(node.node) == DType::f32)
        products.push_back(node.node);
    const Timed t = time_of(products);
    Finding f = finding(Finding::Kind::rewrite, "bf16", t);
    const double speed = report.roof.flops(ProductKind::bf16) / report.roof.flops(f32_products());
    const double floor_after = std::max(t.compute_floor / speed, t.memory_floor / 2);
    f.floor_saved = std::max(0.0, t.floor - floor_after);
    f.seconds_saved = saved_by_floor(t, floor_after);
    f.bytes_saved = static_cast<double>(t.cost.bytes()) / 2;
    f.activation_bytes = report.memory.saved_by_bf16;
    f.text = fmt::format(
        "{}, moves {} that bf16 would not, and this machine multiplies bf16 {:.1f}x as fast; {}, "
        "and {} less kept for the backward pass (--dtype bf16)",
        opening(f, fmt::format("products in {}", name_of(f32_products()))),
        format_megabytes(f.bytes_saved), speed, worth(f),
        format_megabytes(static_cast<double>(f.activation_bytes)));
    return f;
  }

  Finding of_operator(const NamedTime& row) const {
    const Timed& t = row.timed;
    Finding f = finding(Finding::Kind::kernel, row.name, t);
    f.seconds_saved = std::max(0.0, t.seconds - t.floor / reachable);
    f.text = fmt::format("{}, {}-bound", opening(f, row.name), name_of(t.bound()));
    if (t.bound() == Bound::compute)
      f.text +=
          fmt::format(" at {:.1f} GFLOP/s{} where {:.1f} are possible",
                      static_cast<double>(t.cost.causal_flops) / t.seconds / 1e9,
                      t.cost.causal_flops < t.cost.flops ? ", counting causal attention," : "",
                      static_cast<double>(t.cost.causal_flops) / t.floor / 1e9);
    else
      f.text += fmt::format(" at {:.1f} GB/s where {:.1f} are possible",
                            static_cast<double>(t.cost.bytes()) / t.seconds / 1e9,
                            static_cast<double>(t.cost.bytes()) / t.floor / 1e9);
    f.text +=
        fmt::format("; {} for a kernel at {:.0f} % of its ceiling", worth(f), 100 * reachable);
    return f;
  }

  // All of these seconds of a step could be saved.
  Finding of_time(Finding::Kind kind, const char* name, double seconds) const {
    return {.kind = kind,
            .name = name,
            .share = report.share(seconds),
            .seconds = seconds,
            .seconds_saved = seconds};
  }

  Finding of_dispatch() const {
    Finding f = of_time(Finding::Kind::dispatch, "between operators", report.between_nodes);
    f.text = fmt::format(
        "between operators: {:.1f} % of the step, {} for each of {:.0f} kernels: allocation and "
        "dispatch, which a planned and replayed step would not need; worth at most {}",
        100 * f.share, format_duration(gap_per_call()), report.all.calls,
        format_duration(f.seconds_saved));
    return f;
  }

  Finding of_feeding() const {
    Finding f = of_time(Finding::Kind::feeding, "outside the phases", report.outside_phases);
    f.text = fmt::format("outside the phases: {:.1f} % of the step: loading data, reading the loss",
                         100 * f.share);
    return f;
  }
};

std::int64_t bytes_with_role(const Graph& graph, Role role) {
  const Lifetimes lifetimes = lifetimes_of(graph);
  std::set<ValueId> storages;  // parts and slices share one
  for (ValueId v = 0; v < graph.value_count(); ++v)
    if (graph.info(v).role == role && (graph.info(v).persistent || role == Role::gradient))
      storages.insert(lifetimes.storage[v]);
  std::int64_t bytes = 0;
  for (const ValueId v : storages) bytes += static_cast<std::int64_t>(graph.info(v).type.bytes());
  return bytes;
}

// With checkpoints, a block keeps its result alone and computes the rest again.
std::int64_t saved_by_checkpointing(const Graph& graph, const std::vector<ValueId>& kept) {
  const auto block_of = [&](const Node& node) {
    return graph.enclosing(node.scope, ScopeKind::block);
  };
  std::int64_t bytes = 0;
  for (const ValueId value : kept) {
    const ValueInfo& info = graph.info(value);
    const auto block = block_of(graph.nodes()[info.producer]);
    if (!block) continue;
    const bool leaves_block = std::ranges::any_of(graph.nodes(), [&](const Node& node) {
      return node.phase == Phase::forward && std::ranges::count(node.inputs, value) > 0 &&
             block_of(node) != block;
    });
    if (!leaves_block) bytes += static_cast<std::int64_t>(info.type.bytes());
  }
  return bytes;
}

}  // namespace

MemoryUse memory_use(const Recording& recording, const Alternatives& alternatives) {
  const Graph& graph = *recording.graph;
  MemoryUse use;
  if (!recording.memory.empty()) {
    const MemoryReport report = memory_report(recording);
    use.peak_bytes = report.peak;
    use.peak_phase = report.peak_phase;
    use.peak_owner = report.peak_owner;
  }
  use.parameters = bytes_with_role(graph, Role::parameter);
  use.gradients = bytes_with_role(graph, Role::gradient);
  use.optimizer_state = bytes_with_role(graph, Role::optimizer_state);
  const std::vector<ValueId> kept = kept_for_backward(graph);
  for (const ValueId value : kept) {
    const TensorType& type = graph.info(value).type;
    use.activations += static_cast<std::int64_t>(type.bytes());
    if (type.dtype == DType::f32) use.saved_by_bf16 += static_cast<std::int64_t>(type.bytes()) / 2;
  }
  for (const PassEffect& effect : alternatives.effects)
    if (effect.activation_bytes > 0)
      use.saved_by_pass.emplace_back(effect.enable, effect.activation_bytes);
  use.growth = alternatives.growth;
  use.saved_by_checkpointing = saved_by_checkpointing(graph, kept);
  return use;
}

Alternatives alternatives_of(const RunOptions& options, Device& device, const Graph& graph) {
  Alternatives alternatives{pass_effects(options, device, graph), growth_laws(options, device)};
  if (options.use() == Use::inference)
    alternatives.changes = [options, &device, &graph](const BottleneckReport& report) {
      return changes_of(options, device, graph, report);
    };
  return alternatives;
}

std::vector<Finding> find_improvements(const Recording& recording, const BottleneckReport& report,
                                       const Alternatives& alternatives) {
  const Analysis analysis{*recording.graph, report};
  std::vector<Finding> findings;
  for (const PassEffect& effect : alternatives.effects)
    findings.push_back(analysis.of_pass(effect));
  if (alternatives.changes)
    for (const OptionChange& change : alternatives.changes(report))
      findings.push_back(analysis.of_change(change));
  else
    findings.push_back(analysis.of_bf16());
  for (const NamedTime& row : report.operators)
    if (row.timed.ratio() > 1 / reachable) findings.push_back(analysis.of_operator(row));
  findings.push_back(analysis.of_dispatch());
  findings.push_back(analysis.of_feeding());
  std::erase_if(findings, [&](const Finding& f) {
    return report.share(f.seconds_saved) < least_share_of_step || f.seconds <= 0;
  });
  std::ranges::stable_sort(findings, std::greater{}, &Finding::seconds_saved);
  return findings;
}

}  // namespace ridge
