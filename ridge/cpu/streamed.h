#pragma once

#include <algorithm>
#include <cstdint>

namespace ridge {

// Calls body(begin, end) for pieces of [0, n), in order, and asks meanwhile for what the arrays
// hold 2 KiB further on. For loops that compute much with each element they read: few of their
// loads are under way at a time, and a processor may ask for too little ahead. On one core of a
// Xeon the gradient of cross-entropy took 0.45 thousand million elements of 61 MB a second, and 1.6
// so.
template <class F, class... T>
void streamed(std::int64_t n, const F& body, const T*... arrays) {
  constexpr std::int64_t piece = 256, line_bytes = 64, ahead = 2048;
  const auto fetch = [](const auto* array) {
    constexpr auto step = line_bytes / static_cast<std::int64_t>(sizeof(*array));
    const auto* const from = array + ahead / static_cast<std::int64_t>(sizeof(*array));
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < piece; i += step) __builtin_prefetch(from + i);
  };
  for (std::int64_t i = 0; i < n; i += piece) {
    (fetch(arrays + i), ...);
    body(i, std::min(n, i + piece));
  }
}

}  // namespace ridge
