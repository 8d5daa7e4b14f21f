#pragma once

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "ridge/base/dtype.h"
#include "ridge/cpu/gemm_kernel.h"

namespace ridge {

typedef float FloatVector __attribute__((vector_size(4 * lanes)));
typedef std::uint32_t WordVector __attribute__((vector_size(4 * lanes)));
typedef std::uint16_t HalfWordVector __attribute__((vector_size(2 * lanes)));

template <class V>
V load_vector(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Neighboring channels of a pixel as vectors of floats: how T's are loaded and stored.
template <class T>
struct ChannelBlock;

template <>
struct ChannelBlock<float> {
  static constexpr int vectors = 1, channels = lanes;

  FloatVector v[vectors];

  static ChannelBlock load(const float* p) { return {{load_vector<FloatVector>(p)}}; }
  void store(float* p) const { store_sums(p); }
  void store_sums(float* p) const { std::memcpy(p, v, sizeof v); }
};

// Channels with even and with odd numbers: a word is one of each, and to widen it takes no more
// than a shift and a mask.
template <>
struct ChannelBlock<BFloat16> {
  static constexpr int vectors = 2, channels = 2 * lanes;

  FloatVector v[vectors];

  static ChannelBlock load(const BFloat16* p) {
    const auto words = load_vector<WordVector>(p);
    return {{(FloatVector)(words << 16), (FloatVector)(words & 0xFFFF0000u)}};
  }
  void store(BFloat16* p) const {
#if defined(__AVX512BF16__)  // takes denormals for 0
    const auto widened = [](FloatVector x) {
      return __builtin_convertvector((HalfWordVector)_mm512_cvtneps_pbh((__m512)x), WordVector);
    };
    const WordVector words = widened(v[0]) | widened(v[1]) << 16;
#else
    const WordVector words = rounded(v[0]) >> 16 | (rounded(v[1]) & 0xFFFF0000u);
#endif
    std::memcpy(static_cast<void*>(p), &words, sizeof words);
  }
  void store_sums(float* p) const {
    float even[lanes], odd[lanes];
    std::memcpy(even, &v[0], sizeof even);
    std::memcpy(odd, &v[1], sizeof odd);
    for (std::int64_t i = 0; i < lanes; ++i) {
      p[2 * i] = even[i];
      p[2 * i + 1] = odd[i];
    }
  }

 private:
  // The upper half is the nearest bf16; see base/dtype.h.
  static WordVector rounded(FloatVector x) {
    const WordVector word = (WordVector)x;
    const WordVector nearest = word + 0x7FFFu + (word >> 16 & 1u);
    return (WordVector)(x == x) ? nearest : word | 0x00400000u;
  }
};

}  // namespace ridge
