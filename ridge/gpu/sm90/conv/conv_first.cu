// The first convolution of a network: of images of few channels, with channels last, whose windows
// the copy engine cannot gather.
//
// A block takes tiles of up to `most_tile_rows` rows of `tile_pixels` pixels of the result. It puts
// the rows of the image that they need into shared memory, with zeros beyond the edges and each
// pixel padded to 4 or 8 elements, so that neighboring windows begin 16 bytes apart. Without
// swizzling that is how wgmma reads a matrix: 8 rows of 16 bytes one after another. So the matrix
// of windows needs no memory of its own: the operand's rows overlap.

#include <algorithm>

#include "ridge/gpu/sm90/conv/conv.h"
#include "ridge/gpu/sm90/epilogue.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/tile.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int most_tile_rows = 4, tile_pixels = 2 * warpgroup_rows;
constexpr int first_threads = 2 * warpgroup_threads;
constexpr int vector = 8;  // elements in 16 bytes, a chunk

struct FirstConv {
  CUtensorMap y;  // [N x rows, columns, channels]
  const void *x, *weight, *bias;
  Epilogue epilogue;
  int h, w, c, pixel_channels;
  int out_h, out_w, channels;
  int kernel[2], stride[2], padding[2], dilation;  // down
  int depth_steps;                                 // of 16 elements of a row of a window
  int rows, row_chunks;                            // of the image, in shared memory
  int row_runs;                                    // of 32 pairs of pixels, in a row of it
  float row_of_run;                                // 1 / row_runs
  int tile_rows;
  int tiles, row_tiles, pixel_tiles, channel_tiles;

  __host__ __device__ int weight_chunks(int columns) const {
    return kernel[0] * depth_steps * 2 * columns;
  }
};

// An operand without swizzling, its inner dimension in chunks of 16 bytes that are `chunk_bytes`
// apart; rows are 16 bytes apart.
__device__ std::uint64_t plain_operand(std::uint32_t shared, std::uint32_t chunk_bytes) {
  constexpr std::uint64_t eight_rows = 128;
  return static_cast<std::uint64_t>((shared & 0x3ffff) >> 4) |
         static_cast<std::uint64_t>(chunk_bytes >> 4) << 16 | (eight_rows >> 4) << 32;
}

