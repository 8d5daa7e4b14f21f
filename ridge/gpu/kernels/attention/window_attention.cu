#include "ridge/ops/window_attention.h"

#include <algorithm>
#include <string>

#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/kernels/attention/window_sm90.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using gpu::WindowShape;

constexpr int threads = 256;

// A block's matrices in shared memory, f32: rows of positions, whose length is odd or prime to the
// number of banks so that columns can be read too.
struct Layout {
  int positions, head_dim, row, score_row;

  __host__ __device__ explicit Layout(const WindowShape& shape)
      : positions(shape.grid.positions()),
        head_dim(shape.head_dim),
        row(head_dim | 1),
        score_row(positions | 1) {}
  __host__ __device__ int rows() const { return positions * row; }
  __host__ __device__ int scores() const { return positions * score_row; }
};

// One head of one window, by a block.
template <class T>
class Patch {
 public:
  __device__ Patch(const WindowShape& shape, int window, int head)
      : shape_(shape), layout_(shape), window_(window), head_(head) {}

  // Element (p, c) of a tensor of `parts` times the channels of y, in its part `part`.
  __device__ std::int64_t at(int p, int c, int parts, int part) const {
    const WindowGrid& grid = shape_.grid;
    const std::int64_t pixels = grid.height * grid.width;
    const std::int64_t pixel =
        window_ / grid.windows() * pixels + grid.pixel(window_ % grid.windows(), p);
    return ((pixel * parts + part) * shape_.n_heads + head_) * shape_.head_dim + c;
  }

  __device__ void gather(const T* x, int parts, int part, float factor, float* to) const {
    for_each_element([&](int p, int c) {
      to[p * layout_.row + c] = factor * gpu::load(x + at(p, c, parts, part));
    });
  }

  template <class F>
  __device__ void for_each_element(const F& f) const {
    for (int i = static_cast<int>(threadIdx.x); i < layout_.positions * layout_.head_dim;
         i += threads)
      f(i / layout_.head_dim, i % layout_.head_dim);
  }

  // s[p, q] = softmax over q of q k^T + bias, of the pairs that see each other. All threads; what
  // they read is there, and what they write is there when it returns.
  __device__ void probabilities(const float* q, const float* k, const T* bias, float* s) const {
    const int positions = layout_.positions;
    const WindowGrid& grid = shape_.grid;
    const int seams = grid.seams(window_ % grid.windows());
    for (int i = static_cast<int>(threadIdx.x); i < positions * positions; i += threads) {
      const int a = i / positions, b = i % positions;
      float x = gpu::load(bias + std::int64_t{head_} * positions * positions + i);
      for (int c = 0; c < layout_.head_dim; ++c)
        x = fmaf(q[a * layout_.row + c], k[b * layout_.row + c], x);
      const bool seen = ((grid.part(a) ^ grid.part(b)) & seams) == 0;
      s[a * layout_.score_row + b] = seen ? x : -__builtin_huge_valf();
    }
    __syncthreads();
    for_each_row([&](int p, int lane) {
      float* const row = s + p * layout_.score_row;
      float max = -__builtin_huge_valf(), sum = 0;
      for (int j = lane; j < positions; j += gpu::warp_width) max = fmaxf(max, row[j]);
      max = gpu::reduce_warp<gpu::Max>(max);
      for (int j = lane; j < positions; j += gpu::warp_width) sum += row[j] = expf(row[j] - max);
      sum = gpu::reduce_warp<gpu::Sum>(sum);
      for (int j = lane; j < positions; j += gpu::warp_width) row[j] /= sum;
    });
    __syncthreads();
  }

  // A warp a row.
  template <class F>
  __device__ void for_each_row(const F& f) const {
    const int warp = static_cast<int>(threadIdx.x) / gpu::warp_width;
    for (int p = warp; p < layout_.positions; p += threads / gpu::warp_width)
      f(p, static_cast<int>(threadIdx.x) % gpu::warp_width);
  }

