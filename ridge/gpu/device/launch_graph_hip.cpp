// HIP 5.2 captures a stream as a graph of its own, which then becomes a node of the whole: a child
// graph. A work in the midst of others that are appended with it is done, for those that follow it
// alone, when the last of these is.

#include <algorithm>
#include <memory>

#include "ridge/gpu/device/launch_graph.h"

namespace ridge::gpu {
namespace {

constexpr auto what = "capturing launches";

}  // namespace

LaunchGraph::~LaunchGraph() { api::ignore(api::graph_destroy(graph_)); }

void LaunchGraph::begin() {
  check(hipStreamBeginCapture(stream_, hipStreamCaptureModeThreadLocal), what);
}

void LaunchGraph::end() {
  api::Graph part = nullptr;
  check(hipStreamEndCapture(stream_, &part), what);
  const auto destroy = [](api::Graph* graph) { api::ignore(api::graph_destroy(*graph)); };
  const std::unique_ptr<api::Graph, decltype(destroy)> owner(&part, destroy);
  std::size_t count = 0;
  check(hipGraphGetNodes(part, nullptr, &count), what);
  if (count == 0) return;
  in_parts_ += count;
  api::GraphNode node = nullptr;
  check(hipGraphAddChildGraphNode(&node, graph_, at_.data(), at_.size(), part), what);
  at_ = {node};
}

std::vector<LaunchGraph::Nodes> LaunchGraph::append(Stream stream, const Nodes& after,
                                                    std::span<const DeviceWork> works) {
  stream_ = stream;
  at_ = after;
  // Several works that were appended together are one node.
  std::ranges::sort(at_);
  at_.erase(std::ranges::unique(at_).begin(), at_.end());
  begin();
  try {
    for (const DeviceWork& work : works) work.enqueue();
  } catch (...) {
    api::Graph part = nullptr;
    api::ignore(hipStreamEndCapture(stream_, &part));
    if (part) api::ignore(api::graph_destroy(part));
    throw;
  }
  end();
  return std::vector(works.size(), at_);
}

// What is captured knows an event only as a place to wait for, so that its node is added by hand.
void LaunchGraph::record(api::Event event) {
  end();
  api::GraphNode node = nullptr;
  check(hipGraphAddEventRecordNode(&node, graph_, at_.data(), at_.size(), event),
        "recording an event");
  at_ = {node};
  begin();
}

std::size_t LaunchGraph::nodes() const { return in_parts_; }

GraphReplay::GraphReplay(const LaunchGraph& graph, Stream stream) : stream_(stream) {
  check(api::graph_instantiate(&exec_, graph.handle()), "preparing a graph");
}

}  // namespace ridge::gpu
