#include "ridge/gpu/kernels/product/split_bf16.h"

#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {
namespace {

constexpr int threads = 256;
constexpr int vector = 4;

struct Components {
  float at[split_components];
};

__device__ Components split(float x) {
  const float first = __uint_as_float(__float_as_uint(x) & 0xFFFF0000u);
  const float rest = x - first;
  BFloat16 rounded;
  store(&rounded, rest);
  const float second = load(&rounded);
  return {{first, second, rest - second}};
}

// Four elements a thread, of a matrix that lies without gaps on both sides.
__global__ void __launch_bounds__(threads)
    dense_split_kernel(const float* x, BFloat16* components, std::int64_t vectors) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= vectors) return;
  float in[vector], out[split_components][vector];
  load_pack(x + i * vector, in);
#pragma unroll
  for (int j = 0; j < vector; ++j) {
    const Components p = split(in[j]);
#pragma unroll
    for (int component = 0; component < split_components; ++component)
      out[component][j] = p.at[component];
  }
#pragma unroll
  for (int component = 0; component < split_components; ++component)
    store_pack(components + (component * vectors + i) * vector, out[component]);
}

// An element a thread.
__global__ void __launch_bounds__(threads)
    split_kernel(const float* x, BFloat16* components, std::int64_t rows, std::int64_t columns,
                 std::int64_t pitch) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= rows * columns) return;
  const Components p = split(x[i]);
  BFloat16* const to = components + i / columns * pitch + i % columns;
#pragma unroll
  for (int component = 0; component < split_components; ++component)
    store(to + component * rows * pitch, p.at[component]);
}

__global__ void __launch_bounds__(threads)
    add_parts_kernel(const float* parts, int count, std::int64_t n, bool accumulate, float* c) {
  begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= n) return;
  float sum = accumulate ? c[i] : 0.0f;
  for (int part = 0; part < count; ++part) sum += parts[part * n + i];
  c[i] = sum;
}

}  // namespace

void write_split(const Context& gpu, const float* x, std::int64_t rows, std::int64_t columns,
                 void* components) {
  auto* const to = static_cast<BFloat16*>(components);
  const std::int64_t elements = rows * columns, pitch = split_pitch(columns);
  if (pitch == columns && reinterpret_cast<std::uintptr_t>(x) % 16 == 0)
    launch(gpu, dense_split_kernel, dim3(blocks_for(elements / vector, threads)), dim3(threads), 0,
           x, to, elements / vector);
  else
    launch(gpu, split_kernel, dim3(blocks_for(elements, threads)), dim3(threads), 0, x, to, rows,
           columns, pitch);
}

void add_parts(const Context& gpu, const float* parts, int count, std::int64_t n, bool accumulate,
               float* c) {
  launch(gpu, add_parts_kernel, dim3(blocks_for(n, threads)), dim3(threads), 0, parts, count, n,
         accumulate, c);
}

}  // namespace ridge::gpu
