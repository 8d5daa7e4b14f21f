#pragma once

// How an image lies in lines for convolutions of split operands. A line has a position for each
// result and for some zeros: row after row, with zeros behind each row of pixels and rows of zeros
// behind each image. A window's pixel then lies at the same distance from every result, so that the
// rows of a tile of 16 positions follow each other for each pixel of the window. With steps of
// several pixels there is a line for each phase, which has the pixels of every so-many-th row and
// column. What is computed at positions where there is no result is dropped, or multiplied by 0.

#include <algorithm>
#include <cstdint>

#include "ridge/base/ceil_div.h"
#include "ridge/ops/conv.h"

namespace ridge {

// The rows, or the columns, of lines.
struct WindowAxis {
  std::int64_t stride, dilation, padding;
  std::int64_t first, last;  // where a window begins and ends, in steps from its result
  std::int64_t extent;       // of an image in a line: its pixels of a phase, and zeros

  WindowAxis(std::int64_t from, std::int64_t to, std::int64_t window, std::int64_t step,
             std::int64_t distance, std::int64_t zeros)
      : stride(step),
        dilation(distance),
        padding(zeros),
        first(step_of(0)),
        last(step_of(window - 1)),
        extent(std::max(ceil_div(from, step) - first, to + std::max<std::int64_t>(last, 0))) {}

  // Of a pixel of the window: how many steps it lies from its result, and in which phase.
  std::int64_t step_of(std::int64_t pixel) const {
    const std::int64_t at = pixel * dilation - padding;
    return at >= 0 ? at / stride : -ceil_div(-at, stride);
  }
  std::int64_t phase_of(std::int64_t pixel) const {
    return pixel * dilation - padding - step_of(pixel) * stride;
  }
};

class WindowLines {
 public:
  WindowLines(const ImageShape& from, const ImageShape& to, const ImageShape& window, Pair stride,
              Pair dilation, Pair padding)
      : from_(from),
        to_(to),
        window_columns_(window.w),
        rows_(from.h, to.h, window.h, stride[0], dilation[0], padding[0]),
        columns_(from.w, to.w, window.w, stride[1], dilation[1], padding[1]) {}

  std::int64_t phases() const { return rows_.stride * columns_.stride; }
  std::int64_t positions() const { return to_.n * rows_.extent * columns_.extent; }
  // Of a window's first pixel, less its result's: at most 0.
  std::int64_t first() const { return rows_.first * columns_.extent + columns_.first; }
  // Between a window's first and last pixel.
  std::int64_t reach() const { return rows_.last * columns_.extent + columns_.last - first(); }

  struct WindowPixel {
    std::int64_t phase, distance;  // from the window's first
  };
  WindowPixel window_pixel(std::int64_t tap) const {
    const std::int64_t r = tap / window_columns_, q = tap % window_columns_;
    return {rows_.phase_of(r) * columns_.stride + columns_.phase_of(q),
            rows_.step_of(r) * columns_.extent + columns_.step_of(q) - first()};
  }

  // f(i, pixel) for `count` positions of a phase's line from `first` on, which may lie before it:
  // the pixel's number among those of all images, below 0 where there is none.
  template <class F>
  void each_pixel(std::int64_t phase, std::int64_t first, std::int64_t count, const F& f) const {
    const std::int64_t down = phase / columns_.stride, across = phase % columns_.stride;
    each_place(first, count, [&](std::int64_t i, const Place& at) {
      const std::int64_t row = at.row * rows_.stride + down;
      const std::int64_t column = at.column * columns_.stride + across;
      f(i, number_of(from_, {at.image, row, column}));
    });
  }
  // Likewise for results.
  template <class F>
  void each_result(std::int64_t first, std::int64_t count, const F& f) const {
    each_place(first, count, [&](std::int64_t i, const Place& at) { f(i, number_of(to_, at)); });
  }

 private:
  struct Place {
    std::int64_t image, row, column;
  };
  static std::int64_t number_of(const ImageShape& s, const Place& at) {
    if (at.image < 0 || at.image >= s.n || at.row >= s.h || at.column >= s.w) return -1;
    return (at.image * s.h + at.row) * s.w + at.column;
  }

  // Counts rather than divides: a position has as little as 16 channels.
  template <class F>
  void each_place(std::int64_t first, std::int64_t count, const F& f) const {
    const std::int64_t of_image = rows_.extent * columns_.extent;
    Place at{.image = first >= 0 ? first / of_image : -ceil_div(-first, of_image),
             .row = 0,
             .column = 0};
    const std::int64_t in_image = first - at.image * of_image;
    at.row = in_image / columns_.extent;
    at.column = in_image % columns_.extent;
    for (std::int64_t i = 0; i < count; ++i) {
      f(i, at);
      if (++at.column < columns_.extent) continue;
      at.column = 0;
      if (++at.row < rows_.extent) continue;
      at.row = 0;
      ++at.image;
    }
  }

  ImageShape from_, to_;
  std::int64_t window_columns_;
  WindowAxis rows_, columns_;
};

}  // namespace ridge
