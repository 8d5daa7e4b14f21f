#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include "ridge/analyze/doctor.h"
#include "ridge/base/error.h"
#include "ridge/base/host_memory.h"
#include "ridge/base/processor_use.h"
#include "ridge/base/shared_library.h"
#include "ridge/base/thread_pool.h"
#include "ridge/cpu/kernels.h"
#include "ridge/gpu/device/libraries.h"
#include "ridge/gpu/vendor/cudnn.h"
#include "ridge/profile/counters.h"
#include "ridge/session/devices.h"

#ifdef RIDGE_HAS_CUDA
#include <cuda_runtime_api.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#if __has_include(<cupti_version.h>)
#include <cupti_version.h>
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif
#endif

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Versions of the headers this build was made with, as 130001 for 13.0.1; 0 where there was none.
struct BuiltWith {
  int runtime = 0, cublas = 0, cudnn = 0, cupti = 0, nccl = 0;
};

constexpr BuiltWith built_with() {
  BuiltWith versions;
#ifdef CUDART_VERSION
  versions.runtime = CUDART_VERSION / 10 * 100;
#endif
#ifdef CUBLAS_VER_MAJOR
  versions.cublas = CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH;
#endif
#ifdef RIDGE_HAS_CUDA
  versions.cudnn = gpu::cudnn::oldest_version;  // built without its headers
#endif
#ifdef CUPTI_API_VERSION
  versions.cupti = CUPTI_API_VERSION;
#endif
#ifdef NCCL_VERSION_CODE
  versions.nccl = NCCL_VERSION_CODE;
#endif
  return versions;
}

// {9, 0} of "90a-real;80": the compute capabilities whose machine code a build has.
[[maybe_unused]] std::vector<std::pair<int, int>> capabilities(std::string_view architectures) {
  std::vector<std::pair<int, int>> result;
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(';'));
    int number = 0;
    if (std::from_chars(one.data(), one.data() + one.size(), number).ec == std::errc())
      result.emplace_back(number / 10, number % 10);
    architectures.remove_prefix(std::min(one.size() + 1, architectures.size()));
  }
  return result;
}

