#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "ridge/base/error.h"
#include "ridge/base/host_memory.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/kernels.h"

namespace ridge {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

// The value of the line "key : value" of a file under /proc; "" without one.
std::string proc_value(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

bool multiplies_float16() {
#if defined(__x86_64__)
  constexpr unsigned avx512_fp16_bit = 1u << 23;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
         (d & avx512_fp16_bit) != 0;
#elif defined(__aarch64__)
  constexpr unsigned long asimd_half_bit = 1ul << 10;
  return (getauxval(AT_HWCAP) & asimd_half_bit) != 0;
#else
  return false;
#endif
}

DeviceInfo info_of(int threads) {
  const std::string model = proc_value("/proc/cpuinfo", "model name");
  const std::string hardware = model.empty() ? "CPU" : model;
  return {
      .name = "cpu",
      .hardware = hardware,
      .description = fmt::format("{}, {} thread{}", hardware, threads, threads == 1 ? "" : "s"),
      .threads = threads,
      .total_memory = host_memory().total,
      .target = {.description = "cpu, " + hardware, .multiplies_float16 = multiplies_float16()}};
}

}  // namespace

CpuDevice::CpuDevice(int threads)
    : Device(info_of(threads)), kernels_(cpu_kernels()), pool_(threads) {}

PreparedKernel CpuDevice::prepare(const Op& op, Types in, Types out, const KernelChoice& choice) {
  CpuPrepare prepare{.pool = pool_,
                     .in = in,
                     .out = out,
                     .rotations = rotations_,
                     .choice = choice,
                     .communicator = communicator()};
  KernelPtr kernel = kernels_.prepare(op, prepare);
  return {std::move(kernel), prepare.workspace};
}

void* CpuDevice::allocate(std::size_t bytes) {
  const std::size_t align = bytes >= huge_page ? huge_page : alignment;
  void* memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!memory)
    throw OutOfMemoryError("the system has no {} bytes left: use a smaller batch or model", bytes);
  // Fewer page faults in the first step and fewer TLB misses in all; advice only.
  if (bytes >= huge_page) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void CpuDevice::deallocate(void* memory, std::size_t) { std::free(memory); }

std::size_t CpuDevice::available_memory() const { return host_memory().available; }

void CpuDevice::upload(void* device, const void* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
}

void CpuDevice::download(void* host, const void* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
}

void CpuDevice::clear(void* device, std::size_t bytes) { std::memset(device, 0, bytes); }

void CpuDevice::mark(std::size_t slot) {
  if (marks_.size() <= slot) marks_.resize(slot + 1);
  marks_[slot] = std::chrono::steady_clock::now();
}

double CpuDevice::seconds_between(std::size_t from, std::size_t to) const {
  return std::chrono::duration<double>(marks_.at(to) - marks_.at(from)).count();
}

}  // namespace ridge
