#include "ridge/ops/pool.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// Channels of a pixel, or columns of a row, that are worked on at once.
constexpr std::int64_t piece = 256;

// NaN is larger than anything, so that it stays.
float larger(float a, float b) { return b > a || b != b ? b : a; }

struct Window {
  std::int64_t begin, end;
};

// The part of window i that lies in the image.
Window window_of(const PoolWindows& w, std::size_t d, std::int64_t i, std::int64_t extent) {
  const std::int64_t begin = i * w.stride[d] - w.padding[d];
  return {std::max<std::int64_t>(begin, 0), std::min(begin + w.kernel[d], extent)};
}

// The windows that element p lies in.
Window windows_around(const PoolWindows& w, std::size_t d, std::int64_t p, std::int64_t windows) {
  const std::int64_t first = p + w.padding[d] - w.kernel[d] + 1, stride = w.stride[d];
  return {first <= 0 ? 0 : (first + stride - 1) / stride,
          std::min((p + w.padding[d]) / stride + 1, windows)};
}

struct Images {
  ImageShape x, y;
  std::int64_t outer;  // images, or their channels
};

// y, a row of the largest elements with channels last.
template <class T>
void row_of_vectors(const PoolWindows& w, const Images& s, const T* x, std::int64_t i, T* y) {
  const Window rows = window_of(w, 0, i, s.x.h);
  float most[piece];
  for (std::int64_t j = 0; j < s.y.w; ++j) {
    const Window columns = window_of(w, 1, j, s.x.w);
    for (std::int64_t begin = 0; begin < s.x.c; begin += piece) {
      const std::int64_t length = std::min(piece, s.x.c - begin);
      std::fill_n(most, length, -std::numeric_limits<float>::infinity());
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          const T* from = x + (row * s.x.w + column) * s.x.c + begin;
#pragma omp simd
          for (std::int64_t c = 0; c < length; ++c) most[c] = larger(most[c], load(&from[c]));
        }
      T* to = y + j * s.x.c + begin;
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) store(&to[c], most[c]);
    }
  }
}

// The same with channels first: one column of all windows after the other.
template <class T>
void row_of_scalars(const PoolWindows& w, const Images& s, const T* x, std::int64_t i, T* y) {
  const Window rows = window_of(w, 0, i, s.x.h);
  const std::int64_t stride = w.stride[1], padding = w.padding[1];
  float most[piece];
  for (std::int64_t first = 0; first < s.y.w; first += piece) {
    const std::int64_t length = std::min(piece, s.y.w - first);
    std::fill_n(most, length, -std::numeric_limits<float>::infinity());
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      for (std::int64_t k = 0; k < w.kernel[1]; ++k) {
        // Windows [begin, end) have their column k in the image.
        const std::int64_t left = padding - k, right = s.x.w + left;
        const std::int64_t begin = std::max(first, left <= 0 ? 0 : (left + stride - 1) / stride);
        const std::int64_t end =
            std::min(first + length, right <= 0 ? 0 : (right - 1) / stride + 1);
        const T* from = x + row * s.x.w - left;
#pragma omp simd
        for (std::int64_t j = begin; j < end; ++j)
          most[j - first] = larger(most[j - first], load(&from[j * stride]));
      }
#pragma omp simd
    for (std::int64_t j = 0; j < length; ++j) store(&y[first + j], most[j]);
  }
}

template <class T>
KernelPtr forward(CpuPrepare& prepare, const PoolWindows& windows) {
  const bool planes = windows.layout == ImageLayout::nchw;
  Images s{{prepare.in[0].shape, windows.layout}, {prepare.out[0].shape, windows.layout}, 0};
  s.outer = planes ? s.x.n * s.x.c : s.x.n;
  const std::int64_t channels = planes ? 1 : s.x.c, rows = s.outer * s.y.h;
  const std::int64_t work = s.x.pixels() * channels / s.y.h;
  return make_kernel(
      [&pool = prepare.pool, windows, planes, s, channels, rows, work](const Launch& call) {
        const T* x = call.in<T>(0);
        T* y = call.out<T>();
        parallel_for(pool, rows, rows_per_task(work), [=](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            const T* from = x + r / s.y.h * s.x.pixels() * channels;
            T* to = y + r * s.y.w * channels;
            if (planes)
              row_of_scalars(windows, s, from, r % s.y.h, to);
            else
              row_of_vectors(windows, s, from, r % s.y.h, to);
          }
        });
      });
}

// Rows of dx that are computed together, because they share windows.
constexpr std::int64_t band_rows = 8;

