#include "ridge/gpu/pointwise.h"

#include <utility>
#include <vector>

#include "ridge/gpu/generated_kernels.h"

namespace ridge {
namespace {

bool is_aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

}  // namespace

KernelPtr gpu::generated_pointwise(const Pointwise& op, GpuPrepare& prepare) {
  const Shape& shape = prepare.out[0].shape;
  PointwiseSource source = pointwise_source(op, prepare.in, shape);
  const GeneratedKernel* const kernel =
      GeneratedKernels::of_process().prepare(prepare.gpu, source.name, source.code);
  if (!kernel) return nullptr;
  const std::int64_t n = shape.numel();
  return make_kernel([&gpu = prepare.gpu, kernel, n, threads = source.threads,
                      blocks = (n + source.block_elements - 1) / source.block_elements,
                      alignment = std::move(source.alignment)](const Launch& call) {
    std::vector<void*> pointers;
    for (const void* operand : call.inputs) pointers.push_back(const_cast<void*>(operand));
    pointers.insert(pointers.end(), call.outputs.begin(), call.outputs.end());
    bool packed = true;
    for (std::size_t i = 0; i < pointers.size(); ++i)
      packed = packed && is_aligned(pointers[i], alignment[i]);
    auto count = static_cast<unsigned long long>(n);
    std::vector<void*> arguments{&count, &packed};
    for (void*& pointer : pointers) arguments.push_back(&pointer);
    kernel->launch(gpu, blocks, threads, arguments.data());
  });
}

KernelPtr Pointwise::gpu(GpuPrepare& prepare) const {
  if (KernelPtr kernel = gpu::generated_pointwise(*this, prepare)) return kernel;
  return gpu::interpreted_pointwise(*this, prepare);
}

}  // namespace ridge
