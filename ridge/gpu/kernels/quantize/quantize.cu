#include "ridge/ops/quantize.h"

#include <type_traits>
#include <utility>

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/quantize/float8.h"
#include "ridge/gpu/kernels/quantize/quantize.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge {
namespace {

using namespace gpu;

constexpr int side = 8;  // neighbors that a thread takes at once

// What is quantized: a matrix of `parts` side by side, each of so many columns. at() gives an
// element of every part; eight() gives eight neighbors of every part, of which columns and
// addresses must be multiples, given what ahead() has fetched of them before.
template <class T>
struct Tensor {
  using Element = T;
  using Ahead = Held<T, side>;
  static constexpr int parts = 1;
  const T* x;
  std::int64_t columns;

  bool is_packed() const { return columns % side == 0 && is_aligned(x, side * sizeof(T)); }
  __device__ void at(std::int64_t row, std::int64_t column, float (&out)[parts]) const {
    out[0] = load(&x[row * columns + column]);
  }
  __device__ Ahead ahead(std::int64_t row, std::int64_t column) const {
    return *reinterpret_cast<const Ahead*>(x + row * columns + column);
  }
  __device__ void eight(const Ahead& held, std::int64_t, std::int64_t,
                        float (&out)[parts][side]) const {
#pragma unroll
    for (int i = 0; i < side; ++i) out[0][i] = held[i];
  }
};

// Nothing is fetched ahead of what is computed: that would take too many registers.
struct Nothing {};

// y = silu(gate) * up.
template <class T>
struct SwiGluResult {
  using Element = T;
  using Ahead = Nothing;
  static constexpr int parts = 1;
  const T* packed;
  std::int64_t columns;

  bool is_packed() const { return columns % side == 0 && is_aligned(packed, side * sizeof(T)); }
  __device__ static float of(float gate, float up) { return gate * sigmoid(gate) * up; }
  __device__ void at(std::int64_t row, std::int64_t column, float (&out)[parts]) const {
    const T* gate = packed + row * 2 * columns + column;
    out[0] = of(load(gate), load(gate + columns));
  }
  __device__ Ahead ahead(std::int64_t, std::int64_t) const { return {}; }
  __device__ void eight(Ahead, std::int64_t row, std::int64_t column,
                        float (&out)[parts][side]) const {
    const T* at = packed + row * 2 * columns + column;
    float gate[side], up[side];
    load_pack<side>(at, gate);
    load_pack<side>(at + columns, up);
#pragma unroll
    for (int i = 0; i < side; ++i) out[0][i] = of(gate[i], up[i]);
  }
};

// dgate and dup. With a scale, y in f16 as well, by those who quantize to that.
template <class T>
struct SwiGluGradient {
  using Element = T;
  using Ahead = Nothing;
  static constexpr int parts = 2;
  const T *dy, *packed;
  std::int64_t columns;
  const float* y_scale = nullptr;
  Float16* y = nullptr;

