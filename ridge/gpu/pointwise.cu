#include "ridge/ops/pointwise.h"

#include <algorithm>
#include <array>

#include "ridge/gpu/activation.h"
#include "ridge/gpu/elementwise.h"
#include "ridge/gpu/pointwise_program.h"

namespace ridge {
namespace {

using namespace gpu;
using Code = Pointwise::Code;

__device__ float apply(Code code, float a, float b, float factor) {
  switch (code) {
    case Code::add:
      return a + b;
    case Code::mul:
      return a * b;
    case Code::scale:
      return factor * a;
    case Code::silu:
      return SiluOf()(a);
    case Code::silu_grad:
      return SiluGradOf()(a, b);
    case Code::relu:
      return ReluOf()(a);
    case Code::relu_grad:
      return ReluGradOf()(a, b);
  }
  return 0;
}

// A chain whose steps are known to the compiler: each takes the value of the one before, or the
// first operand, and if it takes two then the next operand.
template <Code... codes>
struct Chain {
  static constexpr std::array all{codes...};

  float factors[sizeof...(codes)];

  template <class... Operands>
  __device__ float operator()(float value, Operands... others) const {
    const float operands[] = {others..., 0.0f};
    int operand = 0, step = 0;
    ((value = apply(codes, value, takes_two(codes) ? operands[operand++] : 0.0f, factors[step++])),
     ...);
    return value;
  }

  static constexpr bool takes_two(Code code) {
    return code != Code::scale && code != Code::silu && code != Code::relu;
  }
  static constexpr std::size_t operands() { return 1 + (takes_two(codes) + ...); }

  // Whether `op` is this chain, with all operands and the result in one dtype.
  static bool is(const Pointwise& op, Types in) {
    if (op.steps.size() != all.size() || in.size() != operands() || op.results.size() != 1 ||
        op.results[0].value != in.size() + op.steps.size() - 1)
      return false;
    std::size_t next = 1, value = 0;
    for (std::size_t s = 0; s < all.size(); ++s) {
      const Pointwise::Step& step = op.steps[s];
      if (step.code != all[s]) return false;
      const bool swapped = step.a != value && (step.code == Code::add || step.code == Code::mul);
      if ((swapped ? step.b : step.a) != value) return false;
      if (takes_two(step.code) && (swapped ? step.a : step.b) != next++) return false;
      value = in.size() + s;
    }
    return std::ranges::all_of(
        in, [&](const TensorType& type) { return type.dtype == op.results[0].dtype; });
  }

  static KernelPtr prepare(const Pointwise& op, GpuPrepare& prepare) {
    Chain chain;
    for (std::size_t s = 0; s < all.size(); ++s) chain.factors[s] = op.steps[s].factor;
    return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
      const std::int64_t n = prepare.out[0].numel();
      return make_kernel([&gpu = prepare.gpu, n, chain](const Launch& call) {
        T* y = call.out<T>();
        if constexpr (operands() == 1)
          map(gpu, n, chain, y, call.in<T>(0));
        else if constexpr (operands() == 2)
          map(gpu, n, chain, y, call.in<T>(0), call.in<T>(1));
        else
          map(gpu, n, chain, y, call.in<T>(0), call.in<T>(1), call.in<T>(2));
      });
    });
  }
};

// The kernel of the first chain that `op` is; null if it is none.
template <class... Chains>
KernelPtr prepare_chain(const Pointwise& op, GpuPrepare& prepare) {
  KernelPtr kernel;
  ((!kernel && Chains::is(op, prepare.in) ? void(kernel = Chains::prepare(op, prepare)) : void()),
   ...);
  return kernel;
}

constexpr int program_threads = 128;
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

// The n <= N elements from i on, one by one.
__device__ Elements load_some(const void* p, DType dtype, std::int64_t i, int n) {
  Elements x;
#pragma unroll
  for (int j = 0; j < N; ++j)
    x.at[j] = j >= n                 ? 0.0f
              : dtype == DType::f32  ? static_cast<const float*>(p)[i + j]
              : dtype == DType::bf16 ? load(static_cast<const BFloat16*>(p) + i + j)
                                     : load(static_cast<const Float16*>(p) + i + j);
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
  extern __shared__ float4 slot_memory[];
  const Slots slots{slot_memory};
  const std::int64_t i =
      (static_cast<std::int64_t>(blockIdx.x) * program_threads + threadIdx.x) * N;
  if (i >= n) return;
  const int count = static_cast<int>(min(static_cast<std::int64_t>(N), n - i));
  const bool packed = aligned && count == N;

  constexpr int together = 4;  // operands whose loads are in flight at once
  for (int o = 0; o < program.operands; o += together) {
    if (packed) {
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
        slots.put(k, load_some(operands.operand[k], program.operand_dtype[k], i, count));
    }
  }

  Elements value{};
  int r = 0;
  for (int s = 0; s <= program.steps; ++s) {
    if (s > 0) {
      const PointwiseProgram::Step& step = program.step[s - 1];
      const Elements a = step.a == PointwiseProgram::previous ? value : slots.get(step.a);
      const Elements b = step.b == step.a                       ? a
                         : step.b == PointwiseProgram::previous ? value
                                                                : slots.get(step.b);
      const Code code = step.code;
      const float factor = step.factor;
      const auto each = [&](const auto& f) {
#pragma unroll
        for (int j = 0; j < N; ++j) value.at[j] = f(a.at[j], b.at[j]);
      };
      const auto run = [&]<Code c>() {
        each([&](float p, float q) { return apply(c, p, q, factor); });
      };
      switch (code) {
        case Code::add:
          run.template operator()<Code::add>();
          break;
        case Code::mul:
          run.template operator()<Code::mul>();
          break;
        case Code::scale:
          run.template operator()<Code::scale>();
          break;
        case Code::silu:
          run.template operator()<Code::silu>();
          break;
        case Code::silu_grad:
          run.template operator()<Code::silu_grad>();
          break;
        case Code::relu:
          run.template operator()<Code::relu>();
          break;
        case Code::relu_grad:
          run.template operator()<Code::relu_grad>();
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

KernelPtr prepare_program(const Pointwise& op, GpuPrepare& prepare) {
  const PointwiseProgram program(op, prepare.in);
  const std::size_t shared = program.slots * program_threads * sizeof(Elements);
  allow_shared_memory(program_kernel, prepare.gpu.shared_per_block);
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

}  // namespace

KernelPtr Pointwise::gpu(GpuPrepare& prepare) const {
  // The chains of usual models.
  KernelPtr kernel =
      prepare_chain<Chain<Code::silu, Code::mul>, Chain<Code::silu_grad, Code::mul>,
                    Chain<Code::mul, Code::silu_grad>, Chain<Code::add, Code::relu>,
                    Chain<Code::relu_grad, Code::add>, Chain<Code::add, Code::relu_grad>,
                    Chain<Code::add, Code::add>, Chain<Code::mul, Code::add>,
                    Chain<Code::scale, Code::add>>(*this, prepare);
  return kernel ? std::move(kernel) : prepare_program(*this, prepare);
}

}  // namespace ridge
