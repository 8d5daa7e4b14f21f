#include "ridge/gpu/kernels/elementwise/pointwise.h"

#include "ridge/gpu/codegen/pointwise_program.h"
#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using namespace gpu;
using Code = Pointwise::Code;

using Step = PointwiseProgram::Step;

// A call each, so that an interpreter of all of them stays small.
template <class F, class... Operands>
__device__ __noinline__ float called(Operands... operands) {
  return F()(operands...);
}

template <class F, class Gradient>
__device__ float activation(bool gradient, float a, float b) {
  return gradient ? called<Gradient>(a, b) : called<F>(a);
}

__device__ float activation(ActivationKind kind, bool gradient, float a, float b) {
  switch (kind) {
    case ActivationKind::relu6:
      return activation<Relu6Of, Relu6GradOf>(gradient, a, b);
    case ActivationKind::sigmoid:
      return activation<SigmoidOf, SigmoidGradOf>(gradient, a, b);
    case ActivationKind::hard_sigmoid:
      return activation<HardSigmoidOf, HardSigmoidGradOf>(gradient, a, b);
    case ActivationKind::hard_swish:
      return activation<HardSwishOf, HardSwishGradOf>(gradient, a, b);
    case ActivationKind::gelu:
      return activation<GeluOf, GeluGradOf>(gradient, a, b);
    case ActivationKind::tanh:
      return activation<TanhOf, TanhGradOf>(gradient, a, b);
    case ActivationKind::exp:
      return activation<ExpOf, ExpGradOf>(gradient, a, b);
    case ActivationKind::sqrt:
      return activation<SqrtOf, SqrtGradOf>(gradient, a, b);
    case ActivationKind::exp_capped:
      return activation<ExpCappedOf, ExpCappedGradOf>(gradient, a, b);
  }
  return 0;
}

// Of a block, whose slots must fit into its shared memory: AMD's have no more than 64 KiB.
constexpr int program_threads = warp_width == 64 ? 64 : 128;
constexpr int N = 8;  // elements a thread, in two halves of four

// A value of a slot, or of an operand or a result, for one thread.
struct Elements {
  float at[N];
};

struct Operands {
  const void* operand[PointwiseProgram::most_operands];
  void* result[PointwiseProgram::most_results];
};

// What is read before its dtype is known.
struct Raw {
  uint4 half[2];
};

__device__ Raw load_raw(const void* p, DType dtype, std::int64_t i) {
  Raw raw;
  const bool wide = dtype == DType::f32;
  const auto* halves =
      reinterpret_cast<const uint4*>(static_cast<const char*>(p) + i * (wide ? 4 : 2));
  raw.half[0] = halves[0];
  if (wide) raw.half[1] = halves[1];
  return raw;
}

__device__ Elements decode(const Raw& raw, DType dtype) {
  Elements x;
  const std::uint32_t words[] = {raw.half[0].x, raw.half[0].y, raw.half[0].z, raw.half[0].w,
                                 raw.half[1].x, raw.half[1].y, raw.half[1].z, raw.half[1].w};
#pragma unroll
  for (int j = 0; j < N; ++j)
    x.at[j] = dtype == DType::f32    ? __uint_as_float(words[j])
              : dtype == DType::bf16 ? half_of_word<BFloat16>(words[j / 2], j % 2)
                                     : half_of_word<Float16>(words[j / 2], j % 2);
  return x;
}

// Where the element of an operand is that is used in element i of the results.
__device__ std::int64_t source_of(const PointwiseProgram& program, int operand, std::int64_t i) {
  if (program.is_whole(operand)) return i;
  std::int64_t source = 0, stride = 1;
  for (int l = program.loops - 1; l >= 0; --l) {
    const std::int64_t extent = program.extent[l], rest = i / extent;
    if (program.moves_along(operand, l)) {
      source += (i - rest * extent) * stride;
      stride *= extent;
    }
    i = rest;
  }
  return source;
}

// An operand's elements for the n <= N of the results from i on, one by one.
__device__ Elements load_some(const PointwiseProgram& program, int operand, const void* p,
                              std::int64_t i, int n) {
  const DType dtype = program.operand_dtype[operand];
  Elements x;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const std::int64_t at = j < n ? source_of(program, operand, i + j) : 0;
    x.at[j] = dtype == DType::f32    ? static_cast<const float*>(p)[at]
              : dtype == DType::bf16 ? load(static_cast<const BFloat16*>(p) + at)
                                     : load(static_cast<const Float16*>(p) + at);
  }
  return x;
}

