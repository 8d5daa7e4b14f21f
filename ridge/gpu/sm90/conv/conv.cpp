#include "ridge/gpu/sm90/conv/conv.h"

#include <fmt/format.h>

#include "ridge/gpu/kernels/conv/conv_direct.h"
#include "ridge/gpu/sm90/conv/conv_depthwise.h"
#include "ridge/gpu/sm90/conv/tiles.h"

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

bool fits(const Context& gpu, const ConvProblem& p) {
  return gpu.card.is_sm90() && p.kind == ConvProblem::Kind::forward && size_of(p.dtype) == 2 &&
         p.geometry.layout == ImageLayout::nhwc && p.y.c % vector == 0 &&
         sm90::windows_fit(p.geometry, p.y, p.weight);
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
    return tiles.columns == sm90::narrow_columns(problem.y.c) && sm90::takes_few_channels(problem);
  if (tiles.patches) return sm90::takes_patches(problem);
  const sm90::Extents extents(problem);
  // Small tiles, where there would be too few large ones to go round.
  if (tiles.rows == 64)
    return sm90::small_tiles_fit(extents, tiles.columns, tiles.split,
                                 gpu.card.crossovers().most_small_tiles, gpu.card);
  return (tiles.columns < 2 * problem.y.c || tiles.columns == 32) &&
         (!tiles.paired || extents.rows > tiles.rows);
}

std::optional<ConvTiles> conv_sm90_expected_best(const Context& gpu, const ConvProblem& problem) {
  const ConvTiles best =
      is_vectored(problem)
          ? sm90::expected_tiles(problem, gpu.card)
          : ConvTiles{.columns = sm90::narrow_columns(problem.y.c), .few_channels = true};
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
