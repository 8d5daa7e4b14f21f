#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ridge/base/part.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/passes/schedules.h"

namespace ridge {
namespace {

// The ranks that share a run, and which of them this one is.
struct Ranks {
  std::int64_t rank, count;

  explicit Ranks(const PassRun& run) : rank(run.rank), count(run.schedule.ranks) {}

  Part part(const TensorType& type) const { return part_of(type.numel(), rank, count); }
  // Whether each rank gets a part. What is smaller all of them keep.
  bool share(const TensorType& type) const {
    return part_of(type.numel(), count - 1, count).count > 0;
  }
};

Value own_part(Value whole, const Part& part) {
  return slice(reshape(whole, {whole.type().numel()}), part.first, part.count);
}

// Each rank updates its part of every parameter, by its part of the optimizer's state, which alone
// it keeps. Then the parts come together. (ZeRO's first stage: Rajbhandari et al., 2020.)
class ShardOptimizer {
 public:
  ShardOptimizer(Graph& graph, const PassRun& run) : graph_(graph), rw_(graph), ranks_(run) {}

  std::size_t apply() {
    for (NodeId n = 0; n < rw_.nodes().size(); ++n) {
      shard<AdamW>(n);
      shard<Sgd>(n);
    }
    if (nodes_.empty()) return 0;
    rw_.replace({}, nodes_.back(), [this] {
      for (const auto& [part, whole] : updated_)
        graph_.apply(AllGather{.ranks = ranks_.count, .rank = ranks_.rank},
                     std::array{part, whole});
      return Rewriter::Substitutes{};
    });
    return rw_.commit() - 1;
  }

 private:
  template <class Each>
  void shard(NodeId n) {
    const Each* const op = rw_.op<Each>(n);
    if (op == nullptr) return;
    const Node& node = rw_.node(n);
    const bool is_read =
        std::ranges::any_of(node.outputs, [&](ValueId out) { return !rw_.uses(out).empty(); });
    if (is_read || !ranks_.share(rw_.type(node.inputs[0]))) return;
    nodes_.push_back(n);
    rw_.replace({n}, n, [this, &node, each = *op] {
      constexpr std::size_t moments = 2;  // the first of them
      std::vector<Value> operands = rw_.values(node.inputs);
      const Value whole = operands[0];
      const Part part = ranks_.part(whole.type());
      operands[0] = own_part(whole, part);
      operands[1] = own_part(operands[1], part);
      for (std::size_t m = 0; m < Each::moments; ++m)
        operands[moments + m] = graph_.share_out(operands[moments + m], part);
      updated_.emplace_back(graph_.apply(each, operands)[0], whole);
      return Rewriter::Substitutes{};
    });
  }

  Graph& graph_;
  Rewriter rw_;
  Ranks ranks_;
  std::vector<NodeId> nodes_;
  std::vector<std::pair<Value, Value>> updated_;  // the part of each parameter, and all of it
};

// A gradient of which shard-optimizer reads a part alone.
struct ReadInPart {
  NodeId reshape, slice;
  ValueId part;
  std::vector<NodeId> views;  // slices of it that are there to be read from outside
};

// No rank has all of a gradient for longer than until it is summed: each gets the sum of its part,
// and keeps that. (ZeRO's second stage. In the first that is done where it only saves bytes.)
class ShardGradients {
 public:
  ShardGradients(Graph& graph, const PassRun& run)
      : graph_(graph),
        rw_(graph),
        ranks_(run),
        scatter_{.ranks = ranks_.count, .rank = ranks_.rank} {}

  std::size_t apply(const Schedule& schedule) {
    if (schedule.zero == 1 && !only_saves_bytes(schedule)) return 0;
    for (NodeId n = 0; n < rw_.nodes().size(); ++n)
      if (rw_.op<AllReduce>(n)) scatter(n);
    for (NodeId n = 0; n < rw_.nodes().size(); ++n)
      if (rw_.op<GlobalNorm>(n)) add_norms(n);
    return rw_.commit();
  }

 private:
  static constexpr std::size_t least_long_message = std::size_t{4} << 20;

  // Sums over several batches are kept whole in the first stage, and the norm of pairwise sums is
  // added up in one order. Short messages take a GPU less time summed for all ranks at once: sums
  // of parts are an exchange and a kernel.
  bool only_saves_bytes(const Schedule& schedule) const {
    if (schedule.pairwise_sums) return false;
    std::size_t bytes = 0;
    for (NodeId n = 0; n < rw_.nodes().size(); ++n) {
      if (!rw_.op<AllReduce>(n)) continue;
      for (const ValueId in : rw_.node(n).inputs) {
        if (rw_.producer<Accumulate>(in) != no_node) return false;
        bytes += rw_.type(in).bytes();
      }
    }
    return !schedule.target.is_gpu() || bytes / schedule.target.buckets >= least_long_message;
  }