  // x[p, c] = factor * sum_q weight(p, q) rows[q, c], written to part `part` of `parts`.
  template <class Weight>
  __device__ void write_sums(const Weight& weight, const float* rows, float factor, T* x, int parts,
                             int part) const {
    for_each_element([&](int p, int c) {
      float sum = 0;
      for (int q = 0; q < layout_.positions; ++q)
        sum = fmaf(weight(p, q), rows[q * layout_.row + c], sum);
      gpu::store(x + at(p, c, parts, part), factor * sum);
    });
  }

 private:
  const WindowShape& shape_;
  const Layout layout_;
  const int window_, head_;
};

template <class T>
__global__ void __launch_bounds__(threads)
    forward_kernel(const __grid_constant__ WindowShape shape, const T* qkv, const T* bias, T* y) {
  gpu::begin_kernel();
  const Layout layout(shape);
  float *const q = gpu::dynamic_shared<float>(), *const k = q + layout.rows(),
               *const v = k + layout.rows();
  float* const s = v + layout.rows();
  const Patch<T> patch(shape, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
  patch.gather(qkv, 3, 0, shape.scale, q);
  patch.gather(qkv, 3, 1, 1.0f, k);
  patch.gather(qkv, 3, 2, 1.0f, v);
  __syncthreads();
  patch.probabilities(q, k, bias, s);
  patch.write_sums([&](int a, int b) { return s[a * layout.score_row + b]; }, v, 1.0f, y, 1, 0);
}

// Block (h, g): head h of the windows of group g, whose share of dbias it leaves in parts[g, h].
template <class T>
__global__ void __launch_bounds__(threads)
    backward_kernel(const __grid_constant__ WindowShape shape, const T* dy, const T* qkv,
                    const T* bias, T* dqkv, float* parts) {
  gpu::begin_kernel();
  const Layout layout(shape);
  float *const q = gpu::dynamic_shared<float>(), *const k = q + layout.rows(),
               *const v = k + layout.rows();
  float *const g = v + layout.rows(), *const s = g + layout.rows();
  const int head = static_cast<int>(blockIdx.x), groups = static_cast<int>(gridDim.y);
  const int positions = layout.positions, pairs = positions * positions;
  float* const dbias =
      parts + (static_cast<std::int64_t>(blockIdx.y) * shape.n_heads + head) * pairs;
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += threads) dbias[i] = 0;
  const auto by_query = [&](int a, int b) { return s[a * layout.score_row + b]; };
  const auto by_key = [&](int a, int b) { return s[b * layout.score_row + a]; };
  for (int window = static_cast<int>(blockIdx.y); window < shape.windows; window += groups) {
    const Patch<T> patch(shape, window, head);
    __syncthreads();  // nobody reads the last window's any more
    patch.gather(qkv, 3, 0, shape.scale, q);
    patch.gather(qkv, 3, 1, 1.0f, k);
    patch.gather(qkv, 3, 2, 1.0f, v);
    patch.gather(dy, 1, 0, 1.0f, g);
    __syncthreads();
    patch.probabilities(q, k, bias, s);
    patch.write_sums(by_key, g, 1.0f, dqkv, 3, 2);
    __syncthreads();
    // ds takes the place of p.
    patch.for_each_row([&](int p, int lane) {
      const auto gradient = [&](int j) {
        float sum = 0;
        for (int c = 0; c < layout.head_dim; ++c)
          sum = fmaf(g[p * layout.row + c], v[j * layout.row + c], sum);
        return sum;
      };
      float* const row = s + p * layout.score_row;
      float mean = 0;
      for (int j = lane; j < positions; j += gpu::warp_width) mean += row[j] * gradient(j);
      mean = gpu::reduce_warp<gpu::Sum>(mean);
      for (int j = lane; j < positions; j += gpu::warp_width) row[j] *= gradient(j) - mean;
    });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += threads)
      dbias[i] += by_query(i / positions, i % positions);
    patch.write_sums(by_query, k, shape.scale, dqkv, 3, 0);
    patch.write_sums(by_key, q, 1.0f, dqkv, 3, 1);  // of queries that have been scaled
  }
}

// y[i] = sum over g of parts[g, i].
template <class T>
__global__ void sum_parts_kernel(int groups, std::int64_t n, const float* parts, T* y) {
  gpu::begin_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int g = 0; g < groups; ++g) sum += parts[g * n + i];
  gpu::store(y + i, sum);
}

