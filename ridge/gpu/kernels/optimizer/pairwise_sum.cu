#include "ridge/ops/pairwise_sum.h"

#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using namespace gpu;

// The tensors that hold sums. All of one step are aligned alike, or none.
struct Sums {
  float* at[PairwiseSum::most_levels + 1];
  std::uint32_t count;
};

// s + x of N elements from element i on.
template <int N>
__device__ void add_pack(const float* x, float (&s)[N]) {
  float term[N];
  load_pack<N>(x, term);
#pragma unroll
  for (int k = 0; k < N; ++k) s[k] = term[k] + s[k];
}

// Whether a step adds to the chain, and how far it carries, all threads read from the number: the
// same launch serves every call.
template <int N>
__global__ void pairwise_sum_kernel(PairwiseSum op, const __grid_constant__ Sums sums,
                                    std::int64_t n, bool packed, const std::int32_t* number,
                                    const float* x) {
  begin_kernel();
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (first >= n) return;
  const PairwiseStep step(op, sums.count, *number);
  if (packed && first + N <= n) {
    float s[N];
    load_pack<N>(x + first, s);
    if (step.adds_to_chain) add_pack<N>(sums.at[sums.count - 1] + first, s);
    for (std::uint32_t level = 0; level < step.carries; ++level)
      add_pack<N>(sums.at[level] + first, s);
    store_pack<N>(sums.at[step.to] + first, s);
    return;
  }
  for (std::int64_t i = first; i < min(first + N, n); ++i) {
    float s = x[i];
    if (step.adds_to_chain) s = sums.at[sums.count - 1][i] + s;
    for (std::uint32_t level = 0; level < step.carries; ++level) s = sums.at[level][i] + s;
    sums.at[step.to][i] = s;
  }
}

}  // namespace

KernelPtr PairwiseSum::gpu(GpuPrepare& prepare) const {
  constexpr int N = elements_per_access<float>;
  const std::int64_t n = prepare.in[1].numel();
  return make_kernel([&gpu = prepare.gpu, op = *this, n](const Launch& call) {
    Sums sums{.at = {}, .count = static_cast<std::uint32_t>(call.outputs.size())};
    const float* x = call.in<float>(1);
    bool packed = is_aligned(x, N * sizeof(float));
    for (std::uint32_t t = 0; t < sums.count; ++t) {
      sums.at[t] = call.out<float>(t);
      packed = packed && is_aligned(sums.at[t], N * sizeof(float));
    }
    launch(gpu, pairwise_sum_kernel<N>, dim3(blocks_for(n, std::int64_t{elementwise_threads} * N)),
           dim3(elementwise_threads), 0, op, sums, n, packed, call.in<std::int32_t>(0), x);
  });
}

}  // namespace ridge
