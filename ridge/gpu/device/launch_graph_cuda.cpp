// Streams are captured into the graph itself.

#include "ridge/gpu/device/capture_place.h"
#include "ridge/gpu/device/launch_graph.h"

namespace ridge::gpu {

LaunchGraph::~LaunchGraph() { api::ignore(api::graph_destroy(graph_)); }

void LaunchGraph::begin() {
  check(cudaStreamBeginCaptureToGraph(stream_, graph_, at_.data(), nullptr, at_.size(),
                                      cudaStreamCaptureModeThreadLocal),
        "capturing launches");
}

void LaunchGraph::end() { check(cudaStreamEndCapture(stream_, &graph_), "capturing launches"); }

std::vector<LaunchGraph::Nodes> LaunchGraph::append(Stream stream, const Nodes& after,
                                                    std::span<const DeviceWork> works) {
  stream_ = stream;
  at_ = after;
  std::vector<Nodes> last;
  begin();
  try {
    for (const DeviceWork& work : works) {
      work.enqueue();
      last.push_back(CapturePlace(stream).nodes);
    }
  } catch (...) {
    api::ignore(cudaStreamEndCapture(stream_, &graph_));
    throw;
  }
  end();
  return last;
}

void LaunchGraph::record(api::Event event) {
  check(cudaEventRecordWithFlags(event, stream_, cudaEventRecordExternal), "recording an event");
}

std::size_t LaunchGraph::nodes() const {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph_, nullptr, &count), "looking at a graph");
  return count;
}

GraphReplay::GraphReplay(const LaunchGraph& graph, Stream stream) : stream_(stream) {
  check(api::graph_instantiate(&exec_, graph.handle()), "preparing a graph");
  check(cudaGraphUpload(exec_, stream), "preparing a graph");  // else at the first launch
}

}  // namespace ridge::gpu
