#include "ridge/gpu/sm90/conv/conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/gpu/kernels/conv/conv_direct.h"
#include "ridge/gpu/sm90/conv/conv_depthwise.h"

namespace ridge::gpu {
namespace {

constexpr std::int64_t vector = 8;  // elements in 16 bytes

class HopperConv final : public FusedConv {
 public:
  HopperConv(const Context& gpu, const ConvProblem& problem, const ConvTiles& tiles)
      : gpu_(gpu), problem_(problem), tiles_(tiles) {}
  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const ConvPointers& operands, void*) const override {
    if (tiles_.patches)
      sm90::conv_of_patches(problem_, operands, gpu_.multiprocessors, stream);
    else if (tiles_.few_channels)
      sm90::conv_of_few_channels(problem_, tiles_, operands, gpu_.multiprocessors, stream);
    else
      sm90::conv(problem_, tiles_, operands, gpu_.multiprocessors, stream);
  }

 private:
  const Context& gpu_;
  const ConvProblem problem_;
  const ConvTiles tiles_;
};

class HopperDepthwiseConv final : public FusedConv {
 public:
  HopperDepthwiseConv(const Context& gpu, const ConvProblem& problem)
      : gpu_(gpu), problem_(problem), tiles_(sm90::depthwise_tiles(problem, gpu.multiprocessors)) {}
  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const ConvPointers& operands, void*) const override {
    sm90::depthwise_conv(problem_, tiles_, operands, gpu_.multiprocessors, stream);
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
  if (gpu.compute_capability != 90 || p.kind != ConvProblem::Kind::forward ||
      size_of(p.dtype) != 2 || g.layout != ImageLayout::nhwc || g.groups != 1 ||
      p.y.c % vector != 0)
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
ConvTiles expected_best(const Extents& e, int multiprocessors) {
  constexpr std::int64_t few_channels = 32, many_rows = 150000;
  if (e.steps == 1 && e.channels <= few_channels && e.rows >= many_rows && e.columns > 64)
    return {.columns = 128, .paired = true};
  for (const int columns : {32, 64, 96, 128})
    if ((e.columns <= columns || columns == 128) && e.tiles(128, columns) >= multiprocessors)
      return {.columns = columns};
  if (e.steps <= 8) return {.columns = 32};
  const int columns = narrow_columns(e.columns);
  int split = 8;
  while (split > 1 && e.tiles(64, columns) * split > std::int64_t{2} * multiprocessors) split /= 2;
  return {.rows = 64, .columns = columns, .split = split};
}

}  // namespace

std::string to_string(const ConvTiles& t) {
  if (t.patches) return "patches of the image";
  return fmt::format("tiles of {} x {}{}{}{}", t.rows, t.columns, t.paired ? " in pairs" : "",
                     t.split == 1 ? "" : fmt::format(" in {} parts", t.split),
                     t.few_channels ? " of few channels" : "");
}

std::vector<ConvTiles> conv90_ways(const Context& gpu, const ConvProblem& problem) {
  std::vector<ConvTiles> ways;
  if (!fits(gpu, problem)) return ways;
  if (problem.x.c % vector != 0) {
    if (sm90::takes_few_channels(problem))
      ways.push_back({.columns = narrow_columns(problem.y.c), .few_channels = true});
    return ways;
  }
  const Extents extents(problem);
  for (const int columns : {128, 96, 64, 256, 32})
    if (columns < 2 * problem.y.c || columns == 32) {
      ways.push_back({.columns = columns});
      if (columns % 64 == 0 && extents.rows > 128)
        ways.push_back({.columns = columns, .paired = true});
    }
  // Where there would be too few to go round.
  for (const int columns : {64, 32})
    for (const int split : {1, 2, 4, 8})
      if (split <= extents.steps &&
          extents.tiles(64, columns) * split <= std::int64_t{3} * gpu.multiprocessors)
        ways.push_back({.rows = 64, .columns = columns, .split = split});
  const auto best = std::ranges::find(ways, expected_best(extents, gpu.multiprocessors));
  if (best != ways.end()) std::rotate(ways.begin(), best, best + 1);
  if (sm90::takes_patches(problem))
    ways.insert(sm90::patches_of(problem) >= gpu.multiprocessors ? ways.begin() : ways.end(),
                {.patches = true});
  return ways;
}

std::unique_ptr<FusedConv> conv90(const Context& gpu, const ConvProblem& problem,
                                  const ConvTiles& tiles) {
  return std::make_unique<HopperConv>(gpu, problem, tiles);
}

bool depthwise90_supports(const Context& gpu, const ConvProblem& p) {
  const bool single = p.geometry.stride == Pair{1, 1};
  return gpu.compute_capability == 90 && is_16_bit(p.dtype) && is_depthwise(p) &&
         p.x.c % vector == 0 && (single || p.weight.h < 7) &&
         (p.kind == ConvProblem::Kind::forward ||
          (p.kind == ConvProblem::Kind::input_grad && single));
}

std::unique_ptr<FusedConv> depthwise90(const Context& gpu, const ConvProblem& problem) {
  return std::make_unique<HopperDepthwiseConv>(gpu, problem);
}

}  // namespace ridge::gpu
