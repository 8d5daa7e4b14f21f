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

// How long a rank holds all of a parameter of which it keeps a part.
enum class Gathered { step, block };

// A rank keeps its part of a parameter alone. The parts come together, those of one block in one
// message and in the dtype in which they are needed, before they are needed first: for as long as
// the nodes of a block need them, before its forward and again before its backward pass (ZeRO's
// third stage: Rajbhandari et al., 2020), or for the whole step.
class ShardParameters {
 public:
  ShardParameters(Graph& graph, const PassRun& run, Gathered gathered)
      : graph_(graph),
        rw_(graph),
        ranks_(run.schedule.ranks),
        rank_(run.rank),
        gathered_(gathered),
        target_(run.schedule.target) {}

  std::size_t apply() {
    std::size_t found = 0;
    for (NodeId n = 0; n < rw_.nodes().size(); ++n) {
      const auto updated = updated_by(n);
      if (!updated || (gathered_ == Gathered::step && !is_rounded(updated->parameter))) continue;
      share_out(*updated);
      ++found;
    }
    for (const Message& message : messages()) gather(message);
    rw_.commit();
    return found;
  }

 private:
  // Where a value is needed for some time: a block, or a scope outside of all blocks, in a phase.
  using Stay = std::pair<Phase, ScopeId>;
  // Node `first` needs all of a parameter, gathered from `own`, this rank's part. It reads it as
  // `value`: the parameter itself, or the parameter rounded.
  struct Wanted {
    NodeId first;
    ValueId value, parameter;
    Value own;
  };
  using Message = std::vector<Wanted>;

  // Whether the passes before the update read the parameter in 16 bits alone.
  bool is_rounded(ValueId parameter) const {
    return std::ranges::all_of(rw_.uses(parameter), [&](NodeId use) {
      if (rw_.node(use).phase == Phase::optimizer) return true;
      const auto* const cast = rw_.op<Cast>(use);
      return cast != nullptr && is_16_bit(cast->to) && !rw_.is_readable(rw_.node(use).outputs[0]);
    });
  }

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
      want(out, rw_.uses(out), own, parameter);
    }
    want(parameter, uses, own, parameter);
  }

  Stay stay_of(NodeId n) const {
    const Node& node = rw_.node(n);
    return {node.phase, graph_.enclosing(node.scope, ScopeKind::block).value_or(node.scope)};
  }

  // Notes what to gather before the first of these uses: in each stay, or once a step.
  void want(ValueId value, const std::vector<NodeId>& uses, Value own, ValueId parameter) {
    std::map<Stay, NodeId> first;
    for (const NodeId use : uses) first.try_emplace(stay_of(use), use);
    for (const auto& [stay, use] : first) {
      if (gathered_ == Gathered::step && use != uses.front()) continue;
      wanted_[{stay, rw_.type(value).dtype}].push_back({use, value, parameter, own});
    }
  }

  // What a stay wants is one message. Where several go beside the work of a device, none is larger
  // than what came before it, so that the first ones, which nothing hides, are small.
  std::vector<Message> messages() const {
    std::vector<Message> stays;
    for (const auto& [together, wanted] : wanted_) {
      stays.push_back(wanted);
      std::ranges::stable_sort(stays.back(), {}, &Wanted::first);
    }
    std::ranges::stable_sort(stays, {}, [](const Message& stay) { return stay.front().first; });
    std::vector<Message> messages;
    std::size_t before = 0;
    for (const Message& stay : stays) {
      Message message;
      std::size_t bytes = 0;
      const auto close = [&] {
        messages.push_back(std::exchange(message, {}));
        before += std::exchange(bytes, 0);
      };
      for (const Wanted& w : stay) {
        const std::size_t more = rw_.type(w.value).bytes();
        const bool is_too_long = bytes + more > std::max(target_.bucket_bytes, before);
        if (target_.buckets > 1 && !message.empty() && is_too_long) close();
        message.push_back(w);
        bytes += more;
      }
      close();
    }
    return messages;
  }

  // Gathers all of these, in which they are rounded.
  void gather(const Message& wanted) {
    rw_.replace({}, wanted.front().first, [this, wanted] {
      AllGather op{.ranks = ranks_, .rank = rank_};
      std::vector<Value> parts;
      for (const Wanted& w : wanted) {
        op.shapes.push_back(rw_.type(w.parameter).shape);
        parts.push_back(w.own);
        const DType dtype = rw_.type(w.value).dtype;
        if (w.own.dtype() != dtype) op.rounded_to = dtype;
      }
      const std::vector<Value> wholes = graph_.apply(op, parts);
      Rewriter::Substitutes substitutes;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        substitutes.emplace_back(wanted[i].value, wholes[i]);
      return substitutes;
    });
  }

  Graph& graph_;
  Rewriter rw_;
  std::int64_t ranks_, rank_;
  Gathered gathered_;
  const Target& target_;
  std::map<std::pair<Stay, DType>, Message> wanted_;  // what can be gathered together
};

}  // namespace

std::size_t shard_parameters(Graph& graph, const PassRun& run) {
  return ShardParameters(graph, run, Gathered::block).apply();
}

// Gathers weights that products read in 16 bits after rounding them, which halves the bytes, while
// the blocks before them compute.
std::size_t gather_weights(Graph& graph, const PassRun& run) {
  return ShardParameters(graph, run, Gathered::step).apply();
}

}  // namespace ridge