// Some rows of dx, in f32: of the windows they lie in, those whose largest element is in them give
// it their dy. `channels` is 1 with channels first.
template <class T>
void grad_rows(const PoolWindows& w, const Images& s, const T* dy, const T* x, Window band,
               std::int64_t channels, float* dx) {
  const std::int64_t width = s.x.w * channels;
  std::fill_n(dx, (band.end - band.begin) * width, 0.0f);
  const std::int64_t first = windows_around(w, 0, band.begin, s.y.h).begin;
  const std::int64_t end = windows_around(w, 0, band.end - 1, s.y.h).end;
  float most[piece];
  std::int32_t where[piece];
  for (std::int64_t i = first; i < end; ++i) {
    const Window rows = window_of(w, 0, i, s.x.h);
    const Window seen{std::max(rows.begin, band.begin), std::min(rows.end, band.end)};
    for (std::int64_t j = 0; j < s.y.w; ++j) {
      const Window columns = window_of(w, 1, j, s.x.w);
      const std::int64_t across = columns.end - columns.begin;
      for (std::int64_t begin = 0; begin < channels; begin += piece) {
        const std::int64_t length = std::min(piece, channels - begin);
        std::fill_n(most, length, -std::numeric_limits<float>::infinity());
        // The first element, for windows of nothing but -infinity.
        std::fill_n(where, length, 0);
        std::int32_t tap = 0;
        for (std::int64_t r = rows.begin; r < rows.end; ++r)
          for (std::int64_t column = columns.begin; column < columns.end; ++column, ++tap) {
            const T* from = x + (r * s.x.w + column) * channels + begin;
#pragma omp simd
            for (std::int64_t c = 0; c < length; ++c) {
              const float value = load(&from[c]);
              const bool is_larger = value > most[c] || (value != value && most[c] == most[c]);
              where[c] = is_larger ? tap : where[c];
              most[c] = is_larger ? value : most[c];
            }
          }
        const T* from = dy + (i * s.y.w + j) * channels + begin;
        tap = static_cast<std::int32_t>((seen.begin - rows.begin) * across);
        for (std::int64_t r = seen.begin; r < seen.end; ++r)
          for (std::int64_t column = columns.begin; column < columns.end; ++column, ++tap) {
            float* to = dx + (r - band.begin) * width + column * channels + begin;
#pragma omp simd
            for (std::int64_t c = 0; c < length; ++c)
              to[c] += where[c] == tap ? load(&from[c]) : 0.0f;
          }
      }
    }
  }
}

template <class T>
KernelPtr backward(CpuPrepare& prepare, const PoolWindows& windows) {
  const bool planes = windows.layout == ImageLayout::nchw;
  Images s{{prepare.in[1].shape, windows.layout}, {prepare.in[0].shape, windows.layout}, 0};
  s.outer = planes ? s.x.n * s.x.c : s.x.n;
  const std::int64_t channels = planes ? 1 : s.x.c, width = s.x.w * channels;
  const std::int64_t bands = (s.x.h + band_rows - 1) / band_rows;
  return make_kernel(
      [&pool = prepare.pool, windows, s, channels, width, bands](const Launch& call) {
        const T *dy = call.in<T>(0), *x = call.in<T>(1);
        T* dx = call.out<T>();
        parallel_for(pool, s.outer * bands, rows_per_task(4 * band_rows * width),
                     [=](std::int64_t begin, std::int64_t end) {
                       std::vector<float> sums(static_cast<std::size_t>(band_rows * width));
                       for (std::int64_t b = begin; b < end; ++b) {
                         const std::int64_t outer = b / bands, row = b % bands * band_rows;
                         const Window band{row, std::min(row + band_rows, s.x.h)};
                         grad_rows(windows, s, dy + outer * s.y.pixels() * channels,
                                   x + outer * s.x.h * width, band, channels, sums.data());
                         T* to = dx + (outer * s.x.h + row) * width;
#pragma omp simd
                         for (std::int64_t c = 0; c < (band.end - band.begin) * width; ++c)
                           store(&to[c], sums[static_cast<std::size_t>(c)]);
                       }
                     });
      });
}

}  // namespace

KernelPtr MaxPool2d::cpu(CpuPrepare& prepare) const {
  return dispatch_rounded(prepare.in[0].dtype,
                          [&]<class T>() { return forward<T>(prepare, *this); });
}

KernelPtr MaxPool2dGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return backward<T>(prepare, *this); });
}

}  // namespace ridge
