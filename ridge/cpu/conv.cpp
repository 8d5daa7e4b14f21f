#include "ridge/ops/conv.h"

#include <algorithm>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/cpu/onednn_conv.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

using Kind = ConvShape::Kind;

std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// y[b, j, i] = x[b, i, j] for b < batch, i < rows, j < columns.
template <class From, class To>
void transpose(ThreadPool& pool, const From* x, std::int64_t batch, std::int64_t rows,
               std::int64_t columns, To* y) {
  constexpr std::int64_t tile = 32;
  const std::int64_t down = (rows + tile - 1) / tile, across = (columns + tile - 1) / tile;
  parallel_for(pool, batch * down * across, 8, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t b = t / (down * across) * rows * columns;
      const std::int64_t i0 = t / across % down * tile, j0 = t % across * tile;
      const std::int64_t height = std::min(tile, rows - i0), width = std::min(tile, columns - j0);
      float turned[tile][tile + 1];
      for (std::int64_t i = 0; i < height; ++i)
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j)
          turned[j][i] = load(&x[b + (i0 + i) * columns + j0 + j]);
      for (std::int64_t j = 0; j < width; ++j)
#pragma omp simd
        for (std::int64_t i = 0; i < height; ++i)
          store(&y[b + (j0 + j) * rows + i0 + i], turned[j][i]);
    }
  });
}

template <class From, class To>
void convert(ThreadPool& pool, const From* from, std::int64_t n, To* to) {
  parallel_for(pool, n, 16384, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(&to[i], load(&from[i]));
  });
}

// Runs a convolution on copies of its operands in another dtype or order: in f32, where the library
// has none of bf16; with channels last, where it does that much faster than channels first.
template <class T, class Inner>
class Converted {
 public:
  Converted(const ConvShape& shape, ConvShape inner)
      : outer_(shape), conv_(make_onednn_conv(inner)) {
    turned_ = shape.geometry.layout != inner.geometry.layout;
    widened_ = !std::is_same_v<T, Inner>;
  }

  std::size_t workspace() const {
    const ConvShape& s = outer_;
    std::size_t bytes = padded(conv_->workspace());
    for (const std::int64_t n : {elements(s.x), elements(s.y), s.residual ? elements(s.y) : 0,
                                 widened_ ? elements(s.weight) : 0, bias_elements()})
      bytes += padded(static_cast<std::size_t>(n) * sizeof(Inner));
    return bytes;
  }

  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const {
    const ConvShape& s = outer_;
    auto* memory = static_cast<char*>(workspace) + padded(conv_->workspace());
    auto take = [&](std::int64_t n) {
      auto* const taken = reinterpret_cast<Inner*>(memory);
      memory += padded(static_cast<std::size_t>(n) * sizeof(Inner));
      return taken;
    };
    Inner *x = take(elements(s.x)), *y = take(elements(s.y));
    Inner* residual = s.residual ? take(elements(s.y)) : nullptr;
    Inner* weight = widened_ ? take(elements(s.weight)) : nullptr;
    Inner* bias = bias_elements() > 0 ? take(bias_elements()) : nullptr;
    ConvOperands inner{x, widened_ ? weight : o.weight, y, bias ? bias : o.bias, residual};
    if (s.kind != Kind::input_grad) enter(pool, o.x, s.x, x);
    if (s.kind != Kind::forward) enter(pool, o.y, s.y, y);
    if (residual) enter(pool, o.residual, s.y, residual);
    if (widened_ && s.kind != Kind::weight_grad)
      convert(pool, static_cast<const T*>(o.weight), elements(s.weight), weight);
    if (bias) convert(pool, static_cast<const T*>(o.bias), s.y.c, bias);
    conv_->run(pool, inner, workspace);
    if (s.kind == Kind::forward) leave(pool, y, s.y, o.y);
    if (s.kind == Kind::input_grad) leave(pool, x, s.x, o.x);
    if (widened_ && s.kind == Kind::weight_grad)
      convert(pool, weight, elements(s.weight), static_cast<T*>(o.weight));
  }

 private:
  static std::int64_t elements(const ImageShape& s) { return s.n * s.c * s.pixels(); }
  std::int64_t bias_elements() const { return outer_.bias && widened_ ? outer_.y.c : 0; }