// The elements from `first` on of a row of pixels of `channels`, as if each had `padded` and there
// were zeros beyond `columns`.
__device__ uint4 padded_chunk(const std::uint16_t* row, int first_pixel, int padded, int channels,
                              int columns) {
  // All are read, those that do not exist in the place of the row's first, so that none waits for
  // another.
  std::uint32_t words[vector / 2] = {};
#pragma unroll
  for (int k = 0; k < vector; ++k) {
    const int pixel = first_pixel + (padded == 4 ? k / 4 : 0), channel = padded == 4 ? k % 4 : k;
    const bool exists = channel < channels && pixel >= 0 && pixel < columns;
    const std::uint32_t value = row[exists ? pixel * channels + channel : 0];
    words[k / 2] |= exists ? value << k % 2 * 16 : 0;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// store(i, load(i)) for i < count of first, first + stride, ..., with `Together` loads under way at
// a time: no branch lies between them.
template <int Together, class Load, class Store>
__device__ void copy(int first, int stride, int count, const Load& load, const Store& store) {
  for (int begin = first; begin < count; begin += Together * stride) {
    decltype(load(0)) values[Together];
#pragma unroll
    for (int k = 0; k < Together; ++k) values[k] = load(min(begin + k * stride, count - 1));
#pragma unroll
    for (int k = 0; k < Together; ++k)
      if (begin + k * stride < count) store(begin + k * stride, values[k]);
  }
}

template <int Columns>
__device__ void load_weight(const FirstConv& a, int first, unsigned char* to) {
  const auto* weight = static_cast<const std::uint16_t*>(a.weight);
  const int per_chunk = vector / a.pixel_channels;  // pixels
  copy<4>(
      static_cast<int>(threadIdx.x), first_threads, a.weight_chunks(Columns),
      [&](int i) {
        const int o = i % Columns, chunk = i / Columns % (2 * a.depth_steps);
        const int r = i / Columns / (2 * a.depth_steps);
        const bool exists = first + o < a.channels;
        return padded_chunk(
            weight + ((exists ? first + o : 0) * a.kernel[0] + r) * a.kernel[1] * a.c,
            chunk * per_chunk, a.pixel_channels, a.c, exists ? a.kernel[1] : 0);
      },
      [&](int i, const uint4& values) {
        ptx::store_chunk(ptx::shared_address(to) + i * 16, values);
      });
}

// How an image gets into shared memory: element by element, or, where pixels of three elements are
// in rows of an even number of them, by pairs of pixels, which are three words.
enum class Loads : std::uint8_t { elements, pairs };

// A warp takes 32 pairs of a row at a time.
__device__ void load_pixel_pairs(const FirstConv& a, int image, int first_row, int first_column,
                                 unsigned char* to) {
  const auto* x = static_cast<const std::uint32_t*>(a.x);
  const int row_words = a.w / 2 * 3, row_bytes = a.row_chunks * 16;
  const int first_pair = first_column >> 1, pixels = a.row_chunks * (vector / a.pixel_channels);
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const auto row_of = [&](int i) {
    return static_cast<int>((static_cast<float>(i) + 0.5f) * a.row_of_run);
  };
  const auto pair_of = [&](int i, int row) {
    return first_pair + (i - row * a.row_runs) * warp_threads + lane;
  };
  const auto exists = [&](int row, int pair) {
    return static_cast<unsigned>(first_row + row) < static_cast<unsigned>(a.h) &&
           static_cast<unsigned>(2 * pair) < static_cast<unsigned>(a.w);
  };
  struct Words {
    std::uint32_t at[3];
  };
  copy<4>(
      static_cast<int>(threadIdx.x) / warp_threads, first_threads / warp_threads,
      a.rows * a.row_runs,
      [&](int i) {
        const int row = row_of(i), pair = pair_of(i, row);
        const std::int64_t line = static_cast<std::int64_t>(image) * a.h + first_row + row;
        const std::uint32_t* const from = x + (exists(row, pair) ? line * row_words + pair * 3 : 0);
        Words words;
#pragma unroll
        for (int k = 0; k < 3; ++k) words.at[k] = from[k];
        return words;
      },
      [&](int i, const Words& words) {
        const int row = row_of(i), pair = pair_of(i, row);
        uint2 both[2] = {};
        if (exists(row, pair)) {
          both[0] = make_uint2(words.at[0], words.at[1] & 0xffff);
          both[1] = make_uint2(__byte_perm(words.at[1], words.at[2], 0x5432), words.at[2] >> 16);
        }
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int pixel = 2 * pair + k - first_column;
          if (pixel < 0 || pixel >= pixels) continue;
          unsigned char* const at = to + row * row_bytes + pixel * a.pixel_channels * 2;
          if (a.pixel_channels == 4)
            *reinterpret_cast<uint2*>(at) = both[k];
          else
            *reinterpret_cast<uint4*>(at) = make_uint4(both[k].x, both[k].y, 0, 0);
        }
      });
}

__device__ void load_elements(const FirstConv& a, int image, int first_row, int first_column,
                              unsigned char* to) {
  const auto* x = static_cast<const std::uint16_t*>(a.x);
  const int per_chunk = vector / a.pixel_channels;
  copy<4>(
      static_cast<int>(threadIdx.x), first_threads, a.rows * a.row_chunks,
      [&](int i) {
        const int row = i / a.row_chunks, chunk = i - row * a.row_chunks;
        const int y = first_row + row;
        const bool exists = y >= 0 && y < a.h;
        return padded_chunk(
            x + (static_cast<std::int64_t>(image) * a.h + (exists ? y : 0)) * a.w * a.c,
            first_column + chunk * per_chunk, a.pixel_channels, a.c, exists ? a.w : 0);
      },
      [&](int i, const uint4& values) {
        ptx::store_chunk(ptx::shared_address(to) + i * 16, values);
      });
}

template <class T, int Columns, Loads how>
__global__ void __launch_bounds__(first_threads, 3)
    first_conv_kernel(const __grid_constant__ FirstConv a) {
  using Box = Tile<T, warpgroup_rows, Columns>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int warpgroup =
      __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / warpgroup_threads, 0);
  unsigned char* const box = memory + warpgroup * Box::bytes;
  unsigned char* const weight = memory + 2 * Box::bytes;
  unsigned char* const pixels = weight + a.weight_chunks(Columns) * 16;
  const bool leads = threadIdx.x % warpgroup_threads == 0;
  const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
  if (threadIdx.x == 0) ptx::prefetch_map(&a.y);
  wait_for_previous();
  let_next_begin();
  int loaded = -1;                  // first channel of the weight that is in shared memory
  std::uint32_t bias[Columns / 8];  // of two neighboring channels each
  for (int tile = static_cast<int>(blockIdx.x); tile < a.tiles;
       tile += static_cast<int>(gridDim.x)) {
    const int channel = tile % a.channel_tiles * Columns, place = tile / a.channel_tiles;
    const int column = place % a.pixel_tiles * tile_pixels, line = place / a.pixel_tiles;
    const int row = line % a.row_tiles * a.tile_rows, image = line / a.row_tiles;
    __syncthreads();  // the last tile is multiplied
    if (channel != loaded) {
      load_weight<Columns>(a, channel, weight);
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j) {
        const int at = channel + 8 * j + first_column();
        bias[j] = a.bias != nullptr && at < a.channels
                      ? *reinterpret_cast<const std::uint32_t*>(static_cast<const T*>(a.bias) + at)
                      : 0;
      }
      loaded = channel;
    }
    const int first_row = row * a.stride[0] - a.padding[0];
    const int first_column = column * a.stride[1] - a.padding[1];
    if constexpr (how == Loads::pairs)
      load_pixel_pairs(a, image, first_row, first_column, pixels);
    else
      load_elements(a, image, first_row, first_column, pixels);
    ptx::fence_shared_for_async();
    __syncthreads();
    const int own_column = column + warpgroup * warpgroup_rows;
    if (own_column >= a.out_w) continue;
    for (int i = 0; i < a.tile_rows && row + i < a.out_h; ++i) {
      float d[Columns / 2];
      // Addresses in operands count 16 bytes.
      std::uint64_t line = plain_operand(ptx::shared_address(pixels), 16) +
                           warpgroup * warpgroup_rows + i * a.stride[0] * a.row_chunks;
      std::uint64_t with = plain_operand(ptx::shared_address(weight), Columns * 16);
      for (int r = 0; r < a.kernel[0]; ++r, line += a.dilation * a.row_chunks)
        for (int step = 0; step < a.depth_steps; ++step, with += 2 * Columns) {
          ptx::wgmma_fence();
          ptx::wgmma<T, Columns, false, false>(d, line + 2 * step, with, r != 0 || step != 0);
        }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::pin(d);
      if (leads) ptx::store_wait_read<0>();
      ptx::named_sync(1 + warpgroup, warpgroup_threads);
#pragma unroll
      for (int j = 0; j < Columns / 8; j += 2) {
        float values[8];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          values[2 * w] = d[4 * j + 2 * w] + half_of_word<T>(bias[j + w / 2], 0);
          values[2 * w + 1] = d[4 * j + 2 * w + 1] + half_of_word<T>(bias[j + w / 2], 1);
        }
        std::uint32_t packed[4];
        pack_with_epilogue<T>(a.epilogue, values, packed);
        ptx::store_matrices(
            Box::chunk(ptx::shared_address(box), warp * 16 + (lane & 15), j + (lane >> 4)),
            packed[0], packed[1], packed[2], packed[3]);
      }
      ptx::fence_shared_for_async();
      ptx::named_sync(1 + warpgroup, warpgroup_threads);
      if (leads) {
        ptx::store_box(&a.y, box, channel, own_column, image * a.out_h + row + i);
        ptx::store_commit();
      }
    }
  }
  if (leads) ptx::store_wait<0>();
}

