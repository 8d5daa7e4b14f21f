#include "ridge/session/devices.h"

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#ifdef RIDGE_HAS_CUDA
#include "ridge/gpu/device.h"
#endif

namespace ridge {

bool has_gpu() {
#ifdef RIDGE_HAS_CUDA
  return gpu_count() > 0;
#else
  return false;
#endif
}

namespace {

// A processor computes f16 all the same, for tests: as slowly as it imitates it.
void check_float16(const RunOptions& options, const Device& device) {
  if (options.precision().compute != DType::f16 || device.is_gpu()) return;
  if (options.use() == Use::training)
    throw UsageError("--dtype fp16: training in it needs a GPU; on a CPU use --dtype bf16");
  if (!device.target().multiplies_float16)
    throw UsageError(
        "--dtype fp16: this processor ({}) has no fp16 arithmetic; use --dtype bf16 or fp32",
        device.hardware());
}

}  // namespace

std::unique_ptr<Device> open_device(const RunOptions& options) {
  const std::string name = canonical_device(options.device);
  std::unique_ptr<Device> device;
  if (name == "cuda" || (name == "auto" && has_gpu())) {
#ifdef RIDGE_HAS_CUDA
    device = open_gpu({.deterministic = options.deterministic});
#else
    throw DeviceError("--device cuda: this build of Ridge has no GPU code; use --device cpu");
#endif
  } else {
    device = std::make_unique<CpuDevice>(options.threads > 0 ? static_cast<int>(options.threads)
                                                             : available_processors());
  }
  check_device(options, *device);
  return device;
}

void check_device(const RunOptions& options, const Device& device) {
  options.schedule(device.target());
  check_float16(options, device);
}

}  // namespace ridge
