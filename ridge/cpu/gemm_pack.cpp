// Packing: whole vectors are copied, converted or transposed in registers; what is left over at the
// edges of a matrix goes through a zeroed buffer, so that nothing beyond it is read.

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ridge/cpu/gemm_kernel.h"

namespace ridge {
namespace {

typedef std::uint32_t Vector __attribute__((vector_size(4 * lanes)));
typedef std::uint16_t HalfVector __attribute__((vector_size(2 * lanes)));

template <class V, class T>
V load_vector(const T* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class V, class T>
V load_vector(const T* p, std::int64_t elements) {
  V v{};
  if (elements > 0)
    std::memcpy(&v, p, std::min(sizeof v, static_cast<std::size_t>(elements) * sizeof(T)));
  return v;
}

// How far ahead rows are fetched that are read side by side: too many for the hardware to follow.
constexpr std::size_t prefetch_bytes = 256;

Vector widened(HalfVector v) { return __builtin_convertvector(v, Vector); }

// How a vector of words is read from a stored matrix: `along` takes `lanes` words that follow each
// other along k, which runs along the rows; `across` takes one word of each of `lanes` columns. Of
// the elements asked for, those beyond `left` are 0.
struct Floats {
  using Element = std::uint32_t;
  static Vector along(const Element* p) { return load_vector<Vector>(p); }
  static Vector along(const Element* p, std::int64_t left) { return load_vector<Vector>(p, left); }
  static Vector across(const Element* p, std::int64_t) { return load_vector<Vector>(p); }
  static Vector across(const Element* p, std::int64_t, std::int64_t left) {
    return load_vector<Vector>(p, left);
  }
};

struct WidenedBf16 {
  using Element = std::uint16_t;
  static Vector along(const Element* p) { return widened(load_vector<HalfVector>(p)) << 16; }
  static Vector along(const Element* p, std::int64_t left) {
    return widened(load_vector<HalfVector>(p, left)) << 16;
  }
  static Vector across(const Element* p, std::int64_t) { return along(p); }
  static Vector across(const Element* p, std::int64_t, std::int64_t left) { return along(p, left); }
};

struct Bf16Pairs {
  using Element = std::uint16_t;
  static Vector along(const Element* p) { return load_vector<Vector>(p); }
  static Vector along(const Element* p, std::int64_t left) { return load_vector<Vector>(p, left); }
  // The second row of a pair is `stride` elements on; there is none at a stride of 0.
  static Vector across(const Element* p, std::int64_t stride) {
    const Vector low = widened(load_vector<HalfVector>(p));
    return stride == 0 ? low : low | (widened(load_vector<HalfVector>(p + stride)) << 16);
  }
  static Vector across(const Element* p, std::int64_t stride, std::int64_t left) {
    const Vector low = widened(load_vector<HalfVector>(p, left));
    return stride == 0 ? low : low | (widened(load_vector<HalfVector>(p + stride, left)) << 16);
  }
};

// One of the log2(lanes) rounds of a transposition in place: vectors `Distance` apart exchange the
// halves of their groups of 2 * Distance lanes that lie off the diagonal.
template <int Distance, std::size_t... Lane>
void transpose_round(Vector* v, std::index_sequence<Lane...>) {
  constexpr auto from = [](std::size_t lane, bool upper) {
    const std::size_t d = Distance, within = lane % (2 * d), group = lane - within;
    if (upper) return within < d ? lane + d : static_cast<std::size_t>(lanes) + lane;
    return within < d ? lane : static_cast<std::size_t>(lanes) + group + within - d;
  };
  constexpr Vector lower_mask = {static_cast<std::uint32_t>(from(Lane, false))...};
  constexpr Vector upper_mask = {static_cast<std::uint32_t>(from(Lane, true))...};
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) {
    if (i & Distance) continue;
    const Vector low = v[i], high = v[i + Distance];
    v[i] = __builtin_shuffle(low, high, lower_mask);
    v[i + Distance] = __builtin_shuffle(low, high, upper_mask);
  }
}

void transpose(Vector* v) {
  constexpr auto all = std::make_index_sequence<static_cast<std::size_t>(lanes)>();
  transpose_round<1>(v, all);
  transpose_round<2>(v, all);
  if constexpr (lanes >= 8) transpose_round<4>(v, all);
  if constexpr (lanes >= 16) transpose_round<8>(v, all);
}

void store_vector(float* p, const Vector& v) { std::memcpy(p, &v, sizeof v); }

std::int64_t padded(std::int64_t width) { return (width + lanes - 1) / lanes * lanes; }

// Row by row through all parts, so that a row is read from end to end: rows a power of two apart
// would displace each other from the cache before their other parts are read.
template <class Reader>
void pack_across(const PackSource& s, std::int64_t per_word, std::span<const PackPart> parts) {
  const auto* data = static_cast<const typename Reader::Element*>(s.data);
  for (std::int64_t k = 0; k < s.k; k += per_word) {
    const auto* row = data + k * s.stride;
    const std::int64_t second = k + per_word <= s.k ? s.stride : 0;
    // Elements from the start of the last row that is read to the end of the matrix.
    const std::int64_t readable = s.readable - k * s.stride - (per_word - 1) * second;
    for (const PackPart& part : parts) {
      float* to = part.words + k / per_word * padded(part.width);
      const std::int64_t end = part.first + part.width;
      for (std::int64_t j = part.first; j < end; j += lanes, to += lanes) {
        if (j + lanes <= readable)
          store_vector(to, Reader::across(row + j, second));
        else
          store_vector(to, Reader::across(row + j, second, end - j));
      }
    }
  }
}

// Packs `lanes` steps of up to `lanes` columns. Columns that are missing repeat the last.
template <class Reader>
void pack_square(const typename Reader::Element* first, std::int64_t stride, std::int64_t columns,
                 std::int64_t padded_width, float* words) {
  Vector v[lanes];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < lanes; ++i) {
    const auto* row = first + std::min(i, columns - 1) * stride;
    v[i] = Reader::along(row);
    __builtin_prefetch(row + prefetch_bytes / sizeof(*row));
  }
  transpose(v);
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < lanes; ++i) store_vector(words + i * padded_width, v[i]);
}

