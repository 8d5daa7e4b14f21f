#pragma once

// The vendor's libraries for GPUs. None is needed to start: each is opened when it is first used,
// and missing only where it is.

#include <string>
#include <vector>

#include "ridge/base/vendor_library.h"

namespace ridge::gpu {

struct GpuLibrary {
  std::string name;                      // "cuBLASLt"
  std::string purpose;                   // "matrix products"
  std::string without;                   // what happens where it is not: "portable ..."; or empty
  std::string package;                   // that brings it
  std::vector<std::string> files;        // of the versions that Ridge can use, as they are searched
  std::vector<std::string> other_files;  // of those that it cannot, to tell who has them
};

GpuLibrary cublas_lt_library();
GpuLibrary cudnn_library();
GpuLibrary cupti_library();
GpuLibrary nccl_library();
GpuLibrary nvrtc_library();

LibrarySearch search_for(const GpuLibrary& library);

// Whether the libraries that compute, cuBLASLt and cuDNN, are to be used where they are there: not
// with RIDGE_GPU_LIBRARIES=none in the environment, for which portable kernels compute everything.
bool wants_libraries();

}  // namespace ridge::gpu
