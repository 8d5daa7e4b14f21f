#include "ridge/cpu/depthwise_gradient.h"

#include <algorithm>
#include <vector>

#include "ridge/cpu/channel_block.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// dW[r, s, c] is the sum over images n and pixels (i, j) of the result of
//   dy[n, i, j, c] * x[n, i * stride + r - padding, j * stride + s - padding, c].
//
// A task takes one row r of the weights and some images, and adds up one row of the result after
// the other. Of such a row the sums of all s stay in registers.

// A row of the result's gradient, and the row of the image that row r of the weights meets there.
template <class T>
struct RowPair {
  const T* image;  // [width, channels]
  const T* dy;     // [results, channels]
  float* sums;     // [size, channels], to which is added
  std::int64_t width, results, padding, channels;
};

// Adds what columns [j, j + Columns) of the result contribute. A pixel that several of them meet is
// read once for all.
template <int Size, int Stride, int Columns, class T>
void add_columns(const RowPair<T>& row, std::int64_t j, std::int64_t c,
                 ChannelBlock<T> (&sums)[Size]) {
  ChannelBlock<T> dy[Columns];
#pragma GCC unroll 8
  for (int k = 0; k < Columns; ++k)
    dy[k] = ChannelBlock<T>::load(row.dy + (j + k) * row.channels + c);
#pragma GCC unroll 32
  for (int q = 0; q < (Columns - 1) * Stride + Size; ++q) {
    const std::int64_t column = j * Stride - row.padding + q;
    if (column < 0 || column >= row.width) continue;
    const ChannelBlock<T> pixel = ChannelBlock<T>::load(row.image + column * row.channels + c);
#pragma GCC unroll 8
    for (int s = 0; s < Size; ++s)
      if (q >= s && (q - s) % Stride == 0 && (q - s) / Stride < Columns)
#pragma GCC unroll 2
        for (int v = 0; v < ChannelBlock<T>::vectors; ++v)
          sums[s].v[v] += dy[(q - s) / Stride].v[v] * pixel.v[v];
  }
}

template <int Size, int Stride, class T>
void add_row(const RowPair<T>& row) {
  constexpr int tile = 7;  // divides the extents that 224 is halved to
  constexpr std::int64_t block = ChannelBlock<T>::channels;
  for (std::int64_t begin = 0; begin < row.channels; begin += block) {
    // Where the last block would be cut off it begins earlier, and adds only what is new.
    const std::int64_t c = std::min(begin, row.channels - block);
    ChannelBlock<T> sums[Size] = {};
    std::int64_t j = 0;
    for (; j + tile <= row.results; j += tile) add_columns<Size, Stride, tile>(row, j, c, sums);
    for (; j < row.results; ++j) add_columns<Size, Stride, 1>(row, j, c, sums);
    for (int s = 0; s < Size; ++s) {
      float stored[block];
      sums[s].store_sums(stored);
      float* const to = row.sums + s * row.channels + c;
#pragma omp simd
      for (std::int64_t i = begin - c; i < block; ++i) to[i] += stored[i];
    }
  }
}

template <class T>
class DepthwiseGradient final : public Conv {
 public:
  explicit DepthwiseGradient(const ConvShape& shape) : shape_(shape) {
    const bool strided = shape.geometry.stride[0] == 2;
    if (shape.weight.h == 5)
      add_row_ = strided ? add_row<5, 2, T> : add_row<5, 1, T>;
    else
      add_row_ = strided ? add_row<7, 2, T> : add_row<7, 1, T>;
  }

  std::size_t workspace() const override {
    return static_cast<std::size_t>(parts() * taps() * shape_.x.c) * sizeof(float);
  }
  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override {
    auto* const partials = static_cast<float*>(workspace);
    pool.run(parts() * shape_.weight.h, [&](std::int64_t task) {
      const std::int64_t part = task / shape_.weight.h, r = task % shape_.weight.h;
      add_images(o, part, r, partials + (part * taps() + r * shape_.weight.w) * shape_.x.c);
    });
    finish(pool, partials, static_cast<T*>(o.weight));
  }

 private:
  // The images are shared out among so many parts, each with sums of its own.
  std::int64_t parts() const { return std::min<std::int64_t>(shape_.x.n, 8); }
  std::int64_t taps() const { return shape_.weight.pixels(); }

  void add_images(const ConvOperands& o, std::int64_t part, std::int64_t r, float* sums) const {
    const ConvShape& s = shape_;
    std::fill_n(sums, s.weight.w * s.x.c, 0.0f);
    for (std::int64_t n = part * s.x.n / parts(); n < (part + 1) * s.x.n / parts(); ++n)
      for (std::int64_t i = 0; i < s.y.h; ++i) {
        const std::int64_t above = i * s.geometry.stride[0] + r - s.geometry.padding[0];
        if (above < 0 || above >= s.x.h) continue;
        add_row_({.image = static_cast<const T*>(o.x) + (n * s.x.h + above) * s.x.w * s.x.c,
                  .dy = static_cast<const T*>(o.y) + (n * s.y.h + i) * s.y.w * s.y.c,
                  .sums = sums,
                  .width = s.x.w,
                  .results = s.y.w,
                  .padding = s.geometry.padding[1],
                  .channels = s.x.c});
      }
  }

  // Adds the parts in order, and brings [R, S, C] into the order of weights.
  void finish(ThreadPool& pool, const float* partials, T* weight) const {
    const std::int64_t size = taps() * shape_.x.c;
    parallel_for(pool, shape_.x.c, 64, [=, this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c)
        for (std::int64_t k = 0; k < taps(); ++k) {
          float sum = 0;
          for (std::int64_t part = 0; part < parts(); ++part)
            sum += partials[part * size + k * shape_.x.c + c];
          store(&weight[c * taps() + k], sum);
        }
    });
  }

  ConvShape shape_;
  void (*add_row_)(const RowPair<T>&) = nullptr;
};

}  // namespace

bool is_depthwise_gradient(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  return s.kind == ConvShape::Kind::weight_grad && g.layout == ImageLayout::nhwc &&
         g.groups == s.x.c && s.y.c == s.x.c && s.x.c >= 2 * lanes &&
         (s.dtype == DType::f32 || s.dtype == DType::bf16) && g.dilation == Pair{1, 1} &&
         (g.stride == Pair{1, 1} || g.stride == Pair{2, 2}) && s.weight.h == s.weight.w &&
         (s.weight.h == 5 || s.weight.h == 7);
}

ConvPtr make_depthwise_gradient(const ConvShape& shape) {
  if (shape.dtype == DType::bf16) return std::make_unique<DepthwiseGradient<BFloat16>>(shape);
  return std::make_unique<DepthwiseGradient<float>>(shape);
}

}  // namespace ridge
