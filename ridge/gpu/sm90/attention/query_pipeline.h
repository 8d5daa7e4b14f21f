#pragma once

// The tile pipeline of flash_forward.cu and flash_backward_queries.cu. A thread block owns a tile
// of query rows of one head and runs along the keys, from the last that the rows see to the first.
//
// One producer warp feeds rings of K and V tiles through the copy engine. Each consumer warpgroup
// owns 64 query rows, whose scores never leave its registers; the warpgroups take turns issuing
// products, so that one's run while another computes. Thread blocks stay for several tiles.
//
// `Config` says Element, head_dim, queries and keys of a tile, stages of the rings, consumers,
// QueryTile and KeyTile; `Shared` has the rings k, v, k_full, k_empty, v_full and v_empty.

#include <algorithm>
#include <cstdint>

#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/roles.h"
#include "ridge/gpu/sm90/tensor_map.h"

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

template <class Config, class Shared>
__device__ void init_key_rings(Shared& shared) {
  constexpr int releases = Config::consumers * warpgroup_releases;
  for (int i = 0; i < Config::stages; ++i) {
    ptx::barrier_init(&shared.k_full[i], 1);
    ptx::barrier_init(&shared.k_empty[i], releases);
    ptx::barrier_init(&shared.v_full[i], 1);
    ptx::barrier_init(&shared.v_empty[i], releases);
  }
}

// Loads the key tiles that the rows of a query tile see into the rings.
template <class Config, bool Causal, class Shared>
__device__ void load_keys(Shared& shared, Ring<Config::stages>& ring, const QueryBlocks& blocks,
                          const QueryTileIndex& at, const CUtensorMap* k_map,
                          const CUtensorMap* v_map) {
  using KeyTile = typename Config::KeyTile;
  const int kv_head = at.head / blocks.group;
  for (int n = key_tiles<Config, Causal>(blocks, at.tile) - 1; n >= 0; --n, ring.advance()) {
    const int key = n * Config::keys;
    std::uint64_t* full = &shared.k_full[ring.stage];
    ptx::barrier_wait(&shared.k_empty[ring.stage], ring.parity ^ 1);
    ptx::barrier_arrive_expect(full, KeyTile::bytes);
    load_tile<KeyTile>(shared.k[ring.stage], k_map, full, key, kv_head, at.batch);
    full = &shared.v_full[ring.stage];
    ptx::barrier_wait(&shared.v_empty[ring.stage], ring.parity ^ 1);
    ptx::barrier_arrive_expect(full, KeyTile::bytes);
    load_tile<KeyTile>(shared.v[ring.stage], v_map, full, key, kv_head, at.batch);
  }
}

// What one consumer warpgroup does with its 64 rows, but for the arithmetic between its products.
template <class Config, bool Causal, class Shared>
class QueryConsumer {
 protected:
  using Element = typename Config::Element;
  using QueryTile = typename Config::QueryTile;
  using KeyTile = typename Config::KeyTile;
  using Scores = float[Config::keys / 2];
  using Outputs = float[Config::head_dim / 2];
  using PackedScores = std::uint32_t[Config::keys / 16][4];  // as the operand of a product

  __device__ QueryConsumer(Shared& shared, const QueryBlocks& blocks, int warpgroup)
      : shared_(shared), blocks_(blocks), warpgroup_(warpgroup) {}

  __device__ static bool leads() { return threadIdx.x % warpgroup_threads == 0; }

  // Warpgroups issue their products in turn: named barrier 1 + w is w's turn.
  __device__ void begin_turns() {
    if (warpgroup_ == Config::consumers - 1) pass_turn();
  }
  __device__ void wait_turn() { ptx::named_sync(1 + warpgroup_, 2 * warpgroup_threads); }
  __device__ void pass_turn() {
    ptx::named_arrive(1 + (warpgroup_ + 1) % Config::consumers, 2 * warpgroup_threads);
  }
  // All warps of the warpgroup.
  __device__ void sync() { ptx::named_sync(1 + Config::consumers + warpgroup_, warpgroup_threads); }

