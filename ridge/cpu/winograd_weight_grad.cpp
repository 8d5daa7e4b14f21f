// Where the results of a convolution are to_results(of_weight(w) * of_image(x)), point by point,
// the gradient by its weights is the transpose of that: to_weight(of_gradient(dy) * of_image(x)),
// with the products at a point summed over all tiles before they are mapped. At each point the sums
// of a block of output and of input channels are a product of matrices as deep as there are tiles.
//
// The sums of all points of a task stay in the second-level cache, and so do the mapped tiles, a
// few at a time.

#include "ridge/cpu/winograd_weight_grad.h"

#include <algorithm>

#include "ridge/cpu/micro_gemm.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/weight_grad_tasks.h"
#include "ridge/cpu/winograd_maps.h"

namespace ridge {
namespace {

using namespace winograd;

constexpr std::int64_t tiles_at_a_time = 16;
// A part of fewer tiles would be mapped to weights, and added, more often than is worth it.
constexpr std::int64_t least_tiles_of_part = 128;

template <int Tile>
class WinogradWeightGrad final : public Conv {
 public:
  explicit WinogradWeightGrad(const ConvShape& shape)
      : shape_(shape),
        tiles_(shape.y, Tile),
        weight_at_(shape.weight, shape.weight_layout),
        tasks_(shape, block_channels, tiles_.count / least_tiles_of_part) {}

  std::size_t workspace() const override { return tasks_.workspace(); }
  void run(ThreadPool& pool, const ConvOperands& operands, void* workspace) const override;

 private:
  static constexpr std::size_t edge = Tile + 2;
  static constexpr std::int64_t points = edge * edge;
  static constexpr std::int64_t block_channels = Tile == 2 ? 64 : 32;
  // How far apart the sums at two points are, and the mapped values of two points.
  static constexpr std::int64_t sums_step = block_channels * block_channels + gap;
  static constexpr std::int64_t mapped_step = tiles_at_a_time * block_channels + gap;

  void sum_products(const ConvOperands& o, ChannelRange out, ChannelRange in, std::int64_t part,
                    float* sums) const;
  void write_weights(const float* sums, ChannelRange out, ChannelRange in, float* weights) const;

  ConvShape shape_;
  Tiling tiles_;
  ImageStrides weight_at_;
  WeightGradTasks tasks_;
};

// Overwrites the sums, [point][output channel][input channel], with those over a part of the tiles.
template <int Tile>
void WinogradWeightGrad<Tile>::sum_products(const ConvOperands& o, ChannelRange out,
                                            ChannelRange in, std::int64_t part, float* sums) const {
  const auto* const x = static_cast<const float*>(o.x);
  const auto* const y = static_cast<const float*>(o.y);
  const Pair padding = shape_.geometry.padding;
  float* const images = sums + points * sums_step;
  float* const gradients = images + points * mapped_step;
  const std::int64_t begin = tiles_.count * part / tasks_.parts();
  const std::int64_t end = tiles_.count * (part + 1) / tasks_.parts();
  for (std::int64_t first = begin; first < end; first += tiles_at_a_time) {
    const std::int64_t count = std::min(tiles_at_a_time, end - first);
    for (std::int64_t t = 0; t < count; ++t) {
      Place place = tiles_.place_of(first + t);
      map_pixels<edge, Tile>(
          y, shape_.y, place, out.first, out.count,
          [](const auto& r) { return Maps<Tile>::of_gradient(r); }, gradients + t * out.count,
          mapped_step);
      place.row -= padding[0];
      place.column -= padding[1];
      map_pixels<edge, edge>(
          x, shape_.x, place, in.first, in.count,
          [](const auto& d) { return Maps<Tile>::of_image(d); }, images + t * in.count,
          mapped_step);
    }
    for (std::int64_t p = 0; p < points; ++p)
      small_product({gradients + p * mapped_step, 1, out.count},
                    {images + p * mapped_step, in.count}, {sums + p * sums_step, in.count},
                    {out.count, in.count, count}, first > begin);
  }
}

template <int Tile>
void WinogradWeightGrad<Tile>::write_weights(const float* sums, ChannelRange out, ChannelRange in,
                                             float* weights) const {
  for (std::int64_t o = 0; o < out.count; ++o)
    for (std::int64_t i = 0; i < in.count; i += vector_floats) {
      std::array<std::array<Vector, edge>, edge> square;
#pragma GCC unroll 8
      for (std::size_t r = 0; r < edge; ++r)
#pragma GCC unroll 8
        for (std::size_t q = 0; q < edge; ++q)
          square[r][q] = load_floats(sums + static_cast<std::int64_t>(r * edge + q) * sums_step +
                                     o * in.count + i);
      const auto taps =
          map_square<3>(square, [](const auto& w) { return Maps<Tile>::to_weight(w); });
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t q = 0; q < 3; ++q)
          for (std::int64_t v = 0; v < vector_floats; ++v)
            weights[weight_at_.at(out.first + o, in.first + i + v, static_cast<std::int64_t>(r),
                                  static_cast<std::int64_t>(q))] = taps[r][q][static_cast<int>(v)];
    }
}

template <int Tile>
void WinogradWeightGrad<Tile>::run(ThreadPool& pool, const ConvOperands& o, void* workspace) const {
  tasks_.run(pool, static_cast<float*>(o.weight), workspace,
             [&](ChannelRange out, ChannelRange in, std::int64_t part, float* weights) {
               constexpr std::int64_t floats = points * (sums_step + 2 * mapped_step);
               auto* const sums = static_cast<float*>(
                   scratch_memory(static_cast<std::size_t>(floats) * sizeof(float)));
               sum_products(o, out, in, part, sums);
               write_weights(sums, out, in, weights);
             });
}

}  // namespace

ConvPtr make_winograd_weight_grad(const ConvShape& shape, int tile) {
  if (tile == 2) return std::make_unique<WinogradWeightGrad<2>>(shape);
  return std::make_unique<WinogradWeightGrad<4>>(shape);
}

}  // namespace ridge
