#include "ridge/cpu/depthwise_conv.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ridge/cpu/channel_block.h"
#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/scratch.h"

namespace ridge {
namespace {

// What is no more than two limits, and applied in registers.
bool is_simple(Epilogue epilogue) {
  return epilogue == Epilogue::none || epilogue == Epilogue::relu || epilogue == Epilogue::relu6;
}

struct Limits {
  float least, most;

  explicit Limits(Epilogue epilogue)
      : least(epilogue == Epilogue::none ? -infinity : 0.0f),
        most(epilogue == Epilogue::relu6 ? 6.0f : infinity) {}

  // NaN stays NaN.
  FloatVector operator()(FloatVector v) const {
    const FloatVector low = FloatVector{} + least, high = FloatVector{} + most;
    v = v < low ? low : v;
    return v > high ? high : v;
  }

 private:
  static constexpr float infinity = std::numeric_limits<float>::infinity();
};

// A row of the result, from the rows [first, end) of the weights that meet the image: with its
// epilogue, or, if that is not simple, as sums.
template <class T>
struct Row {
  const T* image;    // that row `first` of the weights meets, [rows, width, channels]
  const T* zeros;    // a pixel beyond its sides
  const T* weights;  // [size, size, channels]
  const T* bias;     // or null
  Limits limits;
  T* y;  // or null
  float* sums;
  std::int64_t width, channels, results, padding;  // results: its columns
  int first, end;
};

// Columns [j, j + Columns) of the result, in registers. Pixels that several of them meet are read
// once for all.
template <int Size, int Stride, int Columns, class T>
void convolve_columns(const Row<T>& row, std::int64_t j) {
  constexpr int seen = (Columns - 1) * Stride + Size;
  const T* pixels[Size][seen];
  for (int r = row.first; r < row.end; ++r)
    for (int q = 0; q < seen; ++q) {
      const std::int64_t column = j * Stride - row.padding + q;
      const bool inside = column >= 0 && column < row.width;
      const std::int64_t pixel = (r - row.first) * row.width + column;
      pixels[r][q] = inside ? row.image + pixel * row.channels : row.zeros;
    }
  const Limits limits = row.limits;
  for (std::int64_t begin = 0; begin < row.channels; begin += ChannelBlock<T>::channels) {
    const std::int64_t c = std::min(begin, row.channels - ChannelBlock<T>::channels);
    const ChannelBlock<T> start =
        row.bias ? ChannelBlock<T>::load(row.bias + c) : ChannelBlock<T>{};
    ChannelBlock<T> sums[Columns];
#pragma GCC unroll 8
    for (int k = 0; k < Columns; ++k) sums[k] = start;
    for (int r = row.first; r < row.end; ++r) {
      ChannelBlock<T> weights[Size];
#pragma GCC unroll 8
      for (int s = 0; s < Size; ++s)
        weights[s] = ChannelBlock<T>::load(row.weights + (r * Size + s) * row.channels + c);
#pragma GCC unroll 32
      for (int q = 0; q < seen; ++q) {
        const ChannelBlock<T> pixel = ChannelBlock<T>::load(pixels[r][q] + c);
#pragma GCC unroll 8
        for (int s = 0; s < Size; ++s)
          if (q >= s && (q - s) % Stride == 0 && (q - s) / Stride < Columns)
#pragma GCC unroll 2
            for (int v = 0; v < ChannelBlock<T>::vectors; ++v)
              sums[(q - s) / Stride].v[v] += weights[s].v[v] * pixel.v[v];
      }
    }
#pragma GCC unroll 8
    for (int k = 0; k < Columns; ++k) {
      const std::int64_t at = (j + k) * row.channels + c;
      if (row.y) {
#pragma GCC unroll 2
        for (int v = 0; v < ChannelBlock<T>::vectors; ++v) sums[k].v[v] = limits(sums[k].v[v]);
        sums[k].store(row.y + at);
      } else {
        sums[k].store_sums(row.sums + at);
      }
    }
  }
}

// Where a last tile would be cut off, it begins earlier and computes some columns again.
template <int Size, int Stride, class T>
void convolve_row(const Row<T>& row) {
  constexpr int tile = 7;  // divides the extents that 224 is halved to
  if (row.results < tile)
    for (std::int64_t j = 0; j < row.results; ++j) convolve_columns<Size, Stride, 1>(row, j);
  else
    for (std::int64_t j = 0; j < row.results; j += tile)
      convolve_columns<Size, Stride, tile>(row, std::min(j, row.results - tile));
}

template <class T>
class DepthwiseConv final : public Conv {
 public:
  explicit DepthwiseConv(const ConvShape& shape)
      : shape_(shape), zeros_(static_cast<std::size_t>(shape.x.c)) {
    const bool strided = shape.geometry.stride[0] == 2;
    if (shape.weight.h == 3)
      convolve_ = strided ? convolve_row<3, 2, T> : convolve_row<3, 1, T>;
    else
      convolve_ = strided ? convolve_row<5, 2, T> : convolve_row<5, 1, T>;
  }

