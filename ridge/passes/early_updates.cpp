#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ridge/graph/op_rules.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"
#include "ridge/plan/memory.h"

namespace ridge {
namespace {

// One of the parameters that a node updates, by its place among them, and the first node before
// which it can be updated.
struct Update {
  std::size_t place = 0;
  NodeId before = no_node;
  std::size_t gradient_bytes = 0;
};
using Group = std::vector<Update>;

// The least part of the step's peak that is worth more kernels.
constexpr double least_gain = 0.01;

// Those that one kernel updates, in the order in which that is possible. The last group takes in
// what is left over.
std::vector<Group> grouped(std::vector<Update> updates, std::size_t least_bytes) {
  std::ranges::stable_sort(updates, {}, &Update::before);
  std::vector<Group> groups;
  std::size_t bytes = least_bytes;
  for (const Update& update : updates) {
    if (bytes >= least_bytes) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(update);
    bytes += update.gradient_bytes;
  }
  if (groups.size() > 1 && bytes < least_bytes) {
    const Group rest = std::move(groups.back());
    groups.pop_back();
    groups.back().insert(groups.back().end(), rest.begin(), rest.end());
  }
  return groups;
}

// What one node updates, taken apart. Place p stands for its p-th parameter.
template <class Each>
class Split {
  using All = UpdateAll<Each>;

 public:
  Split(Rewriter& rw, const Lifetimes& life, NodeId node, const All& op)
      : rw_(rw), life_(life), node_(node), op_(op), inputs_(rw.node(node).inputs) {}

  // Not if it waits for the norm of all gradients, for their scale, or for those of other batches.
  bool is_possible() const {
    if (op_.each.max_norm > 0 || op_.each.scaled || op_.zero_grad) return false;
    for (std::size_t p = 0; p < count(); ++p)
      if (life_.permanent[gradient(p)]) return false;
    return true;
  }

  void apply(std::size_t least_bytes) {
    const std::vector<Group> groups = grouped(updates(), least_bytes);
    if (groups.size() < 2 || !lowers_peak(groups)) return;
    for (const Group& group : groups) {
      rename_before(group);
      rw_.replace(&group == &groups.front() ? std::vector{node_} : std::vector<NodeId>(),
                  group.back().before, [*this, group] { return build(group); });
    }
  }

 private:
  std::size_t count() const { return op_.parameters(inputs_.size()); }
  std::size_t first_operand(std::size_t p) const {
    return op_.shared_operands() + All::operands_each * p;
  }
  ValueId gradient(std::size_t p) const { return life_.storage[inputs_[first_operand(p) + 1]]; }

  // By parameter: the place of its copy among the operands, or their number where it has none.
  std::vector<std::size_t> copies() const {
    std::vector<std::size_t> places(count(), inputs_.size());
    std::size_t next = first_operand(count());
    for (std::size_t p = 0; p < op_.copied.size(); ++p)
      if (op_.copied[p]) places[p] = next++;
    return places;
  }

  // A parameter can be updated once its gradient is there and nothing reads it, or its copy, any
  // more.
  std::vector<Update> updates() const {
    std::vector<NodeId> behind(life_.storage.size(), 0);  // by storage: the last to touch it
    for (NodeId n = 0; n < node_; ++n) {
      const Node& node = rw_.node(n);
      if (only_renames(*node.op)) continue;
      for (const ValueId in : node.inputs) behind[life_.storage[in]] = n + 1;
      for (const ValueId out : node.outputs) behind[life_.storage[out]] = n + 1;
    }
    const std::vector<std::size_t> copy = copies();
    std::vector<Update> found;
    for (std::size_t p = 0; p < count(); ++p) {
      Update update{.place = p, .before = 0, .gradient_bytes = life_.bytes[gradient(p)]};
      const auto follow = [&](ValueId v) {
        update.before = std::max(update.before, behind[life_.storage[v]]);
      };
      for (std::size_t i = 0; i < All::operands_each; ++i) follow(inputs_[first_operand(p) + i]);
      if (copy[p] < inputs_.size()) follow(inputs_[copy[p]]);
      found.push_back(update);
    }
    return found;
  }

