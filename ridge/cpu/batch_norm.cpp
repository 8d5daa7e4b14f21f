#include "ridge/ops/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "ridge/cpu/activation.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"
#include "ridge/device/other_ranks.h"

namespace ridge {
namespace {

// Channels that a task finishes.
constexpr std::int64_t channels_per_task = 64;

// What an element adds to two sums.
struct TwoTerms {
  float first, second;
};

// An image as a matrix of runs: with channels first a run is one channel's plane, with channels
// last a pixel's channels. Sums over a channel are taken in parts, which depend on the shape alone:
// pieces of a plane, or blocks of pixels; their results are rows of C numbers, added in order.
struct Runs {
  bool planes;
  std::int64_t channels, count, length;  // runs, and elements of each
  std::int64_t per_part, parts;          // elements of a plane or pixels, and how many in all

  Runs(const Shape& shape, ImageLayout layout) : planes(layout == ImageLayout::nchw) {
    const ImageShape image(shape, layout);
    channels = image.c;
    count = planes ? image.n * image.c : image.n * image.pixels();
    length = planes ? image.pixels() : image.c;
    if (planes) {
      per_part = std::min<std::int64_t>(length, 16384);
      parts = image.n * ((length + per_part - 1) / per_part);
    } else {
      // Short ones, because rounding errors grow with the length; but adding parts up takes time.
      per_part = std::clamp<std::int64_t>((count + 63) / 64, 16, 512);
      parts = (count + per_part - 1) / per_part;
    }
  }

  std::int64_t elements() const { return count * length / channels; }         // of a channel
  std::int64_t pieces() const { return (length + per_part - 1) / per_part; }  // of a plane
  // How many elements of a channel part p has.
  std::int64_t part_size(std::int64_t p) const {
    const std::int64_t all = planes ? length : count;
    return std::min(per_part, all - (planes ? p % pieces() : p) * per_part);
  }

  // f<planes>(offset of the run, its channel or 0) for each run.
  template <class F>
  void each(ThreadPool& pool, const F& f) const {
    parallel_for(pool, count, rows_per_task(length), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        if (planes)
          f.template operator()<true>(r * length, r % channels);
        else
          f.template operator()<false>(r * length, std::int64_t{0});
      }
    });
  }

  // Two sums over each part and channel, to sums[part][0 or 1][channel]: of both terms(element,
  // channel, shift), where shift is terms.shift(the part's first element of the channel).
  template <class Terms>
  void sum_parts(ThreadPool& pool, float* sums, const Terms& terms) const {
    if (planes) {
      const std::int64_t n = parts * channels;
      parallel_for(pool, n, rows_per_task(per_part), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t p = i / channels, c = i % channels;
          const std::int64_t at = (p / pieces() * channels + c) * length + p % pieces() * per_part;
          const std::int64_t size = part_size(p);
          const float shift = terms.shift(at);
          float a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
          for (std::int64_t k = 0; k < size; ++k) {
            const auto [first, second] = terms(at + k, c, shift);
            a += first;
            b += second;
          }
          sums[2 * p * channels + c] = a;
          sums[(2 * p + 1) * channels + c] = b;
        }
      });
      return;
    }
    pool.run(parts, [&](std::int64_t p) {
      float *a = sums + 2 * p * channels, *b = a + channels;
      std::fill_n(a, 2 * channels, 0.0f);
      const std::int64_t top = p * per_part * channels;
      for (std::int64_t r = 0; r < part_size(p); ++r) {
        const std::int64_t at = top + r * channels;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) {
          const auto [first, second] = terms(at + c, c, terms.shift(top + c));
          a[c] += first;
          b[c] += second;
        }
      }
    });
  }
};

// Written so that NaN stays NaN.
float at_least(float least, float x) { return x < least ? least : x; }

// y = epilogue((x - mean) * factor + bias + residual), the latter null unless there is one.
template <class T, class F>
void normalize(ThreadPool& pool, const Runs& runs, const T* x, const T* residual, const float* mean,
               const float* factor, const float* bias, T* y, const F& epilogue) {
  runs.each(pool, [=, length = runs.length]<bool planes>(std::int64_t at, std::int64_t channel) {
    const auto norm = [=](std::int64_t i) {
      const std::int64_t c = planes ? channel : i;
      return multiply_add(load(&x[at + i]) - mean[c], factor[c], bias[c]);
    };
    if (residual) {
#pragma omp simd
      for (std::int64_t i = 0; i < length; ++i)
        store(&y[at + i], epilogue(norm(i) + load(&residual[at + i])));
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < length; ++i) store(&y[at + i], epilogue(norm(i)));
    }
  });
}

