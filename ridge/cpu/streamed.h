#pragma once

#include <algorithm>
#include <cstdint>

namespace ridge {

// Calls body(first, last) for pieces of [begin, end), in order, and asks meanwhile for what the
// arrays hold 2 KiB further on. For loops that compute much with each element they read: few of
// their loads are under way at a time, and a processor may ask for too little ahead. On one core of
// a Xeon the gradient of cross-entropy went through 0.45 thousand million elements of a tensor of
// 61 MB in a second, and goes through 1.6 so.
template <class F, class... T>
void streamed(std::int64_t begin, std::int64_t end, const F& body, const T*... arrays) {
  constexpr std::int64_t piece = 256, line_bytes = 64, ahead_bytes = 2048;
  const auto fetch = []<class Element>(const Element* array) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(Element));
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < piece; i += line_bytes / size)
      __builtin_prefetch(array + ahead_bytes / size + i);
  };
  for (std::int64_t i = begin; i < end; i += piece) {
    (fetch(arrays + i), ...);
    body(i, std::min(end, i + piece));
  }
}

}  // namespace ridge
