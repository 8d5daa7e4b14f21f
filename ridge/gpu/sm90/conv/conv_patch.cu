// Convolutions 3 x 3 of 16-bit images with channels last whose weight fits into shared memory, as
// products, like conv.cu's, but for how windows get there: a block loads a patch of the image once,
// with a border of zeros or neighbors, 64 channels at a time, and reads it nine times, once for
// each tap. Elsewhere windows come through the L2 cache, nine times as much.
//
// A row of the operand is a pixel of the patch, 128 bytes; neighboring rows are neighboring
// pixels, border included, so that another tap is the same operand that begins some pixels later.
// What is computed for pixels of the border is not written. Four warpgroups multiply 64 rows each:
// of one patch, or, where images are as small, of four images.

#include <algorithm>

#include "ridge/gpu/sm90/conv/conv.h"
#include "ridge/gpu/sm90/epilogue.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/tile.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int taps = 9, depth = 64;  // depth: channels of a stage
constexpr int patch_warpgroups = 4, consumer_threads = patch_warpgroups * warpgroup_threads;
constexpr int patch_threads = consumer_threads + warp_threads;
constexpr int tile_pixels = patch_warpgroups * warpgroup_rows;
constexpr int stages = 2, stage_pixels = 352, pixel_bytes = depth * 2;
constexpr int stage_bytes = stage_pixels * pixel_bytes;
constexpr int most_weight_bytes = 72 * 1024;

// How an image is cut.
struct PatchCut {
  int width;         // of a patch and its border
  int rows, images;  // of the result, of a tile
  int down;          // tiles of an image, or 1 for several images

  explicit PatchCut(const ConvProblem& p) {
    const int h = static_cast<int>(p.y.h);
    width = static_cast<int>(p.y.w) + 2;
    if (h * width <= warpgroup_rows && patch_warpgroups * (h + 2) * width <= stage_pixels) {
      rows = h;
      images = patch_warpgroups;
      down = 1;
    } else {
      const int most = std::min({h, tile_pixels / width, stage_pixels / width - 2});
      images = 1;
      down = most < 1 ? 0 : (h + most - 1) / most;
      rows = down == 0 ? 0 : (h + down - 1) / down;
    }
  }
  int tiles(std::int64_t n) const {
    return images > 1 ? static_cast<int>((n + images - 1) / images) : static_cast<int>(n) * down;
  }
};

struct PatchConv {
  CUtensorMap x, weight, y;
  const void* bias;
  Epilogue epilogue;
  PatchCut cut;
  int channels, chunks, tiles;
  int load_bytes;
};

template <class T, int Columns>
struct PatchShared {
  using Weight = Tile<T, Columns, depth>;
  using Results = Tile<T, tile_pixels, Columns>;
  alignas(1024) unsigned char pixels[stages][stage_bytes];
  alignas(1024) unsigned char results[Results::bytes];
  alignas(1024) unsigned char weight[most_weight_bytes / Weight::bytes][Weight::bytes];
  std::uint64_t full[stages], empty[stages], weight_full;
};

// Calls f(first image, first row) for the tiles of this block.
template <class F>
__device__ void each_patch(const PatchConv& a, const F& f) {
  for (int tile = static_cast<int>(blockIdx.x); tile < a.tiles;
       tile += static_cast<int>(gridDim.x)) {
    if (a.cut.images > 1)
      f(tile * a.cut.images, 0);
    else
      f(tile / a.cut.down, tile % a.cut.down * a.cut.rows);
  }
}

template <class Shared>
__device__ void produce_patches(Shared& shared, const PatchConv& a) {
  const int boxes = taps * a.chunks;
  ptx::barrier_arrive_expect(&shared.weight_full, boxes * Shared::Weight::bytes);
  for (int i = 0; i < boxes; ++i)
    ptx::load_box(shared.weight[i], &a.weight, &shared.weight_full, i * depth, 0);
  Ring<stages> ring;
  each_patch(a, [&](int image, int row) {
    for (int chunk = 0; chunk < a.chunks; ++chunk, ring.advance()) {
      std::uint64_t* const full = &shared.full[ring.stage];
      ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      ptx::barrier_arrive_expect(full, a.load_bytes);
      ptx::load_box(shared.pixels[ring.stage], &a.x, full, chunk * depth, -1, row - 1, image);
    }
  });
}

template <class T, int Columns>
__global__ void __launch_bounds__(patch_threads, 1)
    patch_conv_kernel(const __grid_constant__ PatchConv a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  using Shared = PatchShared<T, Columns>;
  using Weight = typename Shared::Weight;
  using Results = typename Shared::Results;
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], consumer_threads / warp_threads * warp_releases);
    }
    ptx::barrier_init(&shared.weight_full, 1);
    ptx::barrier_init_fence();
    ptx::prefetch_map(&a.x);
    ptx::prefetch_map(&a.weight);
    ptx::prefetch_map(&a.y);
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / warp_threads, 0);
  if (warp == consumer_threads / warp_threads) {
    if (ptx::elect_one()) produce_patches(shared, a);
    return;
  }
  const int warpgroup = warp / 4, lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int first_pixel =
      a.cut.images > 1 ? warpgroup * (a.cut.rows + 2) * a.cut.width : warpgroup * warpgroup_rows;
  const std::uint32_t results = ptx::shared_address(shared.results);
  float2 bias[Columns / 8];
