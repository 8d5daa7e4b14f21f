#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// Where the capture of a stream stands: its graph, and the nodes that the next one follows. That
// some of them would let it begin early must be asked for, and is left out: it holds within a
// capture alone.
struct CapturePlace {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> nodes;  // none while nothing is captured

  explicit CapturePlace(Stream stream) {
    const cudaGraphNode_t* before = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &before, &edges, &count),
          "asking for a capture");
    if (is_capturing()) nodes.assign(before, before + count);
  }
  bool is_capturing() const { return status == cudaStreamCaptureStatusActive; }
};

}  // namespace ridge::gpu
