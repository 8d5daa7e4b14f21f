#include "ridge/ops/dropout.h"

#include "ridge/base/philox.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using namespace gpu;

// Whether elements stay; neighbors mostly share their four random words.
class Numbers {
 public:
  __device__ Numbers(const Dropout& op, std::int32_t step)
      : op_(op), step_(static_cast<std::uint64_t>(static_cast<std::int64_t>(step))) {}

  __device__ bool stays(std::int64_t element) {
    const auto number =
        static_cast<std::uint64_t>(op_.first + (op_.block == 1 ? element : element / op_.block));
    if (number / 4 != group_) {
      group_ = number / 4;
      const auto drawn = philox(op_.seed, group_, step_);
#pragma unroll
      for (int k = 0; k < 4; ++k) words_[k] = drawn[static_cast<std::size_t>(k)];
    }
    // No index that varies, so that the words stay in registers.
    const auto k = static_cast<int>(number % 4);
    const std::uint32_t word =
        k == 0 ? words_[0] : (k == 1 ? words_[1] : (k == 2 ? words_[2] : words_[3]));
    return word >= op_.threshold();
  }

 private:
  const Dropout& op_;
  std::uint64_t step_, group_ = ~std::uint64_t{0};
  std::uint32_t words_[4];
};

template <int N, class T>
__global__ void dropout_kernel(const __grid_constant__ Dropout op, std::int64_t n, bool packed,
                               const T* x, const std::int32_t* step, T* y) {
  gpu::begin_kernel();
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (first >= n) return;
  Numbers numbers(op, *step);
  const float scale = op.scale();
  if (packed && first + N <= n) {
    float values[N];
    load_pack<N>(x + first, values);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = numbers.stays(first + i) ? values[i] * scale : 0.0f;
    store_pack<N>(y + first, values);
  } else {
    for (std::int64_t i = first; i < min(first + N, n); ++i)
      store(&y[i], numbers.stays(i) ? load(&x[i]) * scale : 0.0f);
  }
}

}  // namespace

KernelPtr Dropout::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    constexpr int N = elements_per_access<T>;
    return make_kernel([&gpu = prepare.gpu, op = *this,
                        n = prepare.in[0].numel()](const Launch& call) {
      const T* x = call.in<T>(0);
      T* y = call.out<T>();
      const bool packed = is_aligned(x, N * sizeof(T)) && is_aligned(y, N * sizeof(T));
      launch(gpu, dropout_kernel<N, T>, dim3(blocks_for(n, std::int64_t{elementwise_threads} * N)),
             dim3(elementwise_threads), 0, op, n, packed, x, call.in<std::int32_t>(1), y);
    });
  });
}

}  // namespace ridge
