// A task takes some results at a time: it gathers its channels of their gradient, and for each
// pixel of the weights those of the pixels of the image that lie under it, so that they are side by
// side in the cache. Where they lie, rows of channels that are a power of 2 apart would displace
// each other. The sums of all pixels of the weights stay in the second-level cache.

#include "ridge/cpu/product_weight_grad.h"

#include <algorithm>
#include <cstring>

#include "ridge/cpu/micro_gemm.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/weight_grad_tasks.h"

namespace ridge {
namespace {

constexpr std::int64_t most_taps = 25;
constexpr std::int64_t block_channels = 64;
constexpr std::int64_t results_at_a_time = 64;
// A part of fewer results would be added more often than is worth it.
constexpr std::int64_t least_results_of_part = 1024;

class ProductWeightGrad final : public Conv {
 public:
  explicit ProductWeightGrad(const ConvShape& shape)
      : shape_(shape),
        results_(shape.y.n * shape.y.pixels()),
        weight_at_(shape.weight, shape.weight_layout),
        tasks_(shape, block_channels, results_ / least_results_of_part) {}

  std::size_t workspace() const override { return tasks_.workspace(); }
  void run(ThreadPool& pool, const ConvOperands& operands, void* workspace) const override;

 private:
  void gather(const float* images, std::int64_t tap, std::int64_t first, std::int64_t count,
              ChannelRange in, float* pixels) const;
  void run_task(const ConvOperands& o, ChannelRange out, ChannelRange in, std::int64_t part,
                float* weights) const;

  ConvShape shape_;
  std::int64_t results_;
  ImageStrides weight_at_;
  WeightGradTasks tasks_;
};

// Writes the pixels under a pixel of the weights, [result][channel], for some results; 0 where they
// lie outside.
void ProductWeightGrad::gather(const float* images, std::int64_t tap, std::int64_t first,
                               std::int64_t count, ChannelRange in, float* pixels) const {
  const ConvGeometry& g = shape_.geometry;
  const ImageShape &x = shape_.x, &y = shape_.y;
  const std::int64_t down = tap / shape_.weight.w * g.dilation[0] - g.padding[0];
  const std::int64_t across = tap % shape_.weight.w * g.dilation[1] - g.padding[1];
  const std::size_t bytes = static_cast<std::size_t>(in.count) * sizeof(float);
  std::int64_t column = first % y.w, line = first / y.w;
  for (std::int64_t i = 0; i < count; ++i, pixels += in.count) {
    const std::int64_t r = line % y.h * g.stride[0] + down, q = column * g.stride[1] + across;
    if (r < 0 || r >= x.h || q < 0 || q >= x.w)
      std::memset(pixels, 0, bytes);
    else
      std::memcpy(pixels, images + ((line / y.h * x.h + r) * x.w + q) * x.c + in.first, bytes);
    if (++column == y.w) {
      column = 0;
      ++line;
    }
  }
}

void ProductWeightGrad::run_task(const ConvOperands& o, ChannelRange out, ChannelRange in,
                                 std::int64_t part, float* weights) const {
  const std::int64_t taps = shape_.weight.pixels(), sums_of_tap = out.count * in.count;
  const std::int64_t floats = taps * sums_of_tap + results_at_a_time * (out.count + in.count);
  auto* const sums =
      static_cast<float*>(scratch_memory(static_cast<std::size_t>(floats) * sizeof(float)));
  float* const pixels = sums + taps * sums_of_tap;
  float* const gradients = pixels + results_at_a_time * in.count;
  const std::int64_t begin = results_ * part / tasks_.parts();
  const std::int64_t end = results_ * (part + 1) / tasks_.parts();
  for (std::int64_t first = begin; first < end; first += results_at_a_time) {
    const std::int64_t count = std::min(results_at_a_time, end - first);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(gradients + i * out.count,
                  static_cast<const float*>(o.y) + (first + i) * shape_.y.c + out.first,
                  static_cast<std::size_t>(out.count) * sizeof(float));
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      gather(static_cast<const float*>(o.x), tap, first, count, in, pixels);
      small_product({gradients, 1, out.count}, {pixels, in.count},
                    {sums + tap * sums_of_tap, in.count}, {out.count, in.count, count},
                    first > begin);
    }
  }
  for (std::int64_t tap = 0; tap < taps; ++tap)
    for (std::int64_t c = 0; c < out.count; ++c)
      for (std::int64_t i = 0; i < in.count; ++i)
        weights[weight_at_.at(out.first + c, in.first + i, tap / shape_.weight.w,
                              tap % shape_.weight.w)] = sums[tap * sums_of_tap + c * in.count + i];
}

void ProductWeightGrad::run(ThreadPool& pool, const ConvOperands& o, void* workspace) const {
  tasks_.run(pool, static_cast<float*>(o.weight), workspace,
             [&](ChannelRange out, ChannelRange in, std::int64_t part, float* weights) {
               run_task(o, out, in, part, weights);
             });
}

}  // namespace

bool has_product_weight_grad(const ConvShape& s) {
  return s.kind == ConvShape::Kind::weight_grad && s.dtype == DType::f32 &&
         s.geometry.layout == ImageLayout::nhwc && s.geometry.groups == 1 &&
         s.weight.pixels() > 1 && s.weight.pixels() <= most_taps && s.x.c % widest_vector == 0 &&
         s.y.c % widest_vector == 0;
}

ConvPtr make_product_weight_grad(const ConvShape& shape) {
  return std::make_unique<ProductWeightGrad>(shape);
}

}  // namespace ridge