  bool is_packed() const {
    return columns % side == 0 && is_aligned(packed, side * sizeof(T)) &&
           is_aligned(dy, side * sizeof(T)) && is_aligned(y, side * sizeof(Float16));
  }
  // Writes y of N neighbors, whose gate and up come from the cache again.
  template <int N>
  __device__ void write_result(std::int64_t row, std::int64_t column) const {
    if (!y) return;
    const T* at = packed + row * 2 * columns + column;
    const float inverse = 1.0f / *y_scale;
    float gate[N], up[N];
    load_pack<N>(at, gate);
    load_pack<N>(at + columns, up);
#pragma unroll
    for (int i = 0; i < N; ++i) gate[i] = SwiGluResult<T>::of(gate[i], up[i]) * inverse;
    store_pack<N>(y + row * columns + column, gate);
  }
  __device__ static void of(float d, float gate, float up, float& dgate, float& dup) {
    const float s = sigmoid(gate), silu = gate * s;
    dgate = d * up * (s + silu * (1.0f - s));
    dup = d * silu;
  }
  __device__ void at(std::int64_t row, std::int64_t column, float (&out)[parts]) const {
    const T* gate = packed + row * 2 * columns + column;
    of(load(&dy[row * columns + column]), load(gate), load(gate + columns), out[0], out[1]);
  }
  __device__ Ahead ahead(std::int64_t, std::int64_t) const { return {}; }
  __device__ void eight(Ahead, std::int64_t row, std::int64_t column,
                        float (&out)[parts][side]) const {
    const T* at = packed + row * 2 * columns + column;
    float d[side], gate[side], up[side];
    load_pack<side>(dy + row * columns + column, d);
    load_pack<side>(at, gate);
    load_pack<side>(at + columns, up);
#pragma unroll
    for (int i = 0; i < side; ++i) of(d[i], gate[i], up[i], out[0][i], out[1][i]);
  }
};

// q, k and v of attention side by side, rotated as ScaledHeads says.
struct RotatedHeads {
  using Element = float;
  using Ahead = Nothing;
  static constexpr int parts = 1;
  ScaledHeads heads;
  std::int64_t columns;

