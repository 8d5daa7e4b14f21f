#include "ridge/gpu/kernels/product/padded_rows.h"

#include "ridge/base/ceil_div.h"
#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {
namespace {

constexpr int threads = 256;
constexpr std::int64_t access_bytes = 16, vector = access_bytes / 2;

struct alignas(access_bytes) Words {
  std::uint32_t at[4];
};

// Eight elements that begin `shift` bytes into the first of two accesses.
__device__ Words eight_of(const Words& low, const Words& high, unsigned shift) {
  std::uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = low.at[i], words[i + 4] = high.at[i];
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
  Words result;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    result.at[i] = shift & 2 ? words[i + 1] << 16 | words[i] >> 16 : words[i];
  return result;
}

// A thread writes 16 bytes, from the two accesses of as many that hold what it needs. Elements one
// by one are those at the end of a row, where dense rows meet, and at the end of `from`, beyond
// which nothing is read.
__global__ void __launch_bounds__(threads)
    copy_16_bit_kernel(const std::uint16_t* from, std::int64_t from_pitch, std::uint16_t* to,
                       std::int64_t to_pitch, std::int64_t rows, std::int64_t columns) {
  begin_kernel();
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * vector;
  const std::int64_t end = (rows - 1) * to_pitch + columns;
  if (first >= end) return;
  const std::int64_t row = first / to_pitch, column = first - row * to_pitch;
  const std::uint16_t* const begin = from + row * from_pitch + column;
  const auto shift = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(begin) % access_bytes);
  const std::uint16_t* const accessed = begin - shift / 2;
  const std::uint16_t* const readable = from + (rows - 1) * from_pitch + columns;
  if (column + vector <= columns && accessed + 2 * vector <= readable) {
    const auto* const words = reinterpret_cast<const Words*>(accessed);
    const Words low = words[0], high = words[1];
    *reinterpret_cast<Words*>(to + first) = eight_of(low, high, shift);
    return;
  }
  for (std::int64_t i = first; i < std::min(first + vector, end); ++i) {
    const std::int64_t r = i / to_pitch, c = i - r * to_pitch;
    if (c < columns) to[i] = from[r * from_pitch + c];
  }
}

__global__ void __launch_bounds__(threads)
    copy_f32_kernel(const float* from, std::int64_t from_pitch, float* to, std::int64_t to_pitch,
                    std::int64_t rows, std::int64_t columns, bool accumulate) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= rows * columns) return;
  const std::int64_t r = i / columns, c = i - r * columns;
  float* const at = to + r * to_pitch + c;
  const float copied = from[r * from_pitch + c];
  *at = accumulate ? *at + copied : copied;
}

}  // namespace

std::int64_t padded_pitch(std::int64_t columns, DType dtype) {
  const auto elements = access_bytes / static_cast<std::int64_t>(size_of(dtype));
  return ceil_div(columns, elements) * elements;
}

void copy_rows_16_bit(const Context& gpu, PitchedRows from, PitchedRows to, std::int64_t rows,
                      std::int64_t columns) {
  const std::int64_t elements = (rows - 1) * to.pitch + columns;
  launch(gpu, copy_16_bit_kernel, dim3(blocks_for(elements, threads * vector)), dim3(threads), 0,
         static_cast<const std::uint16_t*>(from.data), from.pitch,
         static_cast<std::uint16_t*>(to.data), to.pitch, rows, columns);
}

void copy_rows_f32(const Context& gpu, PitchedRows from, PitchedRows to, std::int64_t rows,
                   std::int64_t columns, bool accumulate) {
  launch(gpu, copy_f32_kernel, dim3(blocks_for(rows * columns, threads)), dim3(threads), 0,
         static_cast<const float*>(from.data), from.pitch, static_cast<float*>(to.data), to.pitch,
         rows, columns, accumulate);
}

}  // namespace ridge::gpu
