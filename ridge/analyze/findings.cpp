#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/analyze/fusion.h"
#include "ridge/base/units.h"
#include "ridge/ops/op.h"
#include "ridge/profile/memory_report.h"

namespace ridge {
namespace {

// What a well-made kernel reaches of its floor, for estimates of what a better one would save.
constexpr double reachable = 0.7;
constexpr double least_share = 0.005;  // of the step; less is not worth a line

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes / 1e6); }

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

  // The time is expected to fall as the floor does, and that of starting kernels as their number.
  void estimate(Finding& f, const Timed& t, double floor_after, double kernels_kept) const {
    const double for_overhead = t.seconds_by_bound[static_cast<std::size_t>(Bound::overhead)];
    f.floor_saved = std::max(0.0, t.floor - floor_after);
    f.kernels_saved = t.calls * (1 - kernels_kept);
    f.seconds_saved = f.kernels_saved * gap_per_call() + for_overhead * (1 - kernels_kept);
    if (t.floor > 0) f.seconds_saved += (t.seconds - for_overhead) * f.floor_saved / t.floor;
  }

  Finding of_rewrite(const Rewrite& rewrite) const {
    const Timed t = time_of(rewrite.nodes);
    Finding f = finding(Finding::Kind::rewrite, rewrite.name, t);
    if (t.calls <= 0) return f;
    const double runs = t.calls / static_cast<double>(rewrite.nodes.size());
    const double bytes_kept = rewrite.bytes_now > 0 ? static_cast<double>(rewrite.bytes_after) /
                                                          static_cast<double>(rewrite.bytes_now)
                                                    : 1;
    const double compute = t.compute_floor + runs * static_cast<double>(rewrite.extra_flops) /
                                                 report.roof.flops(DType::f32);
    estimate(f, t, std::max(compute, t.memory_floor * bytes_kept),
             static_cast<double>(rewrite.kernels_after) / static_cast<double>(rewrite.kernels_now));
    f.bytes_saved = runs * static_cast<double>(rewrite.bytes_saved());
    f.activation_bytes = rewrite.activation_bytes;
    f.text = opening(f, rewrite.subject);
    if (f.bytes_saved > 0)
      f.text += fmt::format(", moves {} that {} would not", megabytes(f.bytes_saved), rewrite.name);
    f.text += fmt::format("; {:.0f} kernels fewer, {}", f.kernels_saved, worth(f));
    if (f.activation_bytes > 0)
      f.text += fmt::format(", and {} less kept for the backward pass",
                            megabytes(static_cast<double>(f.activation_bytes)));
    return f;
  }

  Finding of_bf16() const {
    std::vector<NodeId> products;
    for (const NodeBottleneck& node : report.nodes) {
      const Node& n = graph.nodes()[node.node];
      if (std::holds_alternative<MatMul>(n.op->variant()) &&
          graph.info(n.inputs[0]).type.dtype == DType::f32)
        products.push_back(node.node);
    }
    const Timed t = time_of(products);
    Finding f = finding(Finding::Kind::rewrite, "bf16", t);
    const double speed = report.roof.bf16_flops / report.roof.f32_flops;
    estimate(f, t, std::max(t.compute_floor / speed, t.memory_floor / 2), 1);
    f.bytes_saved = static_cast<double>(t.cost.bytes()) / 2;
    f.activation_bytes = report.memory.saved_by_bf16;
    f.text = fmt::format(
        "{}, moves {} that bf16 would not, and this machine multiplies bf16 {:.1f}x as fast; {}, "
        "and {} less kept for the backward pass",
        opening(f, "products in f32"), megabytes(f.bytes_saved), speed, worth(f),
        megabytes(static_cast<double>(f.activation_bytes)));
    return f;
  }

  Finding of_operator(const NamedTime& row) const {
    const Timed& t = row.timed;
    Finding f = finding(Finding::Kind::kernel, row.name, t);
    f.seconds_saved = std::max(0.0, t.seconds - t.floor / reachable);
    f.text = fmt::format("{}, {}-bound", opening(f, row.name), name_of(t.bound()));
    if (t.bound() == Bound::compute)
      f.text += fmt::format(" at {:.1f} GFLOP/s where {:.1f} are possible",
                            static_cast<double>(t.cost.causal_flops) / t.seconds / 1e9,
                            static_cast<double>(t.cost.causal_flops) / t.floor / 1e9);
    else
      f.text += fmt::format(" at {:.1f} GB/s where {:.1f} are possible",
                            static_cast<double>(t.cost.bytes()) / t.seconds / 1e9,
                            static_cast<double>(t.cost.bytes()) / t.floor / 1e9);
    f.text +=
        fmt::format("; {} for a kernel at {:.0f} % of its ceiling", worth(f), 100 * reachable);
    return f;
  }

  Finding of_dispatch() const {
    Finding f{.kind = Finding::Kind::dispatch,
              .name = "between operators",
              .share = report.share(report.between_nodes),
              .seconds = report.between_nodes,
              .seconds_saved = report.between_nodes,
              .kernels_saved = 0};
    f.text = fmt::format(
        "between operators: {:.1f} % of the step, {} for each of {:.0f} kernels: allocation and "
        "dispatch, which a planned and replayed step would not need; worth at most {}",
        100 * f.share, format_duration(gap_per_call()), report.all.calls,
        format_duration(f.seconds_saved));
    return f;
  }

  Finding of_feeding() const {
    Finding f{.kind = Finding::Kind::feeding,
              .name = "outside the phases",
              .share = report.share(report.outside_phases),
              .seconds = report.outside_phases,
              .seconds_saved = report.outside_phases};
    f.text = fmt::format("outside the phases: {:.1f} % of the step: loading data, reading the loss",
                         100 * f.share);
    return f;
  }
};

