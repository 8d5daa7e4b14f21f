#include "ridge/session/calibration.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "ridge/ops/op.h"

namespace ridge {

Int8Ranges calibrate(const Graph& graph, std::span<const ValueId> values, Device& device,
                     std::uint64_t seed, const std::function<void(Executor&)>& feed) {
  const std::unique_ptr<Graph> observed = graph.clone();
  const std::set<ValueId> wanted(values.begin(), values.end());
  std::map<ValueId, Value> largest;
  const auto observe = [&](ValueId id) {
    if (!wanted.contains(id)) return;
    const Value most = observed->apply1(ReduceAll{Reduction::absmax}, {observed->value(id)});
    observed->keep(most, fmt::format("calibration.{}", id));
    largest.emplace(id, most);
  };
  // As soon as a value is there, so that it is not kept for it.
  const std::vector<Node> nodes = observed->take_nodes();
  for (const ValueId id : values)
    if (graph.info(id).producer == no_node) observe(id);
  for (const Node& node : nodes) {
    observed->append(node);
    for (const ValueId out : node.outputs) observe(out);
  }
  Executor executor(*observed, device);
  executor.initialize(seed);
  feed(executor);
  executor.run(Phase::forward);
  Int8Ranges ranges;
  for (const auto& [id, most] : largest) ranges[id] = executor.read_floats(most)[0];
  return ranges;
}

}  // namespace ridge
