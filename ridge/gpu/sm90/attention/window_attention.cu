// Attention within windows of up to 64 positions and heads of 32 columns. A block takes one head of
// some windows, one after another: a warp 16 of the queries, all keys. While a window is computed,
// the copies of the next are under way. The bias of the pairs that a thread computes stays in its
// registers: it is the same in all windows.

#include <cmath>

#include "ridge/gpu/device/matrix_instructions.h"
#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/kernels/attention/window_sm90.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/warp_mma.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int window_rows = 64;  // positions of a window, and zeros
constexpr int window_warps = window_rows / 16;
constexpr int window_threads = window_warps * warp_threads;
constexpr int head_columns = 32;
constexpr int row_chunks = head_columns / 8;  // of 16 bytes
// The elements of a row in shared memory: such that eight rows begin in different banks.
constexpr int row_elements = head_columns + 8;
constexpr int column_tiles = head_columns / 8;
constexpr int blocks_per_multiprocessor = 4;

template <class T>
struct WindowStage {
  T part[3][window_rows * row_elements];  // queries, keys, values
};

__device__ void copy_chunk(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(ptx::shared_address(shared)),
               "l"(global)
               : "memory");
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// At most Pending of this thread's groups of copies are under way.
template <int Pending>
__device__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Where a window lies: which is found once for each, by all threads alike.
struct WindowPlace {
  std::int64_t first_pixel;  // of its image
  int a, b, seams;

  __device__ WindowPlace(const WindowGrid& grid, int window) {
    const int within = window % grid.windows();
    first_pixel = static_cast<std::int64_t>(window / grid.windows()) * (grid.height * grid.width);
    a = within / grid.columns;
    b = within % grid.columns;
    seams = grid.seams(within);
  }
  // The pixel of position (i, j), counted through the batch.
  __device__ std::int64_t pixel(const WindowGrid& grid, int i, int j) const {
    return first_pixel + grid.pixel(a, b, i, j);
  }
};

// `KeyTiles`: as many as hold the positions of a window.
template <class T, int KeyTiles>
class WindowBlock {
  // Chunks of 16 bytes that a thread copies of a window's queries, and that a lane writes.
  static constexpr int copies = window_rows * row_chunks / window_threads;
  static constexpr int writes = 16 * row_chunks / warp_threads;

 public:
  __device__ WindowBlock(WindowStage<T> (&stages)[2], const WindowShape& shape, const T* qkv, T* y)
      : stages_(stages),
        shape_(shape),
        positions_(shape.grid.positions()),
        first_query_(static_cast<int>(threadIdx.x) / warp_threads * 16),
        lane_(static_cast<int>(threadIdx.x) % warp_threads),
        width_(shape.n_heads * head_columns),
        qkv_(qkv + blockIdx.x * head_columns + threadIdx.x % row_chunks * 8),
        y_(y + blockIdx.x * head_columns + threadIdx.x % row_chunks * 8) {}

