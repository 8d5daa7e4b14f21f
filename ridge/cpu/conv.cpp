#include "ridge/cpu/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/cpu/depthwise_conv.h"
#include "ridge/cpu/depthwise_gradient.h"
#include "ridge/cpu/instructions.h"
#include "ridge/cpu/int8_conv.h"
#include "ridge/cpu/onednn.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/product_weight_grad.h"
#include "ridge/cpu/simd.h"
#include "ridge/cpu/split_conv.h"
#include "ridge/cpu/split_window_conv.h"
#include "ridge/cpu/split_window_grad.h"
#include "ridge/cpu/trial_memory.h"
#include "ridge/cpu/winograd_conv.h"
#include "ridge/device/packing.h"
#include "ridge/ops/conv.h"

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
      float transposed[tile][tile + 1];
      for (std::int64_t i = 0; i < height; ++i)
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j)
          transposed[j][i] = load(&x[b + (i0 + i) * columns + j0 + j]);
      for (std::int64_t j = 0; j < width; ++j)
#pragma omp simd
        for (std::int64_t i = 0; i < height; ++i)
          store(&y[b + (j0 + j) * rows + i0 + i], transposed[j][i]);
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

// The library's, but where a gradient of our own is far faster, or a tile asks for one of ours.
ConvPtr make_plain_conv(const ConvShape& shape, int tile) {
  if (tile == by_split_blocks) return make_split_window_conv(shape, SplitWeights::in_blocks);
  if (tile == by_split_products) {
    if (has_split_conv(shape)) return make_split_conv(shape);
    return shape.kind == Kind::weight_grad ? make_split_window_grad(shape)
                                           : make_split_window_conv(shape, SplitWeights::ahead);
  }
  if (tile == by_products) return make_product_weight_grad(shape);
  if (tile > 1) return make_winograd_conv(shape, tile);
  return is_depthwise_gradient(shape) ? make_depthwise_gradient(shape) : make_onednn_conv(shape);
}

// Runs a convolution on copies of its operands in another dtype or order: in f32, where the library
// has none of 16 bits; with channels last, where it does that much faster than channels first.
template <class T, class Inner>
class Converted final : public Conv {
 public:
  Converted(const ConvShape& shape, const ConvShape& inner, int tile)
      : outer_(shape), conv_(make_plain_conv(inner, tile)) {
    transposed_ = shape.geometry.layout != inner.geometry.layout;
  }

  // Widened weights, if they are, behind what the inner convolution makes of them.
  std::size_t packed_bytes() const override {
    const bool widens = widened && outer_.kind != Kind::weight_grad;
    return padded(conv_->packed_bytes()) + (widens ? bytes_of(outer_.weight) : 0);
  }
  void pack(ThreadPool& pool, const void* weight, void* packed) const override {
    const std::size_t inner = padded(conv_->packed_bytes());
    if (widened) {
      auto* const wide = reinterpret_cast<Inner*>(static_cast<char*>(packed) + inner);
      convert(pool, static_cast<const T*>(weight), elements(outer_.weight), wide);
      weight = wide;
    }
    if (inner > 0) conv_->pack(pool, weight, packed);
  }

  bool is_slow() const override { return conv_->is_slow(); }
  std::size_t workspace() const override {
    const ConvShape& s = outer_;
    const bool widens_grad = widened && s.kind == Kind::weight_grad;
    return padded(conv_->workspace()) + bytes_of(s.x) + bytes_of(s.y) +
           (s.residual ? bytes_of(s.y) : 0) + (widens_grad ? bytes_of(s.weight) : 0) +
           (widens_bias() ? padded(static_cast<std::size_t>(s.y.c) * sizeof(Inner)) : 0);
  }

  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override {
    const ConvShape& s = outer_;
    const bool widens_grad = widened && s.kind == Kind::weight_grad;
    auto* memory = static_cast<char*>(workspace) + padded(conv_->workspace());
    auto take = [&](std::size_t bytes) {
      auto* const taken = reinterpret_cast<Inner*>(memory);
      memory += bytes;
      return taken;
    };
    Inner *x = take(bytes_of(s.x)), *y = take(bytes_of(s.y));
    Inner* residual = s.residual ? take(bytes_of(s.y)) : nullptr;
    Inner* gradient = widens_grad ? take(bytes_of(s.weight)) : nullptr;
    Inner* bias = widens_bias() ? reinterpret_cast<Inner*>(memory) : nullptr;
    const ConvOperands inner{x, gradient ? gradient : o.weight, y, bias ? bias : o.bias, residual};
    if (s.kind != Kind::input_grad) enter(pool, o.x, s.x, x);
    if (s.kind != Kind::forward) enter(pool, o.y, s.y, y);
    if (residual) enter(pool, o.residual, s.y, residual);
    if (bias) convert(pool, static_cast<const T*>(o.bias), s.y.c, bias);
    conv_->run(pool, inner, workspace);
    if (s.kind == Kind::forward) leave(pool, y, s.y, o.y);
    if (s.kind == Kind::input_grad) leave(pool, x, s.x, o.x);
    if (gradient) convert(pool, gradient, elements(s.weight), static_cast<T*>(o.weight));
  }

