// Loops of nothing but multiply-adds. Each chain depends on itself alone; an empty asm statement
// that claims to change its sum after every step keeps the compiler from merging, dropping or
// vectorizing any, and costs no instruction.

#include "ridge/cpu/amx.h"
#include "ridge/cpu/peaks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ridge {
namespace {

// A latency of 4 cycles at two instructions a cycle needs 8 chains; 16 registers hold 12 and the
// factors.
constexpr int chains = 12;
// Sums stay near 1, far from denormal and infinite numbers, which some processors are slow at.
constexpr float factor = 0.999f, addend = 1e-3f;

#if defined(__x86_64__)

__attribute__((always_inline)) inline void scalar_chains(std::int64_t rounds) {
  float sum[chains] = {};
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (float& s : sum) {
      s = s * factor + addend;
      asm volatile("" : "+x"(s));
    }
}

void scalar(std::int64_t rounds) { scalar_chains(rounds); }

// In one instruction.
__attribute__((target("fma"))) void scalar_fma(std::int64_t rounds) { scalar_chains(rounds); }

__attribute__((target("avx2,fma"))) void avx2(std::int64_t rounds) {
  __m256 sum[chains] = {};
  const __m256 f = _mm256_set1_ps(factor), a = _mm256_set1_ps(addend);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (__m256& s : sum) {
      s = _mm256_fmadd_ps(s, f, a);
      asm volatile("" : "+x"(s));
    }
}

__attribute__((target("avx512f"))) void avx512(std::int64_t rounds) {
  __m512 sum[chains] = {};
  const __m512 f = _mm512_set1_ps(factor), a = _mm512_set1_ps(addend);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (__m512& s : sum) {
      s = _mm512_fmadd_ps(s, f, a);
      asm volatile("" : "+v"(s));
    }
}

// Each lane adds the products of two pairs.
__attribute__((target("avx512f,avx512bf16"))) void avx512_bf16(std::int64_t rounds) {
  __m512 sum[chains] = {};
  const __m512 tiny = _mm512_set1_ps(addend);
  const __m512bh x = _mm512_cvtne2ps_pbh(tiny, tiny);
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (__m512& s : sum) {
      s = _mm512_dpbf16_ps(s, x, x);
      asm volatile("" : "+v"(s));
    }
}

// Four tiles of 16 x 16 sums, each the product of 16 x 32 by 32 x 16.
constexpr std::int64_t amx_flops = 4 * 2 * 16 * 16 * 32;

__attribute__((target("amx-tile,amx-bf16"))) void multiply_amx_tiles(std::int64_t rounds) {
  const TileConfiguration configuration;
  // GCC 12's intrinsic names 8 bytes as its operand: the others would never be stored.
  asm volatile("" ::"r"(&configuration) : "memory");
  _tile_loadconfig(&configuration);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

#else

void scalar(std::int64_t rounds) {
  float sum[chains] = {};
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (float& s : sum) {
      s = s * factor + addend;
#if defined(__aarch64__)
      asm volatile("" : "+w"(s));
#else
      asm volatile("" : "+m"(s));
#endif
    }
}

#if defined(__aarch64__)
typedef float Vector __attribute__((vector_size(16)));

void neon(std::int64_t rounds) {
  Vector sum[chains] = {};
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (Vector& s : sum) {
      s = s * factor + addend;
      asm volatile("" : "+w"(s));
    }
}
#endif

#endif

}  // namespace

std::vector<FlopsKernel> flops_kernels() {
#if defined(__x86_64__)
  std::vector<FlopsKernel> kernels{
      {"scalar", DType::f32, 2 * chains, __builtin_cpu_supports("fma") ? scalar_fma : scalar}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back({"AVX2", DType::f32, 2 * 8 * chains, avx2});
  if (__builtin_cpu_supports("avx512f"))
    kernels.push_back({"AVX-512", DType::f32, 2 * 16 * chains, avx512});
  if (__builtin_cpu_supports("avx512bf16"))
    kernels.push_back({"AVX-512 BF16", DType::bf16, 4 * 16 * chains, avx512_bf16});
  if (may_use_amx()) kernels.push_back({amx_bf16, DType::bf16, amx_flops, multiply_amx_tiles});
#else
  std::vector<FlopsKernel> kernels{{"scalar", DType::f32, 2 * chains, scalar}};
#if defined(__aarch64__)
  kernels.push_back({"NEON", DType::f32, 2 * 4 * chains, neon});
#endif
#endif
  return kernels;
}

}  // namespace ridge
