#include "ridge/cpu/int8_conv.h"

#include <algorithm>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/onednn_conv_call.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// What n sums become: y = function(factor sum + bias + residual), scaled.
template <class T, class F>
void finish_int8_run(const std::int32_t* sums, const float* factor, const float* bias,
                     const T* residual, const Int8Scales& scales, std::int64_t n, T* y,
                     const F& function) {
  const float residual_scale = scales.residual;
  const float inverse = std::is_same_v<T, Int8> ? 1.0f / scales.y : 1.0f;
  if (residual)
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const float sum = static_cast<float>(sums[i]) * factor[i] + bias[i];
      store(&y[i], function(sum + residual_scale * load(&residual[i])) * inverse);
    }
  else
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      store(&y[i], function(static_cast<float>(sums[i]) * factor[i] + bias[i]) * inverse);
}

// The part of y from its sums, which lie by themselves; bias and residual are all of them. Where
// whole pixels lie side by side several make a run, with their factors and biases repeated: few
// channels alone would not fill vectors.
template <class T>
void finish_part(const ConvShape& s, const ConvPart& part, const std::int32_t* sums,
                 const ConvOperands& o) {
  constexpr std::int64_t long_run = 512;
  const ImageStrides ys(s.y, s.geometry.layout);
  const std::int64_t pixels = part.images * part.rows * s.y.w, channels = part.channels;
  const std::int64_t first = ys.at(part.image, part.channel, part.row, 0);
  const bool whole = channels == s.y.c;
  const std::int64_t repeats = whole ? std::clamp<std::int64_t>(long_run / channels, 1, pixels) : 1;
  thread_local std::vector<float> factors, biases;
  factors.resize(static_cast<std::size_t>(repeats * channels));
  biases.resize(factors.size());
  const auto* bias = static_cast<const float*>(o.bias) + part.channel;
  for (std::int64_t i = 0; i < channels; ++i)
    factors[static_cast<std::size_t>(i)] = s.int8->x * o.weight_scale[part.channel + i];
  std::copy_n(bias, channels, biases.begin());
  for (std::vector<float>* terms : {&factors, &biases})
    for (std::int64_t r = 1; r < repeats; ++r)
      std::copy_n(terms->begin(), channels, terms->begin() + r * channels);
  const auto* residual = static_cast<const T*>(o.residual);
  with_epilogue(s.epilogue, [&](const auto& function) {
    for (std::int64_t p = 0; p < pixels; p += repeats) {
      const std::int64_t at = first + p * s.y.c;
      finish_int8_run(
          sums + p * channels, factors.data(), biases.data(), residual ? residual + at : nullptr,
          *s.int8, std::min(repeats, pixels - p) * channels, static_cast<T*>(o.y) + at, function);
    }
  });
}

std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Some input channels of every group, and the convolution of f32 that sums over them.
struct Chunk {
  std::int64_t first = 0, channels = 0;  // within each group
  ConvPtr conv;
  std::size_t packed_offset = 0;  // of its weights, in bytes

  bool packs() const { return conv->packed_bytes() > 0; }
};

class Int8ConvByF32 final : public Conv {
 public:
  explicit Int8ConvByF32(const ConvShape& shape) : shape_(shape) {
    // A product of two bytes is at most 2^14.
    constexpr std::int64_t most_products = (1 << 24) / (1 << 14), multiple = 16;
    const std::int64_t pixels = shape.weight.pixels();
    if (pixels > most_products)
      throw DeviceError("no exact convolution of s8 with kernels of {} x {} on this CPU",
                        shape.weight.h, shape.weight.w);
    std::int64_t step = most_products / pixels;
    if (step > multiple) step = step / multiple * multiple;
    for (std::int64_t c = 0; c < shape.weight.c; c += step)
      add(c, std::min(step, shape.weight.c - c));
    if (std::ranges::any_of(chunks_, &Chunk::packs))
      for (const Chunk& chunk : chunks_)
        plain_bytes_ = std::max(plain_bytes_, weight_bytes(chunk.channels));
  }

  // The chunks' weights, and room for those of one that the library has yet to pack.
  std::size_t packed_bytes() const override { return packed_bytes_ + plain_bytes_; }

  void pack(ThreadPool& pool, const void* weight, void* packed) const override {
    for (const Chunk& chunk : chunks_) {
      char* const own = static_cast<char*>(packed) + chunk.packed_offset;
      char* const plain = chunk.packs() ? static_cast<char*>(packed) + packed_bytes_ : own;
      take_channels(pool, static_cast<const Int8*>(weight),
                    shape_.weight.n * shape_.weight.pixels(), 1, shape_.weight.c, chunk,
                    reinterpret_cast<float*>(plain));
      if (chunk.packs()) chunk.conv->pack(pool, plain, own);
    }
  }

