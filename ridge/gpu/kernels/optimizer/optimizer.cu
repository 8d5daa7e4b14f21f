#include "ridge/ops/optimizer.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ridge/gpu/device/memory.h"
#include "ridge/gpu/device/tensor_table.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using namespace gpu;

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Four consecutive elements: `whole`, all of them and aligned, in one access; otherwise one by one,
// as many as there are before n.
template <bool whole, class T>
__device__ void load4(const T* p, std::int64_t n, float (&x)[4]) {
  if constexpr (whole) {
    load_pack<4>(p, x);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = i < n ? load(&p[i]) : 0.0f;
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

// The same of numbers in halves.
template <bool whole>
__device__ void load4(const std::uint16_t* upper, const std::uint16_t* lower, std::int64_t n,
                      float (&x)[4]) {
  Pack<std::uint16_t, 4> high{}, low{};
  if constexpr (whole) {
    high = *reinterpret_cast<const Pack<std::uint16_t, 4>*>(upper);
    low = *reinterpret_cast<const Pack<std::uint16_t, 4>*>(lower);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < n) high.at[i] = upper[i], low.at[i] = lower[i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(SplitFloat(high.at[i], low.at[i]));
}

template <bool whole>
__device__ void store4(std::uint16_t* upper, std::uint16_t* lower, std::int64_t n,
                       const float (&x)[4]) {
  Pack<std::uint16_t, 4> high, low;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const SplitFloat halves(x[i]);
    high.at[i] = halves.upper;
    low.at[i] = halves.lower;
  }
  if constexpr (whole) {
    *reinterpret_cast<Pack<std::uint16_t, 4>*>(upper) = high;
    *reinterpret_cast<Pack<std::uint16_t, 4>*>(lower) = low;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < n) upper[i] = high.at[i], lower[i] = low.at[i];
  }
}

// A tensor whose dtype is known at run time only.
struct AnyFloats {
  const void* data = nullptr;
  DType dtype = DType::f32;

  // Calls f(pointer to the element at i).
  template <class F>
  __device__ void at(std::int64_t i, const F& f) const {
    if (dtype == DType::f32)
      f(static_cast<const float*>(data) + i);
    else if (dtype == DType::bf16)
      f(static_cast<const BFloat16*>(data) + i);
    else
      f(static_cast<const Float16*>(data) + i);
  }
  // Whether packs of four can be read.
  bool is_packed() const { return is_aligned(data, dtype == DType::f32 ? 16 : 8); }
};

constexpr int norm_threads = 256, norm_packs = 4, norm_tile = norm_threads * 4 * norm_packs;
constexpr int norm_blocks_per_multiprocessor = 8;

struct NormOperand {
  AnyFloats x;
  std::int64_t n;
  bool packed;  // x is aligned to packs of four
};

template <bool whole>
__device__ void add_squares(const NormOperand& x, std::int64_t begin, double& sum) {
  x.x.at(begin, [&](const auto* from) {
#pragma unroll
    for (int k = 0; k < norm_packs; ++k) {
      const std::int64_t i = (k * norm_threads + static_cast<int>(threadIdx.x)) * 4;
      float values[4];
      load4<whole>(from + i, x.n - begin - i, values);
#pragma unroll
      for (const float value : values) sum += static_cast<double>(value) * value;
    }
  });
}

// The state by which the blocks of one or more launches compute one norm.
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

constexpr int update_threads = 256, update_packs = 2,
              update_tile_size = update_threads * 4 * update_packs,
              update_blocks = 4;  // that a multiprocessor holds at once

// What a step multiplies by; see the formulas in ops/optimizer.h, which these order as PyTorch
// does, so that both agree to rounding. Each fused operation is written out, so that every kernel
// that this is part of gets the same bits.
template <class Each>
struct Factors;

// What the gradient is multiplied by. `norm` only where the gradients are clipped.
template <class Each>
__device__ float gradient_factor(const Each& op, const float* schedule, const float* norm) {
  const float factor = op.scaled ? schedule[3] : 1.0f;
  return norm ? factor * fminf(1.0f, static_cast<float>(op.max_norm) / (*norm * factor + 1e-6f))
              : factor;
}

template <>
struct Factors<AdamW> {
  float keep, step, correction, decay2, tiny, rest1, rest2, factor;

  __device__ void set(const AdamW& op, const float* schedule, const float* norm) {
    const double lr = schedule[0];
    keep = static_cast<float>(1.0 - lr * op.weight_decay);
    step = schedule[0] / schedule[1];
    correction = static_cast<float>(1.0 / sqrt(static_cast<double>(schedule[2])));
    decay2 = static_cast<float>(op.beta2);
    tiny = static_cast<float>(op.eps);
    rest1 = static_cast<float>(1.0 - op.beta1);
    rest2 = static_cast<float>(1.0 - op.beta2);
    factor = gradient_factor(op, schedule, norm);
  }

  __device__ void update(float& param, float grad, float (&moments)[2]) const {
    float &m = moments[0], &v = moments[1];
    const float g = grad * factor;
    m = fmaf(rest1, g - m, m);
    v = fmaf(rest2, g * g, v * decay2);
    param = fmaf(-step, m / fmaf(sqrtf(v), correction, tiny), param * keep);
  }
};

template <>
struct Factors<Sgd> {
  float factor, rate, weight_decay, momentum;
  bool nesterov;

  __device__ void set(const Sgd& op, const float* schedule, const float* norm) {
    rate = schedule[0];
    weight_decay = static_cast<float>(op.weight_decay);
    momentum = static_cast<float>(op.momentum);
    nesterov = op.nesterov;
    factor = gradient_factor(op, schedule, norm);
  }

  __device__ void update(float& param, float grad, float (&moments)[1]) const {
    const float g = fmaf(weight_decay, param, grad * factor);
    moments[0] = fmaf(momentum, moments[0], g);
    param = fmaf(-rate, nesterov ? fmaf(momentum, moments[0], g) : moments[0], param);
  }
};

// One parameter, updated in place. Where it is split, param is where its upper halves begin.
template <class Each>
struct Parameter {
  float* param;
  AnyFloats grad;
  float* moments[Each::moments];
  RoundedCopy copy;  // or null
  std::int64_t n;
  bool packed;  // all are aligned to packs of four
  bool split;

  __device__ std::uint16_t* upper() const { return reinterpret_cast<std::uint16_t*>(param); }
  __device__ std::uint16_t* lower() const { return upper() + n; }
};

// The parameter of a launch whose outputs from `out` on are it and its moments.
template <class Each>
Parameter<Each> parameter_of(const Launch& call, std::size_t out, AnyFloats grad, RoundedCopy copy,
                             std::int64_t n, bool split = false) {
  Parameter<Each> x{
      .param = call.out<float>(out), .grad = grad, .copy = copy, .n = n, .split = split};
  x.packed = is_aligned(x.param, 16) && grad.is_packed() && is_aligned(copy.data, 8) &&
             (!split || n % 4 == 0);
  for (std::size_t m = 0; m < Each::moments; ++m) {
    x.moments[m] = call.out<float>(out + 1 + m);
    x.packed = x.packed && is_aligned(x.moments[m], 16);
  }
  return x;
}

// Updates the tile that begins at an element, by a whole block. The dtype of the gradients is the
// kernel's: a branch between the loads would make all of them wait (17 % of AdamW where it was
// measured).
template <bool zero_grad, bool whole, class Gradient, class Each>
__device__ void update_tile(const Parameter<Each>& x, std::int64_t tile, const Each& op,
                            const float* schedule, const float* norm) {
  constexpr int moments = Each::moments;
  const auto* const gradients = static_cast<const Gradient*>(x.grad.data);
  float param[update_packs][4], grad[update_packs][4], moment[moments][update_packs][4];
  const auto each_pack = [&](const auto& f) {
#pragma unroll
    for (int k = 0; k < update_packs; ++k) {
      const std::int64_t i = tile + (k * update_threads + static_cast<int>(threadIdx.x)) * 4;
      f(k, i, x.n - i);
    }
  };
  each_pack([&](int k, std::int64_t i, std::int64_t rest) {
#pragma unroll
    for (int m = 0; m < moments; ++m) load4<whole>(x.moments[m] + i, rest, moment[m][k]);
    load4<whole>(gradients + i, rest, grad[k]);
    if (x.split)
      load4<whole>(x.upper() + i, x.lower() + i, rest, param[k]);
    else
      load4<whole>(x.param + i, rest, param[k]);
  });
  __shared__ Factors<Each> shared;
  if (threadIdx.x == 0) shared.set(op, schedule, norm);  // in double: once a block
  __syncthreads();
  const Factors<Each> factors = shared;
  const auto clear_grad = [&](std::int64_t i, std::int64_t rest) {
    constexpr float zeros[4] = {};
    store4<whole>(const_cast<Gradient*>(gradients) + i, rest, zeros);
  };
  if (op.scaled && schedule[3] == 0.0f) {  // nothing is updated
    if constexpr (zero_grad)
      each_pack([&](int, std::int64_t i, std::int64_t rest) { clear_grad(i, rest); });
    return;
  }
  each_pack([&](int k, std::int64_t i, std::int64_t rest) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float state[moments];
#pragma unroll
      for (int m = 0; m < moments; ++m) state[m] = moment[m][k][j];
      factors.update(param[k][j], grad[k][j], state);
#pragma unroll
      for (int m = 0; m < moments; ++m) moment[m][k][j] = state[m];
    }
    if (x.split)
      store4<whole>(x.upper() + i, x.lower() + i, rest, param[k]);
    else
      store4<whole>(x.param + i, rest, param[k]);
#pragma unroll
    for (int m = 0; m < moments; ++m) store4<whole>(x.moments[m] + i, rest, moment[m][k]);
    if constexpr (zero_grad) clear_grad(i, rest);
    if (x.copy) x.copy.at(i, [&](auto* to) { store4<whole>(to, rest, param[k]); });
  });
}

