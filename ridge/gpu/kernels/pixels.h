#pragma once

// Kernels over the pixels of images, in both layouts: with channels last a thread takes N channels
// of one pixel, with channels first one element.

#include <cstdint>

#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"
#include "ridge/gpu/kernels/rows.h"
#include "ridge/ops/image.h"

namespace ridge::gpu {

// Images as rows of pixels of `channels` elements: `outer` is the number of images, or with
// channels first of their channels, each of which is an image of one channel then.
struct Pixels {
  std::int64_t outer = 1, h = 1, w = 1, channels = 1;

  Pixels() = default;
  Pixels(const ImageShape& s, ImageLayout layout)
      : outer(layout == ImageLayout::nchw ? s.n * s.c : s.n),
        h(s.h),
        w(s.w),
        channels(layout == ImageLayout::nchw ? 1 : s.c) {}

  __host__ __device__ std::int64_t numel() const { return outer * h * w * channels; }
  __device__ std::int64_t at(std::int64_t image, std::int64_t row, std::int64_t column) const {
    return ((image * h + row) * w + column) * channels;
  }
};

// Where a thread of a kernel over `images` in packs of N works.
template <int N>
struct Place {
  std::int64_t outer, row, column, channel;

  template <class Index>
  __device__ Place(const Pixels& images, Index i) {
    const auto packs = static_cast<Index>(images.channels / N);
    const auto w = static_cast<Index>(images.w), h = static_cast<Index>(images.h);
    const Index pixel = i / packs, line = pixel / w;
    channel = static_cast<std::int64_t>(i - pixel * packs) * N;
    column = static_cast<std::int64_t>(pixel - line * w);
    outer = static_cast<std::int64_t>(line / h);
    row = static_cast<std::int64_t>(line - line / h * h);
  }
};

// Calls f.template operator()<N, Index>(threads, grid) for packs of `wide` channels where all
// operands allow that, and single elements otherwise.
template <int wide, class F, class... T>
void dispatch_pixels(const Pixels& images, const F& f, const T*... operands) {
  dispatch_packed<wide>(
      images.channels % wide == 0 && (is_aligned(operands, wide * sizeof(T)) && ...), [&]<int N>() {
        const std::int64_t threads = images.numel() / N;
        const dim3 grid(blocks_for(threads, elementwise_threads));
        dispatch_index(threads, [&]<class Index>() {
          f.template operator()<N, Index>(static_cast<Index>(threads), grid);
        });
      });
}

}  // namespace ridge::gpu