  bool is_packed() const {
    const auto packed = [](const float* x, std::int64_t stride) {
      return is_aligned(x, 4 * sizeof(float)) && stride % 4 == 0;
    };
    return heads.head_dim % side == 0 && packed(heads.q, heads.q_stride) &&
           packed(heads.k, heads.k_stride) && packed(heads.v, heads.v_stride);
  }
  // Where column c of a row begins, and which columns are rotated.
  __device__ const float* from(std::int64_t row, int c) const {
    if (c < heads.q_columns) return heads.q + row * heads.q_stride + c;
    c -= heads.q_columns;
    if (c < heads.kv_columns) return heads.k + row * heads.k_stride + c;
    return heads.v + row * heads.v_stride + c - heads.kv_columns;
  }
  __device__ bool rotates(int c) const {
    return heads.rotations && c < heads.q_columns + heads.kv_columns;
  }
  __device__ const float2* rotation(std::int64_t row, int c) const {
    return reinterpret_cast<const float2*>(heads.rotations) +
           (row % heads.seq * heads.head_dim + c % heads.head_dim) / 2;
  }
  __device__ static void rotate(float& x, float& y, float2 angle) {
    const float a = x, b = y;
    x = a * angle.x - b * angle.y;
    y = a * angle.y + b * angle.x;
  }
  __device__ void at(std::int64_t row, std::int64_t column, float (&out)[parts]) const {
    const int c = static_cast<int>(column), even = c & ~1;
    if (!rotates(c)) {
      out[0] = *from(row, c);
      return;
    }
    float pair[2] = {*from(row, even), *from(row, even + 1)};
    rotate(pair[0], pair[1], *rotation(row, even));
    out[0] = pair[c - even];
  }
  __device__ Ahead ahead(std::int64_t, std::int64_t) const { return {}; }
  __device__ void eight(Ahead, std::int64_t row, std::int64_t column,
                        float (&out)[parts][side]) const {
    const int c = static_cast<int>(column);
    const float* x = from(row, c);
#pragma unroll
    for (int i = 0; i < side; i += 4) load_pack<4>(x + i, reinterpret_cast<float(&)[4]>(out[0][i]));
    if (!rotates(c)) return;
    const float2* angles = rotation(row, c);
#pragma unroll
    for (int i = 0; i < side; i += 2) rotate(out[0][i], out[0][i + 1], angles[i / 2]);
  }
};

constexpr int amax_threads = 512;
constexpr int amax_blocks_per_multiprocessor = 4;
constexpr int amax_unroll = 4;  // accesses that a thread has in flight

// partial[block] = the largest magnitude of the block's share of n elements, NaN apart.
template <class T>
__global__ void __launch_bounds__(amax_threads)
    tensor_amax(std::int64_t n, const T* x, float* partial) {
  begin_kernel();
  constexpr std::int64_t share = std::int64_t{amax_threads} * amax_unroll * side;
  float most = 0;
  for (std::int64_t begin = blockIdx.x * share; begin < n; begin += gridDim.x * share) {
    Held<T, side> packs[amax_unroll];
#pragma unroll
    for (int k = 0; k < amax_unroll; ++k) {
      const std::int64_t i = begin + (k * amax_threads + static_cast<int>(threadIdx.x)) * side;
      if (i < n)
        packs[k] = *reinterpret_cast<const Held<T, side>*>(x + i);
      else
        packs[k] = {};
    }
#pragma unroll
    for (int k = 0; k < amax_unroll; ++k)
#pragma unroll
      for (int i = 0; i < side; ++i) most = fmaxf(most, fabsf(packs[k][i]));
  }
  most = reduce_block<Max>(most);
  if (threadIdx.x == 0) partial[blockIdx.x] = most;
}

// The same of what has to be computed first, or is not aligned: a block takes whole rows.
template <bool packed, class Source>
__global__ void __launch_bounds__(amax_threads)
    rows_amax(std::int64_t rows, Source source, float* partial) {
  begin_kernel();
  constexpr int N = packed ? side : 1;
  float most = 0;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (std::int64_t c = threadIdx.x * N; c < source.columns; c += amax_threads * N) {
      float x[Source::parts][N];
      if constexpr (packed) {
        source.eight(source.ahead(row, c), row, c, x);
      } else {
        float one[Source::parts];
        source.at(row, c, one);
        for (int p = 0; p < Source::parts; ++p) x[p][0] = one[p];
      }
#pragma unroll
      for (int p = 0; p < Source::parts; ++p)
#pragma unroll
        for (int i = 0; i < N; ++i) most = fmaxf(most, fabsf(x[p][i]));
    }
  most = reduce_block<Max>(most);
  if (threadIdx.x == 0) partial[blockIdx.x] = most;
}

// The blocks' magnitudes, and where what they make goes.
template <class Q>
struct Results {
  const float* partial;
  int partials;
  float* scale;
  Q *plain, *transposed;  // null where not wanted
};

// What to multiply with. All threads must call it.
template <class Q>
__device__ float inverse_scale(const Results<Q>& results, bool writes) {
  float most = 0;
  for (int i = static_cast<int>(threadIdx.x); i < results.partials;
       i += static_cast<int>(blockDim.x))
    most = fmaxf(most, results.partial[i]);
  const float scale = quantization_scale(reduce_block<Max>(most), largest_of<Q>());
  if (writes && threadIdx.x == 0) *results.scale = scale;
  return 1.0f / scale;
}

// A block takes a square of so many rows and columns of every part; a thread of it 8 rows of 8.
constexpr int tile = 128;
constexpr int tile_threads = tile / side * (tile / side);

// The part of a transposed tile between registers and memory: rows of 128 bytes in units of 8, of
// which row c has unit u at place u ^ c / 8. So the threads that write a column of units at once,
// whose rows are 8 apart, meet no bank of shared memory twice, and neither do those that read rows.
struct TransposedTile {
  uint2 unit[tile][tile / side];
  __device__ uint2& at(int column, int u) { return unit[column][u ^ column / side]; }
};

// 8 rows of 8 bytes, transposed.
__device__ inline void transpose_square(uint2 (&rows)[side]) {
  std::uint32_t corner[4][4];  // top left and right, bottom left and right
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    corner[0][i] = rows[i].x, corner[1][i] = rows[i].y;
    corner[2][i] = rows[4 + i].x, corner[3][i] = rows[4 + i].y;
  }
#pragma unroll
  for (auto& square : corner) transpose_bytes(square);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rows[i] = {corner[0][i], corner[2][i]};
    rows[4 + i] = {corner[1][i], corner[3][i]};
  }
}

