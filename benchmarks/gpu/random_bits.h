#pragma once

// Random bits for operands of benchmarks: the finalizer of SplitMix64 (Steele, Lea, Flood, 2014)
// over the place of an element and a seed.

#include <cstdint>

__device__ inline std::uint64_t random_bits(std::uint64_t place, unsigned seed) {
  std::uint64_t z = (place + 1) * 0x9e3779b97f4a7c15ULL + seed * 0xda942042e4dd58b5ULL;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
  return z ^ z >> 31;
}
