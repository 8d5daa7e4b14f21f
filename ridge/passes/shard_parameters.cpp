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

// A parameter whose parts come together after each update: shard-optimizer's work.
struct Updated {
  NodeId gather;
  ValueId parameter;
  NodeId reshape = no_node, slice = no_node;  // which take this rank's part out of it
};

// No rank keeps a parameter. Each has its part, and the parts come together for as long as the
// nodes of one block need them, before its forward and again before its backward pass; in the dtype
// in which they are needed. (ZeRO's third stage: Rajbhandari et al., 2020.)
class ShardParameters {
 public:
  ShardParameters(Graph& graph, const PassRun& run)
      : graph_(graph), rw_(graph), ranks_(run.schedule.ranks), rank_(run.rank) {}

  std::size_t apply() {
    std::size_t found = 0;
    for (NodeId n = 0; n < rw_.nodes().size(); ++n)
      if (const auto updated = updated_by(n)) {
        share_out(*updated);
        ++found;
      }
    rw_.commit();
    return found;
  }

 private:
  // Where a value is needed for some time: a block, or a scope outside of all blocks, in a phase.
  using Stay = std::pair<Phase, ScopeId>;

  std::optional<Updated> updated_by(NodeId gather) const {
    const auto* const op = rw_.op<AllGather>(gather);
    if (op == nullptr || !op->shapes.empty()) return std::nullopt;
    Updated updated{.gather = gather, .parameter = rw_.node(gather).inputs[1]};
    for (const NodeId use : rw_.uses(updated.parameter)) {
      if (rw_.node(use).phase != Phase::optimizer || use == gather) continue;
      const bool flattens = rw_.op<Reshape>(use) != nullptr;
      updated.reshape = flattens ? use : no_node;
      updated.slice = flattens ? rw_.uses(rw_.node(use).outputs[0]).front() : use;
    }
    return rw_.op<Slice>(updated.slice) ? std::optional(updated) : std::nullopt;
  }

  void share_out(const Updated& updated) {
    const ValueId parameter = updated.parameter;
    const Part part = part_of(rw_.type(parameter).numel(), rank_, ranks_);
    const Value own = graph_.share_out(graph_.value(parameter), part);
    std::vector<NodeId> leaving{updated.gather, updated.slice};
    if (updated.reshape != no_node) leaving.push_back(updated.reshape);
    rw_.replace(leaving, updated.slice, [this, out = rw_.node(updated.slice).outputs[0], own] {
      return Rewriter::Substitutes{{out, own}};
    });
    std::vector<NodeId> uses;
    for (const NodeId use : rw_.uses(parameter)) {
      if (std::ranges::find(leaving, use) != leaving.end()) continue;
      const ValueId out = rw_.node(use).outputs[0];
      if (!rw_.op<Cast>(use) || rw_.is_readable(out)) {
        uses.push_back(use);
        continue;
      }
      rw_.remove(use);
      gather(out, rw_.uses(out), own, parameter);
    }
    gather(parameter, uses, own, parameter);
  }

  Stay stay_of(NodeId n) const {
    const Node& node = rw_.node(n);
    return {node.phase, graph_.enclosing(node.scope, ScopeKind::block).value_or(node.scope)};
  }

  // Before the first of the uses in each stay: in the dtype of `value`, which is the parameter, or
  // that rounded.
  void gather(ValueId value, const std::vector<NodeId>& uses, Value own, ValueId parameter) {
    std::map<Stay, NodeId> first;
    for (const NodeId use : uses) first.try_emplace(stay_of(use), use);
    for (const auto& [stay, use] : first)
      rw_.replace({}, use, [this, value, own, parameter] {
        const AllGather op{.ranks = ranks_, .rank = rank_, .shapes = {rw_.type(parameter).shape}};
        const Value part = cast(own, rw_.type(value).dtype);
        return Rewriter::Substitutes{{value, graph_.apply1(op, {part})}};
      });
  }

  Graph& graph_;
  Rewriter rw_;
  std::int64_t ranks_, rank_;
};

}  // namespace

std::size_t shard_parameters(Graph& graph, const PassRun& run) {
  return ShardParameters(graph, run).apply();
}

}  // namespace ridge
