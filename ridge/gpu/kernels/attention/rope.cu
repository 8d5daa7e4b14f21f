#include "ridge/ops/rope.h"

#include "ridge/gpu/kernels/attention/rotations.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using namespace gpu;

// Sequences that a thread rotates at the same position, with one read of the table.
constexpr int sequences_per_thread = 4;
constexpr int rope_threads = 128;

// x as sequences of `pairs` pairs each, one beside the other as in the table: the whole [S, D] of
// one head. A thread rotates N / 2 consecutive pairs; a sequence takes `per_sequence` blocks.
template <int N, class T>
__global__ void __launch_bounds__(rope_threads)
    rope_kernel(std::int64_t sequences, std::int64_t pairs, unsigned per_sequence, float direction,
                const float* table, const T* x, T* y) {
  gpu::begin_kernel();
  const std::int64_t thread =
      static_cast<std::int64_t>(blockIdx.x % per_sequence) * blockDim.x + threadIdx.x;
  const std::int64_t first = thread * (N / 2);
  if (first >= pairs) return;
  float rotation[N];  // cos and sin of each pair
  load_pack<N>(table + 2 * first, rotation);
#pragma unroll
  for (int i = 1; i < N; i += 2) rotation[i] *= direction;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x / per_sequence) * sequences_per_thread;
  float values[sequences_per_thread][N];
  auto each = [&](const auto& f) {
#pragma unroll
    for (int k = 0; k < sequences_per_thread; ++k)
      if (begin + k < sequences) f(values[k], ((begin + k) * pairs + first) * 2);
  };
  each([&](float(&v)[N], std::int64_t at) {
    if constexpr (N == 2) {
      v[0] = load(&x[at]);
      v[1] = load(&x[at + 1]);
    } else {
      load_pack<N>(x + at, v);
    }
  });
  each([&](float(&v)[N], std::int64_t at) {
    float rotated[N];
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      rotated[i] = v[i] * rotation[i] - v[i + 1] * rotation[i + 1];
      rotated[i + 1] = v[i] * rotation[i + 1] + v[i + 1] * rotation[i];
    }
    if constexpr (N == 2) {
      store(&y[at], rotated[0]);
      store(&y[at + 1], rotated[1]);
    } else {
      store_pack<N>(y + at, rotated);
    }
  });
}

template <class T>
KernelPtr rotary(GpuPrepare& prepare, float theta, float direction) {
  const Shape& shape = prepare.in[0].shape;
  const std::int64_t positions = shape[-2], row_pairs = shape[-1] / 2;
  const std::int64_t pairs = positions * row_pairs, sequences = shape.rows(2);
  auto rotations = prepare.gpu.rotations->get(prepare.gpu, theta, row_pairs, positions);
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    auto run = [&]<int N>() {
      const unsigned per_sequence = blocks_for(pairs, rope_threads * (N / 2));
      const unsigned blocks = per_sequence * blocks_for(sequences, sequences_per_thread);
      launch(gpu, rope_kernel<N, T>, dim3(blocks), dim3(rope_threads), 0, sequences, pairs,
             per_sequence, direction, rotations->table.template data<float>(), x, y);
    };
    constexpr int wide = elements_per_access<T>;
    if (2 * pairs % wide == 0 && is_aligned(x, 16) && is_aligned(y, 16))
      run.template operator()<wide>();
    else
      run.template operator()<2>();
  });
}

}  // namespace

KernelPtr Rope::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return rotary<T>(prepare, theta, inverse ? -1.0f : 1.0f);
  });
}

}  // namespace ridge