  // What lies beyond the last position must be numbers: probabilities of 0 times these are added.
  __device__ void clear() {
    auto* const words = reinterpret_cast<std::uint32_t*>(&stages_[0]);
    constexpr int count = sizeof(WindowStage<T>) * 2 / sizeof(std::uint32_t);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += window_threads) words[i] = 0;
  }

  // The bias of keys beyond the last position is -infinity.
  __device__ void load_bias(const T* bias) {
    const T* const own = bias + static_cast<std::int64_t>(blockIdx.x) * positions_ * positions_;
#pragma unroll
    for (int j = 0; j < KeyTiles; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto at = [&](int e) {
          const int p = query(half), q = key(j, e);
          if (q >= positions_) return -INFINITY;
          return p < positions_ ? load(own + p * positions_ + q) : 0.0f;
        };
        bias_[j][half] = ptx::pack<T>(at(0), at(1));
      }
  }

  __device__ void copy(const WindowPlace& place, int stage) {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const int p = static_cast<int>(threadIdx.x) / row_chunks + i * (window_threads / row_chunks);
      if (p >= positions_) break;
      const T* from = qkv_ + pixel(place, p) * 3 * width_;
      T* const to = &stages_[stage].part[0][p * row_elements + threadIdx.x % row_chunks * 8];
#pragma unroll
      for (int part = 0; part < 3; ++part)
        copy_chunk(to + part * window_rows * row_elements, from + part * width_);
    }
    commit_copies();
  }

  __device__ void attend(const WindowPlace& place, int stage) {
    WindowStage<T>& at = stages_[stage];
    float s[KeyTiles][4] = {};
    add_scores(s, at);
    scale_scores(s);
    if (place.seams != 0) hide_other_parts(s, place.seams);
    float factor[2];
    to_probabilities(s, factor);
    float out[column_tiles][4] = {};
    add_values(out, s, at);
    write(out, factor, at.part[0], place);
  }

 private:
  __device__ int query(int half) const { return first_query_ + lane_ / 4 + 8 * half; }
  __device__ int key(int tile, int e) const { return tile * 8 + lane_ % 4 * 2 + e; }
  __device__ std::int64_t pixel(const WindowPlace& place, int p) const {
    const int i = p / shape_.grid.side;
    return place.pixel(shape_.grid, i, p - i * shape_.grid.side);
  }

  // s += q k^T.
  __device__ void add_scores(float (&s)[KeyTiles][4], const WindowStage<T>& at) const {
    std::uint32_t a[head_columns / 16][4];
#pragma unroll
    for (int step = 0; step < head_columns / 16; ++step)
      ptx::load_matrices(
          a[step], ptx::shared_address(&at.part[0][(first_query_ + lane_ % 16) * row_elements +
                                                   step * 16 + lane_ / 16 * 8]));
#pragma unroll
    for (int j = 0; j < KeyTiles; ++j) {
      // Both steps of 16 columns of eight keys.
      std::uint32_t b[4];
      ptx::load_matrices(
          b, ptx::shared_address(&at.part[1][(j * 8 + lane_ % 8) * row_elements + lane_ / 8 * 8]));
      mma<T>(s[j], a[0], b[0], b[1]);
      mma<T>(s[j], a[1], b[2], b[3]);
    }
  }

  __device__ void scale_scores(float (&s)[KeyTiles][4]) const {
#pragma unroll
    for (int j = 0; j < KeyTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[j][i] = fmaf(s[j][i], shape_.scale, half_of_word<T>(bias_[j][i / 2], i % 2));
  }

  // A query sees the keys of its own part of the image.
  __device__ void hide_other_parts(float (&s)[KeyTiles][4], int seams) const {
    const WindowGrid& grid = shape_.grid;
    const int parts[2] = {grid.part(query(0)), grid.part(query(1))};
#pragma unroll
    for (int j = 0; j < KeyTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (((grid.part(key(j, i % 2)) ^ parts[i / 2]) & seams) != 0) s[j][i] = -INFINITY;
  }

  // exp(s - max), and of each row one over the sum.
  __device__ void to_probabilities(float (&s)[KeyTiles][4], float (&factor)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = -INFINITY;
#pragma unroll
      for (int j = 0; j < KeyTiles; ++j)
        max = fmaxf(max, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
      max = row_max(max);
      const float shift = max == -INFINITY ? 0.0f : max * log2e;  // of rows that are no positions
      float sum = 0;
#pragma unroll
      for (int j = 0; j < KeyTiles; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[j][2 * half + e];
          sum += x = ptx::exp2(fmaf(x, log2e, -shift));
        }
      factor[half] = 1 / row_sum(sum);
    }
  }

  // out += p v.
  __device__ void add_values(float (&out)[column_tiles][4], const float (&p)[KeyTiles][4],
                             const WindowStage<T>& at) const {
#pragma unroll
    for (int step = 0; step < (KeyTiles + 1) / 2; ++step) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int tile = 2 * step + i / 2;
        a[i] = tile < KeyTiles ? ptx::pack<T>(p[tile][2 * (i % 2)], p[tile][2 * (i % 2) + 1]) : 0;
      }
#pragma unroll
      for (int j = 0; j < column_tiles; j += 2) {
        std::uint32_t b[4];
        const int k = step * 16 + lane_ % 16, c = j * 8 + lane_ / 16 * 8;
        ptx::load_matrices_transposed(b, ptx::shared_address(&at.part[2][k * row_elements + c]));
        mma<T>(out[j], a, b[0], b[1]);
        mma<T>(out[j + 1], a, b[2], b[3]);
      }
    }
  }

  // By way of shared memory, where this warp's queries were, so that 16 bytes are written at once.
  __device__ void write(const float (&out)[column_tiles][4], const float (&factor)[2], T* rows,
                        const WindowPlace& place) const {
    __syncwarp();  // other lanes have read their queries
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < column_tiles; ++j)
        *reinterpret_cast<std::uint32_t*>(rows + query(half) * row_elements + key(j, 0)) =
            ptx::pack<T>(out[j][2 * half] * factor[half], out[j][2 * half + 1] * factor[half]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < writes; ++i) {
      const int p = first_query_ + lane_ / row_chunks + i * (warp_threads / row_chunks);
      if (p >= positions_) break;
      *reinterpret_cast<uint4*>(y_ + pixel(place, p) * width_) =
          *reinterpret_cast<const uint4*>(rows + p * row_elements + lane_ % row_chunks * 8);
    }
  }

  WindowStage<T> (&stages_)[2];
  const WindowShape& shape_;
  const int positions_, first_query_, lane_, width_;
  const T* const qkv_;  // of the head, and of the thread's chunk of a row
  T* const y_;
  std::uint32_t bias_[KeyTiles][2];  // pairs of keys of the thread's two queries
};

