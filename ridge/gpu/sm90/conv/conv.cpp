#include "ridge/gpu/sm90/conv/conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/gpu/kernels/conv/conv_direct.h"
#include "ridge/gpu/sm90/conv/conv_depthwise.h"

namespace ridge::gpu {
namespace {

constexpr std::int64_t vector = 8;  // elements in 16 bytes

class Sm90Conv final : public FusedConv {
 public:
  Sm90Conv(const Context& gpu, const ConvProblem& problem, const ConvTiles& tiles)
      : gpu_(gpu), problem_(problem), tiles_(tiles) {}
  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const ConvPointers& operands, void*) const override {
    if (tiles_.patches)
      sm90::conv_of_patches(problem_, operands, gpu_.card.multiprocessors, stream);
    else if (tiles_.few_channels)
      sm90::conv_of_few_channels(problem_, tiles_, operands, gpu_.card.multiprocessors, stream);
    else
      sm90::conv(problem_, tiles_, operands, gpu_.card.multiprocessors, stream);
  }

 private:
  const Context& gpu_;
  const ConvProblem problem_;
  const ConvTiles tiles_;
};

class Sm90DepthwiseConv final : public FusedConv {
 public:
  Sm90DepthwiseConv(const Context& gpu, const ConvProblem& problem)
      : gpu_(gpu),
        problem_(problem),
        tiles_(sm90::depthwise_tiles(problem, gpu.card.multiprocessors)) {}
  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const ConvPointers& operands, void*) const override {
    sm90::depthwise_conv(problem_, tiles_, operands, gpu_.card.multiprocessors, stream);
  }

 private:
  const Context& gpu_;
  const ConvProblem problem_;
  const sm90::DepthwiseTiles tiles_;
};

// Whether the copy engine can take the geometry, if it can take the pixels: windows must begin and
// end not far from the image.
bool fits(const Context& gpu, const ConvProblem& p) {
  constexpr std::int64_t farthest = 127;
  const ConvGeometry& g = p.geometry;
  if (!gpu.card.is_sm90() || p.kind != ConvProblem::Kind::forward || size_of(p.dtype) != 2 ||
      g.layout != ImageLayout::nhwc || g.groups != 1 || p.y.c % vector != 0)
    return false;
  const Pair kernel{p.weight.h, p.weight.w};
  for (std::size_t d = 0; d < 2; ++d)
    if (g.padding[d] > farthest || (kernel[d] - 1) * g.dilation[d] > farthest || g.stride[d] > 8)
      return false;
  return p.y.n * p.y.pixels() < (std::int64_t{1} << 31) - 128;
}

// The fewest columns that leave little of a tile empty.
int narrow_columns(std::int64_t channels) { return channels <= 32 ? 32 : 64; }

// A convolution as a product of [rows, 64 steps] and [64 steps, columns].
struct Extents {
  std::int64_t rows, columns, steps, channels;  // channels: of the image

  explicit Extents(const ConvProblem& p)
      : rows(p.y.n * p.y.pixels()),
        columns(p.y.c),
        steps((p.x.c + 63) / 64 * p.weight.pixels()),
        channels(p.x.c) {}
  std::int64_t tiles(std::int64_t tile_rows, std::int64_t tile_columns) const {
    return (rows + tile_rows - 1) / tile_rows * ((columns + tile_columns - 1) / tile_columns);
  }
};

// What is good without trying: large tiles, if there are enough of them to go round, in pairs where
// little is multiplied for many results; else narrow ones; and where their sums are long, parts of
// sums.
ConvTiles expected_tiles(const Extents& e, const Card& card) {
  const Crossovers& at = card.crossovers();
  if (e.steps == 1 && e.channels <= at.paired_channels && e.rows >= at.paired_pixels &&
      e.columns > 64)
    return {.columns = 128, .paired = true};
  for (const int columns : {32, 64, 96, 128})
    if ((e.columns <= columns || columns == 128) && e.tiles(128, columns) >= card.multiprocessors)
      return {.columns = columns};
  if (e.steps <= at.split_steps) return {.columns = 32};
  const int columns = narrow_columns(e.columns);
  int split = 8;
  while (split > 1 && e.tiles(64, columns) * split > std::int64_t{2} * card.multiprocessors)
    split /= 2;
  return {.rows = 64, .columns = columns, .split = split};
}

// Whether the copy engine takes the image's pixels.
bool is_vectored(const ConvProblem& problem) { return problem.x.c % vector == 0; }

}  // namespace

std::string to_string(const ConvTiles& t) {
  if (t.patches) return "patches of the image";
  return fmt::format("tiles of {} x {}{}{}{}", t.rows, t.columns, t.paired ? " in pairs" : "",
                     t.split == 1 ? "" : fmt::format(" in {} parts", t.split),
                     t.few_channels ? " of few channels" : "");
}

bool conv_sm90_supports(const Context& gpu, const ConvProblem& problem, const ConvTiles& tiles) {
  if (!fits(gpu, problem) || tiles.few_channels == is_vectored(problem)) return false;
  if (tiles.few_channels)
    return tiles.columns == narrow_columns(problem.y.c) && sm90::takes_few_channels(problem);
  if (tiles.patches) return sm90::takes_patches(problem);
  const Extents extents(problem);
  // Small tiles, where there would be too few large ones to go round.
  if (tiles.rows == 64)
    return tiles.split <= extents.steps && extents.tiles(64, tiles.columns) * tiles.split <=
                                               std::int64_t{3} * gpu.card.multiprocessors;
  return (tiles.columns < 2 * problem.y.c || tiles.columns == 32) &&
         (!tiles.paired || extents.rows > tiles.rows);
}

std::optional<ConvTiles> conv_sm90_expected_best(const Context& gpu, const ConvProblem& problem) {
  const ConvTiles best = is_vectored(problem) ? expected_tiles(Extents(problem), gpu.card)
                                              : ConvTiles{.columns = narrow_columns(problem.y.c),
                                                          .few_channels = true};
  for (const ConvTiles& tiles : {best, ConvTiles{.columns = 128}})
    if (conv_sm90_supports(gpu, problem, tiles)) return tiles;
  return std::nullopt;
}

bool conv_sm90_prefers_patches(const Context& gpu, const ConvProblem& problem) {
  return conv_sm90_supports(gpu, problem, {.patches = true}) &&
         sm90::patches_of(problem) >= gpu.card.multiprocessors;
}

std::unique_ptr<FusedConv> conv_sm90(const Context& gpu, const ConvProblem& problem,
                                     const ConvTiles& tiles) {
  return std::make_unique<Sm90Conv>(gpu, problem, tiles);
}

bool depthwise_sm90_supports(const Context& gpu, const ConvProblem& p) {
  const bool single = p.geometry.stride == Pair{1, 1};
  return gpu.card.is_sm90() && is_16_bit(p.dtype) && is_depthwise(p) && p.x.c % vector == 0 &&
         (single || p.weight.h < 7) &&
         (p.kind == ConvProblem::Kind::forward ||
          (p.kind == ConvProblem::Kind::input_grad && single));
}

std::unique_ptr<FusedConv> depthwise_sm90(const Context& gpu, const ConvProblem& problem) {
  return std::make_unique<Sm90DepthwiseConv>(gpu, problem);
}

}  // namespace ridge::gpu
