#include "ridge/gpu/vendor/ordered_start.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "ridge/gpu/device/capture_place.h"

namespace ridge::gpu {
namespace {

constexpr auto what = "ordering what a library launches";

// Launched plainly, it begins after all before it, and does not let the next one begin early.
__global__ void empty_kernel() {}

struct Edge {
  cudaGraphNode_t from, to;
  cudaGraphEdgeData data;
};

// The edges by which a node may begin before one of these has ended.
std::vector<Edge> early_edges_from(const std::vector<cudaGraphNode_t>& nodes) {
  std::vector<Edge> early;
  for (const cudaGraphNode_t from : nodes) {
    std::size_t count = 0;
    check(cudaGraphNodeGetDependentNodes(from, nullptr, nullptr, &count), what);
    std::vector<cudaGraphNode_t> to(count);
    std::vector<cudaGraphEdgeData> data(count);
    check(cudaGraphNodeGetDependentNodes(from, to.data(), data.data(), &count), what);
    for (std::size_t i = 0; i < count; ++i)
      if (data[i].type == cudaGraphDependencyTypeProgrammatic)
        early.push_back({from, to[i], data[i]});
  }
  return early;
}

// Captures it twice: the second time shows how its first kernel follows another.
bool begins_early(const std::function<void(Stream)>& enqueue) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), what);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), what);
  bool early = true;  // also if that cannot be told
  try {
    enqueue(stream);
    const CapturePlace between(stream);
    enqueue(stream);
    early = !early_edges_from(between.nodes).empty();
  } catch (const std::exception&) {
  }
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  if (graph) cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaGetLastError();  // the next check must not find a capture's
  return early;
}

}  // namespace

void OrderedStart::run(Stream stream, const std::function<void(Stream)>& enqueue) {
  const CapturePlace place(stream);
  if (place.is_capturing()) {
    const std::vector<Edge> of_others = early_edges_from(place.nodes);
    enqueue(stream);
    for (const Edge& edge : early_edges_from(place.nodes)) {
      if (std::ranges::find(of_others, edge.to, &Edge::to) != of_others.end()) continue;
      check(cudaGraphRemoveDependencies(place.graph, &edge.from, &edge.to, &edge.data, 1), what);
      check(cudaGraphAddDependencies(place.graph, &edge.from, &edge.to, nullptr, 1), what);
    }
    return;
  }
  if (!begins_early_) begins_early_ = begins_early(enqueue);
  if (*begins_early_) {
    empty_kernel<<<1, 1, 0, stream>>>();
    check(cudaGetLastError(), what);
  }
  enqueue(stream);
}

}  // namespace ridge::gpu