FirstConv described(const ConvProblem& p, const ConvPointers& o, int columns, int tile_rows) {
  const ConvGeometry& g = p.geometry;
  const auto parts = [](std::int64_t extent, std::int64_t part) {
    return static_cast<int>((extent + part - 1) / part);
  };
  FirstConv a{};
  a.x = o.x;
  a.weight = o.weight;
  a.bias = o.bias;
  a.epilogue = p.epilogue;
  a.h = static_cast<int>(p.x.h);
  a.w = static_cast<int>(p.x.w);
  a.c = static_cast<int>(p.x.c);
  a.out_h = static_cast<int>(p.y.h);
  a.out_w = static_cast<int>(p.y.w);
  a.channels = static_cast<int>(p.y.c);
  a.kernel[0] = static_cast<int>(p.weight.h);
  a.kernel[1] = static_cast<int>(p.weight.w);
  for (std::size_t d = 0; d < 2; ++d) {
    a.stride[d] = static_cast<int>(g.stride[d]);
    a.padding[d] = static_cast<int>(g.padding[d]);
  }
  a.dilation = static_cast<int>(g.dilation[0]);
  a.pixel_channels = vector / a.stride[1];
  a.depth_steps = parts(a.kernel[1] * a.pixel_channels, 16);
  a.tile_rows = tile_rows;
  a.rows = (tile_rows - 1) * a.stride[0] + (a.kernel[0] - 1) * a.dilation + 1;
  a.row_chunks = tile_pixels + 2 * a.depth_steps;
  // One pair more, since a row may begin with the second of a pair.
  a.row_runs = parts(a.row_chunks * (vector / a.pixel_channels) / 2 + 1, warp_threads);
  a.row_of_run = 1.0f / static_cast<float>(a.row_runs);
  a.row_tiles = parts(a.out_h, tile_rows);
  a.pixel_tiles = parts(a.out_w, tile_pixels);
  a.channel_tiles = parts(a.channels, columns);
  a.tiles = static_cast<int>(p.y.n) * a.row_tiles * a.pixel_tiles * a.channel_tiles;
  return a;
}

