#include "ridge/ops/optimizer.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ridge/gpu/elementwise.h"
#include "ridge/gpu/memory.h"
#include "ridge/gpu/tensor_table.h"

namespace ridge {
namespace {

using namespace gpu;

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Four consecutive elements: `whole`, all of them and aligned, in one access; otherwise one by one,
// as many as there are before n.
template <bool whole>
__device__ void load4(const float* p, std::int64_t n, float (&x)[4]) {
  if constexpr (whole) {
    load_pack<4>(p, x);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = i < n ? p[i] : 0.0f;
  }
}

template <bool whole, class T>
__device__ void store4(T* p, std::int64_t n, const float (&x)[4]) {
  if constexpr (whole) {
    store_pack<4>(p, x);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < n) store(&p[i], x[i]);
  }
}

constexpr int norm_threads = 256, norm_packs = 4, norm_tile = norm_threads * 4 * norm_packs;
constexpr int norm_blocks_per_multiprocessor = 8;

struct NormOperand {
  const float* x;
  std::int64_t n;
  bool packed;  // x is aligned to packs of four
};

template <bool whole>
__device__ void add_squares(const NormOperand& x, std::int64_t begin, double& sum) {
#pragma unroll
  for (int k = 0; k < norm_packs; ++k) {
    const std::int64_t i = begin + (k * norm_threads + static_cast<int>(threadIdx.x)) * 4;
    float values[4];
    load4<whole>(x.x + i, x.n - i, values);
#pragma unroll
    for (const float value : values) sum += static_cast<double>(value) * value;
  }
}

// How the blocks of one or more launches make one number.
struct NormBlocks {
  double* partial;       // a sum for each block of all launches
  std::uint32_t before;  // blocks of the launches before this one
  bool last;             // no launch follows
  unsigned* arrived;     // blocks of this launch that are done; 0 between launches
  float* norm;
};

// A block's sum goes to `partial`; of the last launch, the block that is done last adds them all in
// order.
template <class Table>
__global__ void __launch_bounds__(norm_threads)
    global_norm_kernel(const __grid_constant__ Table table, NormBlocks blocks,
                       std::uint32_t tiles) {
  gpu::begin_kernel();
  double sum = 0;
  for (std::uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int operand = table.find(tile);
    const NormOperand& x = table.entry[operand];
    const std::int64_t begin =
        static_cast<std::int64_t>(tile - table.first_tile[operand]) * norm_tile;
    if (x.packed && x.n - begin >= norm_tile)
      add_squares<true>(x, begin, sum);
    else
      add_squares<false>(x, begin, sum);
  }
  sum = reduce_block<gpu::Sum>(sum);
  if (threadIdx.x == 0) blocks.partial[blocks.before + blockIdx.x] = sum;
  if (!blocks.last) return;

  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(blocks.arrived, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  double total = 0;
  for (std::uint32_t b = threadIdx.x; b < blocks.before + gridDim.x; b += norm_threads)
    total += blocks.partial[b];
  total = reduce_block<gpu::Sum>(total);
  if (threadIdx.x == 0) *blocks.norm = static_cast<float>(sqrt(total));
}

constexpr int adamw_threads = 256, adamw_packs = 2, adamw_tile = adamw_threads * 4 * adamw_packs;

// What a step multiplies by; see the formulas at AdamW, which it orders as PyTorch does, so that
// both agree to rounding.
struct Factors {
  float keep, step, correction, decay2, tiny, rest1, rest2;
  float factor;  // of the gradient
  bool skipped;  // nothing is updated

  // `norm` only where the gradients are clipped.
  __device__ void set(const AdamW& op, const float* schedule, const float* norm) {
    const double lr = schedule[0];
    keep = static_cast<float>(1.0 - lr * op.weight_decay);
    step = schedule[0] / schedule[1];
    correction = static_cast<float>(1.0 / sqrt(static_cast<double>(schedule[2])));
    decay2 = static_cast<float>(op.beta2);
    tiny = static_cast<float>(op.eps);
    rest1 = static_cast<float>(1.0 - op.beta1);
    rest2 = static_cast<float>(1.0 - op.beta2);
    factor = op.scaled ? schedule[3] : 1.0f;
    skipped = op.scaled && factor == 0.0f;
    if (norm) factor *= fminf(1.0f, static_cast<float>(op.max_norm) / (*norm * factor + 1e-6f));
  }

  // Each fused operation is written out, so that every kernel that this is part of gets the same
  // bits.
  __device__ void update(float& param, float grad, float& m, float& v) const {
    const float g = grad * factor;
    m = fmaf(rest1, g - m, m);
    v = fmaf(rest2, g * g, v * decay2);
    param = fmaf(-step, m / fmaf(sqrtf(v), correction, tiny), param * keep);
  }
};

// One parameter, updated in place.
struct Parameter {
  float *param, *grad, *m, *v;  // grad is written only if it is to be zeroed
  RoundedCopy copy;             // or null
  std::int64_t n;
  bool packed;  // all are aligned to packs of four
};

Parameter parameter_of(float* param, float* grad, float* m, float* v, RoundedCopy copy,
                       std::int64_t n) {
  const bool packed = is_aligned(param, 16) && is_aligned(grad, 16) && is_aligned(m, 16) &&
                      is_aligned(v, 16) && is_aligned(copy.data, 8);
  return {param, grad, m, v, copy, n, packed};
}

// Updates the tile that begins at an element, by a whole block.
template <bool zero_grad, bool whole>
__device__ void update_tile(const Parameter& x, std::int64_t tile, const AdamW& op,
                            const float* schedule, const float* norm) {
  float param[adamw_packs][4], grad[adamw_packs][4], m[adamw_packs][4], v[adamw_packs][4];
  const auto each_pack = [&](const auto& f) {
#pragma unroll
    for (int k = 0; k < adamw_packs; ++k) {
      const std::int64_t i = tile + (k * adamw_threads + static_cast<int>(threadIdx.x)) * 4;
      f(k, i, x.n - i);
    }
  };
  each_pack([&](int k, std::int64_t i, std::int64_t rest) {
    load4<whole>(x.grad + i, rest, grad[k]);
    load4<whole>(x.m + i, rest, m[k]);
    load4<whole>(x.v + i, rest, v[k]);
    load4<whole>(x.param + i, rest, param[k]);
  });
  __shared__ Factors shared;
  if (threadIdx.x == 0) shared.set(op, schedule, norm);  // in double: once a block
  __syncthreads();
  const Factors factors = shared;
  constexpr float zeros[4] = {};
  if (factors.skipped) {
    if (zero_grad)
      each_pack(
          [&](int, std::int64_t i, std::int64_t rest) { store4<whole>(x.grad + i, rest, zeros); });
    return;
  }
  each_pack([&](int k, std::int64_t i, std::int64_t rest) {
#pragma unroll
    for (int j = 0; j < 4; ++j) factors.update(param[k][j], grad[k][j], m[k][j], v[k][j]);
    store4<whole>(x.param + i, rest, param[k]);
    store4<whole>(x.m + i, rest, m[k]);
    store4<whole>(x.v + i, rest, v[k]);
    if (zero_grad) store4<whole>(x.grad + i, rest, zeros);
    if (x.copy) x.copy.at(i, [&](auto* to) { store4<whole>(to, rest, param[k]); });
  });
}

// One tile of one parameter a block.
template <bool zero_grad, class Table>
__global__ void __launch_bounds__(adamw_threads)
    adamw_kernel(const __grid_constant__ Table table, const __grid_constant__ AdamW op,
                 const float* schedule, const float* norm) {
  gpu::begin_kernel();
  const int parameter = table.find(blockIdx.x);
  const Parameter& x = table.entry[parameter];
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x - table.first_tile[parameter]) * adamw_tile;
  if (x.packed && x.n - tile >= adamw_tile)
    update_tile<zero_grad, true>(x, tile, op, schedule, norm);
  else
    update_tile<zero_grad, false>(x, tile, op, schedule, norm);
}

// A launch's parameters beside the table.
constexpr std::size_t adamw_others = sizeof(AdamW) + 3 * sizeof(void*);
constexpr std::size_t norm_others = sizeof(NormBlocks) + sizeof(void*);

template <bool zero_grad>
void update(const Context& gpu, const AdamW& op, std::span<const Parameter> parameters,
            const float* schedule, const float* norm) {
  for_each_table<adamw_others>(parameters, adamw_tile, [&]<class Table>(const Table& table) {
    launch(gpu, adamw_kernel<zero_grad, Table>, dim3(table.tiles()), dim3(adamw_threads), 0, table,
           op, schedule, norm);
  });
}

}  // namespace

