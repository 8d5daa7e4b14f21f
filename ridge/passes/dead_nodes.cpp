#include <ranges>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {

// Alive is what writes to memory that outlives the run, computes what is read after it, or feeds
// what is alive.
std::size_t dead_nodes(Graph& graph) {
  Rewriter rw(graph);
  const Lifetimes life = lifetimes_of(graph);
  std::vector<bool> wanted(graph.value_count(), false);
  std::size_t dead = 0;
  for (NodeId n = static_cast<NodeId>(rw.nodes().size()); n-- > 0;) {
    const Node& node = rw.node(n);
    bool alive = false;
    for (const ValueId out : node.outputs)
      alive |= wanted[out] || rw.is_readable(out) || life.permanent[life.storage[out]];
    if (alive) {
      for (const ValueId in : node.inputs) wanted[in] = true;
    } else {
      rw.remove(n);
      ++dead;
    }
  }
  rw.commit();
  return dead;
}

}  // namespace ridge