#pragma unroll
  for (int j = 0; j < Columns / 8; ++j) {
    const int at = 8 * j + first_column();
    const T* const from = static_cast<const T*>(a.bias) + at;
    bias[j] = make_float2(0.0f, 0.0f);
    if (a.bias != nullptr && at < a.channels) bias[j] = make_float2(load(from), load(from + 1));
  }
  Ring<stages> ring;
  ptx::barrier_wait(&shared.weight_full, 0);
  each_patch(a, [&](int image, int row) {
    float d[Columns / 2];
    for (int chunk = 0; chunk < a.chunks; ++chunk, ring.advance()) {
      const std::uint32_t pixels =
          ptx::shared_address(shared.pixels[ring.stage]) + first_pixel * pixel_bytes;
      const std::uint32_t weight = ptx::shared_address(shared.weight[chunk]);
      ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int tap = 0; tap < taps; ++tap)
#pragma unroll
        for (int step = 0; step < depth / 16; ++step)
          ptx::wgmma<T, Columns, false, false>(
              d,
              ptx::operand<pixel_bytes>(pixels + (tap / 3 * a.cut.width + tap % 3) * pixel_bytes +
                                        step * 32),
              Weight::along_columns(weight + tap * a.chunks * Weight::bytes, step),
              chunk != 0 || tap != 0 || step != 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::pin(d);
      release(&shared.empty[ring.stage]);
    }
#pragma unroll
    for (int i = 0; i < Columns / 2; ++i) d[i] += i % 2 == 0 ? bias[i / 4].x : bias[i / 4].y;
    apply_short_epilogue(a.epilogue, d);
    if (threadIdx.x == 0) ptx::store_wait_read<0>();
    ptx::named_sync(1, consumer_threads);
#pragma unroll
    for (int j = 0; j < Columns / 8; j += 2)
      ptx::store_matrices(
          Results::chunk(results, warp * 16 + (lane & 15), j + (lane >> 4)),
          ptx::pack<T>(d[4 * j], d[4 * j + 1]), ptx::pack<T>(d[4 * j + 2], d[4 * j + 3]),
          ptx::pack<T>(d[4 * j + 4], d[4 * j + 5]), ptx::pack<T>(d[4 * j + 6], d[4 * j + 7]));
    ptx::fence_shared_for_async();
    ptx::named_sync(1, consumer_threads);
    if (threadIdx.x != 0) return;
    for (int i = 0; i < a.cut.images; ++i)
      ptx::store_box(&a.y, shared.results + i * warpgroup_rows * Results::row_bytes, 0, 0, row,
                     image + i);
    ptx::store_commit();
  });
  if (threadIdx.x == 0) ptx::store_wait<0>();
}

int columns_of(const ConvProblem& p) { return p.y.c <= 32 ? 32 : 64; }

template <class T, int Columns>
void run(const ConvProblem& p, const ConvPointers& o, int multiprocessors, cudaStream_t stream) {
  const PatchCut cut(p);
  const int chunks = static_cast<int>(p.x.c) / depth;
  const int border_rows = cut.rows + 2;
  const PatchConv a{
      .x = box_map(o.x, {p.x.c, p.x.w, p.x.h, p.x.n}, {depth, cut.width, border_rows, cut.images}),
      .weight = box_map(o.weight, {taps * p.x.c, p.y.c}, {depth, Columns}),
      .y = box_map(o.y, {p.y.c, p.y.w, p.y.h, p.y.n}, {Columns, cut.width, cut.rows, 1}),
      .bias = o.bias,
      .epilogue = p.epilogue,
      .cut = cut,
      .channels = static_cast<int>(p.y.c),
      .chunks = chunks,
      .tiles = cut.tiles(p.y.n),
      .load_bytes = cut.images * border_rows * cut.width * pixel_bytes};
  constexpr std::size_t bytes = sizeof(PatchShared<T, Columns>);
  static_assert(bytes <= sm90_shared_per_block);
  const auto kernel = patch_conv_kernel<T, Columns>;
  allow_shared_memory(kernel, bytes);
  launch_early(kernel, dim3(static_cast<unsigned>(std::min(a.tiles, multiprocessors))),
               patch_threads, bytes, stream, a);
  check(last_error(), "a convolution of patches");
}

}  // namespace

bool takes_patches(const ConvProblem& p) {
  const ConvGeometry& g = p.geometry;
  if (p.weight.h != 3 || p.weight.w != 3 || g.stride != Pair{1, 1} || g.padding != Pair{1, 1} ||
      g.dilation != Pair{1, 1} || p.residual || p.x.c % depth != 0 || p.y.c > 64 ||
      taps * p.x.c * columns_of(p) * 2 > most_weight_bytes || p.y.w + 2 > tile_pixels)
    return false;
  // At least three fifths of what is computed have to be of use.
  const std::int64_t tiles = patches_of(p);
  return tiles > 0 && 5 * p.y.n * p.y.pixels() >= 3 * tiles * tile_pixels;
}

std::int64_t patches_of(const ConvProblem& p) {
  const PatchCut cut(p);
  return cut.down == 0 ? 0 : cut.tiles(p.y.n);
}

void conv_of_patches(const ConvProblem& p, const ConvPointers& o, int multiprocessors,
                     Stream stream) {
  const auto with_columns = [&]<class T>() {
    if (columns_of(p) == 32)
      run<T, 32>(p, o, multiprocessors, stream);
    else
      run<T, 64>(p, o, multiprocessors, stream);
  };
  dispatch_16_bit(p.dtype, with_columns);
}

}  // namespace ridge::gpu::sm90
