#include "ridge/gpu/device/libraries.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#ifdef RIDGE_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace ridge::gpu {
namespace {

#ifdef CUDART_VERSION
constexpr int cuda_major = CUDART_VERSION / 1000;
#else
constexpr int cuda_major = 13;
#endif

// Where the loader looks, where this build found its toolkit, and where CUDA's installers put it.
std::vector<std::string> places_of(const std::string& file) {
  std::vector<std::string> places{file};
#ifdef RIDGE_CUDA_LIBRARY_DIR
  places.push_back(RIDGE_CUDA_LIBRARY_DIR "/" + file);
#endif
  for (const char* directory : {"lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib"})
    places.push_back(fmt::format("/usr/local/cuda/{}/{}", directory, file));
  return places;
}

// One of the toolkit's, such as "libcublasLt.so", whose version is the toolkit's.
GpuLibrary toolkit_library(std::string name, std::string purpose, std::string without,
                           std::string package, const std::string& file) {
  return {std::move(name),
          std::move(purpose),
          std::move(without),
          std::move(package),
          places_of(fmt::format("{}.{}", file, cuda_major)),
          {file + ".12", file}};
}

}  // namespace

GpuLibrary cublas_lt_library() {
  return toolkit_library("cuBLASLt", "matrix products",
                         "portable kernels multiply, which is slower", "CUDA's cuBLAS",
                         "libcublasLt.so");
}

GpuLibrary cudnn_library() {
  return {"cuDNN",   "fused attention",          {},
          "cuDNN 9", places_of("libcudnn.so.9"), {"libcudnn.so.8", "libcudnn.so"}};
}

GpuLibrary cupti_library() {
  return toolkit_library("CUPTI", "profiles and counters", {}, "CUDA's CUPTI", "libcupti.so");
}

GpuLibrary nccl_library() {
  return {"NCCL", "several ranks", {}, "NCCL 2", places_of("libnccl.so.2"), {"libnccl.so"}};
}

GpuLibrary nvrtc_library() {
  return toolkit_library("NVRTC", "generated kernels", {}, "CUDA's NVRTC", "libnvrtc.so");
}

bool wants_libraries() {
  const char* const wanted = std::getenv("RIDGE_GPU_LIBRARIES");
  return !wanted || std::string_view(wanted) != "none";
}

LibrarySearch search_for(const GpuLibrary& library) {
  return {
      library.name, library.files,
      fmt::format("{} on the GPU need {}, and {} was not found: install {}, or add its directory "
                  "to LD_LIBRARY_PATH",
                  library.purpose, library.name, library.files.front(), library.package)};
}

}  // namespace ridge::gpu
