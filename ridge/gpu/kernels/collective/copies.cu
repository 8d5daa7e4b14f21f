#include "ridge/gpu/kernels/collective/copies.h"

#include <cstdint>
#include <vector>

#include "ridge/gpu/kernels/elementwise.h"

namespace ridge::gpu {
namespace {

__global__ void copy_kernel(std::int64_t bytes, const char* x, char* y) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < bytes) y[i] = x[i];
}

}  // namespace

KernelPtr copies(GpuPrepare& prepare, std::size_t operands_each) {
  std::vector<std::int64_t> bytes;
  for (const TensorType& type : prepare.out)
    bytes.push_back(static_cast<std::int64_t>(type.bytes()));
  return make_kernel(
      [&gpu = prepare.gpu, bytes = std::move(bytes), operands_each](const Launch& call) {
        for (std::size_t t = 0; t < bytes.size(); ++t) {
          const auto* const from = static_cast<const char*>(call.inputs[operands_each * t]);
          if (call.outputs[t] == from) continue;
          launch(gpu, copy_kernel, dim3(blocks_for(bytes[t], elementwise_threads)),
                 dim3(elementwise_threads), 0, bytes[t], from, static_cast<char*>(call.outputs[t]));
        }
      });
}

}  // namespace ridge::gpu