 private:
  static constexpr bool widened = !std::is_same_v<T, Inner>;

  static std::int64_t elements(const ImageShape& s) { return s.n * s.c * s.pixels(); }
  static std::size_t bytes_of(const ImageShape& s) {
    return padded(static_cast<std::size_t>(elements(s)) * sizeof(Inner));
  }
  bool widens_bias() const { return outer_.bias && widened; }

  void enter(ThreadPool& pool, const void* from, const ImageShape& s, Inner* to) const {
    if (transposed_)
      transpose(pool, static_cast<const T*>(from), s.n, s.c, s.pixels(), to);
    else
      convert(pool, static_cast<const T*>(from), elements(s), to);
  }
  void leave(ThreadPool& pool, const Inner* from, const ImageShape& s, void* to) const {
    if (transposed_)
      transpose(pool, from, s.n, s.pixels(), s.c, static_cast<T*>(to));
    else
      convert(pool, from, elements(s), static_cast<T*>(to));
  }

  ConvShape outer_;
  ConvPtr conv_;
  bool transposed_;
};

// With channels first the library is as fast on matrices, images apart; else it goes through a copy
// in the shape of a product, which is slower than going through one with channels last.
bool through_channels_last(const ConvShape& s) {
  const bool product = s.geometry.groups == 1 && s.weight.pixels() == 1 && s.x.n >= 8 &&
                       s.geometry.padding == Pair{0, 0} && s.geometry.stride == Pair{1, 1};
  return s.geometry.layout == ImageLayout::nchw && !product;
}

class ConvKernel final : public PackingKernel {
 public:
  // `packed_bytes` and `workspace` are those of the convolution, or more.
  ConvKernel(ThreadPool& pool, const ConvShape& shape, ConvPtr conv, std::size_t packed_bytes,
             std::size_t workspace, ConvOperandsOf operands_of, KernelPtr unpacked)
      : pool_(pool),
        shape_(shape),
        conv_(std::move(conv)),
        packed_bytes_(packed_bytes),
        workspace_(workspace),
        operands_of_(operands_of),
        unpacked_(std::move(unpacked)) {}

  Packed packed() const override { return {1, packed_bytes_, workspace_}; }

  void pack(const void* weight, void* packed) override {
    stays_ = true;
    if (conv_->packed_bytes() == 0) return;  // as they are, they are in order
    conv_->pack(pool_, weight, packed);
    kept_ = packed;
  }

  // Once pack() was called, a launch has the workspace of the convolution alone, even if the
  // convolution reads the weights as they are.
  void launch(const Launch& call) const override {
    if (unpacked_ && !stays_) return unpacked_->launch(call);
    ConvOperands operands = operands_of_(call, shape_);
    void* workspace = call.workspace;
    if (kept_) {
      operands.weight = kept_;
    } else if (const std::size_t bytes = conv_->packed_bytes(); bytes > 0) {
      conv_->pack(pool_, operands.weight, workspace);
      operands.weight = workspace;
      workspace = static_cast<char*>(workspace) + padded(bytes);
    }
    conv_->run(pool_, operands, workspace);
  }

 private:
  ThreadPool& pool_;
  ConvShape shape_;
  ConvPtr conv_;
  std::size_t packed_bytes_, workspace_;
  ConvOperandsOf operands_of_;
  KernelPtr unpacked_;
  bool stays_ = false;    // whether the weights stay: pack() was called
  void* kept_ = nullptr;  // the packed weights, if they stay and need packing
};

// The dtype and layout in which it is computed.
ConvShape computed_as(ConvShape shape) {
  if (through_channels_last(shape)) shape.geometry.layout = ImageLayout::nhwc;
  if (shape.dtype == DType::f16 || (shape.dtype == DType::bf16 && !onednn_convolves_bf16()))
    shape.dtype = DType::f32;
  return shape;
}

