// Convolutions of each channel for itself, of 16-bit images with channels last, on tensor cores.
//
// A place is P neighboring pixels of a row of the result, for a pair of channels, or two pairs if
// P = 2: eight values, n of a product m16n8. What one row of taps makes of it is the product of the
// pixels under it, k, with a matrix of weights that is zero but for bands: [(pixel, pair), (pixel
// of the result, pair)] holds tap (r, distance of the pixels) of the pair's channels. Most of what
// is multiplied is zero, but tensor cores have that to spare, and plain threads would spend far
// more instructions on converting elements to f32 and on multiplying them than memory takes to
// bring them.
//
// In the operands of m16n8k16 lane 4 g + t has columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of rows g and
// g + 8, and in the result columns 2 t, 2 t + 1. Here it stands for a block of eight channels, t
// mod blocks, and for pixel t / blocks of places g and g + 8; it reads that pixel of their windows
// and those P and 2 P further. Pair j of its channels is its part of the j-th product, as it came
// from memory, and what it gets is pair j of the same channels of a pixel of the result.
//
// Blocks stay, each with some channels, and go through tiles of the images: the copy engine brings
// a tile with its border, zeros included, while the one before is multiplied, and takes the results
// away. Zeros beside the bands make NaN of infinity, so that it spreads to the other pixels and
// channels of its products.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ridge/gpu/sm90/conv/conv_depthwise.h"
#include "ridge/gpu/sm90/epilogue.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/tile.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int block_warps = 8, block_threads = block_warps * warp_threads;
constexpr int product_places = 16, pairs = 4;  // of a product; of a lane's channels
constexpr int depth = 32;                      // channels of a block
using Pixels = Tile<BFloat16, 1, depth>;
constexpr int stages = 2, resident_blocks = 2;
constexpr int most_shared = static_cast<int>(sm90_shared_per_multiprocessor) / resident_blocks -
                            static_cast<int>(sm90_shared_reserved) - 64;

// A kernel K x K.
template <int K, int Stride>
struct Bands {
  static constexpr int taps = K, stride = Stride;
  static constexpr int pixels = K == 3 ? 2 : 4, blocks = 4 / pixels;
  static constexpr int parts = ((pixels - 1) * stride + K + pixels - 1) / pixels;  // of a window
  static_assert(parts == 2 || parts == 3);
  // Warps share the channels: of the eights of a pixel, one has this many, so many apart.
  static constexpr int warps_across = depth / 8 / blocks;
};

// A convolution, or of the gradient of x, with dy as x, in which taps come in reverse order:
// flipped.
struct DepthwiseConv {
  CUtensorMap x, y;
  const void *weight, *bias, *residual;
  Epilogue epilogue;
  bool flipped;
  int channels, padding[2];
  int result_images, result_height, result_width;
  DepthwiseTiles cut;
  int chunks, tiles, load_bytes;
};

struct TilePlace {
  int image, row, column;  // of the result
};

template <class B>
__device__ TilePlace tile_at(const DepthwiseConv& a, int tile) {
  const int line = tile / a.cut.across, images = line / a.cut.down;
  return {images * a.cut.images, (line - images * a.cut.down) * a.cut.rows,
          (tile - line * a.cut.across) * a.cut.places * B::pixels};
}

// What a lane stands for.
template <class B>
struct Lane {
  int g, pixel, chunk;  // pixel of its places; eight channels of the block's

  __device__ explicit Lane(int warp_across)
      : g(static_cast<int>(threadIdx.x) % warp_threads / 4),
        pixel(static_cast<int>(threadIdx.x) % 4 / B::blocks),
        chunk(warp_across + static_cast<int>(threadIdx.x) % 4 % B::blocks * B::warps_across) {}
};

// d = a x b + c of 16 x 16 or 16 x 8 elements; f32 results and c.
template <class T>
__device__ void multiply(float (&d)[4], const float (&c)[4], const std::uint32_t (&a)[4],
                         std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
}

