#include "ridge/ops/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

constexpr std::int64_t block = 16384;  // elements per task

// Whether nothing is to be updated.
template <class Each>
bool is_skipped(const Each& op, const float* schedule) {
  return op.scaled && schedule[3] == 0.0f;
}

// What the gradient is multiplied by. `norm` only where the
// gradients are clipped.
template <class Each>
float gradient_factor(const Each& op, const float* schedule, const float* norm) {
  const float factor = op.scaled ? schedule[3] : 1.0f;
  if (op.max_norm == 0) return factor;
  return factor * std::min(1.0f, static_cast<float>(op.max_norm) / (*norm * factor + 1e-6f));
}

// The memory of one parameter in one launch, which is updated in place; of the last ones only what
// there is. One that is split has its halves, and no param; one whose gradient is in 16 bits has
// that, and no grad.
template <class Each>
struct Parameter {
  float* param;
  const float* grad;
  std::array<float*, Each::moments> moments;
  float* zeroed = nullptr;
  const void* rounded_grad = nullptr;
  DType grad_dtype = DType::f32;
  void* copy = nullptr;
  DType copy_dtype = DType::bf16;
  std::uint16_t *upper = nullptr, *lower = nullptr;
};

// An optimizer's update of elements [i, i + n). The operations and their order are those of
// PyTorch's optimizers and clip_grad_norm_, so that both agree to rounding. Never inlined: the
// compiler shall choose once which products and sums it fuses, so that every caller gets the same
// bits. What `this` holds is copied to registers, which the stores cannot change.
template <class Each>
struct Update;

template <>
struct Update<AdamW> {
  float factor, keep, step, correction, decay2, tiny, rest1, rest2;

  Update(const AdamW& op, const float* schedule, const float* norm)
      : factor(gradient_factor(op, schedule, norm)) {
    const double lr = schedule[0];
    keep = static_cast<float>(1.0 - lr * op.weight_decay);
    step = static_cast<float>(lr / schedule[1]);
    correction = static_cast<float>(1.0 / std::sqrt(static_cast<double>(schedule[2])));
    decay2 = static_cast<float>(op.beta2);
    tiny = static_cast<float>(op.eps);
    rest1 = static_cast<float>(1.0 - op.beta1);
    rest2 = static_cast<float>(1.0 - op.beta2);
  }

  [[gnu::noinline]] void operator()(const Parameter<AdamW>& x, std::int64_t i,
                                    std::int64_t n) const {
    const Update c = *this;
    float *param = x.param + i, *m = x.moments[0] + i, *v = x.moments[1] + i;
    const float* grad = x.grad + i;
#pragma omp simd
    for (std::int64_t k = 0; k < n; ++k) {
      const float g = grad[k] * c.factor;
      const float mk = m[k] + c.rest1 * (g - m[k]);
      const float vk = v[k] * c.decay2 + c.rest2 * (g * g);
      m[k] = mk;
      v[k] = vk;
      param[k] = param[k] * c.keep - c.step * (mk / (std::sqrt(vk) * c.correction + c.tiny));
    }
  }
};

template <>
struct Update<Sgd> {
  float factor, rate, weight_decay, momentum;
  bool nesterov;

  Update(const Sgd& op, const float* schedule, const float* norm)
      : factor(gradient_factor(op, schedule, norm)),
        rate(schedule[0]),
        weight_decay(static_cast<float>(op.weight_decay)),
        momentum(static_cast<float>(op.momentum)),
        nesterov(op.nesterov) {}

  [[gnu::noinline]] void operator()(const Parameter<Sgd>& x, std::int64_t i, std::int64_t n) const {
    const Update c = *this;
    float *param = x.param + i, *buffer = x.moments[0] + i;
    const float* grad = x.grad + i;
#pragma omp simd
    for (std::int64_t k = 0; k < n; ++k) {
      const float g = grad[k] * c.factor + c.weight_decay * param[k];
      const float moved = c.momentum * buffer[k] + g;
      buffer[k] = moved;
      param[k] -= c.rate * (c.nesterov ? g + c.momentum * moved : moved);
    }
  }
};

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

