#pragma once

// What the convolutions by Winograd's algorithm share: its linear maps, and how images are divided
// into tiles (winograd_conv.h names the source).

#include <array>
#include <cstdint>
#include <cstring>

#include "ridge/base/ceil_div.h"
#include "ridge/cpu/channel_block.h"
#include "ridge/ops/conv.h"

namespace ridge::winograd {

using Vector = FloatVector;

inline Vector load_floats(const float* p) { return load_vector<Vector>(p); }
inline void store_floats(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

// So many floats separate the matrices of two points: at a distance that is a multiple of a large
// power of 2 all points of a tile would displace each other from the caches.
inline constexpr std::int64_t gap = 16;

// The linear maps in one dimension; in two dimensions each is applied to columns, then to rows. V
// is a float or a vector of floats. The last two are the transposes of to_results and of_weight,
// for the gradient by the weights.
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
  template <class V>
  static std::array<V, 4> of_gradient(const std::array<V, 2>& r) {
    return {r[0], r[0] + r[1], r[0] - r[1], r[1]};
  }
  template <class V>
  static std::array<V, 3> to_weight(const std::array<V, 4>& w) {
    const V even = 0.5f * (w[1] + w[2]);
    return {even - w[0], 0.5f * (w[1] - w[2]), even + w[3]};
  }
};

// Evaluates at the points 0, +-a, +-b and infinity, with a^2 = 1/2 and b^2 = 2. Their powers stay
// closer to 1 than those of 1 and 2, so that less is lost to rounding.
template <>
struct Maps<4> {
  static constexpr float a = 0.70710678f, b = 1.41421356f, a2 = 0.5f, b2 = 2.0f;
  static constexpr float at_a = 1 / (2 * a2 * (a2 - b2)), at_b = 1 / (2 * b2 * (b2 - a2));

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
  template <class V>
  static std::array<V, 6> of_gradient(const std::array<V, 4>& r) {
    const V even_a = r[0] + a2 * r[2], odd_a = a * (r[1] + a2 * r[3]);
    const V even_b = r[0] + b2 * r[2], odd_b = b * (r[1] + b2 * r[3]);
    return {r[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, r[3]};
  }
  template <class V>
  static std::array<V, 3> to_weight(const std::array<V, 6>& w) {
    const V even_a = at_a * (w[1] + w[2]), odd_a = at_a * a * (w[1] - w[2]);
    const V even_b = at_b * (w[3] + w[4]), odd_b = at_b * b * (w[3] - w[4]);
    return {w[0] + even_a + even_b, odd_a + odd_b, a2 * even_a + b2 * even_b + w[5]};
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

struct Place {
  std::int64_t image, row, column;
};

// The tiles of size x size pixels that cover the images of a shape.
struct Tiling {
  Tiling(const ImageShape& shape, std::int64_t tile)
      : size(tile),
        down(ceil_div(shape.h, tile)),
        across(ceil_div(shape.w, tile)),
        count(shape.n * down * across) {}

  // Where the first pixel of a tile lies.
  Place place_of(std::int64_t tile) const {
    const std::int64_t line = tile / across;
    return {line / down, line % down * size, tile % across * size};
  }

  std::int64_t size, down, across;  // of an image
  std::int64_t count;               // of all images
};

// Maps a square of From x From pixels of an image with channels last, of which those beyond the
// image are 0: writes `channels` values of each of To x To points, `step` floats apart.
template <std::size_t To, std::size_t From, class Map>
void map_pixels(const float* images, const ImageShape& s, const Place& place, std::int64_t channel,
                std::int64_t channels, const Map& map, float* mapped, std::int64_t step) {
  const std::int64_t row = place.row, column = place.column;
  constexpr auto end = static_cast<std::int64_t>(From);
  const float* const corner = images + ((place.image * s.h + row) * s.w + column) * s.c + channel;
  const bool inside = row >= 0 && column >= 0 && row + end <= s.h && column + end <= s.w;
  for (std::int64_t c = 0; c < channels; c += vector_floats) {
    std::array<std::array<Vector, From>, From> square;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < From; ++i)
#pragma GCC unroll 8
      for (std::size_t j = 0; j < From; ++j) {
        const auto r = static_cast<std::int64_t>(i), q = static_cast<std::int64_t>(j);
        const bool seen =
            inside || (row + r >= 0 && row + r < s.h && column + q >= 0 && column + q < s.w);
        square[i][j] = seen ? load_floats(corner + (r * s.w + q) * s.c + c) : Vector{};
      }
    const auto points = map_square<To>(square, map);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < To; ++i)
#pragma GCC unroll 8
      for (std::size_t j = 0; j < To; ++j)
        store_floats(mapped + static_cast<std::int64_t>(i * To + j) * step + c, points[i][j]);
  }
}

}  // namespace ridge::winograd