template <class T>
__device__ void multiply(float (&d)[4], const float (&c)[4], const std::uint32_t (&a)[2],
                         std::uint32_t b0) {
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// The lane's words of the banded matrices of all rows of taps, of weights that lie as
// [channel][tap]: for part i of the window what row 2 t + 8 i and the next hold in column g, which
// is of pixel (g / 2) / blocks of the result, channel g mod 2 of each pair of a block.
template <class B>
__device__ void load_bands(const DepthwiseConv& a, int first_channel, const Lane<B>& lane,
                           std::uint32_t (&bands)[B::taps][pairs][B::parts]) {
  constexpr int K = B::taps;
  const int t = static_cast<int>(threadIdx.x) % 4, column = lane.g / 2, odd = lane.g % 2;
  const bool same_block = column % B::blocks == t % B::blocks;
  const int first = first_channel + 8 * lane.chunk + odd;
  const auto* const weight = static_cast<const std::uint16_t*>(a.weight);
#pragma unroll
  for (int j = 0; j < pairs; ++j) {
    const std::uint16_t* const taps = weight + static_cast<std::int64_t>(first + 2 * j) * (K * K);
#pragma unroll
    for (int i = 0; i < B::parts; ++i) {
      const int s = lane.pixel + i * B::pixels - column / B::blocks * B::stride;
      const bool within = same_block && s >= 0 && s < K && first < a.channels;
#pragma unroll
      for (int r = 0; r < K; ++r) {
        const int tap = r * K + s;
        const std::uint32_t w = within ? taps[a.flipped ? K * K - 1 - tap : tap] : 0;
        bands[r][j][i] = w << (16 * odd);
      }
    }
  }
}

// 16 bytes as pairs of elements.
struct Eight {
  std::uint32_t pair[pairs];
  __device__ explicit Eight(const uint4& x) : pair{x.x, x.y, x.z, x.w} {}
};

// Sums of a lane's pixel of places p and p + 8 of a tile: those of the first in 0 and 1.
using Sums = float[pairs][4];

// With `from` the lane's first pixel of each place in the tile at `x`, whose rows are `width`
// pixels long, a multiple of 8: so much further down, pixels are swizzled alike.
template <class T, class B>
__device__ void multiply_window(std::uint32_t x, int width, const int (&from)[2], int chunk,
                                const std::uint32_t (&bands)[B::taps][pairs][B::parts],
                                Sums& sums) {
  std::uint32_t at[2][B::parts];
#pragma unroll
  for (int p = 0; p < 2; ++p)
#pragma unroll
    for (int i = 0; i < B::parts; ++i) at[p][i] = Pixels::chunk(x, from[p] + i * B::pixels, chunk);
  const std::uint32_t row_bytes = width * Pixels::row_bytes;
#pragma unroll
  for (int r = 0; r < B::taps; ++r) {
    const auto pixel = [&](int place, int part) {
      return Eight(ptx::load_chunk(at[place][part] + r * row_bytes));
    };
    const Eight a0 = pixel(0, 0), a1 = pixel(1, 0), a2 = pixel(0, 1), a3 = pixel(1, 1);
#pragma unroll
    for (int j = 0; j < pairs; ++j)
      multiply<T>(sums[j], sums[j], {a0.pair[j], a1.pair[j], a2.pair[j], a3.pair[j]},
                  bands[r][j][0], bands[r][j][1]);
    if constexpr (B::parts == 3) {
      const Eight a4 = pixel(0, 2), a5 = pixel(1, 2);
#pragma unroll
      for (int j = 0; j < pairs; ++j)
        multiply<T>(sums[j], sums[j], {a4.pair[j], a5.pair[j]}, bands[r][j][2]);
    }
  }
}

// A place of a tile: its first pixel there, and the first under it, border included.
struct PlaceInTile {
  int y, x;
};

template <class B>
__device__ PlaceInTile place_in_tile(const DepthwiseTiles& cut, int place) {
  const int line = place / cut.places, image = line / cut.rows;
  const int row = line - image * cut.rows, column = place - line * cut.places;
  return {place * B::pixels, (image * cut.image_rows + row * B::stride) * cut.image_width +
                                 column * B::pixels * B::stride};
}

// Adds the residual to what eight channels of a tile's pixel are, if it is one of the image.
template <class T, class B>
__device__ void add_residual(const DepthwiseConv& a, const TilePlace& tile, int pixel, int channel,
                             float (&values)[2 * pairs]) {
  const int width = a.cut.places * B::pixels, line = pixel / width;
  const int image = line / a.cut.rows, row = tile.row + line - image * a.cut.rows;
  const int column = tile.column + pixel - line * width;
  if (tile.image + image >= a.result_images || row >= a.result_height || column >= a.result_width ||
      channel >= a.channels)
    return;
  const std::int64_t down = static_cast<std::int64_t>(tile.image + image) * a.result_height + row;
  float more[2 * pairs];
  load_pack<2 * pairs>(
      static_cast<const T*>(a.residual) + (down * a.result_width + column) * a.channels + channel,
      more);
#pragma unroll
  for (int i = 0; i < 2 * pairs; ++i) values[i] += more[i];
}

// What a warp computes of a tile: some of its places, for some of the channels.
struct WarpShare {
  int first, step;  // by 16 places
};

template <class T, class B>
__device__ void compute_tile(const DepthwiseConv& a, const TilePlace& tile, std::uint32_t x,
                             std::uint32_t y, const PlaceInTile* places, const WarpShare& share,
                             const Lane<B>& lane, int first_channel, const float (&bias)[pairs][2],
                             const std::uint32_t (&bands)[B::taps][pairs][B::parts]) {
  const int all = a.cut.images * a.cut.rows * a.cut.places;
  for (int first = share.first * product_places; first < all;
       first += share.step * product_places) {
    int from[2], to[2];
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const PlaceInTile place = places[min(first + lane.g + 8 * p, all - 1)];
      from[p] = place.x + lane.pixel;
      to[p] = place.y + lane.pixel;
    }
    Sums sums;
#pragma unroll
    for (int j = 0; j < pairs; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] = bias[j][i % 2];
    multiply_window<T, B>(x, a.cut.image_width, from, lane.chunk, bands, sums);
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      float values[2 * pairs];
#pragma unroll
      for (int i = 0; i < 2 * pairs; ++i) values[i] = sums[i / 2][2 * p + i % 2];
      if (a.residual != nullptr)
        add_residual<T, B>(a, tile, to[p], first_channel + 8 * lane.chunk, values);
      apply_short_epilogue(a.epilogue, values);
      ptx::store_chunk(
          Pixels::chunk(y, to[p], lane.chunk),
          make_uint4(ptx::pack<T>(values[0], values[1]), ptx::pack<T>(values[2], values[3]),
                     ptx::pack<T>(values[4], values[5]), ptx::pack<T>(values[6], values[7])));
    }
  }
}