// Increased whenever one of our own convolutions comes to take another time: what was measured
// before is then void.
constexpr int conv_version = 5;

std::string_view name_of(Kind kind) {
  return kind == Kind::forward ? "forward" : kind == Kind::input_grad ? "by x" : "by weight";
}

// "f32 8x64x56x56 * 128x64x3x3 nhwc, stride 1x1, padding 1x1, dilation 1x1".
std::string to_string(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  return fmt::format("{} {}x{}x{}x{} * {}x{}x{}x{} {}, stride {}, padding {}, dilation {}",
                     name_of(s.dtype), s.x.n, s.x.c, s.x.h, s.x.w, s.weight.n, s.weight.c,
                     s.weight.h, s.weight.w, name_of(g.layout), fmt::join(g.stride, "x"),
                     fmt::join(g.padding, "x"), fmt::join(g.dilation, "x"));
}

// Returns the convolution that stands for `s` in trials: of as many of its images as take a few
// milliseconds, without bias, residual and epilogue.
ConvShape trial_of(ConvShape s) {
  constexpr std::int64_t enough = 500'000'000;  // multiply-adds
  const std::int64_t of_image = s.y.c * s.y.pixels() * s.weight.c * s.weight.pixels();
  s.x.n = s.y.n = std::min(s.x.n, (enough + of_image - 1) / of_image);
  s.bias = s.residual = false;
  s.epilogue = Epilogue::none;
  return s;
}