  std::size_t packed_bytes() const override {
    return (static_cast<std::size_t>(shape_.weight.pixels() * shape_.x.c) * sizeof(T) + 63) / 64 *
           64;
  }
  void pack(ThreadPool&, const void* weight, void* packed) const override {
    const auto* from = static_cast<const T*>(weight);
    auto* to = static_cast<T*>(packed);
    for (std::int64_t k = 0; k < shape_.weight.pixels(); ++k)
      for (std::int64_t c = 0; c < shape_.x.c; ++c) *to++ = from[c * shape_.weight.pixels() + k];
  }
  std::size_t workspace() const override { return 0; }
  void run(ThreadPool& pool, const ConvOperands& o, void*) const override {
    const std::int64_t rows = shape_.y.n * shape_.y.h;
    parallel_for(pool, rows, rows_per_task(shape_.y.w * shape_.y.c),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) run_row(o, i);
                 });
  }

 private:
  void run_row(const ConvOperands& o, std::int64_t index) const {
    const ConvShape& s = shape_;
    const std::int64_t image = index / s.y.h;
    const std::int64_t top = index % s.y.h * s.geometry.stride[0] - s.geometry.padding[0];
    const std::int64_t first = std::max<std::int64_t>(0, -top);
    const std::int64_t end = std::min(s.weight.h, s.x.h - top);
    const std::int64_t n = s.y.w * s.y.c;
    T* const y = static_cast<T*>(o.y) + index * n;
    const bool finished = is_simple(s.epilogue) && !s.residual;
    float* sums = nullptr;
    if (!finished)
      sums = static_cast<float*>(scratch_memory(static_cast<std::size_t>(n) * sizeof(float)));
    convolve_({.image = static_cast<const T*>(o.x) + (image * s.x.h + top + first) * s.x.w * s.x.c,
               .zeros = zeros_.data(),
               .weights = static_cast<const T*>(o.weight),
               .bias = static_cast<const T*>(o.bias),
               .limits = Limits(s.epilogue),
               .y = finished ? y : nullptr,
               .sums = sums,
               .width = s.x.w,
               .channels = s.x.c,
               .results = s.y.w,
               .padding = s.geometry.padding[1],
               .first = static_cast<int>(first),
               .end = static_cast<int>(std::max(first, end))});
    if (!finished)
      finish_rows(s.epilogue, sums,
                  s.residual ? static_cast<const T*>(o.residual) + index * n : nullptr, n, y);
  }

  ConvShape shape_;
  std::vector<T> zeros_;
  void (*convolve_)(const Row<T>&) = nullptr;
};

}  // namespace

bool is_depthwise(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  return s.kind == ConvShape::Kind::forward && g.layout == ImageLayout::nhwc && g.groups == s.x.c &&
         s.y.c == s.x.c && s.x.c >= 2 * lanes && !s.f32_result &&
         (s.dtype == DType::f32 || s.dtype == DType::bf16) && g.dilation == Pair{1, 1} &&
         (g.stride == Pair{1, 1} || g.stride == Pair{2, 2}) && s.weight.h == s.weight.w &&
         (s.weight.h == 3 || s.weight.h == 5);
}

ConvPtr make_depthwise_conv(const ConvShape& shape) {
  if (shape.dtype == DType::bf16) return std::make_unique<DepthwiseConv<BFloat16>>(shape);
  return std::make_unique<DepthwiseConv<float>>(shape);
}

}  // namespace ridge