template <class T, class B>
__global__ void __launch_bounds__(block_threads, B::taps == 7 ? 1 : resident_blocks)
    depthwise_kernel(const __grid_constant__ DepthwiseConv a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ std::uint64_t full[stages];
  const int stage_bytes = (a.load_bytes + 1023) / 1024 * 1024;
  unsigned char* const results = memory + stages * stage_bytes;
  const int all_places = a.cut.images * a.cut.rows * a.cut.places;
  auto* const places = reinterpret_cast<PlaceInTile*>(results + all_places * B::pixels * 2 * depth);
  for (int i = static_cast<int>(threadIdx.x); i < all_places; i += block_threads)
    places[i] = place_in_tile<B>(a.cut, i);
  const bool leads = threadIdx.x == 0;
  if (leads) {
    for (std::uint64_t& barrier : full) ptx::barrier_init(&barrier, 1);
    ptx::barrier_init_fence();
    ptx::prefetch_map(&a.x);
    ptx::prefetch_map(&a.y);
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  const int first_channel = static_cast<int>(blockIdx.x) % a.chunks * depth;
  const int begin = static_cast<int>(blockIdx.x) / a.chunks;
  const int step = static_cast<int>(gridDim.x) / a.chunks;
  const auto load_tile = [&](int tile, int stage) {
    if (tile >= a.tiles) return;
    const TilePlace at = tile_at<B>(a, tile);
    ptx::barrier_arrive_expect(&full[stage], a.load_bytes);
    ptx::load_box(memory + stage * stage_bytes, &a.x, &full[stage], first_channel,
                  at.column * B::stride - a.padding[1], at.row * B::stride - a.padding[0],
                  at.image);
  };
  if (leads)
    for (int i = 0; i < stages; ++i) load_tile(begin + i * step, i);

  // Warps side by side have other channels, those below them other places.
  const int across = min(B::warps_across, (a.channels - first_channel + 7) / 8);
  const int down = block_warps / across, warp = static_cast<int>(threadIdx.x) / warp_threads;
  const Lane<B> lane(warp % across);
  std::uint32_t bands[B::taps][pairs][B::parts];
  load_bands<B>(a, first_channel, lane, bands);
  float bias[pairs][2] = {};
  if (a.bias != nullptr && first_channel + 8 * lane.chunk < a.channels)
#pragma unroll
    for (int i = 0; i < 2 * pairs; ++i)
      bias[i / 2][i % 2] = load(static_cast<const T*>(a.bias) + first_channel + 8 * lane.chunk + i);

  int stage = 0;
  std::uint32_t parity = 0;
  for (int tile = begin; tile < a.tiles; tile += step) {
    ptx::barrier_wait(&full[stage], parity);
    if (leads) ptx::store_wait_read<0>();
    __syncthreads();  // the results before have left
    const TilePlace at = tile_at<B>(a, tile);
    if (warp < across * down)
      compute_tile<T, B>(a, at, ptx::shared_address(memory + stage * stage_bytes),
                         ptx::shared_address(results), places, {warp / across, down}, lane,
                         first_channel, bias, bands);
    ptx::fence_shared_for_async();
    __syncthreads();
    if (leads) {
      ptx::store_box(&a.y, results, first_channel, at.column, at.row, at.image);
      ptx::store_commit();
      load_tile(tile + stages * step, stage);
    }
    stage ^= 1;
    parity ^= stage == 0 ? 1 : 0;
  }
  if (leads) ptx::store_wait<0>();
}

int parts_of(std::int64_t all, std::int64_t part) {
  return static_cast<int>((all + part - 1) / part);
}

// Bytes of shared memory: pixels of two tiles with their borders, of a tile's results, and its
// places.
template <class B>
std::int64_t shared_bytes(const DepthwiseTiles& cut) {
  constexpr std::int64_t pixel_bytes = 2 * depth;
  const std::int64_t read = std::int64_t{cut.images} * cut.image_rows * cut.image_width;
  const std::int64_t places = std::int64_t{cut.images} * cut.rows * cut.places;
  return stages * ((read * pixel_bytes + 1023) / 1024 * 1024) +
         places * (B::pixels * pixel_bytes + static_cast<std::int64_t>(sizeof(PlaceInTile)));
}

// The tiles with which blocks are done the soonest, going by the pixels that pass through shared
// memory: as large as there is room for, but not so few that some blocks have more of them to do
// than others.
template <class B>
DepthwiseTiles best_cut(const ImageShape& y, int blocks) {
  constexpr int most_box = 256;
  constexpr std::int64_t start = 64;  // what a tile costs besides, in pixels
  const int all_places = parts_of(y.w, B::pixels);
  DepthwiseTiles best;
  std::int64_t least = 0;
  const auto consider = [&](DepthwiseTiles cut) {
    cut.image_rows = (cut.rows - 1) * B::stride + B::taps;
    cut.image_width = parts_of(((cut.places - 1) * B::stride + B::parts) * B::pixels, 8) * 8;
    cut.down = parts_of(y.h, cut.rows);
    cut.across = parts_of(all_places, cut.places);
    const std::int64_t read = std::int64_t{cut.images} * cut.image_rows * cut.image_width;
    const std::int64_t written = std::int64_t{cut.images} * cut.rows * cut.places * B::pixels;
    if (cut.image_rows > most_box || cut.image_width > most_box ||
        shared_bytes<B>(cut) > most_shared)
      return;
    const std::int64_t tiles = std::int64_t{cut.down} * cut.across * parts_of(y.n, cut.images);
    const std::int64_t cost = parts_of(tiles, blocks) * (read + written + start);
    if (best.images > 0 && cost >= least) return;
    best = cut;
    least = cost;
  };
  for (int across = 1; across <= all_places; across *= 2)
    for (int rows = 1; rows <= y.h; ++rows)
      consider({.images = 1, .rows = rows, .places = parts_of(all_places, across)});
  for (int images = 2; images <= 16; ++images)
    consider({.images = images, .rows = static_cast<int>(y.h), .places = all_places});
  return best;
}

// Calls function.template operator()<B>() with the kernel's size and stride.
template <class F>
void with_bands(const ConvProblem& p, const F& function) {
  const bool single = p.geometry.stride[0] == 1;
  if (p.weight.h == 3)
    single ? function.template operator()<Bands<3, 1>>()
           : function.template operator()<Bands<3, 2>>();
  else if (p.weight.h == 5)
    single ? function.template operator()<Bands<5, 1>>()
           : function.template operator()<Bands<5, 2>>();
  else
    function.template operator()<Bands<7, 1>>();
}

// The thread blocks for each chunk of channels, if all that there is room for share these out.
int blocks_of_chunk(int channels, int multiprocessors) {
  return std::max(1, resident_blocks * multiprocessors / parts_of(channels, depth));
}

template <class T, class B>
void run(DepthwiseConv a, const ConvPointers& o, const ImageShape& x, const ImageShape& y,
         int multiprocessors, cudaStream_t stream) {
  const int images = a.cut.images, width = a.cut.places * B::pixels;
  a.chunks = parts_of(a.channels, depth);
  a.tiles = a.cut.down * a.cut.across * parts_of(y.n, images);
  a.load_bytes = images * a.cut.image_rows * a.cut.image_width * Pixels::row_bytes;
  a.x = box_map(o.x, {x.c, x.w, x.h, x.n}, {depth, a.cut.image_width, a.cut.image_rows, images});
  a.y = box_map(o.y, {y.c, y.w, y.h, y.n}, {depth, width, a.cut.rows, images});
  const auto kernel = depthwise_kernel<T, B>;
  allow_shared_memory(kernel, most_shared);
  const int blocks = std::min(a.tiles, blocks_of_chunk(a.channels, multiprocessors));
  launch_early(kernel, dim3(static_cast<unsigned>(a.chunks * blocks)), block_threads,
               static_cast<std::size_t>(shared_bytes<B>(a.cut)), stream, a);
  check(last_error(), "a depthwise convolution");
}

bool is_forward(const ConvProblem& p) { return p.kind == ConvProblem::Kind::forward; }

}  // namespace

