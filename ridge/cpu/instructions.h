#pragma once

// Which instructions the including file is compiled for. Only the kernels in ridge/cpu ask: all
// other code is compiled for the least of its architecture.

#include <cstdint>
#include <string_view>

namespace ridge {

// The instruction sets that our kernels tell apart, each with those before it.
enum class Instructions : std::uint8_t {
  baseline,     // what every processor of the architecture has
  avx2,         // x86-64-v3: AVX2 and FMA among others
  avx512,       // x86-64-v4: AVX-512 F, BW, CD, DQ and VL
  avx512_bf16,  // products of pairs of bf16 too
};
std::string_view name_of(Instructions instructions);  // "baseline", "avx2", "avx512+bf16"

#if defined(__AVX512BF16__)
constexpr Instructions compiled_instructions = Instructions::avx512_bf16;
#elif defined(__AVX512F__) && defined(__AVX512VL__)
constexpr Instructions compiled_instructions = Instructions::avx512;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr Instructions compiled_instructions = Instructions::avx2;
#else
constexpr Instructions compiled_instructions = Instructions::baseline;
#endif

// Floats of one vector register.
constexpr std::int64_t vector_floats = compiled_instructions >= Instructions::avx512 ? 16
                                       : compiled_instructions == Instructions::avx2 ? 8
                                                                                     : 4;

}  // namespace ridge
