#include "ridge/gpu/vendor/aside_capture.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "ridge/gpu/device/capture_place.h"

namespace ridge::gpu {
namespace {

constexpr auto what = "capturing what goes to other ranks";

template <class F>
F* driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), what);
  return reinterpret_cast<F*>(function);
}

// Of kernels that another copy of the runtime has loaded only the driver can tell.
#define RIDGE_DRIVER(name) driver_function<std::remove_pointer_t<decltype(&(name))>>(#name)
struct Driver {
  decltype(&cuGraphNodeGetType) type_of = RIDGE_DRIVER(cuGraphNodeGetType);
  decltype(&cuGraphKernelNodeGetParams) kernel_of = RIDGE_DRIVER(cuGraphKernelNodeGetParams);
  decltype(&cuGraphAddKernelNode) add_kernel = RIDGE_DRIVER(cuGraphAddKernelNode);
  decltype(&cuGraphKernelNodeCopyAttributes) copy_attributes =
      RIDGE_DRIVER(cuGraphKernelNodeCopyAttributes);
  decltype(&cuGraphMemcpyNodeGetParams) memcpy_of = RIDGE_DRIVER(cuGraphMemcpyNodeGetParams);
  decltype(&cuGraphAddMemcpyNode) add_memcpy = RIDGE_DRIVER(cuGraphAddMemcpyNode);
  decltype(&cuGraphBatchMemOpNodeGetParams) operations_of =
      RIDGE_DRIVER(cuGraphBatchMemOpNodeGetParams);
  decltype(&cuGraphAddBatchMemOpNode) add_operations = RIDGE_DRIVER(cuGraphAddBatchMemOpNode);
  decltype(&cuStreamWriteValue32) write_value = RIDGE_DRIVER(cuStreamWriteValue32);
  decltype(&cuCtxGetCurrent) current_context = RIDGE_DRIVER(cuCtxGetCurrent);
};
#undef RIDGE_DRIVER

const Driver& driver() {
  static const Driver found;
  return found;
}

void check_driver(CUresult result) {
  check(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, what);
}

// The runtime knows no operations on memory.
CUgraphNodeType type_of(cudaGraphNode_t node) {
  CUgraphNodeType type{};
  check_driver(driver().type_of(node, &type));
  return type;
}

bool can_copy(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

// The nodes in their order, if each follows the one before and can be copied; else none.
std::vector<cudaGraphNode_t> chain_of(cudaGraph_t graph) {
  std::size_t count = 0, edges = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), what);
  check(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), what);
  if (count == 0 || edges != count - 1) return {};
  std::vector<cudaGraphNode_t> nodes(count), from(edges), to(edges);
  std::vector<cudaGraphEdgeData> data(edges);
  check(cudaGraphGetNodes(graph, nodes.data(), &count), what);
  if (edges > 0) check(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &edges), what);
  const auto follows = [&](cudaGraphNode_t node) {
    return std::ranges::find(to, node) != to.end();
  };
  std::vector<cudaGraphNode_t> chain{*std::ranges::find_if_not(nodes, follows)};
  while (chain.size() < count) {
    const auto next = std::ranges::find(from, chain.back());
    if (next == from.end()) return {};
    chain.push_back(to[static_cast<std::size_t>(next - from.begin())]);
  }
  const bool can = std::ranges::all_of(chain, can_copy, type_of);
  return can ? chain : std::vector<cudaGraphNode_t>{};
}

void note_waits(const CUDA_BATCH_MEM_OP_NODE_PARAMS& operations, std::vector<CapturedWait>& waits) {
  for (unsigned i = 0; i < operations.count; ++i) {
    const CUstreamBatchMemOpParams& one = operations.paramArray[i];
    if (one.operation != CU_STREAM_MEM_OP_WAIT_VALUE_32) continue;
    const CapturedWait wait{one.waitValue.address, one.waitValue.value};
    if (std::ranges::find(waits, wait) == waits.end()) waits.push_back(wait);
  }
}

// A copy of a node, which follows these.
cudaGraphNode_t copy_node(cudaGraph_t into, const std::vector<cudaGraphNode_t>& after,
                          cudaGraphNode_t node, std::vector<CapturedWait>& waits) {
  CUgraphNode copy = nullptr;
  switch (type_of(node)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      check_driver(driver().kernel_of(node, &kernel));
      check_driver(driver().add_kernel(&copy, into, after.data(), after.size(), &kernel));
      check_driver(driver().copy_attributes(copy, node));
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CUDA_MEMCPY3D bytes{};
      CUcontext context = nullptr;
      check_driver(driver().memcpy_of(node, &bytes));
      check_driver(driver().current_context(&context));
      check_driver(driver().add_memcpy(&copy, into, after.data(), after.size(), &bytes, context));
      break;
    }
    default: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS operations{};
      check_driver(driver().operations_of(node, &operations));
      note_waits(operations, waits);
      check_driver(driver().add_operations(&copy, into, after.data(), after.size(), &operations));
    }
  }
  return copy;
}

cudaGraphNode_t add_child(const CapturePlace& to, cudaGraph_t graph) {
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddChildGraphNode(&node, to.graph, to.nodes.data(), to.nodes.size(), graph), what);
  return node;
}

}  // namespace

AsideCapture::AsideCapture() {
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest),
        "creating a stream");
}

AsideCapture::~AsideCapture() {
  for (const cudaGraph_t graph : kept_) cudaGraphDestroy(graph);
  cudaStreamDestroy(stream_);
}

bool AsideCapture::is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking for a capture");
  return status == cudaStreamCaptureStatusActive;
}

void AsideCapture::begin() {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), what);
}

void AsideCapture::drop() noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_, &graph);
  if (graph) cudaGraphDestroy(graph);
}

// Nodes that follow each other are copied, so that a trace knows the copies; tracing cannot follow
// a child graph's.
void AsideCapture::add_to(Stream into) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_, &graph), what);
  kept_.push_back(graph);
  const CapturePlace place(into);
  const std::vector<cudaGraphNode_t> chain = chain_of(graph);
  std::vector<cudaGraphNode_t> last = place.nodes;
  for (const cudaGraphNode_t node : chain) last = {copy_node(place.graph, last, node, waits_)};
  cudaGraphNode_t node = chain.empty() ? add_child(place, graph) : last.front();
  check(cudaStreamUpdateCaptureDependencies(into, &node, nullptr, 1,
                                            cudaStreamSetCaptureDependencies),
        what);
}

void AsideCapture::end_waits() noexcept {
  for (const CapturedWait& wait : waits_)
    driver().write_value(stream_, wait.address, wait.value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

}  // namespace ridge::gpu
