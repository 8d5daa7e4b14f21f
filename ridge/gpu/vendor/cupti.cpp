#include "ridge/gpu/vendor/cupti.h"

#include "ridge/base/error.h"
#include "ridge/gpu/device/libraries.h"

namespace ridge::gpu {

Cupti::Cupti() : VendorLibrary(search_for(cupti_library())) {}

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