  void enter(ThreadPool& pool, const void* from, const ImageShape& s, Inner* to) const {
    if (turned_)
      transpose(pool, static_cast<const T*>(from), s.n, s.c, s.pixels(), to);
    else
      convert(pool, static_cast<const T*>(from), elements(s), to);
  }
  void leave(ThreadPool& pool, const Inner* from, const ImageShape& s, void* to) const {
    if (turned_)
      transpose(pool, from, s.n, s.pixels(), s.c, static_cast<T*>(to));
    else
      convert(pool, from, elements(s), static_cast<T*>(to));
  }

  ConvShape outer_;
  ConvPtr conv_;
  bool turned_, widened_;
};

template <class T, class Inner>
KernelPtr converted(CpuPrepare& prepare, const ConvShape& shape, const ConvShape& inner,
                    const auto& operands_of) {
  Converted<T, Inner> conv(shape, inner);
  prepare.workspace = conv.workspace();
  return make_kernel(
      [&pool = prepare.pool, conv = std::move(conv), operands_of](const Launch& call) {
        conv.run(pool, operands_of(call), call.workspace);
      });
}

// With channels first the library is as fast on matrices, images apart; else it goes through a copy
// in the shape of a product, which is slower than going through one with channels last.
bool turns(const ConvShape& s) {
  const bool product = s.geometry.groups == 1 && s.weight.pixels() == 1 && s.x.n >= 8 &&
                       s.geometry.padding == Pair{0, 0} && s.geometry.stride == Pair{1, 1};
  return s.geometry.layout == ImageLayout::nchw && !product;
}

KernelPtr convolution(CpuPrepare& prepare, const ConvShape& shape, const auto& operands_of) {
  ConvShape inner = shape;
  if (turns(shape)) inner.geometry.layout = ImageLayout::nhwc;
  const bool widens = shape.dtype == DType::bf16 && !onednn_convolves_bf16();
  if (widens) {
    inner.dtype = DType::f32;
    return converted<BFloat16, float>(prepare, shape, inner, operands_of);
  }
  if (turns(shape))
    return dispatch_floating(shape.dtype, [&]<class T>() {
      return converted<T, T>(prepare, shape, inner, operands_of);
    });
  ConvPtr conv = make_onednn_conv(shape);
  prepare.workspace = conv->workspace();
  return make_kernel(
      [&pool = prepare.pool, conv = std::move(conv), operands_of](const Launch& call) {
        conv->run(pool, operands_of(call), call.workspace);
      });
}

ConvShape shape_of(Kind kind, const ConvGeometry& geometry, const TensorType& x,
                   const TensorType& weight, const TensorType& y) {
  return {.kind = kind,
          .geometry = geometry,
          .x = {x.shape, geometry.layout},
          .y = {y.shape, geometry.layout},
          .weight = {weight.shape, geometry.layout},
          .weight_layout = geometry.layout,
          .dtype = x.dtype};
}

// The library reads what it is given as something it may write.
void* input(const Launch& call, std::size_t i) { return const_cast<void*>(call.inputs[i]); }

}  // namespace

KernelPtr Conv2d::cpu(CpuPrepare& prepare) const {
  ConvShape shape = shape_of(Kind::forward, *this, prepare.in[0], prepare.in[1], prepare.out[0]);
  shape.bias = bias;
  shape.residual = residual;
  shape.epilogue = epilogue;
  return convolution(prepare, shape, [op = *this](const Launch& call) {
    return ConvOperands{input(call, 0), input(call, 1), call.outputs[0],
                        op.bias ? call.inputs[2] : nullptr,
                        op.residual ? call.inputs[2u + op.bias] : nullptr};
  });
}

KernelPtr Conv2dInputGrad::cpu(CpuPrepare& prepare) const {
  const ConvShape shape =
      shape_of(Kind::input_grad, *this, prepare.out[0], prepare.in[1], prepare.in[0]);
  return convolution(prepare, shape, [](const Launch& call) {
    return ConvOperands{call.outputs[0], input(call, 1), input(call, 0)};
  });
}

KernelPtr Conv2dWeightGrad::cpu(CpuPrepare& prepare) const {
  const ConvShape shape =
      shape_of(Kind::weight_grad, *this, prepare.in[1], prepare.out[0], prepare.in[0]);
  return convolution(prepare, shape, [](const Launch& call) {
    return ConvOperands{input(call, 1), call.outputs[0], input(call, 0)};
  });
}

}  // namespace ridge
