#pragma once

// Products in tiles: how they are cut, and the kernels. What computes one brings its operands
// (product_tile.h), with at(i) those of matrix i of several, and what finishes a sum:
//
//   m, n                             the extents of c
//   operator()(sum, i, row, column)  writes element (row, column) of matrix i
//
// The order of sums is that of the plan, always the same.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/kernels/product_tile.h"

namespace ridge::gpu {

// Warps are twice as wide where they have twice the lanes, so that each lane holds the same number
// of sums.
inline constexpr int lanes_by_32 = warp_width / 32;
using LargeTile = ProductTile<128, 128, 64, 32 * lanes_by_32>;
using MediumTile = ProductTile<64, 64, 32, 32 * lanes_by_32>;
using SmallTile = ProductTile<32, 32, 16, 16 * lanes_by_32>;

struct ProductExtents {
  std::int64_t batch, m, n, k;
  std::int64_t sums() const { return batch * m * n; }
};

// The rows and columns of a tile, and into how many parts sums are cut, which thread blocks of
// their own compute.
struct TilePlan {
  int rows;
  int parts;

  // Of the sums of all parts; none where there is one.
  std::size_t workspace(const ProductExtents& s) const {
    return parts == 1 ? 0 : static_cast<std::size_t>(parts * s.sums()) * sizeof(float);
  }
};

// The time of a plan in a unit of its own: rounds of tiles over the card, times the work of a tile.
// Small tiles load more for each product, and parts are written and read again. The factors are
// estimates; no card has been measured.
inline double expected_time(const Card& card, const ProductExtents& s, const TilePlan& plan) {
  const std::int64_t multiprocessors = std::max(1, card.multiprocessors);
  const double load = plan.rows == 128 ? 1.0 : plan.rows == 64 ? 1.4 : 2.2;
  const std::int64_t tiles =
      s.batch * blocks_for(s.m, plan.rows) * blocks_for(s.n, plan.rows) * plan.parts;
  const std::int64_t passed_on = plan.parts == 1 ? 0 : 32 * plan.parts * s.sums() / multiprocessors;
  return static_cast<double>(blocks_for(tiles, multiprocessors)) *
             static_cast<double>(plan.rows * plan.rows) * load *
             (static_cast<double>(s.k) / plan.parts + 64) +
         static_cast<double>(passed_on);
}

// All plans in tiles of up to so many rows, from the one that is expected to be the fastest.
inline std::vector<TilePlan> tile_plans(const Card& card, const ProductExtents& s, int most_rows) {
  constexpr std::int64_t least_terms = 128;  // of a part
  constexpr std::int64_t most_sums = std::int64_t{8} << 20;
  std::vector<TilePlan> plans;
  for (const int rows : {128, 64, 32})
    for (const int parts : {1, 2, 4, 8, 16})
      if (rows <= most_rows &&
          (parts == 1 || (s.k >= parts * least_terms && parts * s.sums() <= most_sums)))
        plans.push_back({rows, parts});
  std::ranges::stable_sort(plans, {},
                           [&](const TilePlan& plan) { return expected_time(card, s, plan); });
  return plans;
}

// The tiles of a matrix, and the terms of a part of its sums.
struct ProductCut {
  std::int64_t tiles_down, tiles_across;
  int parts;
  std::int64_t terms_of_part;
};

// c = a b^T by a thread block for each part of a tile; where `sums` is not null, the parts alone,
// sums[parts][batch][m][n].
template <class Tile, class Unit, class A, class B, class Finish>
__global__ void __launch_bounds__(Tile::threads, 2)
    product_kernel(const __grid_constant__ A a, const __grid_constant__ B b, ProductCut cut,
                   float* sums, std::int64_t batch, const __grid_constant__ Finish finish) {
  begin_kernel();
  __shared__ TileMemory<Tile> memory;
  std::int64_t block = blockIdx.x;
  const std::int64_t down = block % cut.tiles_down;
  block /= cut.tiles_down;
  const std::int64_t across = block % cut.tiles_across;
  block /= cut.tiles_across;
  const std::int64_t part = block % cut.parts, i = block / cut.parts;
  const std::int64_t begin = part * cut.terms_of_part;
  const std::int64_t end = min(begin + cut.terms_of_part, a.depth);
  multiply_tile<Tile, Unit>(memory, a.at(i), b.at(i), down * Tile::rows, across * Tile::columns,
                            begin, end, [&](std::int64_t row, std::int64_t column, float sum) {
                              if (row >= finish.m || column >= finish.n) return;
                              if (sums)
                                sums[((part * batch + i) * finish.m + row) * finish.n + column] =
                                    sum;
                              else
                                finish(sum, i, row, column);
                            });
}

inline constexpr int finish_threads = 256;

// Adds the parts of each sum in their order.
template <class Finish>
__global__ void __launch_bounds__(finish_threads)
    finish_parts_kernel(const float* sums, int parts, std::int64_t count,
                        const __grid_constant__ Finish finish) {
  begin_kernel();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * finish_threads + threadIdx.x;
  if (at >= count) return;
  float sum = 0;
  for (int part = 0; part < parts; ++part) sum += sums[part * count + at];
  finish(sum, at / (finish.m * finish.n), at / finish.n % finish.m, at % finish.n);
}

// Enqueues the product in tiles of one size, and what adds up its parts.
template <class Tile, class Unit, class A, class B, class Finish>
void launch_product(Stream stream, bool early, const ProductExtents& s, int parts, const A& a,
                    const B& b, const Finish& finish, void* workspace) {
  if (s.sums() == 0) return;
  constexpr std::int64_t depth = depth_of_step<Unit>;
  const std::int64_t steps = (s.k + depth - 1) / depth;
  const ProductCut cut{.tiles_down = blocks_for(s.m, Tile::rows),
                       .tiles_across = blocks_for(s.n, Tile::columns),
                       .parts = parts,
                       .terms_of_part = (steps + parts - 1) / parts * depth};
  float* const sums = parts > 1 ? static_cast<float*>(workspace) : nullptr;
  launch_on(stream, early, product_kernel<Tile, Unit, A, B, Finish>,
            dim3(static_cast<unsigned>(cut.tiles_down * cut.tiles_across * parts * s.batch)),
            dim3(Tile::threads), 0, a, b, cut, sums, s.batch, finish);
  if (sums)
    launch_on(stream, early, finish_parts_kernel<Finish>,
              dim3(blocks_for(s.sums(), finish_threads)), dim3(finish_threads), 0,
              static_cast<const float*>(sums), parts, s.sums(), finish);
}

}  // namespace ridge::gpu
