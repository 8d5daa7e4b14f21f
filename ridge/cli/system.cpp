#include "ridge/cli/system.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/run/autotuner.h"
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

// The value of the first "key : value" line of a file under /proc.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::int64_t threads_of(const TrainOptions& options) {
  return options.threads > 0 ? options.threads : CpuDevice::default_threads();
}

std::unique_ptr<Device> open_named_device(const TrainOptions& options) {
  const std::string device = canonical_device(options.device);
  if (device == "cuda" || (device == "auto" && has_gpu())) {
#ifdef RIDGE_HAS_CUDA
    return open_gpu({.deterministic = options.deterministic});
#else
    throw DeviceError("--device cuda: this build of Ridge has no GPU code; use --device cpu");
#endif
  }
  if (options.compute_dtype() == DType::f16)
    throw UsageError("--dtype fp16 needs a GPU, which {}; on a CPU use --dtype bf16",
                     device == "cpu" ? "--device cpu rules out" : "this machine does not have");
  return std::make_unique<CpuDevice>(static_cast<int>(threads_of(options)));
}
}  // namespace

std::unique_ptr<Device> open_device(const TrainOptions& options) {
  std::unique_ptr<Device> device = open_named_device(options);
  if (options.dtype == "fp8" && !device->multiplies_float8())
    throw UsageError(
        "--dtype fp8 needs a GPU that multiplies 8-bit floats (compute capability 8.9 or later); "
        "this would run on the {}, {}: use --dtype bf16",
        device->name(), device->hardware());
  return device;
}

std::string host_name() {
  utsname name{};
  return ::uname(&name) == 0 && name.nodename[0] != '\0' ? name.nodename : "localhost";
}

std::string tuning_cache_text() {
  const std::filesystem::path cache = default_tuning_cache();
  return cache.empty() ? "kept nowhere: neither XDG_CACHE_HOME nor HOME is set"
                       : "see " + cache.string();
}

SystemInfo system_info(const Device& device, const TrainOptions& options) {
  SystemInfo info;
  utsname name{};
  if (::uname(&name) == 0) {
    info.host = name.nodename;
    info.os = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  }
  info.cpu = proc_value("/proc/cpuinfo", "model name");
  info.device = device.name();
  info.compiler = compiler();
  info.ridge_version = program_version();
  info.threads = threads_of(options);
  info.memory_bytes = device.total_memory();
  return info;
}

std::uint64_t peak_resident_bytes() {
  const std::string kib = proc_value("/proc/self/status", "VmHWM");
  return kib.empty() ? 0 : std::strtoull(kib.c_str(), nullptr, 10) * 1024;
}

std::string utc_timestamp() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

std::string_view program_version() { return RIDGE_VERSION; }

}  // namespace ridge
