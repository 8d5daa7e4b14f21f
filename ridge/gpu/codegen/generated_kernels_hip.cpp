// No kernels are compiled at run time for HIP yet: those that read a program stand in.

#include "ridge/base/error.h"
#include "ridge/gpu/codegen/generated_kernels.h"
#include "ridge/gpu/codegen/runtime_compiler.h"

namespace ridge::gpu {

struct RuntimeCompiler::Library {};
RuntimeCompiler::~RuntimeCompiler() = default;

GeneratedKernels::GeneratedKernels() = default;
GeneratedKernels::~GeneratedKernels() = default;

GeneratedKernels& GeneratedKernels::of_process() {
  static GeneratedKernels none;
  return none;
}

const GeneratedKernel* GeneratedKernels::prepare(const Context&, const std::string&,
                                                 const std::string&) {
  return nullptr;
}

std::vector<std::string> GeneratedKernels::warnings() const { return {}; }
GeneratedKernels::Counts GeneratedKernels::counts() const { return {}; }

void GeneratedKernel::launch(const Context&, std::int64_t, int, void**) const {
  throw DeviceError("--device hip has no generated kernels");
}

}  // namespace ridge::gpu