// Writes this thread's square to q^T[columns, rows] through the tile, whose corner in x is at row
// `top`; row 0 of the tile's transpose goes to `out`.
template <class Q>
__device__ void write_transposed(uint2 (&bytes)[side], TransposedTile& shared, int u, int v,
                                 std::int64_t top, std::int64_t rows, std::int64_t columns,
                                 Q* out) {
  transpose_square(bytes);
#pragma unroll
  for (int j = 0; j < side; ++j) shared.at(v * side + j, u) = bytes[j];
  __syncthreads();
  // Now 8 threads to a column, each with two units.
  constexpr int per_column = tile / (2 * side), per_pass = tile_threads / per_column;
  const int pair = static_cast<int>(threadIdx.x) % per_column;
  const std::int64_t row = top + 2 * side * pair;
#pragma unroll
  for (int pass = 0; pass < tile / per_pass; ++pass) {
    const int c = pass * per_pass + static_cast<int>(threadIdx.x) / per_column;
    if (c >= columns || row >= rows) continue;
    const uint2 first = shared.at(c, 2 * pair), second = shared.at(c, 2 * pair + 1);
    *reinterpret_cast<uint4*>(out + c * rows + row) = {first.x, first.y, second.x, second.y};
  }
}

// For extents that are multiples of 16 and 8. The last tiles come first: what was read last to find
// the largest magnitude is still in the cache.
template <class Source, class Q>
__global__ void __launch_bounds__(tile_threads, 3)
    quantize_tiles(std::int64_t rows, Source source, Results<Q> results) {
  begin_kernel();
  __shared__ __align__(16) TransposedTile shared;
  const std::int64_t across = (source.columns + tile - 1) / tile;
  const std::int64_t index = gridDim.x - 1 - blockIdx.x;
  const std::int64_t top = index / across * tile, left = index % across * tile;
  const int u = static_cast<int>(threadIdx.x) / (tile / side);  // of the tile's 16 bands of rows
  const int v = static_cast<int>(threadIdx.x) % (tile / side);  // and of columns
  const std::int64_t row = top + u * side, column = left + v * side;
  const bool inside = row < rows && column < source.columns;
  // What lies outside is not written, but read elsewhere: loads without a branch may overlap.
  const std::int64_t from_row = inside ? row : 0, from_column = inside ? column : 0;
  typename Source::Ahead ahead[side];
#pragma unroll
  for (int i = 0; i < side; ++i) ahead[i] = source.ahead(from_row + i, from_column);
  const float inverse = inverse_scale(results, blockIdx.x == 0);
  constexpr int parts = Source::parts;
  uint2 bytes[parts][side];
#pragma unroll
  for (int i = 0; i < side; ++i) {
    float x[parts][side];
    source.eight(ahead[i], from_row + i, from_column, x);
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      float low[4], high[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) low[j] = x[p][j] * inverse, high[j] = x[p][4 + j] * inverse;
      bytes[p][i] = {pack_float8<Q>(low), pack_float8<Q>(high)};
    }
  }
  if (results.plain && inside)
#pragma unroll
    for (int i = 0; i < side; ++i)
#pragma unroll
      for (int p = 0; p < parts; ++p)
        *reinterpret_cast<uint2*>(results.plain + ((row + i) * parts + p) * source.columns +
                                  column) = bytes[p][i];
  if (!results.transposed) return;
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    if (p > 0) __syncthreads();  // the tile has been read
    write_transposed(bytes[p], shared, u, v, top, rows, source.columns - left,
                     results.transposed + (p * source.columns + left) * rows);
  }
}

// To f16, of packed rows: each thread takes some packs of every part, again the last of them first.
constexpr int halves_threads = 256;
constexpr int halves_unroll = 2;

