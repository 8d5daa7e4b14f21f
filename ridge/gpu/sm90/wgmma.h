#pragma once

// The warpgroup matrix product of sm90: d[64, N] (+)= a[64, 16] b[16, N] by four warps together,
// bf16 or f16 operands, float accumulators in registers, asynchronous.
//
// Accumulators: thread t of the warpgroup holds, for each group of 8 columns j, the elements
//   d[4j], d[4j+1]: row r, columns 8j + c, 8j + c + 1;  d[4j+2], d[4j+3]: the same of row r + 8
// with r = 16 (t / 32) + (t % 32) / 4 and c = 2 (t % 4).
// An A operand in registers is laid out alike, two elements a register: a[0] row r and a[1] row
// r + 8 of columns c, c + 1; a[2] and a[3] the same of columns c + 8, c + 9. So the accumulators of
// one product, packed, are the A operand of the next.
//
// Order: wgmma_fence(); any number of wgmma(); wgmma_commit(); ... wgmma_wait<n>(); and only then
// may the accumulators, and the registers and shared memory of the operands, be touched.

#include <cstdint>

#include "ridge/base/dtype.h"
#include "ridge/gpu/sm90/accumulators.h"

namespace ridge::gpu::ptx {

// What tells wgmma where an operand tile lies in shared memory. The tile's rows are RowBytes
// (64 or 128) long, contiguous, and swizzled as the copy engine does: 16-byte chunk i of row r is
// at chunk i ^ (r % 8) (for 64-byte rows: i ^ (r / 2 % 4)); the tile starts at a multiple of 1,024.
//
// When the rows run along the product's inner dimension k (not transposed), a step of 16 in k is
// 32 bytes, and `panel_bytes` is not used. When the rows run along m or n (transposed), one row is
// one k, and the columns beyond the first row's length are in a further panel `panel_bytes` on.
template <int RowBytes>
__device__ inline std::uint64_t operand(std::uint32_t shared, std::uint32_t panel_bytes = 16) {
  static_assert(RowBytes == 64 || RowBytes == 128);
  constexpr std::uint64_t swizzle = RowBytes == 128 ? 1 : 2;
  constexpr std::uint64_t eight_rows = 8 * RowBytes;
  return static_cast<std::uint64_t>((shared & 0x3ffff) >> 4) |
         static_cast<std::uint64_t>(panel_bytes >> 4) << 16 | (eight_rows >> 4) << 32 |
         swizzle << 62;
}

// The address that an operand of shared memory begins at, and one that begins `bytes` (a multiple
// of 16) further on: an addition, where making it anew takes several instructions between products.
__device__ inline std::uint32_t operand_address(std::uint64_t operand) {
  return static_cast<std::uint32_t>(operand & 0x3fff) << 4;
}
__device__ inline std::uint64_t operand_at(std::uint64_t operand, std::uint32_t bytes) {
  const std::uint32_t low = static_cast<std::uint32_t>(operand) + (bytes >> 4);
  return (operand >> 32 << 32) | low;
}

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// At most Pending of the committed groups are unfinished.
template <int Pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving a use of these registers across this point.
template <int Count>
__device__ inline void pin(float (&registers)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

template <int Count>
__device__ inline void pin(std::uint32_t (&registers)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

template <int Count>
__device__ inline void pin(std::int32_t (&registers)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// What an instruction calls its operands' type.
template <class T>
struct TypeName;
template <>
struct TypeName<BFloat16> {
  static constexpr char suffix[] = ".bf16";
};
template <>
struct TypeName<Float16> {
  static constexpr char suffix[] = ".f16";
};

// The instruction for N columns, N / 2 accumulators a thread; after these the operands are, by
// their places, a's and b's tiles, whether to accumulate, whether a and b are transposed, and the
// type.
#define RIDGE_WGMMA(N, count, at_a, at_b, at_accumulate, at_trans_a, at_trans_b, at_type)       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #at_accumulate                              \
               ", 0;\n"                                                                         \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32%" #at_type "%" #at_type          \
               " {" RIDGE_REGISTERS_##count "}, %" #at_a ", %" #at_b ", p, 1, 1, %" #at_trans_a \
                                            ", %" #at_trans_b ";\n}\n"                          \
               : RIDGE_ACCUMULATORS_##count("+f", d)                                            \
               : "l"(a), "l"(b), "r"(accumulate), "n"(TransposeA), "n"(TransposeB),             \
                 "C"(TypeName<T>::suffix))

// d (+)= a b with both operands, of T, in shared memory; `accumulate` false overwrites d.
template <class T, int N, bool TransposeA, bool TransposeB>
__device__ inline void wgmma(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, int accumulate) {
  if constexpr (N == 32)
    RIDGE_WGMMA(32, 16, 16, 17, 18, 19, 20, 21);
  else if constexpr (N == 64)
    RIDGE_WGMMA(64, 32, 32, 33, 34, 35, 36, 37);
  else if constexpr (N == 96)
    RIDGE_WGMMA(96, 48, 48, 49, 50, 51, 52, 53);
  else if constexpr (N == 112)
    RIDGE_WGMMA(112, 56, 56, 57, 58, 59, 60, 61);
  else if constexpr (N == 128)
    RIDGE_WGMMA(128, 64, 64, 65, 66, 67, 68, 69);
  else if constexpr (N == 192)
    RIDGE_WGMMA(192, 96, 96, 97, 98, 99, 100, 101);
  else
    static_assert(N == 0, "no wgmma of this width here");
}
#undef RIDGE_WGMMA

// The same with a in four registers, from the place `at_a` on.
#define RIDGE_WGMMA(N, count, at_a, at_a1, at_a2, at_a3, at_b, at_accumulate, at_trans_b, at_type) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #at_accumulate                                 \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32%" #at_type "%" #at_type             \
               " {" RIDGE_REGISTERS_##count "}, {%" #at_a ", %" #at_a1 ", %" #at_a2 ", %" #at_a3   \
                                            "}, %" #at_b ", p, 1, 1, %" #at_trans_b ";\n}\n"       \
               : RIDGE_ACCUMULATORS_##count("+f", d)                                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),              \
                 "n"(TransposeB), "C"(TypeName<T>::suffix))

// d (+)= a b with a in registers.
template <class T, int N, bool TransposeB>
__device__ inline void wgmma(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                             int accumulate) {
  if constexpr (N == 32)
    RIDGE_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22, 23);
  else if constexpr (N == 64)
    RIDGE_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38, 39);
  else if constexpr (N == 128)
    RIDGE_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70, 71);
  else
    static_assert(N == 0, "no wgmma of this width here");
}
#undef RIDGE_WGMMA

}  // namespace ridge::gpu::ptx
