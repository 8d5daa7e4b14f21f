// A tile of m x m results depends on (m + 2)^2 elements of the image. A linear map takes these to
// (m + 2)^2 points, at each of which a product by the weights, mapped likewise, is summed over the
// channels; another map takes the sums to the results. At each point the sums of many tiles and
// channels are a product of matrices, which is where the time goes.
//
// A task takes some tiles and some output channels. It maps its part of the image, then goes
// through the output channels in slices whose sums stay in the second-level cache.

#include "ridge/cpu/winograd_conv.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/micro_gemm.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/winograd_maps.h"
#include "ridge/cpu/winograd_weight_grad.h"

namespace ridge {
namespace {

using namespace winograd;
using Kind = ConvShape::Kind;

// A task holds the sums of `slice_channels` output channels at a time. Weights lie in panels of as
// many columns as the innermost loop of small_product() computes.
constexpr std::int64_t slice_channels = 64, panel_columns = vector_floats == 16 ? 64 : 16;
// So many input channels of a panel stay in the first-level cache.
constexpr std::int64_t most_depth = 256;
// A task has at least as many tiles as make it worth to read the weights once more.
constexpr std::int64_t least_tiles = 32, most_tiles = 64;
// The gradient by x is a convolution too: it reads y and writes x, with the padding that is left
// of 2.
struct Pass {
  ImageShape from, to;
  Pair padding;
};

Pass pass_of(const ConvShape& s) {
  const Pair p = s.geometry.padding;
  if (s.kind == Kind::forward) return {s.x, s.y, p};
  return {s.y, s.x, {2 - p[0], 2 - p[1]}};
}

template <int Tile>
class WinogradConv final : public Conv {
 public:
  explicit WinogradConv(const ConvShape& shape)
      : shape_(shape), pass_(pass_of(shape)), tiles_(pass_.to, Tile) {
    constexpr std::int64_t cache_bytes = std::int64_t{3} << 18;
    const std::int64_t bytes_of_tile =
        points * (pass_.from.c + slice_channels) * static_cast<std::int64_t>(sizeof(float));
    most_ = std::clamp(cache_bytes / bytes_of_tile, least_tiles, most_tiles);
  }

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(points * pass_.from.c * pass_.to.c) * sizeof(float);
  }
  void pack(ThreadPool& pool, const void* weight, void* packed) const override;
  std::size_t workspace() const override { return 0; }
  void run(ThreadPool& pool, const ConvOperands& operands, void* workspace) const override;

 private:
  static constexpr std::size_t edge = Tile + 2;
  static constexpr std::int64_t points = edge * edge;

  // What a task does: tiles [first, first + count), of the slices [slice, last_slice).
  struct Task {
    std::int64_t first, count, slice, last_slice;
  };
  std::int64_t slices() const { return ceil_div(pass_.to.c, slice_channels); }
  std::int64_t width_of(std::int64_t slice) const {
    return std::min(slice_channels, pass_.to.c - slice * slice_channels);
  }

  void map_image(const float* image, std::int64_t first, std::int64_t count, float* mapped) const;
  void multiply(const float* mapped, const float* weights, std::int64_t count, std::int64_t width,
                float* sums) const;
  void write_results(const Task& task, std::int64_t slice, const float* sums,
                     const ConvOperands& o) const;
  void run_task(const Task& task, const ConvOperands& o) const;