template <class T>
__device__ void store_elements(T* p, const Elements& x, bool packed, int n) {
  if (packed) {
    constexpr int width = elements_per_access<T>;
#pragma unroll
    for (int j = 0; j < N; j += width) {
      float part[width];
#pragma unroll
      for (int k = 0; k < width; ++k) part[k] = x.at[j + k];
      store_pack<width>(p + j, part);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (j < n) store(&p[j], x.at[j]);
  }
}

// The calling thread's part of the slots.
struct Slots {
  float4* memory;  // [slot][half][thread]

  __device__ float4* half(int slot, int h) const {
    return memory + (slot * 2 + h) * program_threads + threadIdx.x;
  }
  __device__ Elements get(int slot) const {
    const float4 a = *half(slot, 0), b = *half(slot, 1);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  __device__ void put(int slot, const Elements& x) const {
    *half(slot, 0) = make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
    *half(slot, 1) = make_float4(x.at[4], x.at[5], x.at[6], x.at[7]);
  }
};

// Runs the whole program on N elements a thread. Threads have nothing in common but the program.
__global__ void __launch_bounds__(program_threads)
    program_kernel(std::int64_t n, bool aligned, const __grid_constant__ PointwiseProgram program,
                   const __grid_constant__ Operands operands) {
  gpu::begin_kernel();
  Slots slots;  // not by an initializer: without optimization clang makes that a constant in memory
  slots.memory = gpu::dynamic_shared<float4>();
  const std::int64_t i =
      (static_cast<std::int64_t>(blockIdx.x) * program_threads + threadIdx.x) * N;
  if (i >= n) return;
  const int count = static_cast<int>(min(static_cast<std::int64_t>(N), n - i));
  const bool packed = aligned && count == N;

  constexpr int together = 4;  // operands whose loads are in flight at once
  for (int o = 0; o < program.operands; o += together) {
    if (packed && program.all_whole) {
      Raw raw[together];
#pragma unroll
      for (int k = 0; k < together; ++k)
        if (o + k < program.operands)
          raw[k] = load_raw(operands.operand[o + k], program.operand_dtype[o + k], i);
#pragma unroll
      for (int k = 0; k < together; ++k)
        if (o + k < program.operands)
          slots.put(o + k, decode(raw[k], program.operand_dtype[o + k]));
    } else {
      for (int k = o; k < min(o + together, program.operands); ++k)
        slots.put(k, load_some(program, k, operands.operand[k], i, count));
    }
  }

  Elements value{};
  int r = 0;
  for (int s = 0; s <= program.steps; ++s) {
    if (s > 0) {
      const Step& step = program.step[s - 1];
      const Elements a = step.a == PointwiseProgram::previous ? value : slots.get(step.a);
      const Elements b = step.b == step.a                       ? a
                         : step.b == PointwiseProgram::previous ? value
                                                                : slots.get(step.b);
      const auto each = [&](const auto& f) {
#pragma unroll
        for (int k = 0; k < N; ++k) value.at[k] = f(a.at[k], b.at[k]);
      };
      switch (step.code) {
        case Code::add:
          each([](float p, float q) { return p + q; });
          break;
        case Code::mul:
          each([](float p, float q) { return p * q; });
          break;
        case Code::scale:
          each([f = step.factor](float p, float) { return f * p; });
          break;
        case Code::silu:
          each([](float p, float) { return SiluOf()(p); });
          break;
        case Code::silu_grad:
          each(SiluGradOf());
          break;
        case Code::relu:
          each([](float p, float) { return ReluOf()(p); });
          break;
        case Code::relu_grad:
          each(ReluGradOf());
          break;
        case Code::activation:
        case Code::activation_grad:
          each([kind = step.kind, gradient = step.code == Code::activation_grad](float p, float q) {
            return activation(kind, gradient, p, q);
          });
          break;
      }
      if (step.to != PointwiseProgram::none) slots.put(step.to, value);
    }
    for (; r < program.results && program.result[r].after == s; ++r) {
      const PointwiseProgram::Result& result = program.result[r];
      const Elements x = result.slot == PointwiseProgram::previous ? value : slots.get(result.slot);
      void* const to = operands.result[result.index];
      if (result.dtype == DType::f32)
        store_elements(static_cast<float*>(to) + i, x, packed, count);
      else
        RoundedCopy(to, result.dtype).at(i, [&](auto* p) { store_elements(p, x, packed, count); });
    }
  }
}

}  // namespace

KernelPtr gpu::interpreted_pointwise(const Pointwise& op, GpuPrepare& prepare) {
  const PointwiseProgram program(op, prepare.in, prepare.out[0].shape);
  const std::size_t shared = program.slots * program_threads * sizeof(Elements);
  allow_shared_memory(program_kernel, prepare.gpu.card.shared_per_block);
  return make_kernel(
      [&gpu = prepare.gpu, n = prepare.out[0].numel(), program, shared](const Launch& call) {
        Operands operands;
        bool aligned = true;
        for (int o = 0; o < program.operands; ++o) {
          operands.operand[o] = call.inputs[static_cast<std::size_t>(o)];
          aligned = aligned && is_aligned(operands.operand[o], 16);
        }
        for (int r = 0; r < program.results; ++r) {
          operands.result[r] = call.outputs[static_cast<std::size_t>(r)];
          aligned = aligned && is_aligned(operands.result[r], 16);
        }
        launch(gpu, program_kernel, dim3(blocks_for(n, std::int64_t{program_threads} * N)),
               dim3(program_threads), shared, n, aligned, program, operands);
      });
}

}  // namespace ridge
