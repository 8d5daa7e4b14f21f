#include "ridge/gpu/sm90/conv/int8_conv.h"

#include <fmt/format.h>

namespace ridge::gpu {
namespace {

constexpr std::int64_t vector = 16;  // elements of s8 in 16 bytes

// Whether the copy engine can take the image: windows must begin and end not far from it.
bool fits(const Context& gpu, const Int8Problem& p) {
  constexpr std::int64_t farthest = 127;
  const Int8Conv2d& op = p.op;
  if (!gpu.card.is_sm90() || op.groups != 1 || p.x.c % vector != 0 || p.y.c % vector != 0 ||
      (op.out != DType::s8 && op.out != DType::f16))
    return false;
  const Pair kernel{p.weight.h, p.weight.w};
  for (std::size_t d = 0; d < 2; ++d)
    if (op.padding[d] > farthest || (kernel[d] - 1) * op.dilation[d] > farthest || op.stride[d] > 8)
      return false;
  return p.y.n * p.y.pixels() < (std::int64_t{1} << 31) - 128;
}

// The convolution as a product of [rows, 128 steps] and [128 steps, columns].
struct Extents {
  std::int64_t rows, columns, steps;

  explicit Extents(const Int8Problem& p)
      : rows(p.y.n * p.y.pixels()),
        columns(p.y.c),
        steps((p.x.c + 127) / 128 * p.weight.pixels()) {}
  std::int64_t tiles(std::int64_t tile_rows, std::int64_t tile_columns) const {
    return (rows + tile_rows - 1) / tile_rows * ((columns + tile_columns - 1) / tile_columns);
  }
};

// What is good without trying: large tiles, if there are enough of them to go round; else narrow
// ones; and where their sums are long, parts of sums.
Int8Tiles expected_tiles(const Extents& e, int depth, int multiprocessors) {
  for (const int columns : {64, 128})
    if ((e.columns <= columns || columns == 128) && e.tiles(128, columns) >= multiprocessors)
      return {.columns = columns, .depth = depth};
  if (e.tiles(128, 64) >= multiprocessors) return {.columns = 64, .depth = depth};
  int split = 8;
  while (split > 1 &&
         (e.tiles(64, 64) * split > std::int64_t{2} * multiprocessors || split * 2 > e.steps))
    split /= 2;
  return {.rows = 64, .columns = 64, .depth = 128, .split = split};
}

// Bytes of the inner dimension at a time. Where pixels are half as long, deep tiles would be half
// zeros.
int depth_of(const Int8Problem& problem) { return problem.x.c <= 64 ? 64 : 128; }

}  // namespace

std::string to_string(const Int8Tiles& t) {
  return fmt::format("tiles of {} x {}, {} deep{}", t.rows, t.columns, t.depth,
                     t.split == 1 ? "" : fmt::format(" in {} parts", t.split));
}

bool int8_conv_sm90_supports(const Context& gpu, const Int8Problem& problem,
                             const Int8Tiles& tiles) {
  if (!fits(gpu, problem)) return false;
  const Extents extents(problem);
  if (tiles.rows == 64)
    return tiles.split <= extents.steps &&
           extents.tiles(64, 64) * tiles.split <= std::int64_t{4} * gpu.card.multiprocessors;
  return (tiles.columns < 2 * problem.y.c || tiles.columns == 64) &&
         tiles.depth == (tiles.columns == 256 ? 128 : depth_of(problem));
}

Int8Tiles int8_conv_sm90_expected_best(const Context& gpu, const Int8Problem& problem) {
  return expected_tiles(Extents(problem), depth_of(problem), gpu.card.multiprocessors);
}

void int8_conv_sm90(const Context& gpu, const Int8Problem& problem, const Int8Tiles& tiles,
                    const Int8Pointers& operands) {
  sm90::int8_conv(problem, tiles, operands, gpu.card.multiprocessors, gpu.stream);
}

}  // namespace ridge::gpu