  // Whether the peak of the step's tensors gets lower by `least_gain` if each group frees its
  // gradients. It does not where activations and logits alone make the peak, as with many tokens.
  bool lowers_peak(const std::vector<Group>& groups) const {
    std::map<ValueId, NodeId> freed;  // by storage of a gradient: the first node without it
    for (const Group& group : groups)
      for (const Update& update : group) {
        NodeId& before = freed[gradient(update.place)];
        before = std::max(before, group.back().before);
      }
    Lifetimes early = life_;
    for (std::vector<ValueId>& dead : early.dead)
      std::erase_if(dead, [&](ValueId storage) { return freed.contains(storage); });
    for (const auto& [storage, before] : freed) early.dead[before - 1].push_back(storage);
    return peak(early) <= (1 - least_gain) * peak(life_);
  }
  double peak(const Lifetimes& life) const {
    const std::vector<std::size_t> no_workspace(life.born.size(), 0);
    return static_cast<double>(plan_memory(rw_.graph(), life, no_workspace).peak_bytes);
  }

  // What only gives gradients of a group other names, for those who read them after the backward
  // pass, would keep their memory until there.
  void rename_before(const Group& group) {
    const NodeId at = group.back().before;
    for (NodeId n = at; n < node_; ++n) {
      const Node& node = rw_.node(n);
      if (!rw_.op(n) || !only_renames(*node.op)) continue;
      if (std::ranges::none_of(group, [&](const Update& update) {
            return gradient(update.place) == life_.storage[node.outputs.front()];
          }))
        continue;
      rw_.replace({n}, at, [&rw = rw_, n] {
        const Node& old = rw.node(n);
        const Scope scope(rw.graph(), old.scope);
        const PhaseScope phase(rw.graph(), old.phase);
        return Rewriter::each(old.outputs, rw.graph().apply(old.op, rw.values(old.inputs)));
      });
    }
  }

  Rewriter::Substitutes build(const Group& group) const {
    Graph& graph = rw_.graph();
    const Node& old = rw_.node(node_);
    const Scope scope(graph, old.scope);
    const PhaseScope phase(graph, Phase::optimizer);
    std::vector<Value> inputs = rw_.values(std::span(inputs_).first(op_.shared_operands()));
    std::vector<ValueId> outputs;
    for (const Update& update : group) {
      for (std::size_t i = 0; i < All::operands_each; ++i)
        inputs.push_back(rw_.value(inputs_[first_operand(update.place) + i]));
      for (std::size_t o = 0; o < op_.outputs_each(); ++o)
        outputs.push_back(old.outputs[op_.outputs_each() * update.place + o]);
    }
    All part = op_;
    part.copied.clear();
    const std::vector<std::size_t> copy = copies();
    for (const Update& update : group) {
      const std::size_t place = copy[update.place];
      part.copied.push_back(place < inputs_.size());
      if (!part.copied.back()) continue;
      inputs.push_back(rw_.value(inputs_[place]));
      outputs.push_back(old.outputs[op_.outputs_each() * count() + place - first_operand(count())]);
    }
    if (part.copies() == 0) part.copied.clear();
    return Rewriter::each(outputs, graph.apply(part, inputs));
  }

  Rewriter& rw_;
  const Lifetimes& life_;
  NodeId node_;
  const All& op_;
  const std::vector<ValueId>& inputs_;
};

template <class Each>
std::size_t update_early(Graph& graph, std::size_t least_bytes) {
  Rewriter rw(graph);
  const Lifetimes life = lifetimes_of(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto* const op = rw.op<UpdateAll<Each>>(n))
      if (Split<Each> split(rw, life, n, *op); split.is_possible()) split.apply(least_bytes);
  return rw.commit();
}

}  // namespace

std::size_t early_updates(Graph& graph, std::size_t least_bytes) {
  return update_early<AdamW>(graph, least_bytes) + update_early<Sgd>(graph, least_bytes);
}

}  // namespace ridge