KernelPtr Accumulate::gpu(GpuPrepare& prepare) const { return map_pairs<float>(prepare, Plus{}); }

KernelPtr GlobalNorm::gpu(GpuPrepare& prepare) const {
  std::vector<std::int64_t> sizes;
  for (const TensorType& type : prepare.in) sizes.push_back(type.numel());
  // A launch has no more blocks than this, and there is at least one operand to a launch.
  const auto most_blocks =
      static_cast<std::uint32_t>(norm_blocks_per_multiprocessor * prepare.gpu.multiprocessors);
  constexpr int capacity = table_capacity<NormOperand>(most_parameter_bytes, norm_others);
  const std::size_t launches = (sizes.size() + capacity - 1) / capacity;
  prepare.workspace = launches * most_blocks * sizeof(double);
  auto arrived = std::make_shared<DeviceMemory>(sizeof(unsigned));
  arrived->clear(prepare.gpu.stream, sizeof(unsigned));
  return make_kernel([&gpu = prepare.gpu, sizes = std::move(sizes), most_blocks, arrived,
                      launches](const Launch& call) {
    std::vector<NormOperand> operands;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      operands.push_back({call.in<float>(i), sizes[i], is_aligned(call.in<float>(i), 16)});
    NormBlocks blocks{.partial = static_cast<double*>(call.workspace),
                      .arrived = arrived->data<unsigned>(),
                      .norm = call.out<float>()};
    std::size_t done = 0;
    const auto run = [&]<class Table>(const Table& table) {
      const std::uint32_t count = std::min(table.tiles(), most_blocks);
      blocks.last = ++done == launches;
      launch(gpu, global_norm_kernel<Table>, dim3(count), dim3(norm_threads), 0, table, blocks,
             table.tiles());
      blocks.before += count;
    };
    for_each_table<norm_others>(std::span<const NormOperand>(operands), norm_tile, run);
  });
}

