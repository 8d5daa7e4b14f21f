#include "ridge/session/devices.h"

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/thread_pool.h"
#include "ridge/cpu/device.h"
#if defined(RIDGE_HAS_CUDA) || defined(RIDGE_HAS_HIP)
#define RIDGE_HAS_GPU
#include "ridge/gpu/device.h"
#endif

namespace ridge {

namespace {

int count_of_gpus() {
#ifdef RIDGE_HAS_GPU
  return gpu_count();
#else
  return 0;
#endif
}

}  // namespace

std::string_view gpu_name() {
#ifdef RIDGE_HAS_HIP
  return "hip";
#else
  return "cuda";
#endif
}

bool has_gpu() { return count_of_gpus() > 0; }

namespace {

bool means_gpu(const RunOptions& options) {
  const std::string name = canonical_device(options.device);
  return name == "auto" ? has_gpu() : name != "cpu";
}

#ifdef RIDGE_HAS_GPU
std::unique_ptr<Device> open_named_gpu(const RunOptions& options, int gpu) {
  const std::string name = canonical_device(options.device);
  if (name != "auto" && name != gpu_name())
    throw DeviceError("--device {}: this build of Ridge is for {}; use --device {} or cpu", name,
                      gpu_name() == "hip" ? "AMD's GPUs" : "NVIDIA's GPUs", gpu_name());
  return open_gpu({.index = gpu, .deterministic = options.deterministic});
}
#else
std::unique_ptr<Device> open_named_gpu(const RunOptions& options, int) {
  throw DeviceError("--device {}: this build of Ridge has no GPU code; use --device cpu",
                    canonical_device(options.device));
}
#endif

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

std::unique_ptr<Device> open_device(const RunOptions& options, int gpu) {
  std::unique_ptr<Device> device;
  if (means_gpu(options)) {
    device = open_named_gpu(options, gpu);
  } else {
    device = std::make_unique<CpuDevice>(options.threads > 0 ? static_cast<int>(options.threads)
                                                             : available_processors());
  }
  check_device(options, *device);
  return device;
}

int gpu_of_rank(const RunOptions& options, int index_on_host) {
  const int count = count_of_gpus();
  if (!means_gpu(options) || count == 0) return 0;  // open_device() says what is missing
  if (options.ranks_per_gpu == 0) return index_on_host % count;
  const auto gpu = static_cast<int>(index_on_host / options.ranks_per_gpu);
  if (gpu >= count)
    throw UsageError(
        "--ranks {} with --ranks-per-gpu {} need {} GPUs, but this machine has {}: use fewer "
        "ranks, "
        "--device cpu, or, for tests, more ranks on each",
        options.ranks, options.ranks_per_gpu,
        (options.ranks + options.ranks_per_gpu - 1) / options.ranks_per_gpu, count);
  return gpu;
}

int threads_of_rank(int on_host) { return std::max(1, available_processors() / on_host); }

void check_device(const RunOptions& options, const Device& device) {
  options.schedule(device.target());
  check_float16(options, device);
}

}  // namespace ridge