  std::size_t workspace() const override {
    return workspace_of_chunks() + image_bytes(chunks_.front().channels) +
           (chunks_.size() > 1 ? 2 : 1) * y_bytes();
  }

  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override {
    char* memory = static_cast<char*>(workspace) + workspace_of_chunks();
    auto* const x = reinterpret_cast<float*>(memory);
    auto* const y = reinterpret_cast<float*>(memory += image_bytes(chunks_.front().channels));
    // Of one chunk the sums become integers where they are.
    auto* const sums =
        reinterpret_cast<std::int32_t*>(chunks_.size() > 1 ? memory + y_bytes() : memory);
    for (const Chunk& chunk : chunks_) {
      take_channels(pool, static_cast<const Int8*>(o.x), shape_.x.n * shape_.x.pixels(),
                    shape_.geometry.groups, shape_.weight.c, chunk, x);
      chunk.conv->run(pool, {x, static_cast<char*>(o.weight) + chunk.packed_offset, y}, workspace);
      add_sums(pool, y, &chunk == &chunks_.front(), sums);
    }
    const std::int64_t row = shape_.y.w * shape_.y.c;
    pool.run(shape_.y.n * shape_.y.h, [&](std::int64_t i) {
      const ConvPart part{.image = i / shape_.y.h, .row = i % shape_.y.h, .channels = shape_.y.c};
      finish_int8(shape_, part, sums + i * row, o);
    });
  }

 private:
  void add(std::int64_t first, std::int64_t channels) {
    ConvShape s = shape_;
    s.dtype = DType::f32;
    s.int8.reset();
    s.bias = s.residual = false;
    s.epilogue = Epilogue::none;
    s.weight.c = channels;
    s.x.c = channels * shape_.geometry.groups;
    chunks_.push_back({first, channels, make_onednn_conv(s), packed_bytes_});
    const Chunk& chunk = chunks_.back();
    packed_bytes_ += padded(chunk.packs() ? chunk.conv->packed_bytes() : weight_bytes(channels));
  }

  std::size_t weight_bytes(std::int64_t channels) const {
    return padded(static_cast<std::size_t>(shape_.weight.n * shape_.weight.pixels() * channels) *
                  sizeof(float));
  }
  std::size_t image_bytes(std::int64_t channels) const {
    return padded(static_cast<std::size_t>(shape_.x.n * shape_.x.pixels() * shape_.geometry.groups *
                                           channels) *
                  sizeof(float));
  }
  std::size_t y_bytes() const {
    return padded(static_cast<std::size_t>(shape_.y.n * shape_.y.pixels() * shape_.y.c) *
                  sizeof(float));
  }
  std::size_t workspace_of_chunks() const {
    std::size_t inner = 0;
    for (const Chunk& chunk : chunks_) inner = std::max(inner, chunk.conv->workspace());
    return padded(inner);
  }

  // to[p, g, c] = from[p, g, chunk.first + c], of `pixels` pixels with so many channels a group.
  static void take_channels(ThreadPool& pool, const Int8* from, std::int64_t pixels,
                            std::int64_t groups, std::int64_t channels, const Chunk& chunk,
                            float* to) {
    const std::int64_t runs = pixels * groups, n = chunk.channels;
    parallel_for(pool, runs, rows_per_task(n),
                 [=, first = chunk.first](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t run = begin; run < end; ++run) {
                     const Int8* const row = from + run * channels + first;
#pragma omp simd
                     for (std::int64_t c = 0; c < n; ++c) to[run * n + c] = load(&row[c]);
                   }
                 });
  }

  void add_sums(ThreadPool& pool, const float* y, bool is_first, std::int32_t* sums) const {
    const std::int64_t n = shape_.y.n * shape_.y.pixels() * shape_.y.c;
    parallel_for(pool, n, 16384, [=](std::int64_t begin, std::int64_t end) {
      if (is_first)
        for (std::int64_t i = begin; i < end; ++i) sums[i] = static_cast<std::int32_t>(y[i]);
      else
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) sums[i] += static_cast<std::int32_t>(y[i]);
    });
  }

  ConvShape shape_;
  std::vector<Chunk> chunks_;
  std::size_t packed_bytes_ = 0, plain_bytes_ = 0;
};

}  // namespace

void finish_int8(const ConvShape& shape, const ConvPart& part, const std::int32_t* sums,
                 const ConvOperands& operands) {
  dispatch_rounded(shape.int8->out,
                   [&]<class T>() { finish_part<T>(shape, part, sums, operands); });
}

bool onednn_sums_int8_exactly() {
  using dnnl::cpu_isa;
  const cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa != cpu_isa::sse41 && isa != cpu_isa::avx && isa != cpu_isa::avx2 &&
         isa != cpu_isa::avx512_core;
}

ConvPtr make_int8_conv_by_f32(const ConvShape& shape) {
  return std::make_unique<Int8ConvByF32>(shape);
}

}  // namespace ridge