// The value of the first line "key : value" of a file under /proc.
std::string value_in(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::set<std::string, std::less<>> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

void examine_processor(MachineFacts& facts) {
  facts.cpu = value_in("/proc/cpuinfo", "model name");
  facts.threads = available_processors();
  facts.cpu_features = words(value_in("/proc/cpuinfo", "flags"));
  try {
    facts.kernels = name_of(cpu_kernels().instructions);
  } catch (const Error& error) {
    facts.kernels_refused = error.what();
  }
}

void examine_memory(MachineFacts& facts) {
  const HostMemory memory = host_memory();
  facts.memory_total = memory.total;
  facts.memory_available = memory.available;
}

void examine_disk(MachineFacts& facts) {
  std::error_code error;
  const fs::path directory = fs::current_path(error);
  facts.directory = error ? "." : directory.string();
  const fs::space_info space = fs::space(facts.directory, error);
  facts.disk_available = error ? 0 : space.available;
  facts.directory_writable = ::access(facts.directory.c_str(), W_OK) == 0;
}

void examine_driver(MachineFacts& facts) {
  try {
    const gpu::Nvml nvml;
    facts.driver_version = nvml.driver_version();
    facts.driver_cuda = nvml.cuda_version();
    for (int card = 0; card < nvml.card_count(); ++card)
      facts.cards.push_back({nvml.info(card), nvml.state(card)});
  } catch (const DeviceError& error) {
    facts.driver_error = error.what();
  }
  facts.counters_admin_only = value_in("/proc/driver/nvidia/params", "RmProfilingAdminOnly") == "1";
  facts.administrator = ::geteuid() == 0;
  facts.amd_card = fs::exists("/dev/kfd");
}

// "cuda_13.0.r13.0/..." of `nvcc --version`, whose last line but one names the release.
std::string toolkit_compiler() {
  for (const char* nvcc : {"nvcc", "/usr/local/cuda/bin/nvcc"}) {
    std::FILE* const pipe = ::popen(fmt::format("{} --version 2>/dev/null", nvcc).c_str(), "r");
    if (!pipe) continue;
    std::string text;
    std::array<char, 256> part{};
    while (std::fgets(part.data(), part.size(), pipe)) text += part.data();
    if (::pclose(pipe) != 0) continue;
    const auto release = text.find("release ");
    if (release == std::string::npos) continue;
    return fmt::format("nvcc {}", text.substr(release + 8, text.find(',', release) - release - 8));
  }
  return "";
}

// How a library says its version: by its value, or through a pointer. 0 if it does not.
template <class T>
int version_by_value(const SharedLibrary& library, const char* function) {
  auto* const version = library.function<T()>(function);
  return version ? static_cast<int>(version()) : 0;
}
template <class T>
int version_by_pointer(const SharedLibrary& library, const char* function) {
  auto* const get = library.function<int(T*)>(function);
  T version = 0;
  return get && get(&version) == 0 ? static_cast<int>(version) : 0;
}

std::vector<MachineFacts::Library> examine_libraries() {
  constexpr BuiltWith built = built_with();
  const auto examine = [](const gpu::GpuLibrary& library, int version_built_with, auto version) {
    MachineFacts::Library facts{.name = library.name,
                                .purpose = library.purpose,
                                .without = library.without,
                                .package = library.package,
                                .built_with = version_built_with};
    std::vector<std::string> files = library.files;
    files.insert(files.end(), library.other_files.begin(), library.other_files.end());
    const SharedLibrary file(files);
    if (!file.is_open())
      facts.error = file.error();
    else
      facts.found = version(file);
    return facts;
  };
  const auto cublas = [](const SharedLibrary& l) {
    return version_by_value<std::size_t>(l, "cublasLtGetVersion");
  };
  const auto cudnn = [](const SharedLibrary& l) {
    return version_by_value<std::size_t>(l, "cudnnGetVersion");
  };
  const auto cupti = [](const SharedLibrary& l) {
    return version_by_pointer<std::uint32_t>(l, "cuptiGetVersion");
  };
  const auto nccl = [](const SharedLibrary& l) {
    return version_by_pointer<int>(l, "ncclGetVersion");
  };
  const auto nvrtc = [](const SharedLibrary& l) {
    auto* const get = l.function<int(int*, int*)>("nvrtcVersion");
    int major = 0, minor = 0;
    return get && get(&major, &minor) == 0 ? major * 10000 + minor * 100 : 0;
  };
  return {examine(gpu::cublas_lt_library(), built.cublas, cublas),
          examine(gpu::cudnn_library(), built.cudnn, cudnn),
          examine(gpu::cupti_library(), built.cupti, cupti),
          examine(gpu::nvrtc_library(), built.runtime, nvrtc),
          examine(gpu::nccl_library(), built.nccl, nccl)};
}

}  // namespace

MachineFacts examine_machine() {
  MachineFacts facts;
  utsname name{};
  if (::uname(&name) == 0)
    facts.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  examine_processor(facts);
  examine_memory(facts);
  examine_disk(facts);
  try {
    const HardwareCounters counters;
  } catch (const DeviceError& error) {
    facts.counters_refused = error.what();
  }
#ifdef RIDGE_HIP_BUILD
  facts.hip_build = RIDGE_HIP_BUILD;
  facts.hip_card = has_gpu();
#endif
#ifdef RIDGE_HAS_CUDA
  facts.cuda_build = true;
  facts.cuda_built_with = CUDART_VERSION;
  facts.built_for = capabilities(RIDGE_CUDA_ARCHITECTURES);
#endif
  examine_driver(facts);
  facts.libraries = examine_libraries();
  facts.compiler = toolkit_compiler();
  return facts;
}

void watch_others(MachineFacts& facts, std::chrono::milliseconds time) {
  const ProcessorUse begin = ProcessorUse::now();
  std::this_thread::sleep_for(time);
  facts.busy_processors_of_others = busy_processors_of_others(begin, ProcessorUse::now());
}

}  // namespace ridge
