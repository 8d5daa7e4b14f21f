#pragma once

// The part of their language that CUDA and HIP share, for a compiler of C++ and the machine of
// machine.h.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "ridge/base/dtype.h"
#include "tests/simt/machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// One for each block: blocks run one after the other, and the machine knows where such variables
// lie. In a function this implies `static`, and `extern` may stand before it.
#define __shared__ thread_local

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// They do not change while a thread can read them, so for the compiler they are constants, which
// the sanitizer leaves alone. machine.cpp has the variables.
extern const uint3 simt_thread_index, simt_block_index;
extern const uint3 simt_block_extent, simt_grid_extent;
#define threadIdx simt_thread_index
#define blockIdx simt_block_index
#define blockDim simt_block_extent
#define gridDim simt_grid_extent

namespace ridge::simt {

// The value that an exchange between lanes gives, of any type of up to 8 bytes.
template <class T>
T exchange_value(Exchange what, T value, int operand, const Site& site) {
  static_assert(std::is_arithmetic_v<T>, "lanes exchange numbers");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(what, bits, operand, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                   std::size_t shared_bytes, Parameters... parameters) {
  using Call = std::tuple<void (*)(Parameters...), std::tuple<Parameters...>>;
  const Call call{kernel, {parameters...}};
  run({.kernel = reinterpret_cast<const void*>(kernel),
       .blocks = {blocks.x, blocks.y, blocks.z},
       .threads = {threads.x, threads.y, threads.z},
       .shared_bytes = shared_bytes,
       .call =
           [](const void* of) {
             const auto& [function, given] = *static_cast<const Call*>(of);
             std::apply(function, given);
           },
       .parameters = &call,
       .parameter_bytes = sizeof call});
}

}  // namespace ridge::simt

inline void __syncthreads(ridge::simt::Site site = ridge::simt::Site::current()) {
  ridge::simt::sync_block(site);
}
inline void __threadfence() { ridge::simt::fence(); }

inline int atomicAdd(int* place, int more) { return ridge::simt::add_atomically(place, more); }
inline unsigned atomicAdd(unsigned* place, unsigned more) {
  return ridge::simt::add_atomically(place, more);
}
// One more, or 0 after `last`.
inline unsigned atomicInc(unsigned* place, unsigned last) {
  return ridge::simt::count_atomically(place, last);
}

inline float __uint_as_float(unsigned word) { return std::bit_cast<float>(word); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyintf(x)); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned long long>(x));
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
// Bytes of b and a, numbered from the lowest of a, by the lower three bits of each half byte.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  unsigned word = 0;
  for (int i = 0; i < 4; ++i)
    word |= static_cast<unsigned>(both >> (which >> 4 * i & 7u) * 8 & 0xFFu) << 8 * i;
  return word;
}

template <class T>
requires std::is_arithmetic_v<T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T>
requires std::is_arithmetic_v<T>
constexpr T max(T a, T b) { return a < b ? b : a; }

using std::isfinite;

struct __half {
  std::uint16_t bits;
};
inline __half __ushort_as_half(std::uint16_t bits) { return {bits}; }
inline std::uint16_t __half_as_ushort(__half x) { return x.bits; }
inline __half __float2half_rn(float x) { return {ridge::Float16(x).bits}; }
inline float __half2float(__half x) {
  ridge::Float16 value;
  value.bits = x.bits;
  return static_cast<float>(value);
}

namespace ridge::gpu {

// The memory that dynamic_shared() of runtime.h gives parts of.
extern thread_local uint4 dynamic_memory[simt::most_shared_bytes / sizeof(uint4)];

}  // namespace ridge::gpu