// One tile of one parameter a block.
template <bool zero_grad, class Gradient, class Table, class Each>
__global__ void __launch_bounds__(update_threads, update_blocks)
    update_kernel(const __grid_constant__ Table table, const __grid_constant__ Each op,
                  const float* schedule, const float* norm) {
  gpu::begin_kernel();
  const int parameter = table.find(blockIdx.x);
  const Parameter<Each>& x = table.entry[parameter];
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x - table.first_tile[parameter]) * update_tile_size;
  if (x.packed && x.n - tile >= update_tile_size)
    update_tile<zero_grad, true, Gradient>(x, tile, op, schedule, norm);
  else
    update_tile<zero_grad, false, Gradient>(x, tile, op, schedule, norm);
}

// A launch's parameters beside the table.
template <class Each>
constexpr std::size_t update_others = sizeof(Each) + 3 * sizeof(void*);
constexpr std::size_t norm_others = sizeof(NormBlocks) + sizeof(void*);

// Updates parameters whose gradients are all of one dtype.
template <bool zero_grad, class Gradient, class Each>
void update(const Context& gpu, const Each& op, std::span<const Parameter<Each>> parameters,
            const float* schedule, const float* norm) {
  for_each_table<update_others<Each>>(
      parameters, update_tile_size, [&]<class Table>(const Table& table) {
        launch(gpu, update_kernel<zero_grad, Gradient, Table, Each>, dim3(table.tiles()),
               dim3(update_threads), 0, table, op, schedule, norm);
      });
}