  // d = rows keys^T.
  __device__ void issue_scores(Scores& d, const unsigned char* rows, const unsigned char* keys) {
    const std::uint32_t a = ptx::shared_address(rows), b = ptx::shared_address(keys);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Config::head_dim / 16; ++step)
      ptx::wgmma<Element, Config::keys, false, false>(d, QueryTile::along_columns(a, step),
                                                      KeyTile::along_columns(b, step), step != 0);
    ptx::wgmma_commit();
  }

  // d += scores keys, or without `accumulate` d = scores keys.
  __device__ void issue_outputs(Outputs& d, const PackedScores& scores, const unsigned char* keys,
                                bool accumulate) {
    const std::uint32_t b = ptx::shared_address(keys);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Config::keys / 16; ++step)
      ptx::wgmma<Element, Config::head_dim, true>(d, scores[step], KeyTile::along_rows(b, step),
                                                  step > 0 || accumulate);
    ptx::wgmma_commit();
  }

  __device__ static void pack(PackedScores& packed, const Scores& s) {
#pragma unroll
    for (int step = 0; step < Config::keys / 16; ++step) pack_step<Element>(packed[step], s, step);
  }

  // The first of this warpgroup's rows of a tile.
  __device__ int top(const QueryTileIndex& at) const {
    return at.tile * Config::queries + warpgroup_ * warpgroup_rows;
  }
  // Key tiles from here on hold keys that some row of this warpgroup must not see.
  __device__ int unmasked_tiles(const QueryTileIndex& at) const {
    return (Causal ? min(top(at) + 1, blocks_.seq) : blocks_.seq) / Config::keys;
  }
  // The key tiles that some row of this warpgroup sees; those after are only for warpgroups below.
  __device__ int own_tiles(const QueryTileIndex& at) const {
    const int all = key_tiles<Config, Causal>(blocks_, at.tile);
    return Causal ? min(all, (top(at) + warpgroup_rows + Config::keys - 1) / Config::keys) : all;
  }
  __device__ void mask(Scores& s, int n, const QueryTileIndex& at) const {
    mask_scores<Causal>(s, top(at) + first_row(), n * Config::keys + first_column(), blocks_.seq);
  }

  // Passes over the key tiles that only other warpgroups need.
  __device__ void skip_keys(const QueryTileIndex& at) {
    for (int n = key_tiles<Config, Causal>(blocks_, at.tile) - own_tiles(at); n > 0; --n) {
      ptx::barrier_wait(&shared_.k_full[ring_.stage], ring_.parity);
      release(&shared_.k_empty[ring_.stage]);
      ptx::barrier_wait(&shared_.v_full[ring_.stage], ring_.parity);
      release(&shared_.v_empty[ring_.stage]);
      wait_turn();
      pass_turn();
      ring_.advance();
    }
  }

  // Writes this warpgroup's rows of a tile, times a factor for each of the thread's two, through
  // `staged`, which nobody uses any more.
  __device__ void store_rows(const QueryTileIndex& at, const CUtensorMap* map,
                             unsigned char* staged, const Outputs& d, float upper, float lower) {
    store_accumulators<QueryTile>(ptx::shared_address(staged), 0, d, upper, lower);
    ptx::fence_shared_for_async();
    sync();
    if (!leads()) return;
    for (int panel = 0; panel < QueryTile::panels; ++panel)
      ptx::store_box(map, staged + panel * QueryTile::panel_bytes, panel * QueryTile::panel_columns,
                     top(at), at.head, at.batch);
    ptx::store_commit();
  }

  Shared& shared_;
  const QueryBlocks& blocks_;
  const int warpgroup_;
  Ring<Config::stages> ring_;  // of K and V
  Ring<2> rows_;               // of what each query tile has
};

// Runs a kernel of this pipeline with as many thread blocks as there are multiprocessors or work.
// The caller checks last_error().
template <class Config, class Shared, class... Parameters, class... Arguments>
void launch_queries(void (*kernel)(Parameters...), const QueryBlocks& work, cudaStream_t stream,
                    const Arguments&... arguments) {
  allow_shared_memory(kernel, sizeof(Shared));
  const dim3 blocks(static_cast<unsigned>(std::min(multiprocessors(), work.deck.units())));
  launch_early(kernel, blocks, Config::threads, sizeof(Shared), stream, arguments...);
}

}  // namespace ridge::gpu::sm90