// What lies in the memory of one image of several.
struct ChannelRange {
  std::int64_t begin, channels;
};

std::vector<ChannelRange> parts_of(const BatchNorm& op, Types in) {
  std::vector<ChannelRange> parts;
  std::int64_t begin = 0;
  for (std::size_t p = 0; p < op.parts; ++p) {
    const std::int64_t channels = ImageShape(in[p].shape, op.layout).c;
    parts.push_back({begin, channels});
    begin += channels;
  }
  return parts;
}

template <class T>
KernelPtr infer_form(CpuPrepare& prepare, const BatchNorm& op) {
  const Runs runs(prepare.out[0].shape, op.layout);
  prepare.workspace = static_cast<std::size_t>(runs.channels) * sizeof(float);
  const std::vector<ChannelRange> parts = parts_of(op, prepare.in);
  return make_kernel([&pool = prepare.pool, runs, parts, op](const Launch& call) {
    const BatchNorm::Operands operand = op.operands();
    const float *weight = call.in<float>(operand.weight), *bias = call.in<float>(operand.bias);
    const float *mean = call.in<float>(operand.mean), *variance = call.in<float>(operand.variance);
    auto* factor = static_cast<float*>(call.workspace);
    for (std::int64_t c = 0; c < runs.channels; ++c)
      factor[c] = weight[c] / std::sqrt(variance[c] + op.eps);
    T* y = call.out<T>();
    const float least = op.relu ? 0.0f : -std::numeric_limits<float>::infinity();
    if (op.parts == 1)
      return normalize(pool, runs, call.in<T>(0), static_cast<const T*>(nullptr), mean, factor,
                       bias, y, [least](float v) { return at_least(least, v); });
    runs.each(pool, [&]<bool planes>(std::int64_t at, std::int64_t) {
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const auto [begin, channels] = parts[p];
        const T* x = call.in<T>(p) + at / runs.channels * channels;
        T* to = y + at + begin;
#pragma omp simd
        for (std::int64_t i = 0; i < channels; ++i) {
          const std::int64_t c = begin + i;
          store(&to[i], at_least(least, multiply_add(load(&x[i]) - mean[c], factor[c], bias[c])));
        }
      }
    });
  });
}

// The sums that a mean and a variance are made of, from the part's first element on, which is close
// to the mean: squares of what is far from zero would leave few digits to the variance.
template <class T>
struct Deviations {
  const T* x;
  float shift(std::int64_t at) const { return load(&x[at]); }
  TwoTerms operator()(std::int64_t at, std::int64_t, float shift) const {
    const float deviation = load(&x[at]) - shift;
    return {deviation, deviation * deviation};
  }
};

struct Moments {
  double count = 0, mean = 0, squares = 0;  // squares: of the deviations from the mean

  // Chan, Golub and LeVeque, 1979.
  void merge(const Moments& other) {
    const double all = count + other.count, delta = other.mean - mean;
    squares += other.squares + delta * delta * count * other.count / all;
    mean += delta * other.count / all;
    count = all;
  }
};

// Channels whose moments are merged side by side.
constexpr std::int64_t channels_together = 16;

// Count, mean and squared deviations of channels [begin, begin + length), from the sums of their
// parts. Merging is as in Moments; the counts of all channels are the same.
template <class T>
void moments_of(const Runs& runs, const T* x, const float* sums, std::int64_t begin,
                std::int64_t length, Moments* moments) {
  double means[channels_together]{}, all_squares[channels_together]{}, count = 0;
  for (std::int64_t p = 0; p < runs.parts; ++p) {
    const float* const sum = sums + 2 * p * runs.channels + begin;
    const float* const squares = sum + runs.channels;
    const auto n = static_cast<double>(runs.part_size(p));
    const double all = count + n, share = n / all, both = count * share, one = 1 / n;
    // The part's first element of each channel.
    const std::int64_t step = runs.planes ? runs.length : 1;
    const T* const first =
        x + (runs.planes ? (p / runs.pieces() * runs.channels + begin) * runs.length +
                               p % runs.pieces() * runs.per_part
                         : p * runs.per_part * runs.channels + begin);
#pragma omp simd
    for (std::int64_t i = 0; i < length; ++i) {
      const double from_first = sum[i] * one;
      const double delta = load(&first[i * step]) + from_first - means[i];
      all_squares[i] += squares[i] - sum[i] * from_first + delta * delta * both;
      means[i] += delta * share;
    }
    count = all;
  }
  for (std::int64_t i = 0; i < length; ++i) moments[i] = {count, means[i], all_squares[i]};
}

