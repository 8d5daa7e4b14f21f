#pragma once

// The tile of a product that a thread block computes, c[rows, columns] = a[rows, k] b[columns, k]^T
// for all k in steps: operands go from memory through registers to shared memory, a step ahead of
// the products, and sums stay in registers.
//
// An operand [rows, depth] is whatever has
//
//   T                       the type of its elements in memory
//   rows, depth             its extents
//   along_depth             whether elements that are neighbors along the depth lie side by side;
//                           else those of neighboring rows do
//   packed                  whether the packs of a tile, as many elements as 16 bytes of shared
//                           memory take, do so too, at multiples of their size, and end with it
//   element(row, k)         where an element is, or null if it is 0
//   load<Unit>(element)     the element as it lies in shared memory

#include <cstdint>

#include "ridge/gpu/device/matrix_unit.h"

namespace ridge::gpu {

// How many elements of shared memory travel together.
template <class Unit>
inline constexpr int pack_of = 16 / static_cast<int>(sizeof(typename Unit::Stored));

// The elements of a step along the depth, and the distance of rows in shared memory, whose banks
// differ for eight neighboring ones.
template <class Unit>
inline constexpr int depth_of_step = 4 * pack_of<Unit>;
template <class Unit>
inline constexpr int stride_of_row = 5 * pack_of<Unit>;

// An f32 number, or one of 16 bits, as it lies in shared memory.
template <class Unit, class T>
__device__ inline typename Unit::Stored stored(T x) {
  if constexpr (sizeof(T) == 4)
    return Unit::round(x);
  else
    return x;
}

// The packs that a thread carries of a tile of Rows rows, from memory to shared memory. What is not
// packed goes there element by element, and is not carried.
template <class Unit, class Operand, int Rows, int Threads>
class CarriedRows {
 public:
  using T = typename Operand::T;
  using Stored = typename Unit::Stored;
  static constexpr int pack = pack_of<Unit>, depth = depth_of_step<Unit>;
  static constexpr int stride = stride_of_row<Unit>, count = Rows * 4 / Threads;
  static_assert(Rows * 4 == count * Threads && Threads % depth == 0);

  // Elements beyond the operand's rows, or from `end` on along its depth, are 0.
  __device__ void load(const Operand& from, std::int64_t row, std::int64_t k, std::int64_t end) {
    if (!from.packed) return;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const std::int64_t r = row + row_of(from, i), d = k + depth_of(from, i);
      const T* const first = r < from.rows && d < end ? from.element(r, d) : nullptr;
      packs_[i] = first ? *reinterpret_cast<const Pack<T, pack>*>(first) : Pack<T, pack>{};
    }
  }

  // With the arguments of load(); `tile` has Rows rows.
  __device__ void store_to(Stored* tile, const Operand& from, std::int64_t row, std::int64_t k,
                           std::int64_t end) const {
    if (!from.packed) return copy(tile, from, row, k, end);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      Pack<Stored, pack> elements;
#pragma unroll
      for (int e = 0; e < pack; ++e) elements.at[e] = from.template load<Unit>(packs_[i].at[e]);
      Stored* const to = tile + row_of(from, i) * stride + depth_of(from, i);
      if (from.along_depth) {
        *reinterpret_cast<Pack<Stored, pack>*>(to) = elements;
      } else {
#pragma unroll
        for (int e = 0; e < pack; ++e) to[e * stride] = elements.at[e];
      }
    }
  }

 private:
  // Where pack i begins. Neighboring threads have neighboring packs along the depth; where rows lie
  // side by side, they have their neighboring columns, so that they write to one row of shared
  // memory, and each has packs that follow one another.
  __device__ static int row_of(const Operand& from, int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return from.along_depth ? (thread + i * Threads) / 4 : (thread / depth * count + i) * pack;
  }
  __device__ static int depth_of(const Operand& from, int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return from.along_depth ? (thread + i * Threads) % 4 * pack : thread % depth;
  }

  // Neighboring threads have what lies side by side in memory.
  __device__ static void copy(Stored* tile, const Operand& from, std::int64_t row, std::int64_t k,
                              std::int64_t end) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < Rows * depth; i += Threads) {
      const int r = from.along_depth ? i / depth : i % Rows;
      const int d = from.along_depth ? i % depth : i / Rows;
      const T* const at =
          row + r < from.rows && k + d < end ? from.element(row + r, k + d) : nullptr;
      tile[r * stride + d] = at ? from.template load<Unit>(*at) : Stored{};
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

// The shared memory of a tile, a kernel's own. While one half is multiplied, the next step's
// operands are written to the other. A row is five packs long.
template <class Tile>
struct TileMemory {
  uint4 left[2][Tile::rows * 5], right[2][Tile::columns * 5];
};

// Calls f(row, column, sum) for each element of c that the thread holds in the end; `row` and
// `column` are those of the tile's first element, and k runs from `begin` to `end`. All threads of
// the block must call it.
template <class Tile, class Unit, class A, class B, class F>
__device__ inline void multiply_tile(TileMemory<Tile>& memory, const A& a, const B& b,
                                     std::int64_t row, std::int64_t column, std::int64_t begin,
                                     std::int64_t end, const F& f) {
  using Stored = typename Unit::Stored;
  constexpr int depth = depth_of_step<Unit>, stride = stride_of_row<Unit>;
  const auto rows_at = [](uint4* half, int r) {
    return reinterpret_cast<Stored*>(half) + r * stride;
  };

  const int warp = static_cast<int>(threadIdx.x) / warp_width;
  const int first_row = warp / Tile::warps_across * Tile::warp_rows;
  const int first_column = warp % Tile::warps_across * Tile::warp_columns;
  WarpProduct<Unit, Tile::warp_rows, Tile::warp_columns> product;
  CarriedRows<Unit, A, Tile::rows, Tile::threads> next_left;
  CarriedRows<Unit, B, Tile::columns, Tile::threads> next_right;
  int half = 0;
  for (std::int64_t k = begin; k < end + depth; k += depth, half = 1 - half) {
    if (k < end) {
      next_left.load(a, row, k, end);
      next_right.load(b, column, k, end);
    }
    if (k > begin)
      product.template add<depth>(rows_at(memory.left[1 - half], first_row),
                                  rows_at(memory.right[1 - half], first_column), stride);
    if (k < end) {
      next_left.store_to(rows_at(memory.left[half], 0), a, row, k, end);
      next_right.store_to(rows_at(memory.right[half], 0), b, column, k, end);
    }
    __syncthreads();
  }
  product.each(
      [&](int r, int c, float sum) { f(row + first_row + r, column + first_column + c, sum); });
}

}  // namespace ridge::gpu
