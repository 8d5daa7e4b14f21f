#pragma once

// Stands in for the header of this name: the instructions of matrix units for the machine, mma() in
// the dialect of CUDA and mfma() in HIP's; and wmma(), which a test of its own calls.

#include <cstdint>
#include <type_traits>

#include "ridge/base/dtype.h"
#include "tests/simt/matrix_instructions.h"

namespace ridge::gpu {

enum class MatrixInstructions : std::uint8_t { none, mma, mfma, wmma };

template <class T>
inline constexpr DType dtype_of_elements = std::is_same_v<T, BFloat16> ? DType::bf16 : DType::f16;

#if defined(__HIP__)

inline constexpr MatrixInstructions matrix_instructions = MatrixInstructions::mfma;

template <class T>
inline void mfma(float (&d)[4], std::uint64_t a, std::uint64_t b,
                 const simt::Site& site = simt::Site::current()) {
  simt::mfma(dtype_of_elements<T>, d, a, b, site);
}
inline void mfma(float (&d)[4], float a, float b, const simt::Site& site = simt::Site::current()) {
  simt::mfma_f32(d, a, b, site);
}

#else

inline constexpr MatrixInstructions matrix_instructions = MatrixInstructions::mma;

template <class T>
inline void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                const simt::Site& site = simt::Site::current()) {
  simt::mma(dtype_of_elements<T>, d, a, {b0, b1}, site);
}
inline void mma_tf32(float (&d)[4], const float (&a)[4], float b0, float b1,
                     const simt::Site& site = simt::Site::current()) {
  simt::mma_tf32(d, a, {b0, b1}, site);
}
inline float round_to_tf32(float x) { return simt::round_to_tf32(x); }

template <class T>
inline void wmma(float (&d)[8], const std::uint64_t (&a)[4], const std::uint64_t (&b)[4],
                 const simt::Site& site = simt::Site::current()) {
  simt::wmma(dtype_of_elements<T>, d, a, b, site);
}

#endif

}  // namespace ridge::gpu
