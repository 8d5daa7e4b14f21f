#pragma once

// The machine's matrix unit: all lanes of a warp call a function with what they hold of a, b and d,
// and it adds a b to d. Where elements lie in the lanes is what NVIDIA's PTX ISA says of
// mma.m16n8k16 and mma.m16n8k8, and AMD's manuals of CDNA2's v_mfma_f32_16x16x16 and
// v_mfma_f32_16x16x4 and of RDNA3's v_wmma_f32_16x16x16; kernels have it from ridge/gpu/device/
// matrix_instructions.h, so that a mistake in one of the two shows. Sums are exact before they are
// rounded to f32.

#include <array>
#include <cstdint>

#include "ridge/base/dtype.h"
#include "tests/simt/machine.h"

namespace ridge::simt {

void mma(DType dtype, float (&d)[4], const std::uint32_t (&a)[4], std::array<std::uint32_t, 2> b,
         const Site& site);
void mma_tf32(float (&d)[4], const float (&a)[4], std::array<float, 2> b, const Site& site);
// The nearest number with 10 bits behind the point; of two the one farther from 0.
float round_to_tf32(float x);

void mfma(DType dtype, float (&d)[4], std::uint64_t a, std::uint64_t b, const Site& site);
void mfma_f32(float (&d)[4], float a, float b, const Site& site);

void wmma(DType dtype, float (&d)[8], const std::uint64_t (&a)[4], const std::uint64_t (&b)[4],
          const Site& site);

}  // namespace ridge::simt
