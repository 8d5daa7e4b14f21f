#include "ridge/ops/swiglu.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using namespace gpu;

constexpr int packs_per_thread = 2;

// gate and up as rows of `columns` elements, whose starts are `step` apart. Two separate tensors
// are one long row each.
struct Rows {
  std::int64_t count, columns, step;
};

Rows rows_of(bool packed, const TensorType& y) {
  if (!packed) return {1, y.numel(), y.numel()};
  return {y.shape.rows(), y.shape[-1], 2 * y.shape[-1]};
}

// A grid of blocks over rows and columns: blockDim.y rows, and of each blockDim.x *
// packs_per_thread packs. Blocks beside each other lie in the same rows.
struct Tiles {
  dim3 grid, block;
  unsigned per_row;  // blocks beside each other
};

template <int N>
Tiles tiles_of(Rows rows) {
  constexpr int threads = 256;
  const std::int64_t packs = (rows.columns + N - 1) / N;
  unsigned width = warp_width;
  while (width < threads && width * packs_per_thread < packs) width *= 2;
  const unsigned height = rows.count == 1 ? 1 : threads / width;
  const unsigned per_row = blocks_for(packs, std::int64_t{width} * packs_per_thread);
  return {dim3(per_row * blocks_for(rows.count, height)), dim3(width, height), per_row};
}

// f(k, column) for the packs of this thread that begin inside its row; the row is `row`.
template <int N, class F>
__device__ void each_pack(unsigned per_row, std::int64_t columns, const F& f) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x % per_row) * packs_per_thread;
#pragma unroll
  for (int k = 0; k < packs_per_thread; ++k) {
    const std::int64_t c = ((first + k) * blockDim.x + threadIdx.x) * N;
    if (c < columns) f(k, c);
  }
}
__device__ std::int64_t row_of(unsigned per_row) {
  return static_cast<std::int64_t>(blockIdx.x / per_row) * blockDim.y + threadIdx.y;
}

template <int N, class T>
__global__ void swiglu_kernel(Rows rows, unsigned per_row, const T* gate, const T* up, T* y) {
  gpu::begin_kernel();
  const std::int64_t row = row_of(per_row);
  if (row >= rows.count) return;
  gate += row * rows.step;
  up += row * rows.step;
  y += row * rows.columns;
  Pack<T, N> gates[packs_per_thread], ups[packs_per_thread];
  each_pack<N>(per_row, rows.columns, [&](int k, std::int64_t c) {
    gates[k] = *reinterpret_cast<const Pack<T, N>*>(gate + c);
    ups[k] = *reinterpret_cast<const Pack<T, N>*>(up + c);
  });
  each_pack<N>(per_row, rows.columns, [&](int k, std::int64_t c) {
    float result[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = load(&gates[k].at[i]);
      result[i] = g * sigmoid(g) * load(&ups[k].at[i]);
    }
    store_pack<N>(y + c, result);
  });
}

// dgate and dup may be the memory of gate and up: a thread reads its elements before it writes
// them. So may y be that of dy, where it is wanted at all.
template <int N, class T>
__global__ void swiglu_grad_kernel(Rows rows, unsigned per_row, const T* dy, const T* gate,
                                   const T* up, T* dgate, T* dup, T* y) {
  gpu::begin_kernel();
  const std::int64_t row = row_of(per_row);
  if (row >= rows.count) return;
  dy += row * rows.columns;
  gate += row * rows.step;
  up += row * rows.step;
  dgate += row * rows.step;
  dup += row * rows.step;
  if (y) y += row * rows.columns;
  Pack<T, N> grads[packs_per_thread], gates[packs_per_thread], ups[packs_per_thread];
  each_pack<N>(per_row, rows.columns, [&](int k, std::int64_t c) {
    grads[k] = *reinterpret_cast<const Pack<T, N>*>(dy + c);
    gates[k] = *reinterpret_cast<const Pack<T, N>*>(gate + c);
    ups[k] = *reinterpret_cast<const Pack<T, N>*>(up + c);
  });
  each_pack<N>(per_row, rows.columns, [&](int k, std::int64_t c) {
    float to_gate[N], to_up[N], again[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float d = load(&grads[k].at[i]), g = load(&gates[k].at[i]);
      const float s = sigmoid(g), silu = g * s;
      const float u = load(&ups[k].at[i]);
      to_gate[i] = d * u * (s + silu * (1.0f - s));
      to_up[i] = d * silu;
      again[i] = silu * u;
    }
    store_pack<N>(dgate + c, to_gate);
    store_pack<N>(dup + c, to_up);
    if (y) store_pack<N>(y + c, again);
  });
}

// Calls f.template operator()<N>(Tiles) for packs that suit the rows and the operands.
template <class T, class F, class... Operands>
void dispatch_tiles(Rows rows, const F& f, const Operands*... operands) {
  constexpr int N = elements_per_access<T>;
  // `step` is a multiple of `columns`.
  if (rows.columns % N == 0 && (is_aligned(operands, N * sizeof(T)) && ...))
    f.template operator()<N>(tiles_of<N>(rows));
  else
    f.template operator()<1>(tiles_of<1>(rows));
}

template <class T>
KernelPtr forward(GpuPrepare& prepare) {
  const bool packed = prepare.in.size() == 1;
  const Rows rows = rows_of(packed, prepare.out[0]);
  return make_kernel([&gpu = prepare.gpu, packed, rows](const Launch& call) {
    const T* gate = call.in<T>(0);
    const T* up = packed ? gate + rows.columns : call.in<T>(1);
    T* y = call.out<T>();
    auto run = [&]<int N>(const Tiles& tiles) {
      launch(gpu, swiglu_kernel<N, T>, tiles.grid, tiles.block, 0, rows, tiles.per_row, gate, up,
             y);
    };
    dispatch_tiles<T>(rows, run, gate, up, y);
  });
}

template <class T>
KernelPtr backward(GpuPrepare& prepare, bool result) {
  const SwiGluGrad::Operands at = SwiGluGrad::operands(prepare.in.size());
  const bool packed = at.up == at.gate;
  const Rows rows = rows_of(packed, prepare.in[at.dy]);
  return make_kernel([&gpu = prepare.gpu, at, packed, rows, result](const Launch& call) {
    const T *dy = call.in<T>(at.dy), *gate = call.in<T>(at.gate);
    const T* up = packed ? gate + rows.columns : call.in<T>(at.up);
    T* dgate = call.out<T>(0);
    T* dup = packed ? dgate + rows.columns : call.out<T>(1);
    T* y = result ? static_cast<T*>(call.outputs.back()) : nullptr;
    auto run = [&]<int N>(const Tiles& tiles) {
      launch(gpu, swiglu_grad_kernel<N, T>, tiles.grid, tiles.block, 0, rows, tiles.per_row, dy,
             gate, up, dgate, dup, y);
    };
    dispatch_tiles<T>(rows, run, dy, gate, up, dgate, dup, y);
  });
}

}  // namespace

KernelPtr SwiGlu::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return forward<T>(prepare); });
}

KernelPtr SwiGluGrad::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return backward<T>(prepare, result); });
}

}  // namespace ridge