KernelPtr AdamW::gpu(GpuPrepare& prepare) const {
  const std::int64_t n = prepare.in[0].numel();
  return make_kernel([&gpu = prepare.gpu, n, op = *this](const Launch& call) {
    auto* const grad = const_cast<float*>(call.in<float>(1));  // is not written
    const Parameter parameter =
        parameter_of(call.out<float>(0), grad, call.out<float>(1), call.out<float>(2), {}, n);
    update<false>(gpu, op, {&parameter, 1}, call.in<float>(4),
                  op.max_norm > 0 ? call.in<float>(5) : nullptr);
  });
}

KernelPtr AdamWAll::gpu(GpuPrepare& prepare) const {
  const std::size_t first = shared_operands(), count = parameters(prepare.in.size());
  std::vector<std::int64_t> sizes;
  for (std::size_t p = 0; p < count; ++p) sizes.push_back(prepare.in[first + 4 * p].numel());
  std::vector<DType> copies;
  for (const TensorType& type : prepare.in.subspan(first + 4 * count)) copies.push_back(type.dtype);
  return make_kernel([&gpu = prepare.gpu, sizes = std::move(sizes), copies = std::move(copies),
                      op = *this, first](const Launch& call) {
    std::vector<Parameter> all;
    std::size_t copy = 0;
    const auto rounded_copy = [&] {
      void* const to = call.outputs[sizes.size() * op.outputs_each() + copy];
      return RoundedCopy(to, copies[copy++]);
    };
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      const std::size_t out = p * op.outputs_each();
      const bool copied = !op.copied.empty() && op.copied[p];
      all.push_back(parameter_of(call.out<float>(out),
                                 op.zero_grad
                                     ? call.out<float>(out + 3)
                                     : const_cast<float*>(call.in<float>(first + 4 * p + 1)),
                                 call.out<float>(out + 1), call.out<float>(out + 2),
                                 copied ? rounded_copy() : RoundedCopy(), sizes[p]));
    }
    const auto* norm = op.each.max_norm > 0 ? call.in<float>(1) : nullptr;
    if (op.zero_grad)
      update<true>(gpu, op.each, all, call.in<float>(0), norm);
    else
      update<false>(gpu, op.each, all, call.in<float>(0), norm);
  });
}

}  // namespace ridge