// Takes the gradient from the launch's operand number `grad`, which has this dtype.
template <class Each>
void set_gradient(Parameter<Each>& x, const Launch& call, std::size_t grad, DType dtype) {
  x.grad_dtype = dtype;
  if (dtype == DType::f32)
    x.grad = call.in<float>(grad);
  else
    x.rounded_grad = call.inputs[grad];
}

// `gradients` are dtypes, `types` are those of the outputs.
template <class Each>
std::vector<Parameter<Each>> parameters_of(const UpdateAll<Each>& op,
                                           const std::vector<DType>& gradients,
                                           const std::vector<TensorType>& types,
                                           const Launch& call) {
  const std::size_t first = op.shared_operands(), count = op.parameters(call.inputs.size());
  std::size_t copy = 0;
  std::vector<Parameter<Each>> parameters;
  for (std::size_t p = 0; p < count; ++p) {
    const std::size_t out = p * op.outputs_each();
    Parameter<Each>& x = parameters.emplace_back(Parameter<Each>{call.out<float>(out)});
    set_gradient(x, call, first + op.operands_each * p + 1, gradients[p]);
    for (std::size_t m = 0; m < Each::moments; ++m) x.moments[m] = call.out<float>(out + 1 + m);
    if (op.zero_grad) x.zeroed = call.out<float>(out + 1 + Each::moments);
    if (types[out].dtype == DType::split_f32) {
      x.upper = call.out<std::uint16_t>(out);
      x.lower = x.upper + types[out].numel();
    }
    if (op.copied.empty() || !op.copied[p]) continue;
    const std::size_t o = count * op.outputs_each() + copy++;
    x.copy = call.outputs[o];
    x.copy_dtype = types[o].dtype;
  }
  return parameters;
}

constexpr std::int64_t cached_piece = 1024;  // elements

// Updates the first n elements, no more than a piece, of a parameter in halves.
template <class Each>
void update_halves(const Update<Each>& update, Parameter<Each> x, std::int64_t n) {
  std::array<float, cached_piece> param;
#pragma omp simd
  for (std::int64_t k = 0; k < n; ++k)
    param[static_cast<std::size_t>(k)] = static_cast<float>(SplitFloat(x.upper[k], x.lower[k]));
  std::uint16_t *const upper = x.upper, *const lower = x.lower;
  x.param = param.data();
  update(x, 0, n);
#pragma omp simd
  for (std::int64_t k = 0; k < n; ++k) {
    const SplitFloat halves(param[static_cast<std::size_t>(k)]);
    upper[k] = halves.upper;
    lower[k] = halves.lower;
  }
}

// Updates elements [i, i + n), no more than a piece, whatever the dtype of parameter and gradient.
template <class Each>
void update_piece(const Update<Each>& update, Parameter<Each> x, std::int64_t i, std::int64_t n) {
  std::array<float, cached_piece> grad;
  if (x.rounded_grad) {
    dispatch_floating(x.grad_dtype, [&]<class T>() {
      const T* const from = static_cast<const T*>(x.rounded_grad) + i;
#pragma omp simd
      for (std::int64_t k = 0; k < n; ++k) grad[static_cast<std::size_t>(k)] = load(&from[k]);
    });
    x.grad = grad.data();
  } else {
    x.grad += i;
  }
  for (float*& moment : x.moments) moment += i;
  if (x.upper) {
    x.upper += i;
    x.lower += i;
    update_halves(update, x, n);
  } else {
    x.param += i;
    update(x, 0, n);
  }
}

// Where more is to be done with the new values, then in pieces that are still in the first-level
// cache.
template <class Each>
void update_part(const Update<Each>& update, const Parameter<Each>& x, std::int64_t begin,
                 std::int64_t n) {
  const bool is_plain = !x.zeroed && !x.copy && !x.upper && !x.rounded_grad;
  const std::int64_t piece = is_plain ? n : cached_piece;
  for (std::int64_t i = begin, end = begin + n; i < end; i += piece) {
    const std::int64_t length = std::min(piece, end - i);
    if (is_plain)
      update(x, i, length);
    else
      update_piece(update, x, i, length);
    if (x.zeroed) std::fill_n(x.zeroed + i, length, 0.0f);
    if (!x.copy) continue;
    dispatch_floating(x.copy_dtype, [&]<class T>() {
      T* copy = static_cast<T*>(x.copy);
#pragma omp simd
      for (std::int64_t k = i; k < i + length; ++k) store(&copy[k], x.param[k]);
    });
  }
}