template <class Source>
__global__ void __launch_bounds__(halves_threads)
    quantize_to_halves(std::int64_t rows, Source source, Results<Float16> results) {
  begin_kernel();
  const std::int64_t across = source.columns / side, packs = rows * across;
  const std::int64_t first =
      static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * halves_threads * halves_unroll +
      static_cast<int>(threadIdx.x);
  typename Source::Ahead ahead[halves_unroll];
#pragma unroll
  for (int k = 0; k < halves_unroll; ++k) {
    const std::int64_t pack = first + k * halves_threads;
    if (pack < packs) ahead[k] = source.ahead(pack / across, pack % across * side);
  }
  const float inverse = inverse_scale(results, blockIdx.x == 0);
#pragma unroll
  for (int k = 0; k < halves_unroll; ++k) {
    const std::int64_t pack = first + k * halves_threads;
    if (pack >= packs) continue;
    const std::int64_t row = pack / across, column = pack % across * side;
    float x[Source::parts][side];
    source.eight(ahead[k], row, column, x);
#pragma unroll
    for (int p = 0; p < Source::parts; ++p) {
#pragma unroll
      for (float& value : x[p]) value *= inverse;
      store_pack<side>(results.plain + (row * Source::parts + p) * source.columns + column, x[p]);
    }
    if constexpr (Source::parts == 2) source.template write_result<side>(row, column);
  }
}

template <class Q>
__device__ inline void store_quantized(Q* to, float x) {
  if constexpr (sizeof(Q) == 1)
    *to = Q(x);
  else
    store(to, x);
}

// For any extents and alignment: a thread takes an element of every part.
template <class Source, class Q>
__global__ void quantize_elements(std::int64_t rows, Source source, Results<Q> results) {
  begin_kernel();
  const float inverse = inverse_scale(results, blockIdx.x == 0);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * source.columns) return;
  const std::int64_t row = i / source.columns, column = i % source.columns;
  float x[Source::parts];
  source.at(row, column, x);
  for (int p = 0; p < Source::parts; ++p) {
    const float q = x[p] * inverse;
    const std::int64_t c = p * source.columns + column;
    if (results.plain) store_quantized(results.plain + row * Source::parts * source.columns + c, q);
    if (results.transposed) store_quantized(results.transposed + c * rows + row, q);
  }
  if constexpr (Source::parts == 2) source.template write_result<1>(row, column);
}

unsigned most_amax_blocks(const Context& gpu) {
  return static_cast<unsigned>(gpu.card.multiprocessors) * amax_blocks_per_multiprocessor;
}

// Returns how many magnitudes there are.
template <class Source>
int launch_amax(const Context& gpu, std::int64_t rows, const Source& source, float* partial) {
  using T = typename Source::Element;
  const unsigned most = most_amax_blocks(gpu);
  if constexpr (std::is_same_v<Source, Tensor<T>>) {
    const std::int64_t n = rows * source.columns;
    if (n % side == 0 && is_aligned(source.x, side * sizeof(T))) {
      const unsigned blocks =
          std::min(most, blocks_for(n, std::int64_t{amax_threads} * amax_unroll * side));
      launch(gpu, tensor_amax<T>, dim3(blocks), dim3(amax_threads), 0, n, source.x, partial);
      return static_cast<int>(blocks);
    }
  }
  const unsigned blocks = std::min(most, blocks_for(rows, 1));
  const auto kernel = source.is_packed() ? rows_amax<true, Source> : rows_amax<false, Source>;
  launch(gpu, kernel, dim3(blocks), dim3(amax_threads), 0, rows, source, partial);
  return static_cast<int>(blocks);
}

// The kernel for whole packs and tiles, if these are such.
template <class Q, class Source>
bool launch_packed(const Context& gpu, std::int64_t rows, const Source& source,
                   const Results<Q>& results) {
  if (!source.is_packed()) return false;
  if constexpr (sizeof(Q) == 2) {
    if (!is_aligned(results.plain, side * sizeof(Q))) return false;
    launch(gpu, quantize_to_halves<Source>,
           dim3(blocks_for(rows * (source.columns / side), halves_threads * halves_unroll)),
           dim3(halves_threads), 0, rows, source, results);
  } else {
    if (rows % (2 * side) != 0 || !is_aligned(results.plain, side) ||
        !is_aligned(results.transposed, 2 * side))
      return false;
    launch(gpu, quantize_tiles<Source, Q>,
           dim3(blocks_for(rows, tile) * blocks_for(source.columns, tile)), dim3(tile_threads), 0,
           rows, source, results);
  }
  return true;
}

