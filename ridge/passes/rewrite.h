#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/ops/op.h"

namespace ridge {

// A graph while a pass rewrites it. The pass looks at the nodes as they were and says which of them
// leave and what comes instead; commit() builds the graph anew. Values keep their ids: a handle
// taken before, such as that of the loss, stays good, because what computes the value instead
// computes it under the same id.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph);

  Graph& graph() const { return graph_; }
  const std::vector<Node>& nodes() const { return nodes_; }  // as they were
  const Node& node(NodeId n) const { return nodes_[n]; }
  const ValueInfo& info(ValueId v) const { return graph_.info(v); }
  const TensorType& type(ValueId v) const { return graph_.info(v).type; }
  Value value(ValueId v) { return graph_.value(redirected_[v]); }  // or what stands for it by now
  std::vector<Value> values(std::span<const ValueId> ids);         // the same for each

  // The operator of node n if no replacement has claimed the node; null too for no_node. The second
  // form: if it is a T.
  const Op* op(NodeId n) const { return n == no_node || claimed_[n] ? nullptr : node(n).op.get(); }
  template <class T>
  const T* op(NodeId n) const {
    return op(n) ? std::get_if<T>(&op(n)->variant()) : nullptr;
  }
  // The node that computes v, if any; the second form: if it is an unclaimed T.
  NodeId producer(ValueId v) const { return producers_[v]; }
  template <class T>
  NodeId producer(ValueId v) const {
    return op<T>(producers_[v]) ? producers_[v] : no_node;
  }
  // The nodes that use v, each once, in order.
  const std::vector<NodeId>& uses(ValueId v) const { return uses_[v]; }
  // The one node that uses v if it is an unclaimed T and v is read nowhere else, nor after the run.
  template <class T>
  NodeId only_use(ValueId v) const {
    return uses_[v].size() == 1 && !is_readable(v) && op<T>(uses_[v].front()) ? uses_[v].front()
                                                                              : no_node;
  }
  // Whether v can be read from outside of a run, so that it has to stay itself.
  bool is_readable(ValueId v) const;

  // What stands for a value from here on: a value just built, which takes over the old one's id
  // (and gives it its dtype, if that is another: see to it that those who use it can read it), or
  // another, to which the old one's later uses turn: one that was there before, or, where the old
  // one is computed as well, a second one.
  using Substitutes = std::vector<std::pair<ValueId, Value>>;
  // For each of `old` the one at its place in `by`, which may have more.
  static Substitutes each(std::span<const ValueId> old, std::span<const Value> by);

  // `nodes` leave, and where `at` stood, `build` appends others by the ordinary functions, under
  // at's scope, phase and forward node. `at` need not be one of them.
  void replace(std::vector<NodeId> nodes, NodeId at, std::function<Substitutes()> build);
  void remove(NodeId n) { claimed_[n] = true; }
  // While it builds: which node n has become.
  NodeId now(NodeId n) const { return moved_[n]; }
  // Before `at` and in its phase, node n, which stays where it is, is applied once more, and what
  // comes after uses these results.
  void repeat(NodeId n, NodeId at);

  // Carries out what was said and returns how many replacements that were. Error if a node now uses
  // a value that is computed later or not at all: the pass is wrong.
  std::size_t commit();

 private:
  struct Replacement {
    std::vector<NodeId> nodes;
    std::function<Substitutes()> build;
  };

  void build(NodeId at);
  void take_over(ValueId old, Value by, NodeId first);
  void check_order() const;

  Graph& graph_;
  const std::vector<Node> nodes_;
  std::vector<NodeId> producers_;  // by value
  std::vector<std::vector<NodeId>> uses_;
  std::vector<bool> claimed_;  // by node
  std::map<NodeId, std::vector<Replacement>> replacements_;
  std::vector<ValueId> redirected_;  // by value: what stands for it
  std::vector<NodeId> moved_;        // by node: which it has become, from commit() on
};

}  // namespace ridge
