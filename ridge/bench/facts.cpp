#include "ridge/bench/facts.h"

#include "ridge/bench/session.h"

namespace ridge {

NetworkFacts facts_of(const BenchOptions& options) {
  Graph graph;
  build_vision(graph, options.network, {.image_size = options.image_size});
  return {.parameters = parameter_count(graph), .macs = total_cost(graph).macs};
}

}  // namespace ridge