// Replaces what this rank has of each channel by what all ranks have, merged in their order, so
// that all get the same bits.
template <class OfChannel>
void merge_ranks(Communicator& communicator, std::vector<OfChannel>& own) {
  std::vector<OfChannel> all(own.size() * static_cast<std::size_t>(communicator.count()));
  communicator.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  for (std::size_t c = 0; c < own.size(); ++c) {
    own[c] = {};
    for (std::size_t at = c; at < all.size(); at += own.size()) own[c].merge(all[at]);
  }
}

template <class T>
KernelPtr train_form(CpuPrepare& prepare, const BatchNormTrain& op) {
  const Runs runs(prepare.in[0].shape, op.layout);
  const OtherRanks others(prepare.communicator, op.name, op.ranks);
  prepare.workspace =
      static_cast<std::size_t>((2 * runs.parts + 1) * runs.channels) * sizeof(float);
  return make_kernel([&pool = prepare.pool, others, runs, op](const Launch& call) {
    const BatchNormTrain::Operands operand = op.operands();
    const T* x = call.in<T>(operand.x);
    const float* weight = call.in<float>(operand.weight);
    float *mean = call.out<float>(1), *rstd = call.out<float>(2);
    float *running_mean = call.out<float>(3), *running_variance = call.out<float>(4);
    auto* sums = static_cast<float*>(call.workspace);
    float* factor = sums + 2 * runs.parts * runs.channels;
    runs.sum_parts(pool, sums, Deviations<T>{x});
    std::vector<Moments> moments(static_cast<std::size_t>(runs.channels));
    parallel_for(pool, runs.channels, channels_per_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; c += channels_together)
        moments_of(runs, x, sums, c, std::min(channels_together, end - c), &moments[c]);
    });
    if (op.ranks > 1) merge_ranks(*others, moments);
    parallel_for(pool, runs.channels, channels_per_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const Moments& m = moments[static_cast<std::size_t>(c)];
        mean[c] = static_cast<float>(m.mean);
        rstd[c] = static_cast<float>(1.0 / std::sqrt(m.squares / m.count + double{op.eps}));
        factor[c] = weight[c] * rstd[c];
        const auto unbiased = static_cast<float>(m.squares / (m.count - 1));
        running_mean[c] += op.momentum * (mean[c] - running_mean[c]);
        running_variance[c] += op.momentum * (unbiased - running_variance[c]);
      }
    });
    const T* residual = op.residual ? call.in<T>(operand.residual) : nullptr;
    with_epilogue(op.epilogue, [&](const auto& epilogue) {
      normalize(pool, runs, x, residual, mean, factor, call.in<float>(operand.bias), call.out<T>(),
                epilogue);
    });
  });
}

// How g, the gradient that reaches the norm, follows from dy.
enum class Gate : std::uint8_t {
  none,
  result,      // where the relu's result is above 0
  recomputed,  // by the epilogue's derivative at the norm, which is computed again
};

// g[at], of an element of channel c; with the terms of the two sums that the gradients of weight
// and bias are made of. Of Gate::result these also write g, which is a result, and in f32 of
// Gate::recomputed, where dx will be: a derivative may take longer than memory.
template <class T, Gate gate, bool summed, class F>
struct GradTerms {
  static constexpr bool writes =
      gate == Gate::result || (gate == Gate::recomputed && sizeof(T) == sizeof(float));

  const T *dy, *more, *x, *y;
  const float *factor, *bias, *mean, *rstd;
  T* g;
  F derivative;

  float gradient(std::int64_t at, std::int64_t c) const {
    float grad = load(&dy[at]);
    if constexpr (summed) grad += load(&more[at]);
    if constexpr (gate == Gate::result) grad = load(&y[at]) > 0.0f ? grad : 0.0f;
    if constexpr (gate == Gate::recomputed)
      grad *= derivative(multiply_add(load(&x[at]) - mean[c], factor[c], bias[c]));
    return grad;
  }
  float shift(std::int64_t) const { return 0; }
  TwoTerms operator()(std::int64_t at, std::int64_t c, float) const {
    const float grad = gradient(at, c);
    if constexpr (writes) store(&g[at], grad);
    return {grad, grad * (load(&x[at]) - mean[c]) * rstd[c]};
  }
  // After the sums.
  float gradient_again(std::int64_t at, std::int64_t c) const {
    if constexpr (writes) return load(&g[at]);
    return gradient(at, c);
  }
};

// The operands of a gradient, and what it needs beside its sums: per channel
//   dx = factor * (g - offset - (x - mean) * slope)
struct GradVectors {
  const float *weight, *mean, *rstd;
  float *factor, *offset, *slope, *dweight, *dbias;
};

