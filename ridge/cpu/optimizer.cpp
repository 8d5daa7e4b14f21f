#include "ridge/ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

constexpr std::int64_t block = 16384;  // elements per task

// AdamW's update of a run of elements. The operations and their order are those of PyTorch's AdamW
// and clip_grad_norm_, so that both agree to rounding.
struct Update {
  float keep, step, correction, decay2, tiny, rest1, rest2, factor = 1.0f;  // of the gradient

  // `norm` only where the gradients are clipped.
  Update(const AdamW& op, const float* schedule, const float* norm) {
    const double lr = schedule[0];
    keep = static_cast<float>(1.0 - lr * op.weight_decay);
    step = static_cast<float>(lr / schedule[1]);
    correction = static_cast<float>(1.0 / std::sqrt(static_cast<double>(schedule[2])));
    decay2 = static_cast<float>(op.beta2);
    tiny = static_cast<float>(op.eps);
    rest1 = static_cast<float>(1.0 - op.beta1);
    rest2 = static_cast<float>(1.0 - op.beta2);
    if (op.scaled) factor = schedule[3];
    if (op.max_norm > 0)
      factor *= std::min(1.0f, static_cast<float>(op.max_norm) / (*norm * factor + 1e-6f));
  }

  // The new values may be in the memory of the old. Never inlined: the compiler shall choose once
  // which products and sums it fuses, so that every caller gets the same bits.
  [[gnu::noinline]] void operator()(const float* param, const float* grad, const float* m,
                                    const float* v, float* new_param, float* new_m, float* new_v,
                                    std::int64_t n) const {
    const Update c = *this;  // a copy in registers, which the stores below cannot change
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = grad[i] * c.factor;
      const float mi = m[i] + c.rest1 * (g - m[i]);
      const float vi = v[i] * c.decay2 + c.rest2 * (g * g);
      new_m[i] = mi;
      new_v[i] = vi;
      new_param[i] = param[i] * c.keep - c.step * (mi / (std::sqrt(vi) * c.correction + c.tiny));
    }
  }
};

// Whether nothing is to be updated.
bool is_skipped(const AdamW& op, const float* schedule) { return op.scaled && schedule[3] == 0.0f; }

// All parameters one after another, as if they were one long vector.
struct Concatenation {
  std::vector<std::int64_t> starts;  // of each parameter, and the end of the last

  // body(parameter, first element of it, how many) for all of [begin, end).
  template <class F>
  void for_each_part(std::int64_t begin, std::int64_t end, const F& body) const {
    auto part = std::ranges::upper_bound(starts, begin) - 1;
    for (; begin < end; ++part) {
      const std::int64_t n = std::min(end, part[1]) - begin;
      body(static_cast<std::size_t>(part - starts.begin()), begin - part[0], n);
      begin += n;
    }
  }
};

// The memory of one parameter in one launch; of the last two only what there is.
struct Parameter {
  const float *param, *grad, *m, *v;
  float *new_param, *new_m, *new_v, *zeroed = nullptr;
  BFloat16* copy = nullptr;
};

std::vector<Parameter> parameters_of(const AdamWAll& op, const Launch& call) {
  const std::size_t first = op.shared_operands(), count = op.parameters(call.inputs.size());
  std::size_t copy = count * op.outputs_each();
  std::vector<Parameter> parameters;
  for (std::size_t p = 0; p < count; ++p) {
    const std::size_t in = first + 4 * p, out = p * op.outputs_each();
    Parameter& parameter = parameters.emplace_back(Parameter{
        call.in<float>(in), call.in<float>(in + 1), call.in<float>(in + 2), call.in<float>(in + 3),
        call.out<float>(out), call.out<float>(out + 1), call.out<float>(out + 2)});
    if (op.zero_grad) parameter.zeroed = call.out<float>(out + 3);
    if (!op.copied.empty() && op.copied[p]) parameter.copy = call.out<BFloat16>(copy++);
  }
  return parameters;
}

// Where more is to be done with the new values, then in pieces that are still in the first-level
// cache.
void update_part(const Update& update, const Parameter& x, std::int64_t begin, std::int64_t n) {
  const std::int64_t piece = x.zeroed || x.copy ? 1024 : n;
  for (std::int64_t i = begin, end = begin + n; i < end; i += piece) {
    const std::int64_t length = std::min(piece, end - i);
    update(x.param + i, x.grad + i, x.m + i, x.v + i, x.new_param + i, x.new_m + i, x.new_v + i,
           length);
    if (x.zeroed) std::fill_n(x.zeroed + i, length, 0.0f);
    if (!x.copy) continue;
#pragma omp simd
    for (std::int64_t k = i; k < i + length; ++k) store(&x.copy[k], x.new_param[k]);
  }
}

}  // namespace

