#include "ridge/gpu/sm90/conv/tiles.h"

#include <algorithm>
#include <optional>
#include <span>

namespace ridge::gpu::sm90 {
namespace {

// Channels of a step.
constexpr std::int64_t depth = 64, int8_depth = 128;

// The narrowest of the columns offered that hold all there are, or the widest, if there are enough
// such tiles of 128 rows for all multiprocessors.
std::optional<int> columns_that_go_round(const Extents& e, std::span<const int> offered,
                                         const Card& card) {
  for (const int columns : offered)
    if ((e.columns <= columns || columns == offered.back()) &&
        e.tiles(128, columns) >= card.multiprocessors)
      return columns;
  return std::nullopt;
}

// Into how many parts the sums of small tiles are cut, at most so many.
int parts_of_sums(const Extents& e, int columns, std::int64_t most, const Card& card) {
  int split = 8;
  while (split > 1 &&
         (e.tiles(64, columns) * split > card.crossovers().split_blocks * card.multiprocessors ||
          split > most))
    split /= 2;
  return split;
}

}  // namespace

bool windows_fit(const ConvGeometry& g, const ImageShape& y, const ImageShape& weight) {
  constexpr std::int64_t farthest = 127;
  const Pair kernel{weight.h, weight.w};
  for (std::size_t d = 0; d < 2; ++d)
    if (g.padding[d] > farthest || (kernel[d] - 1) * g.dilation[d] > farthest || g.stride[d] > 8)
      return false;
  return g.groups == 1 && y.n * y.pixels() < (std::int64_t{1} << 31) - 128;
}

Extents::Extents(const ImageShape& x, const ImageShape& y, const ImageShape& weight,
                 std::int64_t depth_of_step)
    : rows(y.n * y.pixels()),
      columns(y.c),
      steps((x.c + depth_of_step - 1) / depth_of_step * weight.pixels()) {}
Extents::Extents(const ConvProblem& p) : Extents(p.x, p.y, p.weight, depth) {}
Extents::Extents(const Int8Problem& p) : Extents(p.x, p.y, p.weight, int8_depth) {}

int narrow_columns(std::int64_t channels) { return channels <= 32 ? 32 : 64; }

int depth_of(const Int8Problem& problem) { return problem.x.c <= 64 ? 64 : 128; }

bool small_tiles_fit(const Extents& e, int columns, int split, std::int64_t most,
                     const Card& card) {
  return split <= e.steps && e.tiles(64, columns) * split <= most * card.multiprocessors;
}

ConvTiles expected_tiles(const ConvProblem& problem, const Card& card) {
  constexpr int offered[] = {32, 64, 96, 128};
  const Extents e(problem);
  const Crossovers& at = card.crossovers();
  if (e.steps == 1 && problem.x.c <= at.paired_channels && e.rows >= at.paired_pixels &&
      e.columns > 64)
    return {.columns = 128, .paired = true};
  if (const auto columns = columns_that_go_round(e, offered, card)) return {.columns = *columns};
  if (e.steps <= at.split_steps) return {.columns = 32};
  const int columns = narrow_columns(e.columns);
  return {.rows = 64, .columns = columns, .split = parts_of_sums(e, columns, e.steps, card)};
}

Int8Tiles expected_tiles(const Int8Problem& problem, const Card& card) {
  constexpr int offered[] = {64, 128}, narrow[] = {64};
  const Extents e(problem);
  std::optional<int> columns = columns_that_go_round(e, offered, card);
  if (!columns) columns = columns_that_go_round(e, narrow, card);
  if (columns) return {.columns = *columns, .depth = depth_of(problem)};
  return {
      .rows = 64, .columns = 64, .depth = 128, .split = parts_of_sums(e, 64, e.steps / 2, card)};
}

}  // namespace ridge::gpu::sm90
