// Loading and launching kernels that were compiled at run time, by the CUDA runtime's libraries,
// which are of no device and so serve all.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/base/user_cache.h"
#include "ridge/gpu/codegen/generated_kernels.h"
#include "ridge/gpu/codegen/kernel_cache.h"
#include "ridge/gpu/codegen/runtime_compiler.h"

namespace ridge::gpu {

GeneratedKernel::GeneratedKernel(const std::string& name, const std::vector<char>& image) {
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "loading a generated kernel");
  check(cudaLibraryGetKernel(&kernel, library, name.c_str()), "loading a generated kernel");
  // Else the first launch would load the code, which cannot be captured.
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)),
        "loading a generated kernel");
  kernel_ = kernel;
}

void GeneratedKernel::launch(const Context& gpu, std::int64_t blocks, int threads,
                             void** arguments) const {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = gpu.stream;
  config.attrs = &early;
  config.numAttrs = gpu.card.launches_early() ? 1 : 0;
  check(cudaLaunchKernelExC(&config, kernel_, arguments), "launching a generated kernel");
}

GeneratedKernels::GeneratedKernels() = default;
GeneratedKernels::~GeneratedKernels() = default;

GeneratedKernels& GeneratedKernels::of_process() {
  static GeneratedKernels kernels;
  return kernels;
}

const GeneratedKernel* GeneratedKernels::prepare(const Context& gpu, const std::string& name,
                                                 const std::string& code) {
  const char* wanted = std::getenv("RIDGE_GENERATED_KERNELS");
  if (wanted && std::string_view(wanted) == "off") return nullptr;
  const std::lock_guard lock(mutex_);
  const std::string architecture = RuntimeCompiler::target(gpu.card.compute_capability);
  const std::string input = RuntimeCompiler::input(code, architecture);
  if (const auto known = kernels_.find(input); known != kernels_.end()) return known->second.get();
  std::unique_ptr<GeneratedKernel>& kernel = kernels_[input];
  try {
    kernel = make(name, code, architecture);
  } catch (const DeviceError& error) {
    const std::string warning =
        fmt::format("Chains of operators run slower, in an interpreter: {}", error.what());
    if (std::ranges::find(warnings_, warning) == warnings_.end()) warnings_.push_back(warning);
  }
  return kernel.get();
}

std::unique_ptr<GeneratedKernel> GeneratedKernels::make(const std::string& name,
                                                        const std::string& code,
                                                        const std::string& architecture) {
  if (!opened_) {
    opened_ = true;
    compiler_ = std::make_unique<RuntimeCompiler>();
  }
  if (!compiler_) return nullptr;  // which was told of when it was opened
  const KernelCache cache(user_cache("kernels"));
  const std::string key = compiler_->version() + "\n" + RuntimeCompiler::input(code, architecture);
  if (const auto image = cache.find(name, key)) {
    ++counts_.found;
    return std::make_unique<GeneratedKernel>(name, *image);
  }
  const std::vector<char> image = compiler_->compile(name, code, architecture);
  ++counts_.compiled;
  cache.keep(name, key, image);
  return std::make_unique<GeneratedKernel>(name, image);
}

std::vector<std::string> GeneratedKernels::warnings() const {
  const std::lock_guard lock(mutex_);
  return warnings_;
}

GeneratedKernels::Counts GeneratedKernels::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace ridge::gpu
