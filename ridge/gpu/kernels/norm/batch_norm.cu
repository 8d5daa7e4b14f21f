#include "ridge/ops/batch_norm.h"

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/norm/channels.h"

namespace ridge {
namespace {

using namespace gpu;

template <int M>
struct NormOf {
  float mean[M], factor[M], bias[M];
};

// y = (x - mean) * weight / sqrt(variance + eps) + bias.
template <class T>
struct Normalize {
  const T* x;
  const float *weight, *bias, *mean, *variance;
  float eps;
  T* y;
  bool relu = false;

  template <int M>
  __device__ NormOf<M> at(std::int64_t c) const {
    NormOf<M> norm;
#pragma unroll
    for (int k = 0; k < M; ++k) {
      norm.mean[k] = mean[c + k];
      norm.bias[k] = bias[c + k];
      norm.factor[k] = weight[c + k] / sqrtf(variance[c + k] + eps);
    }
    return norm;
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t i) const {
    return *reinterpret_cast<const Pack<T, N>*>(x + i);
  }
  template <int N, int M>
  __device__ void apply(const NormOf<M>& norm, const Pack<T, N>& read, std::int64_t i) const {
    float values[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int m = M == 1 ? 0 : k;
      values[k] = (gpu::load(&read.at[k]) - norm.mean[m]) * norm.factor[m] + norm.bias[m];
      if (relu) values[k] = ReluOf()(values[k]);
    }
    store_pack<N>(y + i, values);
  }
};

template <class T>
Normalize<T> normalize_of(const BatchNorm& op, const Launch& call, const T* x) {
  const BatchNorm::Operands at = op.operands();
  return {x,
          call.in<float>(at.weight),
          call.in<float>(at.bias),
          call.in<float>(at.mean),
          call.in<float>(at.variance),
          op.eps,
          call.out<T>(),
          op.relu};
}

template <class T>
KernelPtr infer_form(GpuPrepare& prepare, const BatchNorm& op) {
  constexpr int wide = elements_per_access<T>;
  const ChannelLayout all = layout_of(sums_of(prepare.gpu, prepare.in[0].shape, op.layout, wide));
  return make_kernel([&gpu = prepare.gpu, all, op](const Launch& call) {
    const Normalize<T> map = normalize_of(op, call, call.in<T>(0));
    apply_channels<wide>(gpu, all, is_aligned(map.x, 16) && is_aligned(map.y, 16), map);
  });
}

// Images whose channels lie side by side in the result.
struct Parts {
  int count;
  const void* x[BatchNorm::most_parts];
  std::int32_t begin[BatchNorm::most_parts + 1];  // of the result's channels
};

// Each thread goes down N channels of the result, all of one part.
template <int N, class T>
__global__ void __launch_bounds__(sum_packs* sum_lanes)
    joined_kernel(ChannelLayout s, const __grid_constant__ Parts parts, Normalize<T> map) {
  gpu::begin_kernel();
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * sum_packs + threadIdx.x) * N;
  if (c >= s.columns) return;
  const auto norm = map.template at<N>(c);
  const int part = part_of(parts.begin, parts.count, c);
  const std::int64_t begin = parts.begin[part], channels = parts.begin[part + 1] - begin;
  const T* x = static_cast<const T*>(parts.x[part]) + (c - begin);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * sum_lanes;
  each_row(
      s, step,
      [&](std::int64_t row) { return *reinterpret_cast<const Pack<T, N>*>(x + row * channels); },
      [&](const auto& loaded, std::int64_t row) {
        map.template apply<N>(norm, loaded, row * s.columns + c);
      });
}

template <class T>
KernelPtr joined_form(GpuPrepare& prepare, const BatchNorm& op) {
  constexpr int wide = elements_per_access<T>;
  const ImageShape image(prepare.out[0].shape, op.layout);
  const ChannelLayout all{.planes = false, .columns = image.c, .rows = image.n * image.pixels()};
  Parts parts{.count = static_cast<int>(op.parts)};
  bool in_packs = true;
  for (std::size_t p = 0; p < op.parts; ++p) {
    const std::int64_t channels = prepare.in[p].shape[3];
    parts.begin[p + 1] = parts.begin[p] + static_cast<std::int32_t>(channels);
    in_packs = in_packs && channels % wide == 0;
  }
  return make_kernel([&gpu = prepare.gpu, all, parts, in_packs, op](const Launch& call) {
    Parts images = parts;
    const Normalize<T> map = normalize_of<T>(op, call, nullptr);
    bool packed = in_packs && is_aligned(map.y, 16);
    for (std::size_t p = 0; p < op.parts; ++p) {
      images.x[p] = call.inputs[p];
      packed = packed && is_aligned(images.x[p], 16);
    }
    dispatch_packed<wide>(packed, [&]<int N>() {
      const unsigned across = blocks_for(all.columns, sum_packs * N);
      launch(gpu, joined_kernel<N, T>, dim3(across, blocks_down(gpu, all.rows, across)),
             dim3(sum_packs, sum_lanes), 0, all, images, map);
    });
  });
}

}  // namespace

KernelPtr BatchNorm::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return parts == 1 ? infer_form<T>(prepare, *this) : joined_form<T>(prepare, *this);
  });
}

}  // namespace ridge
