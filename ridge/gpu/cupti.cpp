#include "ridge/gpu/cupti.h"

#include <string>
#include <vector>

#include "ridge/base/error.h"

namespace ridge::gpu {
namespace {

// Where the loader looks, and where CUDA's own packages put it.
std::vector<std::string> file_names() {
  const std::string name = "libcupti.so." + std::to_string(CUPTI_API_VERSION / 10000);
  return {name, RIDGE_CUDA_LIBRARY_DIR "/" + name, "/usr/local/cuda/lib64/" + name,
          "/usr/local/cuda/extras/CUPTI/lib64/" + name,
          "/usr/local/cuda/targets/x86_64-linux/lib/" + name};
}

}  // namespace

Cupti::Cupti() : library_(file_names()) {}

void* Cupti::load(const char* name) const {
  if (!library_.is_open())
    throw DeviceError(
        "profiling on the GPU needs CUPTI, and {} was not found: install it with the CUDA toolkit "
        "(cuda-cupti), or add its directory to LD_LIBRARY_PATH",
        file_names().front());
  if (void* function = library_.function<void>(name)) return function;
  throw DeviceError("the CUPTI in {} has no {}: install the one of CUDA {} or later",
                    library_.path(), name, CUPTI_API_VERSION / 10000);
}

void Cupti::check(CUptiResult result, std::string_view what) const {
  switch (result) {
    case CUPTI_SUCCESS:
      return;
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      throw DeviceError(
          "another profiler holds CUPTI in this process: run without nsys, ncu or a debugger, or "
          "without Ridge's own profile");
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      throw DeviceError(
          "the driver keeps the GPU's counters for administrators (ERR_NVGPUCTRPERM): as root, "
          "write \"options nvidia NVreg_RestrictProfilingToAdminUsers=0\" to "
          "/etc/modprobe.d/nvidia-profiling.conf and restart; or run as root");
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
      throw DeviceError(
          "this virtual GPU cannot be profiled: allow it in the virtual machine's "
          "settings (enable_profiling)");
    default:
      break;
  }
  const char* message = nullptr;
  get_error_message(result, &message);
  throw DeviceError("CUPTI refused to {}: {} ({})", what, message ? message : "unknown error",
                    static_cast<int>(result));
}

}  // namespace ridge::gpu
