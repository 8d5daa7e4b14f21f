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

#include "ridge/cpu/channel_block.h"
#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/micro_gemm.h"
#include "ridge/cpu/scratch.h"

namespace ridge {
namespace {

using Kind = ConvShape::Kind;
using Vector = FloatVector;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Vector load_floats(const float* p) { return load_vector<Vector>(p); }
void store_floats(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

// The three linear maps in one dimension; in two dimensions each is applied to columns, then to
// rows. V is a float or a vector of floats.
template <int Tile>
struct Maps;

// Evaluates at the points 0, 1, -1 and infinity.
template <>
struct Maps<2> {
  template <class V>
  static std::array<V, 4> of_image(const std::array<V, 4>& d) {
    return {d[2] - d[0], d[2] + d[1], d[2] - d[1], d[3] - d[1]};
  }
  template <class V>
  static std::array<V, 4> of_weight(const std::array<V, 3>& g) {
    const V even = 0.5f * (g[0] + g[2]), odd = 0.5f * g[1];
    return {-g[0], even + odd, even - odd, g[2]};
  }
  template <class V>
  static std::array<V, 2> to_results(const std::array<V, 4>& m) {
    return {m[0] + m[1] + m[2], m[1] - m[2] + m[3]};
  }
};

// Evaluates at the points 0, +-a, +-b and infinity, with a^2 = 1/2 and b^2 = 2. Their powers stay
// closer to 1 than those of 1 and 2, so that less is lost to rounding.
template <>
struct Maps<4> {
  static constexpr float a = 0.70710678f, b = 1.41421356f, a2 = 0.5f, b2 = 2.0f;

  template <class V>
  static std::array<V, 6> of_image(const std::array<V, 6>& d) {
    const V even_a = d[4] - b2 * d[2], odd_a = a * (d[3] - b2 * d[1]);
    const V even_b = d[4] - a2 * d[2], odd_b = b * (d[3] - a2 * d[1]);
    return {d[0] - (a2 + b2) * d[2] + d[4],
            even_a + odd_a,
            even_a - odd_a,
            even_b + odd_b,
            even_b - odd_b,
            d[1] - (a2 + b2) * d[3] + d[5]};
  }
  template <class V>
  static std::array<V, 6> of_weight(const std::array<V, 3>& g) {
    constexpr float at_a = 1 / (2 * a2 * (a2 - b2)), at_b = 1 / (2 * b2 * (b2 - a2));
    const V even_a = at_a * (g[0] + a2 * g[2]), odd_a = at_a * a * g[1];
    const V even_b = at_b * (g[0] + b2 * g[2]), odd_b = at_b * b * g[1];
    return {g[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, g[2]};
  }
  template <class V>
  static std::array<V, 4> to_results(const std::array<V, 6>& m) {
    const V even_a = m[1] + m[2], odd_a = a * (m[1] - m[2]);
    const V even_b = m[3] + m[4], odd_b = b * (m[3] - m[4]);
    return {m[0] + even_a + even_b, odd_a + odd_b, a2 * even_a + b2 * even_b,
            a2 * odd_a + b2 * odd_b + m[5]};
  }
};

// Applies a map to the columns and then to the rows of a square.
template <std::size_t To, std::size_t From, class V, class Map>
std::array<std::array<V, To>, To> map_square(const std::array<std::array<V, From>, From>& square,
                                             const Map& map) {
  std::array<std::array<V, From>, To> half;
#pragma GCC unroll 8
  for (std::size_t j = 0; j < From; ++j) {
    std::array<V, From> column;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < From; ++i) column[i] = square[i][j];
    const std::array<V, To> mapped = map(column);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < To; ++i) half[i][j] = mapped[i];
  }
  std::array<std::array<V, To>, To> whole;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < To; ++i) whole[i] = map(half[i]);
  return whole;
}

// A task holds the sums of `slice_channels` output channels at a time. Weights lie in panels of as
// many columns as the innermost loop of small_product() computes.
constexpr std::int64_t slice_channels = 64, panel_columns = vector_floats == 16 ? 64 : 16;
// So many input channels of a panel stay in the first-level cache.
constexpr std::int64_t most_depth = 256;
// A task has at least as many tiles as make it worth to read the weights once more.
constexpr std::int64_t least_tiles = 32, most_tiles = 64;
// So many floats separate the matrices of two points: at a distance that is a multiple of a large
// power of 2 all points of a tile would displace each other from the caches.
constexpr std::int64_t gap = 16;

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
      : shape_(shape),
        pass_(pass_of(shape)),
        down_(ceil_div(pass_.to.h, Tile)),
        across_(ceil_div(pass_.to.w, Tile)),
        tiles_(pass_.to.n * down_ * across_) {
    constexpr std::int64_t cache_bytes = std::int64_t{3} << 18;
    const std::int64_t bytes_of_tile =
        points * (pass_.from.c + slice_channels) * static_cast<std::int64_t>(sizeof(float));
    most_ = std::clamp(cache_bytes / bytes_of_tile, least_tiles, most_tiles);
  }

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(points * pass_.from.c * pass_.to.c) * sizeof(float);
  }
  void pack(ThreadPool& pool, const void* weight, void* packed) const override;
  bool is_slow() const override { return false; }
  std::size_t workspace() const override { return 0; }
  void run(ThreadPool& pool, const ConvOperands& operands, void* workspace) const override;

 private:
  static constexpr std::size_t edge = Tile + 2;
  static constexpr std::int64_t points = edge * edge;

  // What a task does: tiles [first, first + count), of the slices [slice, last_slice).
  struct Task {
    std::int64_t first, count, slice, last_slice;
  };
  struct Place {
    std::int64_t image, row, column;  // of the first result
  };
  Place place_of(std::int64_t tile) const {
    const std::int64_t line = tile / across_;
    return {line / down_, line % down_ * Tile, tile % across_ * Tile};
  }
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
  std::int64_t down_, across_, tiles_;  // tiles of an image, and of all
  std::int64_t most_ = 0;               // tiles of a task, at most
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
  const ImageShape& s = pass_.from;
  const std::int64_t step = count * s.c + gap;
  for (std::int64_t t = 0; t < count; ++t) {
    const Place place = place_of(first + t);
    const std::int64_t row = place.row - pass_.padding[0], column = place.column - pass_.padding[1];
    const float* const corner = image + ((place.image * s.h + row) * s.w + column) * s.c;
    const auto end = static_cast<std::int64_t>(edge);
    const bool inside = row >= 0 && column >= 0 && row + end <= s.h && column + end <= s.w;
    for (std::int64_t c = 0; c < s.c; c += vector_floats) {
      std::array<std::array<Vector, edge>, edge> square;
#pragma GCC unroll 8
      for (std::size_t i = 0; i < edge; ++i)
#pragma GCC unroll 8
        for (std::size_t j = 0; j < edge; ++j) {
          const auto r = static_cast<std::int64_t>(i), q = static_cast<std::int64_t>(j);
          const bool seen =
              inside || (row + r >= 0 && row + r < s.h && column + q >= 0 && column + q < s.w);
          square[i][j] = seen ? load_floats(corner + (r * s.w + q) * s.c + c) : Vector{};
        }
      const auto points_of_tile =
          map_square<edge>(square, [](const auto& d) { return Maps<Tile>::of_image(d); });
      float* const to = mapped + t * s.c + c;
#pragma GCC unroll 8
      for (std::size_t i = 0; i < edge; ++i)
#pragma GCC unroll 8
        for (std::size_t j = 0; j < edge; ++j)
          store_floats(to + static_cast<std::int64_t>(i * edge + j) * step, points_of_tile[i][j]);
    }
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
    const Place place = place_of(task.first + t);
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
      std::max(ceil_div(tiles_, most_), std::min(wanted, tiles_ / least_tiles));
  const std::int64_t parts = std::clamp<std::int64_t>(wanted / blocks, 1, slices());
  pool.run(blocks * parts, [&](std::int64_t i) {
    const std::int64_t block = i / parts, part = i % parts;
    const std::int64_t first = tiles_ * block / blocks;
    run_task({first, tiles_ * (block + 1) / blocks - first, slices() * part / parts,
              slices() * (part + 1) / parts},
             o);
  });
}

}  // namespace

bool has_winograd(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  return s.kind != Kind::weight_grad && s.dtype == DType::f32 && !s.int8 && !s.f32_result &&
         g.layout == ImageLayout::nhwc && g.groups == 1 && s.weight.h == 3 && s.weight.w == 3 &&
         g.stride == Pair{1, 1} && g.dilation == Pair{1, 1} && g.padding[0] <= 2 &&
         g.padding[1] <= 2 && s.x.c % widest_vector == 0 && s.y.c % widest_vector == 0;
}

ConvPtr make_winograd_conv(const ConvShape& shape, int tile) {
  if (tile == 2) return std::make_unique<WinogradConv<2>>(shape);
  return std::make_unique<WinogradConv<4>>(shape);
}

}  // namespace ridge