template <class Reader>
void pack_along(const PackSource& s, std::int64_t per_word, const PackPart& part) {
  const auto* data = static_cast<const typename Reader::Element*>(s.data);
  const std::int64_t steps = (s.k + per_word - 1) / per_word;
  const std::int64_t whole = s.k / per_word / lanes * lanes;
  const std::int64_t row = padded(part.width);
  for (std::int64_t j = 0; j < part.width; j += lanes) {
    const auto* first = data + (part.first + j) * s.stride;
    const std::int64_t columns = std::min(lanes, part.width - j);
    for (std::int64_t step = 0; step < whole; step += lanes)
      pack_square<Reader>(first + step * per_word, s.stride, columns, row,
                          part.words + step * row + j);
    if (whole == steps) continue;
    Vector v[lanes];
    for (std::int64_t i = 0; i < lanes; ++i)
      v[i] = Reader::along(first + std::min(i, columns - 1) * s.stride + whole * per_word,
                           s.k - whole * per_word);
    transpose(v);
    for (std::int64_t i = 0; i < steps - whole; ++i)
      store_vector(part.words + (whole + i) * row + j, v[i]);
  }
}

template <class Reader>
void pack_with(const PackSource& source, std::int64_t per_word, std::span<const PackPart> parts) {
  if (!source.k_runs_along_rows) return pack_across<Reader>(source, per_word, parts);
  for (const PackPart& part : parts) pack_along<Reader>(source, per_word, part);
}

}  // namespace

void pack(Words kind, const PackSource& source, std::span<const PackPart> parts) {
  switch (kind) {
    case Words::floats:
      return pack_with<Floats>(source, 1, parts);
    case Words::widened_bf16:
      return pack_with<WidenedBf16>(source, 1, parts);
    case Words::bf16_pairs:
      return pack_with<Bf16Pairs>(source, 2, parts);
  }
}

}  // namespace ridge