// Returns the tile that is fastest, or 0 where the library is. The tuner's key names no number of
// threads, so that results have the same bits on any. A trial packs the weights each time, unless
// they stay.
int fastest_tile(const ConvShape& shape, const std::vector<int>& tiles, ThreadPool& pool,
                 const KernelChoice& choice) {
  const ConvShape trial = trial_of(shape);
  std::vector<int> candidates{0};
  candidates.insert(candidates.end(), tiles.begin(), tiles.end());
  struct Candidate {
    ConvPtr conv;
    TrialMemory packed, workspace;
  };
  std::vector<Candidate> made(candidates.size());
  TrialMemory x, weight, y;
  const std::string key = fmt::format("convolution {} {} oneDNN {} {} {}, tiles {}{}", conv_version,
                                      name_of(compiled_instructions), onednn_version(),
                                      name_of(trial.kind), to_string(trial), fmt::join(tiles, " "),
                                      choice.inference ? ", weights stay" : "");
  const auto run = [&](std::size_t i) {
    Candidate& c = made[i];
    const bool first = !c.conv;
    if (!x) {
      x = trial_tensor(trial.x.n * trial.x.c * trial.x.pixels(), trial.dtype);
      y = trial_tensor(trial.y.n * trial.y.c * trial.y.pixels(), trial.dtype);
      weight = trial_tensor(trial.weight.n * trial.weight.c * trial.weight.pixels(), trial.dtype);
    }
    if (first) {
      c.conv = make_conv(trial, candidates[i]);
      c.packed = trial_memory(c.conv->packed_bytes());
      c.workspace = trial_memory(c.conv->workspace());
    }
    const bool packs = c.conv->packed_bytes() > 0;
    if (packs && (first || !choice.inference)) c.conv->pack(pool, weight.get(), c.packed.get());
    c.conv->run(pool, {x.get(), packs ? c.packed.get() : weight.get(), y.get()}, c.workspace.get());
  };
  return candidates[choice.tuner->choose(key, candidates.size(), run)];
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

ConvPtr make_conv(const ConvShape& shape, int tile) {
  if (is_depthwise(shape)) return make_depthwise_conv(shape);
  if (shape.int8 && !onednn_sums_int8_exactly()) return make_int8_conv_by_f32(shape);
  const ConvShape inner = computed_as(shape);
  if (inner.dtype != shape.dtype)
    return dispatch_floating(shape.dtype, [&]<class T>() -> ConvPtr {
      return std::make_unique<Converted<T, float>>(shape, inner, tile);
    });
  if (inner.geometry.layout == shape.geometry.layout) return make_plain_conv(shape, tile);
  return dispatch_floating(shape.dtype, [&]<class T>() -> ConvPtr {
    return std::make_unique<Converted<T, T>>(shape, inner, tile);
  });
}

std::vector<int> conv_tiles(const ConvShape& shape, const KernelChoice& choice) {
  // With fewer results the maps, and reading the weights, which are larger, take what is saved.
  constexpr std::int64_t least_results = 128;
  const ImageShape& results = shape.kind == Kind::input_grad ? shape.x : shape.y;
  if (is_depthwise(shape) || results.n * results.pixels() < least_results) return {};
  const ConvShape computed = computed_as(shape);
  std::vector<int> tiles;
  if (choice.split_bf16) {
    const bool by_windows = has_split_window_conv(computed);
    if (by_windows || has_split_conv(computed) || has_split_window_grad(computed))
      tiles.push_back(by_split_products);
    if (by_windows && !choice.inference && has_few_rows(computed)) tiles.push_back(by_split_blocks);
  }
  if (!has_winograd(computed)) {
    if (has_product_weight_grad(computed)) tiles.push_back(by_products);
    return tiles;
  }
  const std::int64_t channels = shape.x.c * shape.y.c;
  const std::int64_t images = results.n * results.pixels() * (shape.x.c + shape.y.c);
  for (const int tile : {2, 4}) {
    const std::int64_t points = (tile + 2) * (tile + 2);
    const std::int64_t products = ceil_div(results.h, tile) * ceil_div(results.w, tile) * points;
    // Where weights are mapped, tiles of 4 take four times their memory, so at most four times that
    // of the images.
    const bool suits =
        tile == 2 || shape.kind == Kind::weight_grad ||
        ((choice.inference || shape.kind == Kind::input_grad) && points * channels <= 4 * images);
    if (suits && 5 * products < 4 * 9 * results.pixels()) tiles.push_back(tile);
  }
  return tiles;
}

KernelPtr conv_kernel(CpuPrepare& prepare, const ConvShape& shape, ConvOperandsOf operands_of,
                      KernelPtr unpacked) {
  std::vector<int> tiles;
  if (prepare.choice.products == Products::tuned) tiles = conv_tiles(shape, prepare.choice);
  const int tile = tiles.empty() || !prepare.choice.tuner
                       ? 0
                       : fastest_tile(shape, tiles, prepare.pool, prepare.choice);
  ConvPtr conv = make_conv(shape, tile);
  if (unpacked && conv->is_slow()) return unpacked;
  // As much as any that may be chosen wants: memory is planned before timing.
  std::size_t packed_bytes = conv->packed_bytes(), workspace = conv->workspace();
  if (!tiles.empty()) tiles.push_back(0);
  for (const int candidate : tiles) {
    if (candidate == tile) continue;
    const ConvPtr other = make_conv(shape, candidate);
    packed_bytes = std::max(packed_bytes, other->packed_bytes());
    workspace = std::max(workspace, other->workspace());
  }
  if (!unpacked) prepare.workspace = padded(packed_bytes) + workspace;
  return std::make_unique<ConvKernel>(prepare.pool, shape, std::move(conv), packed_bytes, workspace,
                                      operands_of, std::move(unpacked));
}

KernelPtr Conv2d::cpu(CpuPrepare& prepare) const {
  ConvShape shape = shape_of(Kind::forward, *this, prepare.in[0], prepare.in[1], prepare.out[0]);
  shape.bias = bias;
  shape.residual = residual;
  shape.epilogue = epilogue;
  return conv_kernel(prepare, shape, [](const Launch& call, const ConvShape& s) {
    const Operands at = Conv2d{{}, s.bias, s.residual}.operands();
    return ConvOperands{input(call, at.x), input(call, at.weight), call.outputs[0],
                        s.bias ? call.inputs[at.bias] : nullptr,
                        s.residual ? call.inputs[at.residual] : nullptr};
  });
}

KernelPtr Conv2dInputGrad::cpu(CpuPrepare& prepare) const {
  const ConvShape shape =
      shape_of(Kind::input_grad, *this, prepare.out[0], prepare.in[1], prepare.in[0]);
  return conv_kernel(prepare, shape, [](const Launch& call, const ConvShape&) {
    return ConvOperands{call.outputs[0], input(call, 1), input(call, 0)};
  });
}

KernelPtr Conv2dWeightGrad::cpu(CpuPrepare& prepare) const {
  const ConvShape shape =
      shape_of(Kind::weight_grad, *this, prepare.in[1], prepare.out[0], prepare.in[0]);
  return conv_kernel(prepare, shape, [](const Launch& call, const ConvShape&) {
    return ConvOperands{input(call, 1), call.outputs[0], input(call, 0)};
  });
}

}  // namespace ridge
