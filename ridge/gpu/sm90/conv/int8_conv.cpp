#include "ridge/gpu/sm90/conv/int8_conv.h"

#include <fmt/format.h>

#include "ridge/gpu/sm90/conv/tiles.h"

namespace ridge::gpu {
namespace {

constexpr std::int64_t vector = 16;  // elements of s8 in 16 bytes

bool fits(const Context& gpu, const Int8Problem& p) {
  return gpu.card.is_sm90() && p.x.c % vector == 0 && p.y.c % vector == 0 &&
         (p.op.out == DType::s8 || p.op.out == DType::f16) &&
         sm90::windows_fit(p.op, p.y, p.weight);
}

}  // namespace

std::string to_string(const Int8Tiles& t) {
  return fmt::format("tiles of {} x {}, {} deep{}", t.rows, t.columns, t.depth,
                     t.split == 1 ? "" : fmt::format(" in {} parts", t.split));
}

bool int8_conv_sm90_supports(const Context& gpu, const Int8Problem& problem,
                             const Int8Tiles& tiles) {
  if (!fits(gpu, problem)) return false;
  const sm90::Extents extents(problem);
  if (tiles.rows == 64)
    return sm90::small_tiles_fit(extents, 64, tiles.split,
                                 gpu.card.crossovers().most_small_int8_tiles, gpu.card);
  return (tiles.columns < 2 * problem.y.c || tiles.columns == 64) &&
         tiles.depth == (tiles.columns == 256 ? 128 : sm90::depth_of(problem));
}

Int8Tiles int8_conv_sm90_expected_best(const Context& gpu, const Int8Problem& problem) {
  return sm90::expected_tiles(problem, gpu.card);
}

void int8_conv_sm90(const Context& gpu, const Int8Problem& problem, const Int8Tiles& tiles,
                    const Int8Pointers& operands) {
  sm90::int8_conv(problem, tiles, operands, gpu.card.multiprocessors, gpu.stream);
}

}  // namespace ridge::gpu