KernelPtr Accumulate::cpu(CpuPrepare& prepare) const {
  const std::int64_t n = prepare.in[0].numel();
  return make_kernel([&pool = prepare.pool, n](const Launch& call) {
    const float *acc = call.in<float>(0), *x = call.in<float>(1);
    float* y = call.out<float>(0);
    parallel_for(pool, n, block, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = acc[i] + x[i];
    });
  });
}

// The blocks of all operands are one loop; each leaves its sum in the workspace, and the sums are
// added in order.
KernelPtr GlobalNorm::cpu(CpuPrepare& prepare) const {
  struct Block {
    std::size_t operand;
    std::int64_t begin, end;
  };
  std::vector<std::int64_t> sizes;
  std::int64_t count = 0;
  for (const TensorType& type : prepare.in) {
    sizes.push_back(type.numel());
    count += (type.numel() + block - 1) / block;
  }
  prepare.workspace = static_cast<std::size_t>(count) * sizeof(double);
  return make_kernel([&pool = prepare.pool, count, sizes = std::move(sizes)](const Launch& call) {
    std::vector<Block> blocks;
    blocks.reserve(static_cast<std::size_t>(count));
    for (std::size_t operand = 0; operand < sizes.size(); ++operand)
      for (std::int64_t i = 0, n = sizes[operand]; i < n; i += block)
        blocks.push_back({operand, i, std::min(n, i + block)});
    auto* partial = static_cast<double*>(call.workspace);
    pool.run(count, [&](std::int64_t b) {
      const Block& part = blocks[static_cast<std::size_t>(b)];
      const float* x = call.in<float>(part.operand);
      const std::int64_t end = part.end;
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = part.begin; i < end; ++i) sum += static_cast<double>(x[i]) * x[i];
      partial[b] = sum;
    });
    double total = 0;
    for (std::int64_t b = 0; b < count; ++b) total += partial[b];
    *call.out<float>() = static_cast<float>(std::sqrt(total));
  });
}

KernelPtr AdamW::cpu(CpuPrepare& prepare) const {
  const std::int64_t n = prepare.in[0].numel();
  return make_kernel([&pool = prepare.pool, n, op = *this](const Launch& call) {
    const float *param = call.in<float>(0), *grad = call.in<float>(1);
    const float *m = call.in<float>(2), *v = call.in<float>(3);
    float *new_param = call.out<float>(0), *new_m = call.out<float>(1), *new_v = call.out<float>(2);
    if (is_skipped(op, call.in<float>(4))) return;
    const Update update(op, call.in<float>(4), op.max_norm > 0 ? call.in<float>(5) : nullptr);
    parallel_for(pool, n, block, [=](std::int64_t begin, std::int64_t end) {
      update(param + begin, grad + begin, m + begin, v + begin, new_param + begin, new_m + begin,
             new_v + begin, end - begin);
    });
  });
}

KernelPtr AdamWAll::cpu(CpuPrepare& prepare) const {
  Concatenation all{{0}};
  const std::size_t first = shared_operands(), count = parameters(prepare.in.size());
  for (std::size_t p = first; p < first + 4 * count; p += 4)
    all.starts.push_back(all.starts.back() + prepare.in[p].numel());
  return make_kernel([&pool = prepare.pool, op = *this, all = std::move(all)](const Launch& call) {
    const std::vector<Parameter> parameters = parameters_of(op, call);
    const Update update(op.each, call.in<float>(0),
                        op.each.max_norm > 0 ? call.in<float>(1) : nullptr);
    const bool skipped = is_skipped(op.each, call.in<float>(0));
    parallel_for(pool, all.starts.back(), block, [&](std::int64_t begin, std::int64_t end) {
      all.for_each_part(begin, end, [&](std::size_t p, std::int64_t i, std::int64_t n) {
        if (!skipped)
          update_part(update, parameters[p], i, n);
        else if (parameters[p].zeroed)
          std::fill_n(parameters[p].zeroed + i, n, 0.0f);
      });
    });
  });
}

}  // namespace ridge