// The sums of g and of g * xhat over a channel.
struct GradSums {
  double g = 0, projected = 0;

  void merge(const GradSums& other) {
    g += other.g;
    projected += other.projected;
  }
};

template <class T, class Terms>
void differentiate(ThreadPool& pool, const OtherRanks<Communicator>& others, const Runs& runs,
                   const Terms& terms, const GradVectors& v, float* sums, T* dx) {
  const std::int64_t channels = runs.channels;
  for (std::int64_t c = 0; c < channels; ++c) v.factor[c] = v.weight[c] * v.rstd[c];
  runs.sum_parts(pool, sums, terms);
  std::vector<GradSums> of_channels(static_cast<std::size_t>(channels));
  parallel_for(pool, channels, channels_per_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      GradSums& sum = of_channels[static_cast<std::size_t>(c)];
      for (std::int64_t p = 0; p < runs.parts; ++p) {
        sum.g += sums[2 * p * channels + c];
        sum.projected += sums[(2 * p + 1) * channels + c];
      }
      v.dbias[c] = static_cast<float>(sum.g);
      v.dweight[c] = static_cast<float>(sum.projected);
    }
  });
  if (others.ranks() > 1) merge_ranks(*others, of_channels);
  const auto count = static_cast<double>(runs.elements() * others.ranks());
  for (std::int64_t c = 0; c < channels; ++c) {
    const GradSums& sum = of_channels[static_cast<std::size_t>(c)];
    v.offset[c] = static_cast<float>(sum.g / count);
    v.slope[c] = static_cast<float>(sum.projected / count) * v.rstd[c];
  }
  runs.each(pool, [=, length = runs.length]<bool planes>(std::int64_t at, std::int64_t channel) {
#pragma omp simd
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t c = planes ? channel : i;
      const float centered = load(&terms.x[at + i]) - v.mean[c];
      store(&dx[at + i],
            v.factor[c] * (terms.gradient_again(at + i, c) - v.offset[c] - centered * v.slope[c]));
    }
  });
}

template <class T, Gate gate, bool summed>
KernelPtr backward(CpuPrepare& prepare, const BatchNormGrad& op) {
  const Runs runs(prepare.out[0].shape, op.layout);
  const OtherRanks others(prepare.communicator, op.name, op.ranks);
  prepare.workspace =
      static_cast<std::size_t>((2 * runs.parts + 3) * runs.channels) * sizeof(float);
  return make_kernel([&pool = prepare.pool, others, runs, op](const Launch& call) {
    const BatchNormGrad::Operands operand = op.operands();
    auto* sums = static_cast<float*>(call.workspace);
    float* factor = sums + 2 * runs.parts * runs.channels;
    const GradVectors v{.weight = call.in<float>(operand.weight),
                        .mean = call.in<float>(operand.mean),
                        .rstd = call.in<float>(operand.rstd),
                        .factor = factor,
                        .offset = factor + runs.channels,
                        .slope = factor + 2 * runs.channels,
                        .dweight = call.out<float>(1),
                        .dbias = call.out<float>(2)};
    const auto run = [&](const auto& derivative) {
      const GradTerms<T, gate, summed, std::decay_t<decltype(derivative)>> terms{
          .dy = call.in<T>(operand.dy),
          .more = summed ? call.in<T>(operand.summand) : nullptr,
          .x = call.in<T>(operand.x),
          .y = gate == Gate::result ? call.in<T>(operand.kinks) : nullptr,
          .factor = factor,
          .bias = gate == Gate::recomputed ? call.in<float>(operand.kinks) : nullptr,
          .mean = v.mean,
          .rstd = v.rstd,
          .g = call.out<T>(gate == Gate::result ? 3 : 0),
          .derivative = derivative};
      differentiate(pool, others, runs, terms, v, sums, call.out<T>(0));
    };
    if constexpr (gate == Gate::recomputed)
      with_epilogue_derivative(op.epilogue, run);
    else
      run([](float) { return 1.0f; });
  });
}

template <class T, Gate gate>
KernelPtr backward(CpuPrepare& prepare, const BatchNormGrad& op) {
  return op.summed ? backward<T, gate, true>(prepare, op) : backward<T, gate, false>(prepare, op);
}

}  // namespace

KernelPtr BatchNorm::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return infer_form<T>(prepare, *this); });
}

KernelPtr BatchNormTrain::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return train_form<T>(prepare, *this); });
}

KernelPtr BatchNormGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    if (residual) return backward<T, Gate::result>(prepare, *this);
    if (epilogue != Epilogue::none) return backward<T, Gate::recomputed>(prepare, *this);
    return backward<T, Gate::none>(prepare, *this);
  });
}

}  // namespace ridge