template <class T, int KeyTiles>
__global__ void __launch_bounds__(window_threads, blocks_per_multiprocessor)
    window_kernel(const __grid_constant__ WindowShape shape, const T* qkv, const T* bias, T* y) {
  __shared__ __align__(16) WindowStage<T> stages[2];
  WindowBlock<T, KeyTiles> block(stages, shape, qkv, y);
  block.clear();
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  const int stride = static_cast<int>(gridDim.y);
  int window = static_cast<int>(blockIdx.y);
  WindowPlace place(shape.grid, window);
  block.copy(place, 0);
  block.load_bias(bias);
  for (int stage = 0; window < shape.windows; stage ^= 1) {
    window += stride;
    const WindowPlace next(shape.grid, window);
    if (window < shape.windows)
      block.copy(next, stage ^ 1);
    else
      commit_copies();
    await_copies<1>();
    __syncthreads();
    block.attend(place, stage);
    __syncthreads();  // the stage may be written over
    place = next;
  }
}

template <class T, int KeyTiles>
void run(const Context& gpu, const WindowShape& shape, const void* qkv, const void* bias, void* y) {
  const int blocks = gpu.card.multiprocessors * blocks_per_multiprocessor;
  const int groups = std::max(1, std::min(shape.windows, blocks / shape.n_heads));
  launch_early(window_kernel<T, KeyTiles>,
               dim3(static_cast<unsigned>(shape.n_heads), static_cast<unsigned>(groups)),
               window_threads, 0, gpu.stream, shape, static_cast<const T*>(qkv),
               static_cast<const T*>(bias), static_cast<T*>(y));
  check(last_error(), "window attention");
}

// Windows of 7 x 7 leave the last eight of 64 keys out.
template <class T>
void run(const Context& gpu, const WindowShape& shape, const void* qkv, const void* bias, void* y) {
  if (shape.grid.positions() <= window_rows - 8)
    run<T, window_rows / 8 - 1>(gpu, shape, qkv, bias, y);
  else
    run<T, window_rows / 8>(gpu, shape, qkv, bias, y);
}

}  // namespace
}  // namespace ridge::gpu::sm90

namespace ridge::gpu {

bool window_attention_sm90_supports(const Context& gpu, DType dtype, const WindowShape& shape) {
  return gpu.card.is_sm90() && is_16_bit(dtype) && shape.head_dim == sm90::head_columns &&
         shape.grid.positions() <= sm90::window_rows;
}

void window_attention_sm90(const Context& gpu, DType dtype, const WindowShape& shape,
                           const void* qkv, const void* bias, void* y) {
  dispatch_16_bit(dtype, [&]<class T>() { sm90::run<T>(gpu, shape, qkv, bias, y); });
}

}  // namespace ridge::gpu