template <class Each>
KernelPtr update_each(const Each& op, CpuPrepare& prepare) {
  const std::int64_t n = prepare.in[0].numel();
  const DType gradient = prepare.in[op.operands().grad].dtype;
  return make_kernel([&pool = prepare.pool, n, gradient, op](const Launch& call) {
    const typename Each::Operands at = op.operands();
    const float* schedule = call.in<float>(at.schedule);
    if (is_skipped(op, schedule)) return;
    Parameter<Each> x{call.out<float>(0)};
    set_gradient(x, call, at.grad, gradient);
    for (std::size_t m = 0; m < Each::moments; ++m) x.moments[m] = call.out<float>(1 + m);
    const Update<Each> update(op, schedule, op.max_norm > 0 ? call.in<float>(at.norm) : nullptr);
    parallel_for(pool, n, block, [&](std::int64_t begin, std::int64_t end) {
      update_part(update, x, begin, end - begin);
    });
  });
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

namespace {

template <class T>
double sum_of_squares(const T* x, std::int64_t begin, std::int64_t end) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = begin; i < end; ++i) {
    const double value = load(&x[i]);
    sum += value * value;
  }
  return sum;
}

}  // namespace

// The blocks of all operands are one loop; each leaves its sum in the workspace, and the sums are
// added in order.
KernelPtr GlobalNorm::cpu(CpuPrepare& prepare) const {
  struct Block {
    std::size_t operand;
    std::int64_t begin, end;
  };
  std::int64_t count = 0;
  for (const TensorType& type : prepare.in) {
    count += (type.numel() + block - 1) / block;
  }
  prepare.workspace = static_cast<std::size_t>(count) * sizeof(double);
  return make_kernel(
      [&pool = prepare.pool, count,
       types = std::vector(prepare.in.begin(), prepare.in.end())](const Launch& call) {
        std::vector<Block> blocks;
        blocks.reserve(static_cast<std::size_t>(count));
        for (std::size_t operand = 0; operand < types.size(); ++operand)
          for (std::int64_t i = 0, n = types[operand].numel(); i < n; i += block)
            blocks.push_back({operand, i, std::min(n, i + block)});
        auto* partial = static_cast<double*>(call.workspace);
        pool.run(count, [&](std::int64_t b) {
          const Block& part = blocks[static_cast<std::size_t>(b)];
          partial[b] = dispatch_floating(types[part.operand].dtype, [&]<class T>() {
            return sum_of_squares(call.in<T>(part.operand), part.begin, part.end);
          });
        });
        double total = 0;
        for (std::int64_t b = 0; b < count; ++b) total += partial[b];
        *call.out<float>() = static_cast<float>(std::sqrt(total));
      });
}

KernelPtr AdamW::cpu(CpuPrepare& prepare) const { return update_each(*this, prepare); }
KernelPtr Sgd::cpu(CpuPrepare& prepare) const { return update_each(*this, prepare); }

template <class Each>
KernelPtr UpdateAll<Each>::cpu(CpuPrepare& prepare) const {
  Concatenation all{{0}};
  std::vector<DType> gradients;
  const std::size_t first = shared_operands(), count = parameters(prepare.in.size());
  for (std::size_t p = first; p < first + operands_each * count; p += operands_each) {
    all.starts.push_back(all.starts.back() + prepare.in[p].numel());
    gradients.push_back(prepare.in[p + 1].dtype);
  }
  return make_kernel(
      [&pool = prepare.pool, op = *this, all = std::move(all), gradients = std::move(gradients),
       types = std::vector(prepare.out.begin(), prepare.out.end())](const Launch& call) {
        const std::vector<Parameter<Each>> parameters = parameters_of(op, gradients, types, call);
        const Update<Each> update(op.each, call.in<float>(0),
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

template KernelPtr AdamWAll::cpu(CpuPrepare&) const;
template KernelPtr SgdAll::cpu(CpuPrepare&) const;

}  // namespace ridge
