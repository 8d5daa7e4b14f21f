#include "ridge/report/chain_sources.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ridge/base/file.h"
#include "ridge/gpu/codegen/pointwise_source.h"
#include "ridge/ops/op.h"

namespace ridge {

std::size_t write_chain_sources(const Graph& graph, const std::filesystem::path& directory) {
  std::set<std::string> written;
  for (const Node& node : graph.nodes()) {
    const Pointwise* const chain = std::get_if<Pointwise>(&node.op->variant());
    if (!chain) continue;
    std::vector<TensorType> in;
    for (const ValueId id : node.inputs) in.push_back(graph.info(id).type);
    const gpu::PointwiseSource source =
        gpu::pointwise_source(*chain, in, graph.info(node.outputs[0]).type.shape);
    if (written.insert(source.name).second)
      write_text_file(directory / (source.name + ".cu"), source.code);
  }
  return written.size();
}

}  // namespace ridge
