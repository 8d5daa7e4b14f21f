#pragma once

// The measuring kernels behind a processor's ceilings: how fast it multiplies and adds, and how
// fast it moves data between its caches, its memory and its registers.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/base/thread_pool.h"

namespace ridge {

// A kernel that multiplies and adds: independent chains of fused multiply-adds, as many as hide
// the instruction's latency, that touches no memory.
struct FlopsKernel {
  std::string_view instructions;  // "AVX-512"
  DType dtype;                    // of the factors; sums are f32
  std::int64_t flops_per_round;
  void (*run)(std::int64_t rounds);
};

// What those of AMX's tiles are called.
inline constexpr std::string_view amx_bf16 = "AMX BF16";

// Those that this processor can run, slowest first.
std::vector<FlopsKernel> flops_kernels();

// What a bandwidth loop does with arrays of floats. Bytes are counted as the program sees them:
// each element read or written once; a cache that first fetches what it will overwrite moves more.
enum class AccessPattern : std::uint8_t {
  read,   // sum of a
  copy,   // b = a
  triad,  // c = a + s b (McCalpin's STREAM)
};
std::string_view name_of(AccessPattern access);

// A data cache, as /sys/devices/system/cpu describes it.
struct CpuCache {
  int level = 0;
  std::size_t bytes = 0;  // of one instance
  int sharing = 1;        // processors that share an instance
  bool operator==(const CpuCache&) const = default;
};

// Returns the caches of the first processor, nearest first; empty if the system does not say.
std::vector<CpuCache> cpu_caches();
// "0-3,8" -> 5: the number of processors in such a list; 1 for what is none.
int count_of_cpu_list(std::string_view list);
// "32K", "1M" -> bytes; 0 for what is none.
std::size_t bytes_of_cache_size(std::string_view size);

// All threads of the pool run the loop at once, in samples of some 200 µs for as long as
// `duration`; the result is the best sample's rate. Other programs can only make a sample slower,
// so the best of many is nearest to what the processor can do.
double measure_flops(const FlopsKernel& kernel, ThreadPool& pool,
                     std::chrono::nanoseconds duration);

// Bytes per second of all threads together, each sweeping arrays of `bytes_per_thread` in all.
double measure_bandwidth(AccessPattern access, std::size_t bytes_per_thread, ThreadPool& pool,
                         std::chrono::nanoseconds duration);

}  // namespace ridge
