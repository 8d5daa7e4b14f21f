#pragma once

// Kernels whose blocks own tiles of query rows and run along the keys.

#include <cstdint>

#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"

namespace ridge::gpu::sm90 {

struct QueryBlocks {
  int seq, n_heads, group;  // group: query heads of one key head
  TileDeck deck;            // of query tiles

  QueryBlocks(const FlashShape& shape, int tile_rows)
      : seq(static_cast<int>(shape.seq)),
        n_heads(static_cast<int>(shape.n_heads)),
        group(static_cast<int>(shape.n_heads / shape.n_kv_heads)),
        deck{(seq + tile_rows - 1) / tile_rows, static_cast<int>(shape.n_heads * shape.batch),
             shape.causal} {}
};

struct QueryTileIndex {
  int tile, head, batch;

  __device__ QueryTileIndex(const QueryBlocks& blocks, const BlockTiles& at)
      : tile(blocks.deck.per_head - 1 - at.rank()),
        head(at.head() % blocks.n_heads),
        batch(at.head() / blocks.n_heads) {}
};

// How many key tiles the rows of a query tile see.
template <class Config, bool Causal>
__device__ inline int key_tiles(const QueryBlocks& blocks, int query_tile) {
  const int end = Causal ? min(blocks.seq, (query_tile + 1) * Config::queries) : blocks.seq;
  return (end + Config::keys - 1) / Config::keys;
}

// Scores of keys after their query, or past the end, become -infinity. `row`: the query of the
// thread's first row of accumulators; `column`: the key of its first element.
template <bool Causal, int Count>
__device__ inline void mask_scores(float (&s)[Count], int row, int column, int seq) {
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const int key = column + i / 4 * 8 + i % 2;
    const int last = Causal ? min(seq - 1, row + i / 2 % 2 * 8) : seq - 1;
    if (key > last) s[i] = -INFINITY;
  }
}

}  // namespace ridge::gpu::sm90
