#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/passes/schedules.h"

namespace ridge {
namespace {

// A graph that does its rank's part of a batch becomes one whose results are those of the whole
// batch. Samples count alike and ranks have as many each, so the loss of the whole is the mean of
// the ranks' losses, and so are its gradients. Where gradients are summed pairwise, a rank computes
// as one alone would: nothing is shared before the optimizer, and its gradients are of the loss of
// the whole already.
class DataParallel {
 public:
  DataParallel(Graph& graph, const PassRun& run)
      : rw_(graph),
        alone_(run.schedule.pairwise_sums),
        mean_{.ranks = run.schedule.ranks, .mean = !alone_},
        rank_(run.rank),
        loss_(run.loss.id) {}

  std::size_t apply() {
    find();
    for (const auto& [node, values] : where_computed_) reduce_where_computed(node, values);
    for (const auto& [phase, values] : late_)
      for (const ValueId v : values) reduce_at_last(phase, v);
    if (!alone_)
      for (NodeId n = 0; n < rw_.nodes().size(); ++n) number_drops(n);
    return rw_.commit();
  }

 private:
  bool updates(NodeId n) const { return rw_.node(n).phase == Phase::optimizer; }

  void find() {
    if (!alone_) add_where_computed(loss_);
    for (ValueId v = 0; v < rw_.graph().value_count(); ++v) {
      const NodeId producer = rw_.producer(v);
      if (producer == no_node) continue;
      if (is_gradient(v)) {
        if (is_sum(v))
          late_[Phase::optimizer].push_back(v);
        else if (is_only_gradient(v))
          add_where_computed(v);
        else
          late_[Phase::backward].push_back(v);
      } else if (moves_buffer(v)) {
        if (alone_)
          throw UsageError(
              "the running statistics of batch norms are not the same on any number of ranks: use "
              "--micro-batches 1 with --ranks {}",
              mean_.ranks);
        const auto* const norm = rw_.op<BatchNormTrain>(producer);
        if (norm != nullptr && norm->ranks > 1) continue;
        late_[Phase::optimizer].push_back(v);
      }
    }
  }

  void add_where_computed(ValueId v) { where_computed_[rw_.producer(v)].push_back(v); }

  // What a backward pass leaves for the optimizer, summed over batches or not.
  bool is_gradient(ValueId v) const {
    if (updates(rw_.producer(v))) return false;
    for (const NodeId use : rw_.uses(v))
      if (updates(use)) return true;
    return false;
  }

  // Where a computed value lies in the memory of another: that one.
  std::optional<ValueId> updated_by(ValueId v) const {
    const Node& producer = rw_.node(rw_.producer(v));
    for (std::uint32_t o = 0; o < producer.outputs.size(); ++o) {
      if (producer.outputs[o] != v) continue;
      const auto alias = aliased_input(*producer.op, o, rw_.graph().types_of(producer.inputs));
      if (alias && !only_renames(*producer.op)) return producer.inputs[alias->input];
    }
    return std::nullopt;
  }

  // Over several batches: complete only before the optimizer.
  bool is_sum(ValueId v) const { return updated_by(v).has_value(); }

  // The gradient of a parameter that was added to another value is that value's too.
  bool is_only_gradient(ValueId v) const {
    return std::ranges::all_of(
        rw_.uses(v), [&](NodeId use) { return updates(use) || only_renames(*rw_.node(use).op); });
  }

  // Running statistics: each rank has moved them by those of its own samples, unless it knew those
  // of all.
  bool moves_buffer(ValueId v) const {
    if (updates(rw_.producer(v)) || !is_floating(rw_.type(v).dtype)) return false;
    const std::optional<ValueId> updated = updated_by(v);
    return updated && rw_.info(*updated).role == Role::buffer;
  }

  // The mean gets the value's id, so that whoever holds the value has that of the whole batch.
  void reduce_where_computed(NodeId n, const std::vector<ValueId>& values) {
    rw_.replace({n}, n, [this, n, values] {
      const Node& node = rw_.node(n);
      std::vector<Value> out = rw_.graph().apply(node.op, rw_.values(node.inputs));
      std::vector<Value> own;
      std::vector<std::size_t> places;
      for (std::size_t o = 0; o < out.size(); ++o)
        for (const ValueId v : values)
          if (node.outputs[o] == v) own.push_back(out[o]), places.push_back(o);
      // The mean lies in this value's memory, which is a gradient's then.
      for (std::size_t i = 0; i < places.size(); ++i)
        if (const ValueInfo& mean = rw_.info(node.outputs[places[i]]); mean.role == Role::gradient)
          rw_.graph().set_role(own[i], Role::gradient, mean.name + ".own");
      const std::vector<Value> means = all_reduce(own, mean_);
      for (std::size_t i = 0; i < places.size(); ++i) out[places[i]] = means[i];
      return Rewriter::each(node.outputs, out);
    });
  }

  // Where the optimizer begins, as the last of an earlier phase or the first of its own.
  void reduce_at_last(Phase phase, ValueId v) {
    NodeId first = 0;
    while (!updates(first)) ++first;
    rw_.replace({}, first, [this, phase, v] {
      const PhaseScope in(rw_.graph(), phase);
      const Value own = rw_.value(v);
      return Rewriter::Substitutes{{v, all_reduce({&own, 1}, mean_).front()}};
    });
  }

  // A sample is dropped as it would be in the whole batch.
  void number_drops(NodeId n) {
    const Dropout* const op = rw_.op<Dropout>(n);
    if (op == nullptr || rank_ == 0) return;
    Dropout of_rank = *op;
    of_rank.first += rank_ * rw_.type(rw_.node(n).inputs[0]).numel() / op->block;
    rw_.replace({n}, n, [this, n, of_rank] {
      const Node& node = rw_.node(n);
      return Rewriter::each(node.outputs, rw_.graph().apply(of_rank, rw_.values(node.inputs)));
    });
  }

  Rewriter rw_;
  bool alone_;
  AllReduce mean_;
  std::int64_t rank_;
  ValueId loss_;
  std::map<NodeId, std::vector<ValueId>> where_computed_;
  std::map<Phase, std::vector<ValueId>> late_;
};

}  // namespace

std::size_t data_parallel(Graph& graph, const PassRun& run) {
  return DataParallel(graph, run).apply();
}

}  // namespace ridge