// `partial` has most_amax_blocks() elements.
template <class Q, class Source>
void quantize(const Context& gpu, std::int64_t rows, const Source& source, float* partial,
              float* scale, Q* plain, Q* transposed) {
  const Results<Q> results{.partial = partial,
                           .partials = launch_amax(gpu, rows, source, partial),
                           .scale = scale,
                           .plain = plain,
                           .transposed = transposed};
  if (!launch_packed(gpu, rows, source, results))
    launch(gpu, quantize_elements<Source, Q>,
           dim3(blocks_for(rows * source.columns, elementwise_threads)), dim3(elementwise_threads),
           0, rows, source, results);
}

// A kernel of source_of.template operator()<T>(call).
template <class F>
KernelPtr prepare_quantize(GpuPrepare& prepare, const Quantize& op, const F& source_of) {
  const std::int64_t rows = prepare.in[0].shape.rows();
  prepare.workspace = quantize_workspace(prepare.gpu);
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return dispatch_quantized(op.to, [&]<class Q>() {
      return make_kernel([&gpu = prepare.gpu, op, rows, source_of](const Launch& call) {
        quantize<Q>(gpu, rows, source_of.template operator()<T>(call),
                    static_cast<float*>(call.workspace), call.out<float>(0),
                    op.plain ? call.out<Q>(op.plain_output()) : nullptr,
                    op.transposed ? call.out<Q>(op.transposed_output()) : nullptr);
      });
    });
  });
}

__global__ void multiply_factors(OperandScales scales, float beta, float* factors) {
  begin_kernel();
  factors[0] = *scales.a * *scales.b;
  factors[1] = beta;
}

}  // namespace

void gpu::product_factors(Stream stream, OperandScales scales, float beta, float* factors) {
  launch_on(stream, false, multiply_factors, 1, 1, 0, scales, beta, factors);
}

std::size_t gpu::quantize_workspace(const Context& gpu) {
  return sizeof(float) * most_amax_blocks(gpu);
}

void gpu::quantize_rows(const Context& gpu, std::int64_t rows, std::int64_t columns, const float* x,
                        void* workspace, float* scale, Float16* q) {
  quantize<Float16>(gpu, rows, Tensor<float>{x, columns}, static_cast<float*>(workspace), scale, q,
                    nullptr);
}

void gpu::quantize_heads(const Context& gpu, std::int64_t rows, const ScaledHeads& heads,
                         void* workspace, float* scale, Float16* q) {
  const RotatedHeads source{heads, heads.q_columns + 2 * heads.kv_columns};
  quantize<Float16>(gpu, rows, source, static_cast<float*>(workspace), scale, q, nullptr);
}

KernelPtr Quantize::gpu(GpuPrepare& prepare) const {
  return prepare_quantize(prepare, *this,
                          [columns = prepare.in[0].shape[-1]]<class T>(const Launch& call) {
                            return Tensor<T>{call.in<T>(0), columns};
                          });
}

KernelPtr QuantizeSwiGlu::gpu(GpuPrepare& prepare) const {
  const Operands at = operands(prepare.in.size());
  const std::int64_t columns = prepare.in[at.packed].shape[-1] / 2;
  if (gradient)
    return prepare_quantize(prepare, into, [columns, at]<class T>(const Launch& call) {
      SwiGluGradient<T> source{call.in<T>(at.dy), call.in<T>(at.packed), columns};
      if (at.scale < at.count) {
        source.y_scale = call.in<float>(at.scale);
        source.y = call.out<Float16>(call.outputs.size() - 1);
      }
      return source;
    });
  return prepare_quantize(prepare, into, [columns, at]<class T>(const Launch& call) {
    return SwiGluResult<T>{call.in<T>(at.packed), columns};
  });
}

}  // namespace ridge