  std::optional<ReadInPart> read_in_part(ValueId gradient) {
    const Part part = ranks_.part(rw_.type(gradient));
    ReadInPart found{no_node, no_node, no_value, {}};
    for (const NodeId use : rw_.uses(gradient)) {
      const std::vector<ValueId>& outputs = rw_.node(use).outputs;
      if (rw_.op<GlobalNorm>(use)) continue;
      if (rw_.op<Slice>(use) && rw_.uses(outputs[0]).empty()) {
        found.views.push_back(use);
        continue;
      }
      if (found.slice != no_node) return std::nullopt;
      found.reshape = rw_.op<Reshape>(use) ? use : no_node;
      // Of a vector reshape() makes no node.
      const ValueId flat = found.reshape == no_node ? gradient : outputs[0];
      if (found.reshape != no_node && rw_.uses(flat).size() != 1) return std::nullopt;
      found.slice = found.reshape == no_node ? use : rw_.uses(flat).front();
      const auto* const slice = rw_.op<Slice>(found.slice);
      if (slice == nullptr || slice->begin != part.first || slice->rows != part.count)
        return std::nullopt;
      found.part = rw_.node(found.slice).outputs[0];
    }
    if (found.part == no_value) return std::nullopt;
    return found;
  }

  // The node that adds to a sum over batches, which the reduction `n` takes, and nobody else.
  NodeId sum_over_batches(NodeId n) const {
    const ValueId in = rw_.node(n).inputs[0];
    const NodeId add = rw_.producer<Accumulate>(in);
    const bool alone = add != no_node && rw_.uses(in).size() == 1;
    return alone ? add : no_node;
  }

  void scatter(NodeId n) {
    const Node& node = rw_.node(n);
    std::vector<ReadInPart> reads;
    for (const ValueId out : node.outputs) {
      auto read = read_in_part(out);
      if (!read) return;
      reads.push_back(*std::move(read));
    }
    std::vector<NodeId> leaving{n};
    for (std::size_t i = 0; i < reads.size(); ++i) {
      const ReadInPart& read = reads[i];
      if (read.reshape != no_node) leaving.push_back(read.reshape);
      leaving.push_back(read.slice);
      leaving.insert(leaving.end(), read.views.begin(), read.views.end());
      share_out(node.outputs[i], read);
    }
    scatter_.mean = rw_.op<AllReduce>(n)->mean;
    const NodeId add = node.inputs.size() == 1 ? sum_over_batches(n) : no_node;
    if (add != no_node) return scatter_batches(add, std::move(leaving), reads[0]);
    rw_.replace(leaving, n, [this, &node, reads, scatter = scatter_] {
      const std::vector<Value> parts = graph_.apply(scatter, rw_.values(node.inputs));
      Rewriter::Substitutes substitutes;
      for (std::size_t i = 0; i < parts.size(); ++i)
        substitutes.emplace_back(reads[i].part, parts[i]);
      return substitutes;
    });
  }

  // Whoever asks for the gradient from outside gets it of all ranks.
  void share_out(ValueId gradient, const ReadInPart& read) {
    parts_[gradient] = read.part;
    graph_.share_out(gradient, read.part, ranks_.part(rw_.type(gradient)));
    const std::string& name = rw_.info(gradient).name;
    graph_.set_role(graph_.value(read.part), Role::gradient,
                    name.empty() ? fmt::format("gradient.{}.part", gradient) : name + ".part");
    for (const NodeId view : read.views) {
      const std::int64_t row = rw_.type(gradient).numel() / rw_.type(gradient).shape[0];
      graph_.read_from(rw_.node(view).outputs[0], gradient, rw_.op<Slice>(view)->begin * row);
    }
  }

  // The sum over batches is one of parts, each of which is summed over the ranks as soon as it is
  // there.
  void scatter_batches(NodeId add, std::vector<NodeId> leaving, const ReadInPart& read) {
    leaving.push_back(add);
    rw_.replace(std::move(leaving), add,
                [this, &node = rw_.node(add), part = read.part, scatter = scatter_] {
                  const std::vector<Value> operands = rw_.values(node.inputs);
                  const Value own = graph_.share_out(operands[0], ranks_.part(operands[0].type()));
                  const Value mean = graph_.apply(scatter, std::array{operands[1]})[0];
                  return Rewriter::Substitutes{{part, graph_.apply1(Accumulate{}, {own, mean})}};
                });
  }

  // The squares of the parts' norms are summed over the ranks.
  void add_norms(NodeId n) {
    std::vector<ValueId> parts, wholes;
    for (const ValueId in : rw_.node(n).inputs)
      if (const auto found = parts_.find(in); found != parts_.end())
        parts.push_back(found->second);
      else
        wholes.push_back(in);
    if (parts.empty()) return;
    rw_.replace({n}, n, [this, n, parts, wholes] {
      const Value own = graph_.apply(GlobalNorm{}, rw_.values(parts))[0];
      const Value square = mul(own, own);
      Value norm =
          activation(all_reduce({&square, 1}, {.ranks = ranks_.count})[0], ActivationKind::sqrt);
      if (!wholes.empty()) {
        std::vector<Value> norms = rw_.values(wholes);
        norms.push_back(norm);
        norm = graph_.apply(GlobalNorm{}, norms)[0];
      }
      return Rewriter::Substitutes{{rw_.node(n).outputs[0], norm}};
    });
  }

  Graph& graph_;
  Rewriter rw_;
  Ranks ranks_;
  ReduceScatter scatter_;
  std::map<ValueId, ValueId> parts_;  // of gradients
};

}  // namespace

std::size_t shard_optimizer(Graph& graph, const PassRun& run) {
  return ShardOptimizer(graph, run).apply();
}

std::size_t shard_gradients(Graph& graph, const PassRun& run) {
  return ShardGradients(graph, run).apply(run.schedule);
}

}  // namespace ridge