// Updates parameters by launches of their own for each dtype of gradients.
template <class Each>
void update_by_dtype(const Context& gpu, const Each& op,
                     std::span<const Parameter<Each>> parameters, const float* schedule,
                     const float* norm) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<Parameter<Each>> with_gradient;
    for (const Parameter<Each>& x : parameters)
      if (x.grad.dtype == dtype) with_gradient.push_back(x);
    if (with_gradient.empty()) continue;
    dispatch_floating(dtype, [&]<class Gradient>() {
      update<false, Gradient, Each>(gpu, op, with_gradient, schedule, norm);
    });
  }
}

template <class Each>
KernelPtr update_each(const Each& op, GpuPrepare& prepare) {
  const std::int64_t n = prepare.in[0].numel();
  const DType gradient = prepare.in[1].dtype;
  return dispatch_floating(gradient, [&]<class Gradient>() {
    return make_kernel([&gpu = prepare.gpu, n, gradient, op](const Launch& call) {
      constexpr std::size_t own = 2 + Each::moments;
      const Parameter<Each> parameter =
          parameter_of<Each>(call, 0, {call.inputs[1], gradient}, {}, n);
      update<false, Gradient, Each>(gpu, op, {&parameter, 1}, call.in<float>(own),
                                    op.max_norm > 0 ? call.in<float>(own + 1) : nullptr);
    });
  });
}

}  // namespace