DepthwiseTiles depthwise_tiles(const ConvProblem& p, int multiprocessors) {
  const ImageShape& y = is_forward(p) ? p.y : p.x;
  DepthwiseTiles tiles;
  with_bands(p, [&]<class B>() {
    tiles = best_cut<B>(y, blocks_of_chunk(static_cast<int>(y.c), multiprocessors));
  });
  return tiles;
}

void depthwise_conv(const ConvProblem& p, const DepthwiseTiles& tiles, const ConvPointers& o,
                    int multiprocessors, Stream stream) {
  const ImageShape &x = is_forward(p) ? p.x : p.y, &y = is_forward(p) ? p.y : p.x;
  ConvPointers operands = o;
  if (!is_forward(p)) std::swap(operands.x, operands.y);
  DepthwiseConv a{.weight = o.weight,
                  .bias = o.bias,
                  .residual = o.residual,
                  .epilogue = p.epilogue,
                  .flipped = !is_forward(p),
                  .channels = static_cast<int>(x.c),
                  .result_images = static_cast<int>(y.n),
                  .result_height = static_cast<int>(y.h),
                  .result_width = static_cast<int>(y.w),
                  .cut = tiles};
  for (std::size_t d = 0; d < 2; ++d) {
    const auto padding = static_cast<int>(p.geometry.padding[d]);
    a.padding[d] = is_forward(p) ? padding : static_cast<int>(p.weight.h) - 1 - padding;
  }
  dispatch_16_bit(p.dtype, [&]<class T>() {
    with_bands(p, [&]<class B>() { run<T, B>(a, operands, x, y, multiprocessors, stream); });
  });
}

}  // namespace ridge::gpu::sm90
