// The tiles that convolutions are expected to be the fastest in: over a grid of shapes the same as
// when 16 and 8 bits had a ladder of conditions each.

#include "ridge/gpu/sm90/conv/tiles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ridge::gpu {
namespace {

// Images of so many pixels, to so many channels by windows of so many pixels.
struct Sizes {
  std::int64_t images, pixels, from, to, window;
};

std::int64_t tiles_of(const Sizes& s, std::int64_t rows, std::int64_t columns) {
  return (s.images * s.pixels + rows - 1) / rows * ((s.to + columns - 1) / columns);
}

// The ladders.
ConvTiles before(const Sizes& s, int multiprocessors) {
  const std::int64_t steps = (s.from + 63) / 64 * s.window;
  if (steps == 1 && s.from <= 32 && s.images * s.pixels >= 150000 && s.to > 64)
    return {.columns = 128, .paired = true};
  for (const int columns : {32, 64, 96, 128})
    if ((s.to <= columns || columns == 128) && tiles_of(s, 128, columns) >= multiprocessors)
      return {.columns = columns};
  if (steps <= 8) return {.columns = 32};
  const int columns = s.to <= 32 ? 32 : 64;
  int split = 8;
  while (split > 1 && tiles_of(s, 64, columns) * split > std::int64_t{2} * multiprocessors)
    split /= 2;
  return {.rows = 64, .columns = columns, .split = split};
}
Int8Tiles int8_before(const Sizes& s, int multiprocessors) {
  const std::int64_t steps = (s.from + 127) / 128 * s.window;
  const int depth = s.from <= 64 ? 64 : 128;
  for (const int columns : {64, 128})
    if ((s.to <= columns || columns == 128) && tiles_of(s, 128, columns) >= multiprocessors)
      return {.columns = columns, .depth = depth};
  if (tiles_of(s, 128, 64) >= multiprocessors) return {.columns = 64, .depth = depth};
  int split = 8;
  while (split > 1 &&
         (tiles_of(s, 64, 64) * split > std::int64_t{2} * multiprocessors || split * 2 > steps))
    split /= 2;
  return {.rows = 64, .columns = 64, .depth = 128, .split = split};
}

TEST(ConvTilesChoices, AreWhatTheLaddersChose) {
  for (const int multiprocessors : {16, 78, 114, 132, 160}) {
    const Card card{.compute_capability = 90, .multiprocessors = multiprocessors};
    for (const std::int64_t images : {1, 2, 8, 32, 64, 256})
      for (const std::int64_t side : {1, 7, 14, 28, 56, 112, 224})
        for (std::int64_t from = 8; from <= 2048; from += from < 256 ? 8 : 128)
          for (std::int64_t to = 8; to <= 2048; to += to < 256 ? 8 : 128)
            for (const std::int64_t window : {1, 3, 5, 7}) {
              const Sizes s{images, side * side, from, to, window * window};
              const ImageShape x(images, from, side, side), y(images, to, side, side),
                  weight(to, from, window, window);
              const ConvTiles now =
                  sm90::expected_tiles(ConvProblem{.x = x, .y = y, .weight = weight}, card);
              const Int8Tiles int8_now =
                  sm90::expected_tiles(Int8Problem{.x = x, .y = y, .weight = weight}, card);
              if (now != before(s, multiprocessors) || int8_now != int8_before(s, multiprocessors))
                ADD_FAILURE() << fmt::format("{} of {} x {} from {} to {} by {}", images, side,
                                             side, from, to, window);
            }
  }
}

// Small tiles were tried up to 3 thread blocks a multiprocessor in 16 bits, 4 in 8 bits.
TEST(ConvTilesChoices, SmallTilesAreTriedWhereTheyWere) {
  const Card card{.compute_capability = 90, .multiprocessors = 132};
  EXPECT_EQ(card.crossovers().most_small_tiles, 3);
  EXPECT_EQ(card.crossovers().most_small_int8_tiles, 4);
  const ImageShape x(1, 512, 7, 7), y(1, 512, 7, 7), weight(512, 512, 3, 3);  // 8 tiles, 72 steps
  const sm90::Extents extents(ConvProblem{.x = x, .y = y, .weight = weight});
  EXPECT_EQ(extents.steps, 72);
  EXPECT_EQ(extents.tiles(64, 64), 8);
  EXPECT_TRUE(sm90::small_tiles_fit(extents, 64, 8, 3, card));
  EXPECT_FALSE(sm90::small_tiles_fit(extents, 64, 73, 1000, card));  // a part without a step
  EXPECT_TRUE(sm90::small_tiles_fit(extents, 64, 49, 3, card));      // 392 of 396 thread blocks
  EXPECT_FALSE(sm90::small_tiles_fit(extents, 64, 50, 3, card));     // 400
}

TEST(ConvTilesChoices, WindowsFitThatLieNearTheImage) {
  const ImageShape y(1, 64, 56, 56), three(64, 64, 3, 3);
  EXPECT_TRUE(sm90::windows_fit({.stride = {8, 8}, .padding = {127, 127}}, y, three));
  EXPECT_FALSE(sm90::windows_fit({.padding = {1, 128}}, y, three));
  EXPECT_FALSE(sm90::windows_fit({.stride = {9, 1}}, y, three));
  EXPECT_FALSE(sm90::windows_fit({.dilation = {1, 64}}, y, three));
  EXPECT_TRUE(sm90::windows_fit({.dilation = {63, 63}}, y, three));
  EXPECT_FALSE(sm90::windows_fit({.groups = 2}, y, three));
  EXPECT_FALSE(sm90::windows_fit({}, {1 << 16, 64, 182, 182}, three));  // more than 2^31 pixels
}

}  // namespace
}  // namespace ridge::gpu
