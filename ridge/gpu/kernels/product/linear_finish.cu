#include "ridge/gpu/kernels/product/linear_finish.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge::gpu {
namespace {

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

// Calls f(function) with the epilogue's function.
template <class F>
void with_epilogue(Epilogue epilogue, const F& f) {
  switch (epilogue) {
    case Epilogue::none:
      return f(Identity());
    case Epilogue::relu:
      return f(ReluOf());
    case Epilogue::relu6:
      return f(Relu6Of());
    case Epilogue::silu:
      return f(SiluOf());
    case Epilogue::hard_swish:
      return f(HardSwishOf());
    case Epilogue::gelu:
      return f(GeluOf());
  }
}

// N consecutive elements; zeros if there is no tensor.
template <int N, class T>
__device__ void load_term(const T* p, float (&x)[N]) {
  if (p) return load_pack<N>(p, x);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = 0;
}

// N elements of one row a thread. n is a multiple of N.
template <int N, class T, class F>
__global__ void finish_kernel(std::int64_t packs, std::uint32_t packs_of_row, F function,
                              const float* sums, const T* bias, const T* residual, T* y) {
  begin_kernel();
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  // Divides 32 bits where that will do: 64 take the card many instructions.
  const std::uint32_t place = packs >> 32 == 0 ? static_cast<std::uint32_t>(pack) % packs_of_row
                                               : static_cast<std::uint32_t>(pack % packs_of_row);
  float x[N], b[N], r[N];
  load_pack<N>(sums + pack * N, x);
  load_term<N>(bias ? bias + std::int64_t{place} * N : nullptr, b);
  load_term<N>(residual ? residual + pack * N : nullptr, r);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = function(x[i] + b[i] + r[i]);
  store_pack<N>(y + pack * N, x);
}

template <int N, class T, class F>
void finish(const Context& gpu, F function, std::int64_t m, std::int64_t n, const float* sums,
            const T* bias, const T* residual, T* y) {
  const std::int64_t packs = m * (n / N);
  launch(gpu, finish_kernel<N, T, F>, dim3(blocks_for(packs, elementwise_threads)),
         dim3(elementwise_threads), 0, packs, static_cast<std::uint32_t>(n / N), function, sums,
         bias, residual, y);
}

}  // namespace

void finish_linear(const Context& gpu, DType dtype, Epilogue epilogue, std::int64_t m,
                   std::int64_t n, const float* sums, const void* bias, const void* residual,
                   void* y) {
  if (m == 0 || n == 0) return;
  dispatch_floating(dtype, [&]<class T>() {
    constexpr int N = elements_per_access<T>;
    const bool packed = n % N == 0 && is_aligned(sums, N * sizeof(float)) && is_aligned(bias, 16) &&
                        is_aligned(residual, 16) && is_aligned(y, 16);
    with_epilogue(epilogue, [&](const auto& function) {
      const auto run = [&]<int Elements>() {
        finish<Elements>(gpu, function, m, n, sums, static_cast<const T*>(bias),
                         static_cast<const T*>(residual), static_cast<T*>(y));
      };
      if (packed)
        run.template operator()<N>();
      else
        run.template operator()<1>();
    });
  });
}

}  // namespace ridge::gpu