std::int64_t bytes_with_role(const Graph& graph, Role role) {
  std::int64_t bytes = 0;
  for (ValueId v = 0; v < graph.value_count(); ++v)
    if (graph.info(v).role == role && (graph.info(v).persistent || role == Role::gradient))
      bytes += static_cast<std::int64_t>(graph.info(v).type.bytes());
  return bytes;
}

// With checkpoints, a layer keeps its result alone and computes the rest again.
std::int64_t saved_by_checkpointing(const Graph& graph, const std::vector<ValueId>& kept) {
  const auto layer_of = [&](NodeId n) {
    const std::string& scope = graph.scope_name(graph.nodes()[n].scope);
    if (!scope.starts_with("layers.")) return std::string();
    return scope.substr(0, scope.find('.', std::string_view("layers.").size()));
  };
  std::int64_t bytes = 0;
  for (const ValueId value : kept) {
    const ValueInfo& info = graph.info(value);
    const std::string layer = layer_of(info.producer);
    if (layer.empty()) continue;
    const auto& nodes = graph.nodes();
    const bool leaves_layer = std::ranges::any_of(nodes, [&](const Node& node) {
      return node.phase == Phase::forward && std::ranges::count(node.inputs, value) > 0 &&
             layer_of(static_cast<NodeId>(&node - nodes.data())) != layer;
    });
    if (!leaves_layer) bytes += static_cast<std::int64_t>(info.type.bytes());
  }
  return bytes;
}

}  // namespace

MemoryUse memory_use(const Recording& recording) {
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
  for (const Rewrite& rewrite : possible_rewrites(graph))
    (rewrite.name == "flash attention" ? use.saved_by_flash : use.saved_by_fusion) +=
        rewrite.activation_bytes;
  use.quadratic = use.saved_by_flash;
  use.saved_by_checkpointing = saved_by_checkpointing(graph, kept);
  return use;
}

std::vector<Finding> find_improvements(const Recording& recording, const BottleneckReport& report) {
  const Analysis analysis{*recording.graph, report};
  std::vector<Finding> findings;
  for (const Rewrite& rewrite : possible_rewrites(*recording.graph))
    findings.push_back(analysis.of_rewrite(rewrite));
  findings.push_back(analysis.of_bf16());
  for (const NamedTime& row : report.operators)
    if (row.timed.ratio() > 1 / reachable) findings.push_back(analysis.of_operator(row));
  findings.push_back(analysis.of_dispatch());
  findings.push_back(analysis.of_feeding());
  std::erase_if(findings, [&](const Finding& f) {
    return report.share(f.seconds_saved) < least_share || f.seconds <= 0;
  });
  std::ranges::stable_sort(findings, std::greater{}, &Finding::seconds_saved);
  return findings;
}

}  // namespace ridge