  ConvShape shape_;
  Pass pass_;
  Tiling tiles_;           // of the results
  std::int64_t most_ = 0;  // tiles of a task, at most
};

// Writes the mapped weights as [slice][point][panel][input channel][column]. A task maps 16 x 16
// channels.
template <int Tile>
void WinogradConv<Tile>::pack(ThreadPool& pool, const void* weight, void* packed) const {
  constexpr std::int64_t block = 16;
  const bool forward = shape_.kind == Kind::forward;
  const ImageStrides at(shape_.weight, shape_.weight_layout);
  const std::int64_t in = pass_.from.c, out = pass_.to.c, in_blocks = in / block;
  const auto* const from = static_cast<const float*>(weight);
  auto* const to = static_cast<float*>(packed);
  pool.run(out / block * in_blocks, [&](std::int64_t task) {
    const std::int64_t o0 = task / in_blocks * block, i0 = task % in_blocks * block;
    const std::int64_t slice = o0 / slice_channels, width = width_of(slice);
    const std::int64_t in_slice = o0 - slice * slice_channels;
    const std::int64_t panel = in_slice / panel_columns * panel_columns;
    const std::int64_t columns = std::min(panel_columns, width - panel);
    alignas(64) float mapped[points][block][block];
    for (std::int64_t i = 0; i < block; ++i)
      for (std::int64_t v = 0; v < block; v += vector_floats) {
        std::array<std::array<Vector, 3>, 3> square;
        for (std::int64_t r = 0; r < 3; ++r)
          for (std::int64_t q = 0; q < 3; ++q) {
            std::array<float, vector_floats> taps;
            for (std::int64_t o = 0; o < vector_floats; ++o)
              // The gradient by x is a convolution by the weights turned by half a circle.
              taps[static_cast<std::size_t>(o)] =
                  from[forward ? at.at(o0 + v + o, i0 + i, r, q)
                               : at.at(i0 + i, o0 + v + o, 2 - r, 2 - q)];
            square[static_cast<std::size_t>(r)][static_cast<std::size_t>(q)] =
                load_floats(taps.data());
          }
        const auto of_weight =
            map_square<edge>(square, [](const auto& g) { return Maps<Tile>::of_weight(g); });
        for (std::size_t p = 0; p < edge * edge; ++p)
          store_floats(&mapped[p][i][v], of_weight[p / edge][p % edge]);
      }
    float* const first =
        to + slice * slice_channels * in * points + panel * in + i0 * columns + in_slice - panel;
    for (std::int64_t p = 0; p < points; ++p)
      for (std::int64_t i = 0; i < block; ++i)
        std::memcpy(first + p * in * width + i * columns, mapped[p][i], sizeof mapped[p][i]);
  });
}

// Writes the mapped image of some tiles as [point][tile][input channel].
template <int Tile>
void WinogradConv<Tile>::map_image(const float* image, std::int64_t first, std::int64_t count,
                                   float* mapped) const {
  const std::int64_t channels = pass_.from.c;
  for (std::int64_t t = 0; t < count; ++t) {
    Place place = tiles_.place_of(first + t);
    place.row -= pass_.padding[0];
    place.column -= pass_.padding[1];
    map_pixels<edge, edge>(
        image, pass_.from, place, 0, channels,
        [](const auto& d) { return Maps<Tile>::of_image(d); }, mapped + t * channels,
        count * channels + gap);
  }
}

// Overwrites the sums of a slice, [point][tile][channel of the slice], with the products at each
// point.
template <int Tile>
void WinogradConv<Tile>::multiply(const float* mapped, const float* weights, std::int64_t count,
                                  std::int64_t width, float* sums) const {
  const std::int64_t in = pass_.from.c;
  for (std::int64_t p = 0; p < points; ++p)
    for (std::int64_t panel = 0; panel < width; panel += panel_columns) {
      const std::int64_t columns = std::min(panel_columns, width - panel);
      for (std::int64_t k = 0; k < in; k += most_depth)
        small_product({mapped + p * (count * in + gap) + k, in, 1},
                      {weights + (p * width + panel) * in + k * columns, columns},
                      {sums + p * (count * width + gap) + panel, width},
                      {count, columns, std::min(most_depth, in - k)}, k > 0);
    }
}

// Maps the sums of a slice to results, adds what follows, and writes those within the image.
template <int Tile>
void WinogradConv<Tile>::write_results(const Task& task, std::int64_t slice, const float* sums,
                                       const ConvOperands& o) const {
  const ImageShape& s = pass_.to;
  const std::int64_t width = width_of(slice), channel = slice * slice_channels;
  const std::int64_t step = task.count * width + gap;
  const bool forward = shape_.kind == Kind::forward;
  auto* const y = static_cast<float*>(forward ? o.y : o.x);
  const auto* const bias = static_cast<const float*>(o.bias);
  const auto* const residual = static_cast<const float*>(o.residual);
  alignas(64) float results[Tile][Tile][slice_channels];
  for (std::int64_t t = 0; t < task.count; ++t) {
    for (std::int64_t c = 0; c < width; c += vector_floats) {
      std::array<std::array<Vector, edge>, edge> square;
#pragma GCC unroll 8
      for (std::size_t i = 0; i < edge; ++i)
#pragma GCC unroll 8
        for (std::size_t j = 0; j < edge; ++j)
          square[i][j] =
              load_floats(sums + static_cast<std::int64_t>(i * edge + j) * step + t * width + c);
      const auto tile =
          map_square<Tile>(square, [](const auto& m) { return Maps<Tile>::to_results(m); });
      const Vector addend = bias ? load_floats(bias + channel + c) : Vector{};
#pragma GCC unroll 8
      for (std::size_t i = 0; i < Tile; ++i)
#pragma GCC unroll 8
        for (std::size_t j = 0; j < Tile; ++j) store_floats(&results[i][j][c], tile[i][j] + addend);
    }
    const Place place = tiles_.place_of(task.first + t);
    for (std::int64_t i = 0; i < Tile && place.row + i < s.h; ++i)
      for (std::int64_t j = 0; j < Tile && place.column + j < s.w; ++j) {
        const std::int64_t at =
            ((place.image * s.h + place.row + i) * s.w + place.column + j) * s.c + channel;
        finish_rows(shape_.epilogue, results[i][j], residual ? residual + at : nullptr, width,
                    y + at);
      }
  }
}

template <int Tile>
void WinogradConv<Tile>::run_task(const Task& task, const ConvOperands& o) const {
  const std::int64_t in = pass_.from.c, mapped_floats = points * (task.count * in + gap);
  const std::int64_t sum_floats = points * (task.count * slice_channels + gap);
  auto* const mapped = static_cast<float*>(
      scratch_memory(static_cast<std::size_t>(mapped_floats + sum_floats) * sizeof(float)));
  float* const sums = mapped + mapped_floats;
  map_image(static_cast<const float*>(shape_.kind == Kind::forward ? o.x : o.y), task.first,
            task.count, mapped);
  for (std::int64_t slice = task.slice; slice < task.last_slice; ++slice) {
    const std::int64_t width = width_of(slice);
    multiply(mapped, static_cast<const float*>(o.weight) + slice * slice_channels * in * points,
             task.count, width, sums);
    write_results(task, slice, sums, o);
  }
}

// Each result is computed in one way, whichever task it is in: tasks may depend on the number of
// threads.
template <int Tile>
void WinogradConv<Tile>::run(ThreadPool& pool, const ConvOperands& o, void*) const {
  const std::int64_t wanted = 2 * pool.size();
  const std::int64_t blocks =
      std::max(ceil_div(tiles_.count, most_), std::min(wanted, tiles_.count / least_tiles));
  const std::int64_t parts = std::clamp<std::int64_t>(wanted / blocks, 1, slices());
  pool.run(blocks * parts, [&](std::int64_t i) {
    const std::int64_t block = i / parts, part = i % parts;
    const std::int64_t first = tiles_.count * block / blocks;
    run_task({first, tiles_.count * (block + 1) / blocks - first, slices() * part / parts,
              slices() * (part + 1) / parts},
             o);
  });
}

}  // namespace

bool has_winograd(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  return s.dtype == DType::f32 && !s.int8 && !s.f32_result && g.layout == ImageLayout::nhwc &&
         g.groups == 1 && s.weight.h == 3 && s.weight.w == 3 && g.stride == Pair{1, 1} &&
         g.dilation == Pair{1, 1} && g.padding[0] <= 2 && g.padding[1] <= 2 &&
         s.x.c % widest_vector == 0 && s.y.c % widest_vector == 0;
}

ConvPtr make_winograd_conv(const ConvShape& shape, int tile) {
  if (shape.kind == Kind::weight_grad) return make_winograd_weight_grad(shape, tile);
  if (tile == 2) return std::make_unique<WinogradConv<2>>(shape);
  return std::make_unique<WinogradConv<4>>(shape);
}

}  // namespace ridge
