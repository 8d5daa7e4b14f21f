#pragma once

// The tile of a product that a thread block computes, c[rows, columns] = a[rows, k] b[columns, k]^T
// for all k in steps: operands go from memory through registers to shared memory, a step ahead of
// the products, and sums stay in registers.

#include <cstdint>

#include "ridge/gpu/device/matrix_unit.h"

namespace ridge::gpu {

// Elements of 8 bits of a format that is known when the kernel runs. Both become f16 exactly.
struct AnyFloat8 {
  std::uint8_t bits;
};

// How many elements of shared memory travel together.
template <class Unit>
inline constexpr int pack_of = 16 / static_cast<int>(sizeof(typename Unit::Stored));

// A matrix [rows, depth] in memory: either `along_depth`, with rows of `depth` elements, or stored
// transposed, with `rows` elements side by side. `packed`: the packs of a tile, which are as many
// elements as 16 bytes of shared memory take, lie at multiples of their size and end with a row.
template <class T>
struct ProductOperand {
  const T* data;
  std::int64_t rows, depth;
  bool along_depth, packed;
  bool is_e5m2 = false;  // of AnyFloat8; else e4m3

  // Matrix i of several, one behind the other.
  __device__ ProductOperand at(std::int64_t i) const {
    ProductOperand one = *this;
    one.data += i * rows * depth;
    return one;
  }
  __device__ const T* element(std::int64_t row, std::int64_t k) const {
    return data + (along_depth ? row * depth + k : k * rows + row);
  }
};

// An element as it lies in shared memory.
template <class Unit, class T>
__device__ inline typename Unit::Stored stored(const T& x, [[maybe_unused]] bool is_e5m2) {
  if constexpr (sizeof(T) == 4) {
    return Unit::round(x);
  } else if constexpr (sizeof(T) == 2) {
    return x;
  } else {
    Float16 y;
    Float8E4M3 narrow;
    narrow.bits = x.bits;
    if (is_e5m2)
      y.bits = static_cast<std::uint16_t>(x.bits << 8);  // the upper half of an f16
    else
      store(&y, static_cast<float>(narrow));
    return y;
  }
}

// The packs that a thread carries of a tile of Rows rows, from memory to shared memory. What is not
// packed goes there element by element, and is not carried.
template <class Unit, class T, int Rows, int Threads>
class CarriedRows {
 public:
  using Stored = typename Unit::Stored;
  static constexpr int pack = pack_of<Unit>, depth = 4 * pack, stride = depth + pack;
  static constexpr int count = Rows * 4 / Threads;
  static_assert(Rows * 4 == count * Threads && Threads % depth == 0);

  // Elements beyond the operand's rows, or from `end` on along its depth, are 0.
  __device__ void load(const ProductOperand<T>& from, std::int64_t row, std::int64_t k,
                       std::int64_t end) {
    if (!from.packed) return;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const std::int64_t r = row + row_of(from, i), d = k + depth_of(from, i);
      packs_[i] = r < from.rows && d < end
                      ? *reinterpret_cast<const Pack<T, pack>*>(from.element(r, d))
                      : Pack<T, pack>{};
    }
  }

  // With the arguments of load().
  __device__ void store_to(Stored (&tile)[Rows][stride], const ProductOperand<T>& from,
                           std::int64_t row, std::int64_t k, std::int64_t end) const {
    if (!from.packed) return copy(tile, from, row, k, end);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      Pack<Stored, pack> elements;
#pragma unroll
      for (int e = 0; e < pack; ++e) elements.at[e] = stored<Unit>(packs_[i].at[e], from.is_e5m2);
      Stored* const to = &tile[row_of(from, i)][depth_of(from, i)];
      if (from.along_depth) {
        *reinterpret_cast<Pack<Stored, pack>*>(to) = elements;
      } else {
#pragma unroll
        for (int e = 0; e < pack; ++e) to[e * stride] = elements.at[e];
      }
    }
  }

 private:
  // Where pack i begins. Neighboring threads have neighboring packs along the depth; of a
  // transposed operand they have its neighboring columns, so that they write to one row of shared
  // memory, and each has packs that follow one another.
  __device__ static int row_of(const ProductOperand<T>& from, int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return from.along_depth ? (thread + i * Threads) / 4 : (thread / depth * count + i) * pack;
  }
  __device__ static int depth_of(const ProductOperand<T>& from, int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return from.along_depth ? (thread + i * Threads) % 4 * pack : thread % depth;
  }

  __device__ static void copy(Stored (&tile)[Rows][stride], const ProductOperand<T>& from,
                              std::int64_t row, std::int64_t k, std::int64_t end) {
    // Neighboring threads have what lies side by side in memory.
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < Rows * depth; i += Threads) {
      const int r = from.along_depth ? i / depth : i % Rows;
      const int d = from.along_depth ? i % depth : i / Rows;
      const bool is_inside = row + r < from.rows && k + d < end;
      tile[r][d] = is_inside ? stored<Unit>(*from.element(row + r, k + d), from.is_e5m2) : Stored{};
    }
  }

  Pack<T, pack> packs_[count];
};

// A thread block's tile; each warp has a part of WarpRows x WarpColumns.
template <int Rows, int Columns, int WarpRows, int WarpColumns>
struct ProductTile {
  static constexpr int rows = Rows, columns = Columns;
  static constexpr int warp_rows = WarpRows, warp_columns = WarpColumns;
  static constexpr int warps_across = Columns / WarpColumns;
  static constexpr int threads = Rows / WarpRows * warps_across * warp_width;
};

// Calls f(row, column, sum) for each element of c that the thread holds in the end; `row` and
// `column` are those of the tile's first element, and k runs from `begin` to `end`. All threads of
// the block must call it.
template <class Tile, class Unit, class T, class F>
__device__ inline void multiply_tile(const ProductOperand<T>& a, const ProductOperand<T>& b,
                                     std::int64_t row, std::int64_t column, std::int64_t begin,
                                     std::int64_t end, const F& f) {
  using Left = CarriedRows<Unit, T, Tile::rows, Tile::threads>;
  using Right = CarriedRows<Unit, T, Tile::columns, Tile::threads>;
  constexpr int stride = Left::stride;
  // While one half is multiplied, the next step's operands are written to the other.
  __shared__ __align__(16) typename Unit::Stored left[2][Tile::rows][stride];
  __shared__ __align__(16) typename Unit::Stored right[2][Tile::columns][stride];

  const int warp = static_cast<int>(threadIdx.x) / warp_width;
  const int first_row = warp / Tile::warps_across * Tile::warp_rows;
  const int first_column = warp % Tile::warps_across * Tile::warp_columns;
  WarpProduct<Unit, Tile::warp_rows, Tile::warp_columns> product;
  Left next_left;
  Right next_right;
  int half = 0;
  for (std::int64_t k = begin; k < end + Left::depth; k += Left::depth, half = 1 - half) {
    if (k < end) {
      next_left.load(a, row, k, end);
      next_right.load(b, column, k, end);
    }
    if (k > begin)
      product.template add<Left::depth>(left[1 - half][first_row], right[1 - half][first_column],
                                        stride);
    if (k < end) {
      next_left.store_to(left[half], a, row, k, end);
      next_right.store_to(right[half], b, column, k, end);
    }
    __syncthreads();
  }
  product.each(
      [&](int r, int c, float sum) { f(row + first_row + r, column + first_column + c, sum); });
}

}  // namespace ridge::gpu
