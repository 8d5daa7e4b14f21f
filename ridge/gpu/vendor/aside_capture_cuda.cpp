#include "ridge/gpu/vendor/aside_capture.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <optional>

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
struct Driver {
  decltype(&cuGraphKernelNodeGetParams) get =
      driver_function<std::remove_pointer_t<decltype(get)>>("cuGraphKernelNodeGetParams");
  decltype(&cuGraphAddKernelNode) add =
      driver_function<std::remove_pointer_t<decltype(add)>>("cuGraphAddKernelNode");
  decltype(&cuGraphKernelNodeCopyAttributes) copy_attributes =
      driver_function<std::remove_pointer_t<decltype(copy_attributes)>>(
          "cuGraphKernelNodeCopyAttributes");
};

std::optional<cudaGraphNode_t> only_kernel_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), what);
  if (count != 1) return std::nullopt;
  cudaGraphNode_t node = nullptr;
  check(cudaGraphGetNodes(graph, &node, &count), what);
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(node, &type), what);
  if (type != cudaGraphNodeTypeKernel) return std::nullopt;
  return node;
}

cudaGraphNode_t copy_kernel(const CapturePlace& to, cudaGraphNode_t node) {
  static const Driver driver;
  CUDA_KERNEL_NODE_PARAMS parameters{};
  CUgraphNode copy = nullptr;
  const auto checked = [](CUresult result) {
    check(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, what);
  };
  checked(driver.get(node, &parameters));
  checked(driver.add(&copy, to.graph, to.nodes.data(), to.nodes.size(), &parameters));
  checked(driver.copy_attributes(copy, node));
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

// A kernel alone is copied, so that a trace knows the copy; tracing cannot follow a child graph's.
void AsideCapture::add_to(Stream into) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_, &graph), what);
  kept_.push_back(graph);
  const CapturePlace place(into);
  const auto kernel = only_kernel_of(graph);
  cudaGraphNode_t node = kernel ? copy_kernel(place, *kernel) : add_child(place, graph);
  check(cudaStreamUpdateCaptureDependencies(into, &node, nullptr, 1,
                                            cudaStreamSetCaptureDependencies),
        what);
}

}  // namespace ridge::gpu
