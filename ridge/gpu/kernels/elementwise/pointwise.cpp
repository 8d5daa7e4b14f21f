#include "ridge/gpu/kernels/elementwise/pointwise.h"

#include <array>
#include <utility>

#include "ridge/gpu/codegen/generated_kernels.h"
#include "ridge/gpu/codegen/pointwise_program.h"

namespace ridge {
namespace {

// Operands and results: as many as the interpreter takes.
constexpr std::size_t most_pointers =
    gpu::PointwiseProgram::most_operands + gpu::PointwiseProgram::most_results;

}  // namespace

KernelPtr gpu::generated_pointwise(const Pointwise& op, GpuPrepare& prepare) {
  if (prepare.in.size() + prepare.out.size() > most_pointers) return nullptr;
  const Shape& shape = prepare.out[0].shape;
  PointwiseSource source = pointwise_source(op, prepare.in, shape);
  const GeneratedKernel* const kernel =
      GeneratedKernels::of_process().prepare(prepare.gpu, source.name, source.code);
  if (!kernel) return nullptr;
  const std::int64_t n = shape.numel();
  return make_kernel([&gpu = prepare.gpu, kernel, n, threads = source.threads,
                      blocks = (n + source.block_elements - 1) / source.block_elements,
                      alignment = std::move(source.alignment)](const Launch& call) {
    auto count = static_cast<unsigned long long>(n);
    bool packed = true;
    // On the stack: a launch allocates nothing.
    std::array<const void*, most_pointers> pointers;
    std::array<void*, most_pointers + 2> arguments{&count, &packed};
    std::size_t given = 0;
    const auto give = [&](const void* pointer) {
      packed = packed && is_aligned(pointer, alignment[given]);
      pointers[given] = pointer;
      arguments[given + 2] = &pointers[given];
      ++given;
    };
    for (const void* operand : call.inputs) give(operand);
    for (const void* result : call.outputs) give(result);
    kernel->launch(gpu, blocks, threads, arguments.data());
  });
}

KernelPtr Pointwise::gpu(GpuPrepare& prepare) const {
  if (KernelPtr kernel = gpu::generated_pointwise(*this, prepare)) return kernel;
  return gpu::interpreted_pointwise(*this, prepare);
}

}  // namespace ridge