KernelPtr Accumulate::gpu(GpuPrepare& prepare) const { return map_pairs<float>(prepare, Plus{}); }

KernelPtr GlobalNorm::gpu(GpuPrepare& prepare) const {
  // A launch has no more blocks than this, and there is at least one operand to a launch.
  const auto most_blocks =
      static_cast<std::uint32_t>(norm_blocks_per_multiprocessor * prepare.gpu.card.multiprocessors);
  constexpr int capacity = table_capacity<NormOperand>(most_parameter_bytes, norm_others);
  const std::size_t launches = (prepare.in.size() + capacity - 1) / capacity;
  prepare.workspace = launches * most_blocks * sizeof(double);
  auto arrived = std::make_shared<DeviceMemory>(sizeof(unsigned));
  arrived->clear(prepare.gpu.stream, sizeof(unsigned));
  return make_kernel(
      [&gpu = prepare.gpu, most_blocks, arrived, launches,
       types = std::vector(prepare.in.begin(), prepare.in.end())](const Launch& call) {
        std::vector<NormOperand> operands;
        for (std::size_t i = 0; i < types.size(); ++i) {
          const AnyFloats x{call.inputs[i], types[i].dtype};
          operands.push_back({x, types[i].numel(), x.is_packed()});
        }
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

KernelPtr AdamW::gpu(GpuPrepare& prepare) const { return update_each(*this, prepare); }
KernelPtr Sgd::gpu(GpuPrepare& prepare) const { return update_each(*this, prepare); }

template <class Each>
KernelPtr UpdateAll<Each>::gpu(GpuPrepare& prepare) const {
  const std::size_t first = shared_operands(), count = parameters(prepare.in.size());
  std::vector<std::int64_t> sizes;
  std::vector<bool> split;
  std::vector<DType> gradients;
  for (std::size_t p = 0; p < count; ++p) {
    const TensorType& type = prepare.in[first + operands_each * p];
    sizes.push_back(type.numel());
    split.push_back(type.dtype == DType::split_f32);
    gradients.push_back(prepare.in[first + operands_each * p + 1].dtype);
  }
  std::vector<DType> copies;
  for (const TensorType& type : prepare.in.subspan(first + operands_each * count))
    copies.push_back(type.dtype);
  return make_kernel([&gpu = prepare.gpu, sizes = std::move(sizes), split = std::move(split),
                      gradients = std::move(gradients), copies = std::move(copies), op = *this,
                      first](const Launch& call) {
    std::vector<Parameter<Each>> all;
    std::size_t copy = 0;
    const auto rounded_copy = [&] {
      void* const to = call.outputs[sizes.size() * op.outputs_each() + copy];
      return RoundedCopy(to, copies[copy++]);
    };
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      const std::size_t out = p * op.outputs_each();
      const AnyFloats grad{call.inputs[first + operands_each * p + 1], gradients[p]};
      const bool copied = !op.copied.empty() && op.copied[p];
      all.push_back(parameter_of<Each>(call, out, grad, copied ? rounded_copy() : RoundedCopy(),
                                       sizes[p], split[p]));
    }
    const auto* norm = op.each.max_norm > 0 ? call.in<float>(1) : nullptr;
    if (op.zero_grad)
      update<true, float, Each>(gpu, op.each, all, call.in<float>(0), norm);
    else
      update_by_dtype<Each>(gpu, op.each, all, call.in<float>(0), norm);
  });
}

template KernelPtr AdamWAll::gpu(GpuPrepare&) const;
template KernelPtr SgdAll::gpu(GpuPrepare&) const;

}  // namespace ridge
