#include "ridge/plan/memory.h"

#include <algorithm>

namespace ridge {

std::size_t peak_live_bytes(const Graph& graph, const Lifetimes& lifetimes,
                            std::span<const std::size_t> workspace) {
  std::size_t live = 0;
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent) live += lifetimes.bytes[id];
  std::size_t peak = live;
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    for (const ValueId storage : lifetimes.born[n]) live += lifetimes.bytes[storage];
    const std::size_t scratch =
        (workspace[n] + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
    peak = std::max(peak, live + scratch);
    for (const ValueId storage : lifetimes.dead[n]) live -= lifetimes.bytes[storage];
  }
  return peak;
}

}  // namespace ridge