template <class T>
KernelPtr forward(const WindowAttention& op, GpuPrepare& prepare) {
  const WindowShape shape(op, prepare.out[0].shape);
  const Layout layout(shape);
  const std::size_t shared = sizeof(float) * (3 * layout.rows() + layout.scores());
  const dim3 grid(static_cast<unsigned>(shape.windows), static_cast<unsigned>(shape.n_heads));
  gpu::allow_shared_memory(forward_kernel<T>, shared);
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    gpu::launch(gpu, forward_kernel<T>, grid, dim3(threads), shared, shape, call.in<T>(0),
                call.in<T>(1), call.out<T>(0));
  });
}

template <class T>
KernelPtr backward(const WindowAttentionGrad& op, GpuPrepare& prepare) {
  constexpr int most_groups = 64;
  const WindowShape shape(op, prepare.in[0].shape);
  const Layout layout(shape);
  const int groups = std::min(most_groups, shape.windows);
  const std::int64_t elements = prepare.out[1].numel();
  const std::size_t shared = sizeof(float) * (4 * layout.rows() + layout.scores());
  prepare.workspace = sizeof(float) * static_cast<std::size_t>(groups * elements);
  const dim3 grid(static_cast<unsigned>(shape.n_heads), static_cast<unsigned>(groups));
  gpu::allow_shared_memory(backward_kernel<T>, shared);
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto* const parts = static_cast<float*>(call.workspace);
    gpu::launch(gpu, backward_kernel<T>, grid, dim3(threads), shared, shape, call.in<T>(0),
                call.in<T>(1), call.in<T>(2), call.out<T>(0), parts);
    gpu::launch(gpu, sum_parts_kernel<T>, dim3(gpu::blocks_for(elements, threads)), dim3(threads),
                0, groups, elements, parts, call.out<T>(1));
  });
}

// What candidates are asked.
struct WindowWork {
  const WindowAttention& op;
  const gpu::Context& gpu;
  DType dtype;
  WindowShape shape;

  std::string key() const { return work(); }
  std::string work() const { return gpu::window_work(dtype, shape); }
};

KernelPtr portable_kernel(const WindowWork& work, GpuPrepare& prepare) {
  return gpu::dispatch_floating(work.dtype,
                                [&]<class T>() { return forward<T>(work.op, prepare); });
}

constexpr gpu::Candidate<WindowWork> candidates[] = {
#if !defined(__HIP__)
    {.name = [](const WindowWork&) -> std::string { return "tensor cores"; },
     .supports =
         [](const WindowWork& w) {
           return window_attention_sm90_supports(w.gpu, w.dtype, w.shape);
         },
     .expectation = [](const WindowWork&, const gpu::Card&) { return 1; },
     .prepare =
         [](const WindowWork& w, GpuPrepare& p) {
           return make_kernel([&gpu = w.gpu, dtype = w.dtype, shape = w.shape,
                               portable = portable_kernel(w, p)](const Launch& call) {
             // Slices may begin anywhere.
             if (!gpu::is_aligned(call.inputs[0], 16) || !gpu::is_aligned(call.outputs[0], 16))
               return portable->launch(call);
             window_attention_sm90(gpu, dtype, shape, call.inputs[0], call.inputs[1],
                                   call.outputs[0]);
           });
         }},
#endif
    {.name = [](const WindowWork&) -> std::string { return "own kernels"; },
     .supports = [](const WindowWork&) { return true; },
     .expectation = [](const WindowWork&, const gpu::Card&) { return 0; },
     .prepare = portable_kernel,
     .fallback = true},
};

}  // namespace

KernelPtr WindowAttention::gpu(GpuPrepare& prepare) const {
  return gpu::best_kernel<WindowWork>(
      prepare, {*this, prepare.gpu, prepare.in[0].dtype, WindowShape(*this, prepare.out[0].shape)},
      candidates);
}

KernelPtr WindowAttentionGrad::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return backward<T>(*this, prepare); });
}

}  // namespace ridge