std::size_t shared_bytes(const FirstConv& a, int columns) {
  return static_cast<std::size_t>(2 * warpgroup_rows * columns * 2 +
                                  (a.weight_chunks(columns) + a.rows * a.row_chunks) * 16);
}

// The problem in tiles of as many rows as make the block that has most to do the shortest: a row of
// the result takes about as long as eight of the image take to load.
FirstConv balanced(const ConvProblem& p, const ConvPointers& o, int columns, int blocks) {
  FirstConv best{};
  std::int64_t least = 0;
  for (int rows = 1; rows <= most_tile_rows; ++rows) {
    const FirstConv a = described(p, o, columns, rows);
    const std::int64_t rounds = (a.tiles + blocks - 1) / blocks;
    const std::int64_t time = rounds * (8 * rows + a.rows);
    if (rows > 1 && time >= least) continue;
    best = a;
    least = time;
  }
  return best;
}

template <class T, int Columns>
void run(const ConvProblem& p, const ConvPointers& o, int multiprocessors, cudaStream_t stream) {
  const int blocks = 3 * multiprocessors;
  FirstConv a = balanced(p, o, Columns, blocks);
  a.y = box_map(o.y, {p.y.c, p.y.w, p.y.n * p.y.h}, {Columns, warpgroup_rows, 1});
  const std::size_t bytes = shared_bytes(a, Columns);
  const auto kernel = p.x.c == 3 && p.x.w % 2 == 0 ? first_conv_kernel<T, Columns, Loads::pairs>
                                                   : first_conv_kernel<T, Columns, Loads::elements>;
  allow_shared_memory(kernel, bytes);
  launch_early(kernel, dim3(static_cast<unsigned>(std::min(a.tiles, blocks))), first_threads, bytes,
               stream, a);
  check(last_error(), "a convolution");
}

}  // namespace

bool takes_few_channels(const ConvProblem& p) {
  const ConvGeometry& g = p.geometry;
  return (g.stride[1] == 1 ? p.x.c <= 8 : g.stride[1] == 2 && p.x.c <= 4) && g.dilation[1] == 1 &&
         !p.residual && p.y.c % vector == 0 &&
         shared_bytes(described(p, {}, 64, most_tile_rows), 64) <= 100000;
}

void conv_of_few_channels(const ConvProblem& p, const ConvTiles& tiles, const ConvPointers& o,
                          int multiprocessors, Stream stream) {
  const auto with_columns = [&]<class T>() {
    if (tiles.columns == 32)
      run<T, 32>(p, o, multiprocessors, stream);
    else
      run<T, 64>(p, o, multiprocessors, stream);
  };
  dispatch_16_bit(p.dtype, with_columns);
}

}  // namespace ridge::gpu::sm90
